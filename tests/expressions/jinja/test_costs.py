"""Everything a template can name has a cost, and one evaluation a budget for all of it."""

from itertools import product
from typing import Any

import pytest

from anabranch.errors import ExpressionError
from anabranch.expressions.jinja.filters import FREE as FREE_FILTERS
from anabranch.expressions.jinja.jinja import Jinja, TemplateLimits
from anabranch.expressions.jinja.program import sandbox_of
from anabranch.expressions.jinja.sandbox import INTERNAL, METHODS
from anabranch.expressions.jinja.tests import FREE as FREE_TESTS

SMALL = TemplateLimits(
    text_max=1_000, items_max=300, range_max=100, turns_max=1_000, work_max=20_000
)


def shared(depth: int) -> Any:
    """A value of a few objects that reads as 2 ** depth of them."""
    value: Any = 0
    for _ in range(depth):
        value = [value, value]
    return value


def names() -> dict[str, Any]:
    return {
        "t": "ab " * 300,
        "dense": "ab" * 450,
        "digits": "7" * 900,
        "l": [f"item {n}" for n in range(250)],
        "rows": [{"k": f"key {n}", "v": n} for n in range(250)],
        "m": {f"key {n}": n for n in range(250)},
        "deep": shared(40),
        "deeper": shared(40),
        "f": 1.5,
    }


def again(expression: str, times: int = 60) -> str:
    return f"{{% for i in range({times}) %}}{{{{ ({expression}) | first }}}}{{% endfor %}}"


def nothing(expression: str, times: int = 60) -> str:
    """The same for what gives no sequence."""
    loop = f"{{% for i in range({times}) %}}"
    return f"{loop}{{% if ({expression}) == 'no' %}}{{% endif %}}{{% endfor %}}"


#: Each filter that is not free, with a template that would be too much without its charge.
FILTERS = {
    "b64decode": nothing("('QUJD' * 200) | b64decode"),
    "b64encode": nothing("t[:600] | b64encode"),
    "capitalize": nothing("t | capitalize"),
    "dictsort": again("m | dictsort"),
    "float": nothing("digits | float"),
    "format": nothing("'%900d' | format(1)"),
    "fromjson": nothing("('[' ~ digits ~ ']') | fromjson"),
    "groupby": again("rows | groupby('k')"),
    "int": nothing("digits | int"),
    "items": again("m | items"),
    "join": nothing("l[:80] | join"),
    "keys": again("m | keys"),
    "list": again("l | list"),
    "lower": nothing("t | lower"),
    "map": again("l | map('length') | list"),
    "max": nothing("l | max"),
    "min": nothing("l | min"),
    "py": nothing("t | py"),
    "reject": again("l | reject('none') | list"),
    "rejectattr": again("rows | rejectattr('nix') | list"),
    "replace": nothing("t | replace('a', 'b')"),
    "reverse": nothing("t | reverse"),
    "select": again("l | select | list"),
    "selectattr": again("rows | selectattr('k') | list"),
    "sh": nothing("t | sh"),
    "sort": again("l | sort"),
    "split": again("t | split"),
    "sql": nothing("t | sql"),
    "string": nothing("l[:40] | string"),
    "sum": "{{ l | map('list') | sum(start=[]) | length }}",
    "title": nothing("t | title"),
    "tojson": nothing("l[:40] | tojson"),
    "trim": nothing("t | trim"),
    "truncate": nothing("t | truncate(800)"),
    "unique": again("l | unique"),
    "upper": nothing("t | upper"),
    "urlencode": nothing("t[:300] | urlencode"),
    "values": again("m | values"),
    "wordcount": nothing("t | wordcount"),
}

COMPARED = ("==", "eq", "equalto", "!=", "ne", "<", "lt", "lessthan", "<=", "le", ">", "gt")
TESTS = {
    **{name: f"{{{{ [deep] | select('{name}', deeper) | list }}}}" for name in COMPARED},
    "greaterthan": "{{ [deep] | select('greaterthan', deeper) | list }}",
    ">=": "{{ [deep] | select('>=', deeper) | list }}",
    "ge": "{{ [deep] | select('ge', deeper) | list }}",
    "in": "{{ deep in [deeper] }}",
    "odd": "{{ '%999999999d' is odd }}",
    "even": "{{ '%999999999d' is even }}",
    "divisibleby": "{{ '%999999999d' is divisibleby 3 }}",
    "lower": "{{ deep is lower }}",
    "filter": "{{ ('a' * 70000) is filter }}",
    "test": "{{ ('a' * 70000) is test }}",
    "upper": "{{ deep is upper }}",
}

_TEXT = "upper lower title capitalize swapcase casefold isdigit isalpha isalnum isnumeric isspace"
METHOD_CASES = {
    **{("str", name): nothing(f"t.{name}()") for name in f"{_TEXT} islower isupper".split()},
    **{("str", name): nothing(f"t.{name}()") for name in ("strip", "lstrip", "rstrip")},
    **{("str", name): nothing(f"t.{name}('x')") for name in ("removeprefix", "removesuffix")},
    **{("str", name): nothing(f"t.{name}('x')") for name in ("startswith", "endswith", "find")},
    **{("str", name): nothing(f"t.{name}('a')") for name in ("index", "count", "rfind")},
    **{("str", name): nothing(f"t.{name}('x')") for name in ("partition", "rpartition")},
    **{("str", name): again(f"t.{name}()") for name in ("split", "rsplit", "splitlines")},
    **{("str", name): nothing(f"'a'.{name}(900)") for name in ("ljust", "rjust", "center")},
    ("str", "zfill"): nothing("'a'.zfill(900)"),
    ("str", "replace"): nothing("t.replace('a', 'b')"),
    ("str", "join"): nothing("' '.join(l[:80])"),
    ("Mapping", "get"): "{{ m.get('a' * 70000) }}",
    ("Mapping", "keys"): again("m.keys()"),
    ("Mapping", "values"): again("m.values()"),
    ("Mapping", "items"): again("m.items()"),
    ("list", "index"): nothing("l.index('item 249')"),
    ("list", "count"): nothing("l.count('item 249')"),
    ("tuple", "index"): nothing("(t, t, deep).index(deeper)"),
    ("tuple", "count"): nothing("(t, t, deep).count(deeper)"),
    ("float", "is_integer"): "",  # free
}

OPERATORS = {
    "+": nothing("t + 'x'"),
    "*": nothing("'a' * 900"),
    "**": "{{ 7 ** 9999 }}",
    "//": "{{ (2 ** 8000) * (2 ** 8000) // 3 }}",
    "%": nothing("'%900d' % 1"),
    "~": nothing("t ~ 'x'"),
    "slice": nothing("t[1:]"),
    "slice of a list": again("l[1:]"),
    "==": "{{ deep == deeper }}",
    "<": "{{ deep < deeper }}",
    "chained": "{{ 1 < 2 and (deep <= deeper <= deep) }}",
    "in text": nothing("'x' in t"),
    "not in text": nothing("'x' not in t"),
    "in list": nothing("t in l"),
    "key": "{{ m['a' * 70000] }}",
    "output": "{{ t }}{{ t }}",
    "output of a value": "{{ deep }}!",
    "value": "{{ [deep] }}",
    "loop": "{% for i in range(99) %}{% for j in range(99) %}{% endfor %}{% endfor %}",
    "loop with a large body": again("l[0] ~ l[1] ~ l[2] ~ l[3] ~ l[4] ~ l[5]", 99).replace(
        "{{", "{{ [i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i] | length }}" * 9 + "{{"
    ),
    "changed": "{% for i in range(60) %}{{ loop.changed(t) }}{% endfor %}",
    "range": "{{ range(101) }}",
    "dict": nothing("dict(rows | map('list'))"),
    "number": "{{ 0x" + "f" * 3000 + " }}",
}


def refused(template: str) -> str:
    limits = (
        TemplateLimits() if "70000" in template else SMALL
    )  # a key is made of more than a small text
    with pytest.raises(ExpressionError) as caught:
        Jinja(limits=limits).value(template).evaluate(names())
    return str(caught.value)


def test_every_filter_is_free_or_has_a_hostile_case() -> None:
    known = set(sandbox_of(SMALL).filters) - set(INTERNAL)
    assert known == set(FREE_FILTERS) | set(FILTERS)


def test_every_test_is_free_or_has_a_hostile_case() -> None:
    assert set(sandbox_of(SMALL).tests) == set(FREE_TESTS) | set(TESTS)


def test_every_method_and_global_has_a_hostile_case() -> None:
    known = {(kind.__name__, name) for kind, methods in METHODS for name in methods}
    assert known == set(METHOD_CASES)
    assert set(sandbox_of(SMALL).globals) == {"range", "dict"} <= set(OPERATORS)


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_a_filter_stays_within_the_work_of_one_evaluation(name: str) -> None:
    assert "the limit work_max is 20,000" in refused(FILTERS[name])


@pytest.mark.parametrize("name", sorted(TESTS))
def test_a_test_stays_within_the_work_of_one_evaluation(name: str) -> None:
    said = refused(TESTS[name])
    assert "takes a number" in said or "_max is" in said


@pytest.mark.parametrize("case", sorted(case for case in METHOD_CASES if METHOD_CASES[case]))
def test_a_method_stays_within_the_work_of_one_evaluation(case: tuple[str, str]) -> None:
    said = refused(METHOD_CASES[case])
    assert "_max is" in said


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_an_operator_stays_within_the_work_of_one_evaluation(name: str) -> None:
    assert "_max is" in refused(OPERATORS[name])


@pytest.mark.parametrize(
    ("template", "limit"),
    [
        ("{{ ('f' * 4000000) | int(base=16) // 3 }}", "bits_max is 8,192"),
        ("{{ (['a' * 4000000] * 600) | map('upper') | list }}", "work_max is 67,108,864"),
        ("{{ ('ä' * 4000000) | urlencode | length }}", "work_max is 67,108,864"),
        ("{{ ('a' * 2000000).rfind('b' ~ 'a' * 1000000) }}", ""),
        ("{{ ('b' ~ 'a' * 2000000).strip('a' ~ 'c') | length }}", ""),
        ("{{ ('1,' * 2000000).split(',') | length }}", "items_max is 250,000"),
        ("{{ '%r' % (('\\u0001' * 4000000),) }}", "text_max is 4,194,304"),
    ],
)
def test_one_template_cannot_stop_the_engine(template: str, limit: str) -> None:
    expression = Jinja().value(template)
    if limit:
        with pytest.raises(ExpressionError, match=limit):
            expression.evaluate({})
    else:
        assert isinstance(expression.evaluate({}), int)  # linear, whatever the text


def test_indentation_of_json_counts_before_it_is_written() -> None:
    value: Any = [0] * 5
    for _ in range(60):
        value = [value, *([0] * 5)]
    language = Jinja(limits=TemplateLimits(text_max=20_000))
    assert len(language.rendered("{{ v | tojson }}").evaluate({"v": value})) < 20_000
    with pytest.raises(ExpressionError, match="text_max is 20,000"):
        language.rendered("{{ v | tojson(indent=16) }}").evaluate({"v": value})


def test_the_budget_is_that_of_one_evaluation() -> None:
    language = Jinja(limits=SMALL)
    expression = language.value("{{ t | upper | length }}")
    for _ in range(60):
        assert expression.evaluate(names()) == 900


def test_searching_from_the_right_finds_what_python_finds() -> None:
    text, wrong = "ababab", []
    find = Jinja().value("{{ t.rfind(p, s, e) }}")
    places = range(-2, 9)
    for part, start, end in product(["a", "ab", "ba", "", "abab", "x"], places, places):
        if not part and start > len(text):
            continue  # nothing is nowhere
        found = find.evaluate({"t": text, "p": part, "s": start, "e": end})
        if found != text.rfind(part, start, end):
            wrong.append((part, start, end, found))
    assert wrong == []


def test_splitting_from_the_right_gives_what_python_gives() -> None:
    texts, wrong = ["", "a", "a-b-c", "--", "aaa", "a--b", " a  b "], []
    methods = ("t.rsplit(p, n)", "t.rsplit()", "t.rpartition(p)")
    split, split_at_blanks, divide = (Jinja().value(f"{{{{ {each} }}}}") for each in methods)
    for text, part, most in product(texts, ["-", "--", "a", "aa"], [-1, 0, 1, 2]):
        given = {"t": text, "p": part, "n": most}
        found = (split.evaluate(given), split_at_blanks.evaluate(given), divide.evaluate(given))
        expected = (text.rsplit(part, most), text.rsplit(), text.rpartition(part))
        if (*found[:2], tuple(found[2])) != expected:
            wrong.append((given, found))
    assert wrong == []

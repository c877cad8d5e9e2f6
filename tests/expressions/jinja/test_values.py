"""What a template gives: native values, text, literals read back, true and false."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import ExpressionError
from anabranch.expressions.jinja.jinja import Jinja, literal, truth
from anabranch.expressions.port import Constant

NAMES: dict[str, Any] = {
    "ctx": {"n": 5, "xs": [1, 2, 3], "flag": False, "text": "Ada", "none": None, "zero": 0},
    "order": {"items": ["lamp"], "keys": "two", "total": 9.5, "get": 1},
    "odd-name": {"a b": 1},
    "huge": 2**14_001,
}


def value(template: str) -> Any:
    return Jinja().value(template).evaluate(NAMES)


def holds(condition: bool | str) -> bool:
    answer: bool = Jinja().condition(condition).evaluate(NAMES)
    return answer


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ ctx.n }}", 5),
        ("{{ ctx.xs }}", [1, 2, 3]),
        ("{{ ctx }}", NAMES["ctx"]),
        ("{{ ctx.n > 3 }}", True),
        ("{{ ctx.none }}", None),
        ("{{ ctx.n / 2 }}", 2.5),
        ("{{ [ctx.n, {'a': ctx.text}] }}", [5, {"a": "Ada"}]),
        ("  {{ ctx.n }}\n", 5),
        ("{{ ctx.xs | map('string') }}", ["1", "2", "3"]),
        ("{{ (1, 2) }}", [1, 2]),
        ("{{ range(3) }}", [0, 1, 2]),
        ("{{ ctx['xs'][-1] }}", 3),
        ("{{ ctx.xs[1:] }}", [2, 3]),
        ("{{ ctx.text if ctx.n else missing.x }}", "Ada"),
        ("{{ '5' }}", "5"),
        ("{{ 'true' }}", "true"),
    ],
)
def test_one_expression_gives_its_own_value(template: str, expected: Any) -> None:
    found = value(template)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("Hello {{ ctx.text }}!", "Hello Ada!"),
        ("{{ ctx.text }}{{ ctx.n }}", "Ada5"),
        ("v{{ ctx.n }}", "v5"),
        ("{% for x in ctx.xs %}{{ loop.index }}:{{ x }} {% endfor %}", "1:1 2:2 3:3 "),
        ("{% set y = ctx.n + 1 %}y={{ y }}", "y=6"),
        ("a{# not shown #}b", "ab"),
        ("{{ ctx.xs }}-", "[1, 2, 3]-"),
        ("{{ missing | default('') }}-{{ missing.deep.er | d('x') }}", "-x"),
        ("Dear {{ 'Dr. ' if ctx.flag }}{{ ctx.text }}", "Dear Ada"),
        ("{{ ctx.n ~ ctx.text }}", "5Ada"),
        ("1.{{ ctx.n }}", "1.5"),
        ("0{{ ctx.n }}", "05"),
        ("+{{ ctx.n }}", "+5"),
    ],
)
def test_other_text_is_rendered(template: str, expected: str) -> None:
    assert value(template) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% if ctx.n %}true{% else %}false{% endif %}", True),
        ("{% if ctx.zero %}true{% else %}False{% endif %}", False),
        ("{% if ctx.n %}null{% endif %}", None),
        ("{{ ctx.n }}0", 50),
        ("-{{ ctx.n }}", -5),
        ("[{{ ctx.n }}, 2]", [5, 2]),
        ('{"n": {{ ctx.n }}}', {"n": 5}),
    ],
)
def test_rendered_text_that_spells_a_literal_becomes_it(template: str, expected: Any) -> None:
    assert value(template) == expected


@pytest.mark.parametrize("template", ["[{{ ctx.xs | tojson }}]", "{{ ctx.n | string }}0"])
def test_tojson_and_string_keep_text_as_text(template: str) -> None:
    assert isinstance(value(template), str)


@pytest.mark.parametrize(
    "text", ["[1, 2", "[NaN]", "TRUE", "tRUE", "1e5", "12345678901234567890123", "{a: 1}", " x "]
)
def test_what_is_not_plainly_a_literal_stays_text(text: str) -> None:
    assert literal(text) == text


def test_text_mode_never_reads_a_literal_back() -> None:
    assert Jinja().rendered("{{ ctx.n }}0").evaluate(NAMES) == "50"
    assert Jinja().rendered("{{ ctx.n }}").evaluate(NAMES) == "5"


def test_text_without_a_template_is_a_constant() -> None:
    assert Jinja().value("plain") == Constant("plain")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (True, True),
        (False, False),
        ("{{ ctx.n > 3 }}", True),
        ("ctx.n > 3", True),
        ("ctx.n > 3 and not ctx.flag", True),
        ("ctx.flag", False),
        ("missing.deep", False),
        ("missing | length > 0", False),
        ("'a' ~ missing == 'a'", True),
        ("a{{ missing }}", True),
        ("{{ missing }}", False),
        ("'no'", False),
        ("'NONE'", False),
        ("' 0 '", False),
        ("'yes'", True),
        ("{{ ctx.xs }}", True),
        ("[]", False),
        ("{% if ctx.n %}false{% endif %}", False),
        ("not missing", True),
        ("missing is defined", False),
        ("ctx.n is number", True),
    ],
)
def test_conditions_hold_or_do_not(condition: bool | str, expected: bool) -> None:
    assert holds(condition) is expected


def test_the_false_texts() -> None:
    assert [truth(text) for text in ("", "false", "0", "no", "none", "False ")] == [False] * 6
    assert truth("off") is True


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ gone }}", "gone"),
        ("{{ ctx.gone }}", "gone"),
        ("{{ a.b['c'].d }}", r"a\.b\.c\.d"),
        ("Hello {{ ctx.gone }}", "gone"),
        ("{{ [1, {'a': gone}] }}", "gone"),
        ("{{ 'Hello ' ~ gone }}", "gone"),
        ("{{ gone | length }}", "gone"),
        ("{{ ctx.gone | upper }}", "gone"),
        ("{{ gone | int }}", "gone"),
        ("{% for x in ctx.gone %}{{ x }}{% endfor %}", "gone"),
    ],
)
def test_a_missing_value_is_an_error_that_says_how_to_allow_for_it(
    template: str, name: str
) -> None:
    with pytest.raises(ExpressionError, match=rf"'{name}' is undefined.*`\| default\(''\)`"):
        value(template)
    with pytest.raises(ExpressionError, match=rf"'{name}' is undefined"):
        Jinja().rendered(template).evaluate(NAMES)


def test_nothing_in_an_empty_list_is_missing_as_well() -> None:
    with pytest.raises(ExpressionError, match=r"no first item.*default"):
        value("{{ ctx.xs[5:] | first }}")
    assert value("{{ ctx.xs[5:] | first | default(none) }}") is None


def test_default_allows_for_a_missing_value() -> None:
    assert value("{{ a.b.c | default('x') }}") == "x"
    assert value("{{ ctx.gone | default(none) }}") is None
    assert value("{{ gone | d([]) | length }}") == 0
    assert value("{{ gone or 'x' }}") == "x"
    assert value("{{ ctx.text if gone is defined else 'x' }}") == "x"


def test_an_if_without_else_is_empty_not_missing() -> None:
    assert value("{{ 1 if ctx.flag }}") is None
    assert value("a{{ 1 if ctx.flag }}") == "a"


def test_what_is_undefined_cannot_be_computed_with() -> None:
    with pytest.raises(ExpressionError, match=r"'ctx\.gone' is undefined|'gone' is undefined"):
        value("{{ ctx.gone > 3 }}")
    with pytest.raises(ExpressionError, match=r"'a\.b' is undefined"):
        value("{{ a.b + 1 }}")


@pytest.mark.parametrize("text", ["None", "none", "null", "true", "False", "12", "[1]", '{"a": 1}'])
@pytest.mark.parametrize(
    "template",
    [
        "{% if true %}{{ text }}{% endif %}",
        "{% for x in [text] %} {{ x }} {% endfor %}",
        "{{ text }}{{ empty }}",
        "{# a remark #}{{ text | trim }}",
    ],
)
def test_a_text_from_the_data_stays_text(template: str, text: str) -> None:
    found = Jinja().value(template).evaluate({"text": text, "empty": ""})
    assert isinstance(found, str)
    assert found.strip() == text


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% if true %}{{ none_value }}{% endif %}", None),
        ("{% if true %}{{ no }}{% endif %}", False),
        ("{% if true %}{{ rows }}{% endif %}", [1, 2]),
        ("{{ empty }}true", True),
        ("{{ one }}0", "10"),
        ("1{{ one }}2", "112"),
        ('{"name": "{{ name }}"}', {"name": "None"}),
        ('["{{ name }}", {{ no | tojson }}]', '["None", false]'),
        ("[{{ one }}]", [1]),
    ],
)
def test_own_words_and_values_that_are_no_text_become_values(template: str, expected: Any) -> None:
    names = {"none_value": None, "no": False, "rows": [1, 2], "empty": "", "one": "1"}
    assert Jinja().value(template).evaluate(names | {"name": "None"}) == expected


def test_keys_come_before_methods() -> None:
    assert value("{{ order.items }}") == ["lamp"]
    assert value("{{ order.keys }}") == "two"
    assert value("{{ order.values() | length }}") == 4
    assert value("{{ ctx.items() | length }}") == 6
    assert value("{{ ctx.get('n') }}") == 5
    assert value("{{ ctx.get('gone', 7) }}") == 7


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ 'a,b' | split(',') }}", ["a", "b"]),
        ("{{ ctx.xs | join('-') }}", "1-2-3"),
        ("{{ 'abc' | replace('b', 'x') }}", "axc"),
        ("{{ 'héllo' | b64encode }}", "aMOpbGxv"),
        ("{{ 'aMOpbGxv' | b64decode }}", "héllo"),
        ("{{ '[1, {\"a\": 2}]' | fromjson }}", [1, {"a": 2}]),
        ("{{ order | keys | sort }}", ["get", "items", "keys", "total"]),
        ("{{ order | values | list | length }}", 4),
        ("{{ {'a': 1} | items }}", [["a", 1]]),
        ("{{ {'a b': 1} | get('a b') }}", 1),
        ("{{ ctx.xs | get(9, 'none') }}", "none"),
        ("{{ {'b': 1, 'a': '<'} | tojson }}", '{"b": 1, "a": "<"}'),
        ("{{ 'ABC' | lower }}", "abc"),
        ("{{ '12' | int + 1 }}", 13),
        ("{{ 3 | string }}", "3"),
        ("{{ ctx.xs | sum }}", 6),
        ("{{ [[1], [2]] | sum(start=[]) }}", [1, 2]),
        ("{{ '%s has %03d' | format('x', 7) }}", "x has 007"),
        ("{{ '%(a)s' % {'a': 1} }}", "1"),
        ("{{ [{'a': 1}, {'a': 2}] | map(attribute='a') | list }}", [1, 2]),
        ("{{ [{'a': 2, 'b': 1}] | groupby('a') | map(attribute='grouper') | list }}", [2]),
        ("{{ 'Ada'.replace('a', 'o').upper() }}", "ADO"),
        ("{{ ', '.join(['a', 'b']) }}", "a, b"),
        ("{{ 7.0.is_integer() }}", True),
        ("{{ dict(a=1) }}", {"a": 1}),
        ("{{ 1.005 | round(2) }}", 1.0),
    ],
)
def test_filters_and_methods(template: str, expected: Any) -> None:
    assert value(template) == expected


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ 'x' | b64decode }}", "base64|padding|characters"),
        ("{{ 'x' | fromjson }}", "expecting value"),
        ("{{ 5 | keys }}", "a mapping is needed here, not a int"),
        ("{{ 2 ** 9000 }}", "bits_max"),
        ("{{ huge }}", "more than 14,000 bits"),
        ("{{ 1e308 * 10 }}", "inf is not a JSON number"),
        ("{{ {1: 2} }}", "the key 1 is not text"),
        ("{{ ctx.xs.index(9) }}", "not in list"),
        ("{{ 'a' + 1 }}", "str"),
        ("{{ ctx.xs | tojson(indent=99) }}", "indent must be from 0 to 16"),
    ],
)
def test_what_goes_wrong_quotes_the_expression(template: str, reason: str) -> None:
    with pytest.raises(ExpressionError, match=reason) as caught:
        value(template)
    assert template in caught.value.message


def test_values_are_copies_of_what_was_looked_up() -> None:
    found = value("{{ ctx.xs }}")
    found.append(4)
    assert NAMES["ctx"]["xs"] == [1, 2, 3]

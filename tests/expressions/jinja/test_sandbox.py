"""No template reaches a class, a builtin or more memory than the limits allow."""

from __future__ import annotations

import time

import pytest

from anabranch.errors import ExpressionError
from anabranch.expressions.jinja.jinja import Jinja, TemplateError, TemplateLimits

NAMES = {"x": {"a": 1}, "xs": [1, 2], "s": "text", "n": 7, "f": 1.5}

ATTRIBUTE_WALKS = [
    "''.__class__.__mro__",
    "''.__class__.__mro__[1].__subclasses__()",
    "x.__class__",
    "x['__class__']",
    "xs.__init__.__globals__",
    "xs.__class__.__base__.__subclasses__()",
    "n.__class__",
    "f.__class__",
    "none.__class__",
    "(x | items)[0].__class__",
    "range.__class__",
    "dict.__init__.__globals__",
    "lipsum.__globals__",
    "cycler.__init__.__globals__",
    "joiner.__init__.__globals__",
    "namespace.__init__.__globals__",
    "missing.__class__",
    "missing.a.b.__init__",
    "s.upper.__func__",
    "s.upper.__self__",
    "s.format.__globals__",
    "[x] | map(attribute='__class__') | list",
    "[x] | groupby('__class__') | list",
    "[x] | sort(attribute='__class__')",
    "[x] | sum(attribute='__class__')",
    "xs | join(',', attribute='__class__')",
    "'%s' | format(s.__class__)",
]


@pytest.mark.parametrize("walk", ATTRIBUTE_WALKS)
def test_attribute_walks_fail(walk: str) -> None:
    with pytest.raises(ExpressionError, match=r"out of reach|cannot be called"):
        Jinja().value(f"{{{{ {walk} }}}}").evaluate(NAMES)


@pytest.mark.parametrize(
    "call",
    [
        "x.update({'b': 2})",
        "x.pop('a')",
        "x.clear()",
        "xs.append(3)",
        "xs.sort()",
        "s.format(1)",
        "s.format_map(x)",
        "s.encode()",
        "n.to_bytes(9)",
        "eval('1')",
        "open('/etc/passwd')",
        "x()",
        "s()",
        "(1)()",
        "[range][0].run('x')",
    ],
)
def test_only_listed_things_can_be_called(call: str) -> None:
    with pytest.raises(ExpressionError, match="cannot be called"):
        Jinja().value(f"{{{{ {call} }}}}").evaluate(NAMES)
    assert NAMES["x"] == {"a": 1}
    assert NAMES["xs"] == [1, 2]


@pytest.mark.parametrize(
    "name", ["lipsum", "cycler", "joiner", "namespace", "caller", "super", "open"]
)
def test_there_are_no_other_globals(name: str) -> None:
    assert Jinja().condition(f"{name} is defined").evaluate(NAMES) is False


@pytest.mark.parametrize(
    "name", ["attr", "random", "pprint", "xmlattr", "urlize", "batch", "slice", "indent", "safe"]
)
def test_filters_that_leak_wander_or_grow_are_left_out(name: str) -> None:
    with pytest.raises(TemplateError, match=f"there is no filter '{name}'"):
        Jinja().value(f"{{{{ x | {name} }}}}")


@pytest.mark.parametrize(
    ("template", "limit"),
    [
        ("{{ 'a' * 10**10 }}", "text_max"),
        ("{{ 10**10 * 'a' }}", "text_max"),
        ("{{ [0] * 10**9 }}", "items_max"),
        ("{{ (1, 2) * 10**9 }}", "items_max"),
        ("{{ range(10**9) }}", "range_max"),
        ("{{ range(0, 10**15, 2) | length }}", "range_max"),
        ("{{ 10 ** 10 ** 10 ** 30 }}", "bits_max"),
        ("{{ 2 ** 10000000 }}", "bits_max"),
        ("{{ (2 ** 8000) * (2 ** 8000) }}", "bits_max"),
        ("{{ 'a'.ljust(10**10) }}", "text_max"),
        ("{{ 'a'.rjust(10**10) }}", "text_max"),
        ("{{ 'a'.center(10**10) }}", "text_max"),
        ("{{ 'a'.zfill(10**10) }}", "text_max"),
        ("{{ '%1000000000d' % 1 }}", "text_max"),
        ("{{ '%.1000000000f' | format(1) }}", "text_max"),
        ("{{ ('a' * 10000).replace('a', 'b' * 10000) }}", "text_max"),
        ("{{ ('a' * 10000) | replace('a', 'b' * 10000) }}", "text_max"),
        ("{{ ('x' * 10000).join(range(10000) | map('string')) }}", "text_max"),
        ("{{ range(10000) | join('x' * 10000) }}", "text_max"),
        ("{{ [[0] * 10000] * 10000 }}", "items_max"),
        ("{{ [[0] * 10000] * 10000 | string }}", "can only|items_max|str"),
        ("x{{ [[0] * 10000] * 10000 }}", "items_max"),
        ("{{ ([[0] * 10000] * 10000) | tojson }}", "items_max"),
        ("{{ [[0] * 10000] * 10000 | sum(start=[]) }}", "items_max|list|int"),
        ("{{ (['a' * 4000000] * 1000) | length }}{{ ['a' * 4000000] * 1000 }}", "text_max"),
        (
            "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}",
            "turns|work",
        ),
        ("{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", "text_max"),
        ("{% set a = 'a' * 99 %}" + "{% set a = a ~ a %}" * 60 + "{{ a }}", "text_max"),
        ("{% set a = 'a' * 99 %}" + "{% set a = a + a %}" * 60 + "{{ a }}", "text_max"),
        ("{% set a = [0] %}" + "{% set a = [a, a] %}" * 60 + "{{ a }}", "items_max"),
        ("{% set a = 9 %}" + "{% set a = a * a %}" * 60 + "{{ a }}", "bits_max"),
    ],
)
def test_bombs_are_stopped_before_they_cost_anything(template: str, limit: str) -> None:
    expression = Jinja().value(template)
    began = time.thread_time()
    with pytest.raises(ExpressionError, match=limit):
        expression.evaluate(NAMES)
    assert time.thread_time() - began < 5  # made for real, each would take minutes or all memory


def test_a_limit_error_names_limit_and_value() -> None:
    with pytest.raises(ExpressionError) as caught:
        Jinja().value("{{ 'ab' * 10**9 }}").evaluate({})
    assert "2,000,000,000" in caught.value.message
    assert "text_max is 4,194,304" in caught.value.message


def test_limits_can_be_set() -> None:
    small = Jinja(limits=TemplateLimits(text_max=10, range_max=3))
    assert small.value("{{ 'a' * 10 }}").evaluate({}) == "a" * 10
    with pytest.raises(ExpressionError, match="text_max is 10"):
        small.value("{{ 'a' * 11 }}").evaluate({})
    with pytest.raises(ExpressionError, match="range_max is 3"):
        small.value("{{ range(4) }}").evaluate({})


def test_widths_from_arguments_are_refused() -> None:
    with pytest.raises(ExpressionError, match="width taken from the arguments"):
        Jinja().value("{{ '%*d' | format(10**9, 1) }}").evaluate({})


@pytest.mark.parametrize(
    ("template", "tag"),
    [
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "macro"),
        ("{% call x() %}{% endcall %}", "call"),
        ("{% filter upper %}x{% endfilter %}", "filter"),
        ("{% set x %}y{% endset %}", "set … endset"),
        ("{% include 'x' %}", "include"),
        ("{% import 'x' as y %}", "import"),
        ("{% from 'x' import y %}", "from"),
        ("{% extends 'x' %}", "extends"),
        ("{% block b %}{% endblock %}", "block"),
        ("{% autoescape true %}{% endautoescape %}", "autoescape"),
        ("{% set x.y = 1 %}", "set with a dot"),
    ],
)
def test_statements_that_recurse_or_buffer_are_refused(template: str, tag: str) -> None:
    with pytest.raises(TemplateError, match=f"{tag} %}} is not available here"):
        Jinja().value(template)


def test_the_name_jinja_keeps_for_itself_is_refused() -> None:
    with pytest.raises(TemplateError, match="'self' is not available"):
        Jinja().value("{{ self.__init__.__globals__ }}")


def test_recursive_loops_are_refused() -> None:
    with pytest.raises(TemplateError, match="recursive"):
        Jinja().value("{% for a in xs recursive %}{{ loop(xs) }}{% endfor %}")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "1" + ")" * 5000,
        "+".join(["1"] * 5000),
        "not " * 5000 + "x",
        "-" * 5000 + "1",
        "[" * 500 + "]" * 500,
        "x" + ".a" * 5000,
        "1" * 6000,
    ],
)
def test_expressions_that_would_exhaust_the_parser_are_errors(text: str) -> None:
    with pytest.raises(ExpressionError):
        Jinja().condition(text).evaluate(NAMES)


def test_deep_values_are_errors() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ExpressionError, match="nested"):
        Jinja().value("{{ [deep] }}").evaluate({"deep": deep})
    with pytest.raises(ExpressionError):
        Jinja().value("{{ deep }}").evaluate({"deep": deep})

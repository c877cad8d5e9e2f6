"""Structures with templates inside; where a mistake stands; what compiling costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.errors import ExpressionError
from anabranch.expressions.jinja.jinja import ConditionTemplate, Jinja, TemplateError, TemplateTree
from anabranch.expressions.port import Constant
from costs import operations


def test_a_tree_is_evaluated_throughout() -> None:
    tree = Jinja().tree({"to": "{{ mail }}", "n": 1, "list": ["a", "{{ n }}", {"d": "x{{ n }}"}]})
    found = tree.evaluate({"mail": "a@b", "n": 2})
    assert found == {"to": "a@b", "n": 1, "list": ["a", 2, {"d": "x2"}]}


def test_a_tree_without_templates_is_a_constant() -> None:
    assert Jinja().tree({"a": [1, "b"]}) == Constant({"a": [1, "b"]})


def test_keys_are_not_templates() -> None:
    assert Jinja().tree({"{{ a }}": "{{ a }}"}).evaluate({"a": 1}) == {"{{ a }}": 1}


def test_constant_parts_are_shared_and_the_rest_is_fresh() -> None:
    tree = Jinja().tree({"fixed": {"big": [1, 2]}, "made": ["{{ n }}"]})
    first, second = tree.evaluate({"n": 1}), tree.evaluate({"n": 1})
    assert first["fixed"] is second["fixed"]
    assert first["made"] is not second["made"]


def test_what_is_undefined_is_an_error_in_a_tree() -> None:
    with pytest.raises(ExpressionError, match=r"'nope\.x' is undefined"):
        Jinja().tree({"a": ["{{ nope.x }}"]}).evaluate({})


def test_the_view_is_laid_over_once_for_a_whole_tree() -> None:
    calls = []

    class Seen(dict[str, Any]):
        pass

    def view(names: Mapping[str, Any]) -> Mapping[str, Any]:
        if isinstance(names, Seen):
            return names
        calls.append(1)
        return Seen(y=names["x"])

    tree = Jinja(view).tree(["{{ y }}", "{{ y }}!", {"a": "{{ y }}"}])
    assert tree.evaluate({"x": 1}) == [1, "1!", {"a": 1}]
    assert len(calls) == 1


def test_trees_show_what_their_author_wrote() -> None:
    tree = Jinja().tree({"a": "{{ n }}", "b": [1, None]})
    assert isinstance(tree, TemplateTree)
    assert tree.text == "{a: {{ n }}, b: [1, null]}"


def test_an_error_inside_a_tree_quotes_the_template() -> None:
    tree = Jinja().tree({"a": {"b": "{{ n.x + 1 }}"}})
    with pytest.raises(ExpressionError, match=r"\{\{ n\.x \+ 1 \}\}"):
        tree.evaluate({})


@pytest.mark.parametrize(
    ("template", "line", "reason"),
    [
        ("{{ a", 1, "unexpected end of template, expected `}}`"),
        ("one\ntwo {{ a b }}", 2, "expected `}}`, got 'b'"),
        ("one\ntwo\n\n{% if a %}", 4, "unexpected end of template"),
        ("x\n{{ a | nosuch }}", 2, "there is no filter 'nosuch'"),
        ("x\n{{ a | joine }}", 2, "did you mean 'join'?"),
        ("{{ a is nosuch }}", 1, "there is no test 'nosuch'"),
        ("{{ }}", 1, "expected an expression"),
        ("{% nope %}", 1, "unknown tag 'nope'"),
    ],
)
def test_mistakes_are_found_when_compiling_with_their_line(
    template: str, line: int, reason: str
) -> None:
    with pytest.raises(TemplateError) as caught:
        Jinja().value(template)
    assert caught.value.line == line
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("", "the expression is empty"),
        ("a b", "unexpected 'b' after the expression"),
        ("a.", "expected name or number"),
        ("a ==", "the end"),
    ],
)
def test_bare_conditions_are_checked_too(condition: str, reason: str) -> None:
    with pytest.raises(TemplateError, match=reason):
        Jinja().condition(condition)


def test_a_condition_with_text_around_is_told_apart() -> None:
    mixed = Jinja().condition("{{ a }} and {{ b }}")
    whole = Jinja().condition("{{ a and b }}")
    assert isinstance(mixed, ConditionTemplate)
    assert isinstance(whole, ConditionTemplate)
    assert (mixed.renders_text, whole.renders_text) == (True, False)


def test_the_names_an_expression_looks_up_are_known() -> None:
    found = Jinja().value("{% for x in ctx.xs %}{{ x + n }}{{ loop.index }}{% endfor %}")
    assert getattr(found, "names") == {"ctx", "n"}  # noqa: B009 - not part of the port


def test_guards_are_fast_enough_for_the_hot_path() -> None:
    guard = Jinja().condition("{{ ctx.x > 3 }}")
    names = {"ctx": {"x": 5}}
    guard.evaluate(names)
    assert operations(lambda: guard.evaluate(names)) < 300  # it was 151; about 5 µs


def test_compiling_the_same_text_again_is_cheap() -> None:
    language = Jinja()
    first = operations(lambda: language.value("{{ a.b.c.d.e.f + 12345 }}"))
    again = operations(lambda: language.value("{{ a.b.c.d.e.f + 12345 }}"))
    assert again * 20 < first

"""Placeholders, and whether a text is a text or an expression."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from anabranch.expressions.cel.values import CelError, CelLimitError, CelMissingName, Uint256
from anabranch.expressions.placeholders import (
    compile_expression,
    compile_template,
    compile_value,
    constant,
    lint,
    placeholders_in,
    rewritten,
    url_encoded,
)

NAMES: dict[str, Any] = {"A": 7, "B": 2, "S": "eth", "Q": "usd", "W": Uint256(10**20), "D": 1.5}


def worked_out(text: str) -> Any:
    return compile_value(text, NAMES).evaluate(NAMES)


@pytest.mark.parametrize(
    ("text", "sort", "expected"),
    [
        # a placeholder alone keeps its type
        ("[A]", "copy", 7),
        (" [S] ", "copy", "eth"),
        ("[W]", "copy", Uint256(10**20)),
        # literals
        ("true", "literal", True),
        ("false", "literal", False),
        ("42", "literal", 42),
        ("-1.5", "literal", -1.5),
        ("1e3", "literal", 1000.0),
        ('"quoted"', "literal", "quoted"),
        ("'it is > 5'", "literal", "it is > 5"),
        ('"a\\tb"', "literal", "a\tb"),
        ("123456789012345", "literal", 123456789012345),
        ("1234567890123456", "literal", "1234567890123456"),
        ("-99999999999999999999", "literal", "-99999999999999999999"),
        ("-" + 5_000 * "9", "literal", "-" + 5_000 * "9"),  # more than Python reads
        # text
        ("", "text", ""),
        ("007", "text", "007"),
        ("hello", "text", "hello"),
        ("Hello [S]", "text", "Hello eth"),
        ("[S]-[Q]", "text", "eth-usd"),
        ("[S]/[Q] pair", "error", None),
        ("[[S]]", "text", "[S]"),
        ("a [[b]] [S]", "text", "a [b] eth"),
        ("2024-01-01", "text", "2024-01-01"),
        ("well-known + more", "text", "well-known + more"),
        ("[S] - the best", "text", "eth - the best"),
        ("[0] and [\"k\"]", "text", "[0] and [\"k\"]"),
        # arithmetic context
        ("[A]+1", "expression", 8),
        ("[A] + 15", "expression", 22),
        ("[A] - [B]", "expression", 5),
        ("5-[B]", "expression", 3),
        ("[A] -1", "expression", 6),
        ("Order [A] - 5 items", "text", "Order 7 - 5 items"),
        ("[S]-5th", "text", "eth-5th"),
        # operators and calls
        ("[A]*[B]", "expression", 14),
        ("[A] > 5 ? 'big' : 'small'", "expression", "big"),
        ("max([[A],[B]])", "expression", 7.0),
        ("string([A]) + '!'", "expression", "7!"),
        ("[S] == 'eth'", "expression", True),
        ("A * 2", "expression", 14),
        ("[A] > (", "error", None),
        ("Hello [S]!", "error", None),
        ("unknown([A])", "error", None),
        # without a placeholder what cannot be computed is text
        ("value too high > limit", "text", "value too high > limit"),
        ("price>limit", "text", "price>limit"),
        ("N/A", "text", "N/A"),
        ("50%", "text", "50%"),
        ("Rejected (limit)", "text", "Rejected (limit)"),
        ("done!", "text", "done!"),
        ("call(me)", "text", "call(me)"),
        ("3 * 4", "expression", 12),
    ],
)  # fmt: skip
def test_a_value_is_a_copy_a_literal_an_expression_or_a_text(
    text: str, sort: str, expected: Any
) -> None:
    if sort == "error":
        with pytest.raises(CelError):
            compile_value(text, NAMES)
        return
    value = compile_value(text, NAMES)
    assert value.sort == sort
    result = value.evaluate(NAMES)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("value > limit", "taken as text"),
        ("Order [A] - 5 items", "taken as text"),
        ('"Hello " + [S]', "taken as text"),
        ("1/2", "this is computed"),
        ("[A] > 5", ""),
        ("Hello [S]", ""),
        ("[S]-[Q]", ""),
        ("plain", ""),
        ("[A]", ""),
    ],
)
def test_lint_tells_the_author_about_texts_that_were_candidates(text: str, told: str) -> None:
    message = lint(compile_value(text, NAMES))
    assert told in message
    assert bool(told) == bool(message)


@pytest.mark.parametrize(
    ("text", "cel"),
    [
        ("[A] + [B]", "A + B"),
        ("quorum([[A],[B]], 'rel', 0.1, 2)", "quorum([A,B], 'rel', 0.1, 2)"),
        ("resp.items[[0]].price", "resp.items[0].price"),
        ('resp[["k"]]', 'resp["k"]'),
        ("resp.items[0]", "resp.items[0]"),
        ("resp.items[i] > [A]", "resp.items[i] > A"),
        ("f(x)[i]", "f(x)[i]"),
        ("[x + 1]", "[x + 1]"),
        ("'[A]' == [A]", "'[A]' == A"),
        ('"[[0]]" + [A]', '"[[0]]" + A'),
    ],
)
def test_placeholders_are_rewritten_first_and_then_doubled_brackets(text: str, cel: str) -> None:
    assert rewritten(text) == cel


QUOTED = r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""


def rewritten_with_two_patterns(text: str) -> str:
    """In a few lines, and in the square of the time where nothing closes a quote."""

    def name(found: re.Match[str]) -> str:
        before = text[found.start() - 1 : found.start()] if found.start() else ""
        if not found[1] or before in (")", "]") or before.isidentifier():
            return found[0]
        return f" {found[1]} " if before.isdigit() else found[1]

    def inner(found: re.Match[str]) -> str:
        return f"[{found[1]}]" if found[1] else found[0]

    once = re.sub(rf"{QUOTED}|\[([A-Za-z_]\w*)\]", name, text, flags=re.DOTALL | re.ASCII)
    doubled = rf"\[\[\s*(-?[0-9]+|{QUOTED})\s*\]\]|(?:{QUOTED})"
    return re.sub(doubled, inner, once, flags=re.DOTALL)


@pytest.mark.parametrize("seed", range(4))
def test_parts_of_any_text_are_those_that_two_patterns_find(seed: int) -> None:
    chance = random.Random(seed)
    pieces = ('"', "'", "\\", "[", "]", "[[", "]]", "[A]", "[b_1]", "x", "1", "-", " ", "\n", "(")
    for _ in range(1_000):
        text = "".join(chance.choices((*pieces, ")", "[[0]]", '[[ "a"', '"]]'), k=12))
        assert rewritten(text) == rewritten_with_two_patterns(text)


def test_rules_are_always_expressions() -> None:
    assert compile_expression("[A] - [B] == 5").evaluate(NAMES) is True
    assert compile_expression("[S]-[Q]").names == {"S", "Q"}
    with pytest.raises(CelLimitError):
        compile_expression("[A] > 1" + " " * 1024)


def test_a_missing_name_is_told_apart_from_every_other_error() -> None:
    for text in ("[Nobody]", "Dear [Nobody]", "[Nobody] * 2", "[A] > 1 || [Nobody] > 1"):
        with pytest.raises(CelMissingName, match="Nobody"):
            worked_out(text)


def test_templates_fill_in_and_encode() -> None:
    template = compile_template("https://x.test/[S]?q=[T]&l=[[0]]")
    names = {"S": "a/b c", "T": "ü&=?#"}
    assert (
        template.render(names, url_encoded) == "https://x.test/a%2Fb%20c?q=%C3%BC%26%3D%3F%23&l=[0]"
    )
    assert template.names == {"S", "T"}
    assert template.placeholders == 2


def test_bodies_take_values_as_json_writes_them() -> None:
    template = compile_template('{"n": [N], "w": [W], "t": "[T]", "f": [F], "l": [L], "b": [B]}')
    names = {"N": 5.0, "W": Uint256(10**20), "T": "x", "F": 0.5, "L": [1, "a"], "B": True}
    expected = '{"n": 5, "w": 100000000000000000000, "t": "x", "f": 0.5, "l": [1,"a"], "b": true}'
    assert template.render(names) == expected


def test_a_value_that_is_no_text_stays_what_it_is() -> None:
    assert constant({"a": ["[A]"]}).evaluate({}) == {"a": ["[A]"]}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[A] + [A]", 2),
        ("A + 1", 0),
        ("'[A]' == [B]", 1),
        ("max([[A],[B]])", 2),
        ("resp.items[i] > [0][0]", 0),
        ("resp.items[[0]] == [A]", 1),
    ],
)
def test_only_names_in_brackets_count_as_placeholders(text: str, count: int) -> None:
    assert placeholders_in(text) == count

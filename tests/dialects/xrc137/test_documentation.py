"""The page about rules knows every type, function and limit, and its example works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anabranch.dialects.xrc137 import gas, limits
from anabranch.dialects.xrc137.casts import TYPES
from anabranch.dialects.xrc137.document import ENGINE_NAMES
from anabranch.dialects.xrc137.read import RULE_KINDS, read_rule
from anabranch.expressions.cel.cel import compile_cel
from anabranch.expressions.cel.functions import FUNCTIONS, METHODS
from anabranch.expressions.cel.parser import MACROS
from anabranch.expressions.cel.statistics import METRICS
from anabranch.expressions.cel.values import (
    NODES_MAX,
    SOURCE_BYTES_MAX,
    STEPS_MAX,
    CelSyntaxError,
)

PAGE = (Path(__file__).parents[3] / "docs" / "rules.md").read_text(encoding="utf-8")


def test_the_example_of_the_page_has_no_problem() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    document, problems = read_rule(example)
    assert document is not None
    assert problems == ()


@pytest.mark.parametrize("word", [*TYPES, *RULE_KINDS, *ENGINE_NAMES, *METHODS, *MACROS])
def test_every_type_kind_name_method_and_macro_is_mentioned(word: str) -> None:
    assert f"`{word}`" in PAGE


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"dyn", "bytes"}))
def test_every_function_is_mentioned(name: str) -> None:
    assert re.search(rf"`{name}[`(]", PAGE)


def test_every_metric_has_a_name_on_the_page() -> None:
    named = {METRICS[name] for name in ("rel", "abs", "eq", "hamming", "lev")}
    assert named == set(METRICS.values())


PRICES = {name: price for name, price in vars(gas).items() if name.isupper() and name[0] != "_"}


@pytest.mark.parametrize("name", [name for name in PRICES if isinstance(PRICES[name], int)])
def test_every_price_is_in_the_table(name: str) -> None:
    assert re.search(rf"\b{PRICES[name]}\b", PAGE.partition("## Gas")[2])


def test_the_limits_of_the_page_are_those_of_the_program() -> None:
    table = PAGE.partition("## Limits")[2].partition("## ")[0]
    shown = {
        limits.DOCUMENT_BYTES, limits.INPUTS, limits.RULES, limits.OUTCOME_KEYS, limits.READS,
        limits.CALLS, limits.GRANTS, limits.WAKE_UPS, limits.READ_ARGS, limits.EXECUTION_ARGS,
        limits.SAVES, limits.EXTRACTS, limits.HEADERS, limits.URL, limits.BODY, limits.TEXT,
        SOURCE_BYTES_MAX, NODES_MAX,
    }  # fmt: skip
    assert [most for most in shown if not re.search(rf"\b{most}\b", table)] == []
    assert f"{STEPS_MAX:,}" in table


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("type(1)", "`there is no function type`"),
        ("timestamp('x')", "`there is no function timestamp`"),
        ("1 // one", "`` `/` stands where a value is expected ``"),
        ("m.`a-b`", "``'`' does not belong here``"),
        ("m.all(k, v, v > 0)", "`all takes a variable and an expression`"),
        ("math.greatest(1, 2)", "`there is no method …`"),
    ],
)
def test_what_of_cel_is_absent_is_named_with_its_message(text: str, message: str) -> None:
    assert message in PAGE.partition("### What of CEL is absent")[2].partition("## ")[0]
    with pytest.raises(CelSyntaxError) as error:
        compile_cel(text)
    assert message.strip("` ").removesuffix("…") in str(error.value)


def test_what_string_makes_of_numbers_that_are_not_finite_is_on_the_page() -> None:
    for text in ("0.0 / 0.0", "1.0 / 0.0", "-1.0 / 0.0"):
        assert f"`{compile_cel(f'string({text})').evaluate({})}`" in PAGE

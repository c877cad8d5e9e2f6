"""What holds for every expression, tried on many that nobody would write."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.expressions.cel.cel import compile_cel
from anabranch.expressions.cel.cost import Prices, cost
from anabranch.expressions.cel.functions import FUNCTIONS, METHODS
from anabranch.expressions.cel.parser import MACROS, parse
from anabranch.expressions.cel.regex import Pattern
from anabranch.expressions.cel.tree import (
    Binary,
    Call,
    Conditional,
    Index,
    ListOf,
    Literal,
    Logic,
    Macro,
    MapOf,
    Name,
    Node,
    Select,
    Unary,
    count,
    walk,
    written,
)
from anabranch.expressions.cel.values import (
    INT64,
    CelError,
    Int256,
    UInt,
    Uint256,
    plain_of,
    text_of,
)
from anabranch.expressions.placeholders import compile_value
from seeds import examples

NAMES = ("a", "b", "c", "resp", "x")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
literals = st.one_of(
    st.booleans(),
    st.none(),
    st.integers(*INT64),
    st.integers(2**63, 2**255 - 1).map(Int256),
    st.integers(2**255, 2**256 - 1).map(Uint256),
    st.integers(0, 2**64 - 1).map(UInt),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
    st.binary(max_size=4),
).map(Literal)
names = st.sampled_from(NAMES)


def _logic(op: str, terms: list[Node]) -> Node:
    return Logic(op, tuple(terms))


def _grown(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    ops = ["==", "!=", "<", "<=", ">", ">=", "in", "+", "-", "*", "/", "%"]
    calls = [(name, n) for name, (least, most) in FUNCTIONS.items() for n in {least, most}]
    methods = [(name, n) for name, (_, n) in METHODS.items()]

    def call(given: tuple[str, int], method: bool) -> st.SearchStrategy[Node]:
        args = st.tuples(*[inner] * given[1])
        return args.map(lambda found: Call(given[0], found, method))

    return st.one_of(
        st.builds(Select, inner, names, st.booleans()),
        st.builds(Index, inner, inner),
        st.builds(Unary, st.just("!"), inner),
        st.builds(Unary, st.just("-"), st.one_of(names.map(Name), st.builds(Select, inner, names))),
        st.builds(Binary, st.sampled_from(ops), inner, inner),
        st.builds(_logic, st.sampled_from(["&&", "||"]), st.lists(inner, min_size=2, max_size=4)),
        st.builds(Conditional, inner, inner, inner),
        st.lists(inner, max_size=4).map(lambda items: ListOf(tuple(items))),
        st.lists(st.tuples(inner, inner), max_size=3).map(lambda items: MapOf(tuple(items))),
        st.builds(Macro, st.sampled_from(MACROS), inner, names, inner),
        st.builds(Macro, st.just("map"), inner, names, inner, inner),
        st.sampled_from(calls).flatmap(lambda each: call(each, False)),
        st.sampled_from(methods).flatmap(lambda each: call(each, True)),
    )


trees = st.recursive(st.one_of(literals, names.map(Name)), _grown, max_leaves=12)
values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(*INT64), st.floats(), texts,
        st.integers(0, 2**256 - 1).map(Uint256), st.integers(0, 2**64 - 1).map(UInt),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=8,
)  # fmt: skip
environments = st.dictionaries(names, values)


@settings(max_examples=examples(300), deadline=None)
@given(trees)
def test_a_tree_written_out_is_read_as_the_same_tree(tree: Node) -> None:
    text = written(tree)
    try:
        again = parse(text)
    except CelError:
        return  # longer or deeper than an expression may be
    assert again == tree


@settings(max_examples=examples(400), deadline=None)
@given(trees, environments, st.booleans())
def test_evaluating_raises_nothing_but_its_own_errors(
    tree: Node, given_names: dict[str, Any], strict: bool
) -> None:
    with suppress(CelError):
        result = compile_cel(written(tree), strict=strict).evaluate(given_names)
        text_of(plain_of(result))


@settings(max_examples=examples(400), deadline=None)
@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    for read in (compile_cel, compile_value):
        with suppress(CelError):
            read(text)


alphabet = st.text(st.sampled_from("[]ABab01'\"+-*/%()<>!=|& .?:,{}"), max_size=40)


@settings(max_examples=examples(400), deadline=None)
@given(alphabet)
def test_no_mixture_of_signs_breaks_a_value(text: str) -> None:
    with suppress(CelError):
        value = compile_value(text, {"A"})
        value.evaluate({"A": 1, "B": "x"})


@settings(max_examples=examples(200), deadline=None)
@given(trees)
def test_the_static_cost_is_bounded_by_the_size_of_the_tree(tree: Node) -> None:
    flat = Prices(operator=1, function=1, matches=1)
    loops = sum(isinstance(node, Macro) for node in walk(tree))
    assert 0 <= cost(tree, flat) <= 8 * count(tree) * 64**loops


patterns = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\w", "\\d", "^", "$", "\\b"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=examples(400), deadline=None)
@given(patterns, st.text(st.sampled_from("ab1 "), max_size=8))
def test_patterns_find_what_the_standard_library_finds(pattern: str, text: str) -> None:
    """`\\Z` because Python's `$` also stands before a last line end."""
    expected = re.search(pattern.replace("$", r"\Z"), text, re.ASCII) is not None
    assert Pattern(pattern).search(text, lambda _steps: None) is expected


@pytest.mark.parametrize("source", ["\ud800", "'\ud800'", "b'\ud800'", "[A] > '\ud800'"])
def test_half_characters_are_survived(source: str) -> None:
    with suppress(CelError):
        compile_value(source, {"A"}).evaluate({"A": "x"})
        compile_cel(source).evaluate({"A": "x"})

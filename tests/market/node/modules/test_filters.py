"""Filters of chains: what they let pass, against a naive oracle, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import InputError
from anabranch.market.node.modules.filters import (
    DEPTH_MAX,
    NODES_MAX,
    compile_filter,
    json_equal,
)

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.0, 1.0, 0.5, "", "a", "true"])
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=4,
)
fields = st.sampled_from(["a", "b", "c", "msg"])
payloads = st.one_of(scalars, st.dictionaries(st.sampled_from("abc"), values, max_size=3))
leaves = st.one_of(
    st.fixed_dictionaries({"msg": st.sampled_from(["x", "y"])}),
    st.dictionaries(st.sampled_from("abc"), values, min_size=1, max_size=2),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda parts: {"AND": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: {"OR": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda part: {"NOT": part}, inner),
    ),
    max_leaves=8,
)


def canonical(value: Any) -> Any:
    """Distinct JSON values as distinct Python values."""
    if isinstance(value, dict):
        return "object", frozenset((key, canonical(one)) for key, one in value.items())
    if isinstance(value, list):
        return "array", tuple(canonical(one) for one in value)
    if isinstance(value, bool) or value is None:
        return "constant", str(value)
    if isinstance(value, int | float):
        return "number", float(value)
    return "string", value


def oracle(tree: dict[str, Any], msg: str, payload: Any) -> bool:
    def one(key: str, value: Any) -> bool:
        if key == "AND":
            return all(oracle(each, msg, payload) for each in value)
        if key == "OR":
            return any(oracle(each, msg, payload) for each in value)
        if key == "NOT":
            return not oracle(value, msg, payload)
        if key == "msg":
            return bool(msg == value)
        if not isinstance(payload, dict) or key not in payload:
            return False
        return bool(canonical(payload[key]) == canonical(value))

    return all(one(key, value) for key, value in tree.items())


@settings(max_examples=200, deadline=None)
@given(trees, st.sampled_from(["x", "y", "z"]), payloads)
def test_a_filter_agrees_with_the_oracle(tree: dict[str, Any], msg: str, payload: Any) -> None:
    assert compile_filter(tree)(msg, payload) is oracle(tree, msg, payload)


@settings(max_examples=200, deadline=None)
@given(values, values)
def test_equality_is_that_of_json_values(one: Any, other: Any) -> None:
    assert json_equal(one, other) is (canonical(one) == canonical(other))
    assert json_equal(one, one)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (True, 1, False),
        (False, 0, False),
        (1, 1.0, True),
        (1, "1", False),
        (None, False, False),
        ({"a": 1}, {"a": True}, False),
        ([1], [1, 1], False),
        ({}, [], False),
    ],
)
def test_values_that_python_would_confuse(one: Any, other: Any, same: bool) -> None:
    assert json_equal(one, other) is same


def test_a_missing_field_is_not_null() -> None:
    assert not compile_filter({"a": None})("m", {})
    assert compile_filter({"a": None})("m", {"a": None})


def nested(depth: int) -> Any:
    tree: Any = {"msg": "x"}
    for _ in range(depth):
        tree = {"NOT": tree}
    return tree


@pytest.mark.parametrize(
    ("tree", "code"),
    [
        (nested(10_000), "filter_too_deep"),
        (nested(DEPTH_MAX - 1), "filter_too_deep"),
        ({"AND": [{"msg": "x"}] * NODES_MAX}, "filter_too_large"),
        ({"a": [0] * NODES_MAX}, "filter_too_large"),
        ({}, "filter_invalid"),
        ([], "filter_invalid"),
        ("msg", "filter_invalid"),
        (None, "filter_invalid"),
        ({"msg": 1}, "filter_invalid"),
        ({"AND": []}, "filter_invalid"),
        ({"OR": {"msg": "x"}}, "filter_invalid"),
        ({"NOT": []}, "filter_invalid"),
        ({"NOT": {"AND": [{}]}}, "filter_invalid"),
    ],
)
def test_a_filter_that_is_none_is_refused_by_name(tree: Any, code: str) -> None:
    with pytest.raises(InputError) as refused:
        compile_filter(tree)
    assert refused.value.code == code


def test_the_deepest_filter_allowed_is_compiled() -> None:
    assert compile_filter(nested(DEPTH_MAX - 2))("x", None)

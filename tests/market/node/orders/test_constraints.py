"""What an offer asks of the input of an order, and an order of the output."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.market.node.orders import constraints
from anabranch.market.node.orders.constraints import input_problem, output_problem, same

FITS: list[tuple[Any, Any]] = [
    ({}, {"text": "x"}),
    ({"remark": "anything else is a note", "max-characters": 1}, {"text": "xx"}),
    ({"type": "object", "required": ["text"]}, {"text": ""}),
    ({"properties": {"text": {"type": "string", "maxLength": 2}}}, {"text": "ab"}),
    ({"properties": {"text": {"maxLength": 2}}}, {"other": "abc"}),
    ({"properties": {"n": {"type": "integer", "minimum": 1, "maximum": 3}}}, {"n": 3}),
    ({"properties": {"n": {"type": ["integer", "null"]}}}, {"n": None}),
    ({"properties": {"l": {"enum": ["pl", "en"]}}}, {"l": "pl"}),
    ({"properties": {"f": {"const": True}}}, {"f": True}),
    ({"properties": {"f": {"enum": [1, [1], {"n": 1}, True]}}}, {"f": True}),
    ({"properties": {"f": {"enum": [[True], [1]]}}}, {"f": [1]}),
    ({"properties": {"a": {"items": {"type": "string"}, "minItems": 1}}}, {"a": ["x"]}),
    ({"properties": {"a": True}}, {"a": 1}),
    ({"properties": {"a": {}}, "additionalProperties": False}, {"a": 1}),
    ({"maxProperties": 1}, {"a": 1}),
]
DOES_NOT_FIT: list[tuple[Any, Any, str]] = [
    ({"required": ["text"]}, {}, "text"),
    ({"type": "array"}, {}, "array"),
    ({"type": "text"}, {}, "unknown type"),
    ({"type": 7}, {}, "unknown type"),
    ({"properties": {"text": {"type": "string"}}}, {"text": 1}, "request/input/text"),
    ({"properties": {"text": {"maxLength": 2}}}, {"text": "abc"}, "maxLength 2"),
    ({"properties": {"text": {"minLength": 2}}}, {"text": "a"}, "minLength 2"),
    ({"properties": {"n": {"type": "integer"}}}, {"n": True}, "integer"),
    ({"properties": {"n": {"minimum": 1}}}, {"n": 0}, "minimum 1"),
    ({"properties": {"n": {"maximum": 1}}}, {"n": 2}, "maximum 1"),
    ({"properties": {"l": {"enum": ["pl"]}}}, {"l": "en"}, "one of 1"),
    ({"properties": {"f": {"const": 1}}}, {"f": True}, "the value"),
    ({"properties": {"f": {"enum": [1, [1]]}}}, {"f": True}, "one of 2"),
    ({"properties": {"f": {"enum": []}}}, {"f": True}, "one of 0"),
    ({"properties": {"a": {"items": {"type": "string"}}}}, {"a": ["x", 1]}, "request/input/a/1"),
    ({"properties": {"a": {"maxItems": 0}}}, {"a": [1]}, "maxItems 0"),
    ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1}, "'b'"),
    ({"minProperties": 1}, {}, "minProperties 1"),
    ({"properties": {"a": {"properties": {"b": {"type": "null"}}}}}, {"a": {"b": 1}}, "a/b"),
    ({"properties": {"a": "text"}}, {"a": 1}, "cannot be read"),
    ({"required": [["text"]]}, {"text": "x"}, "no text"),
    ({"required": [{}]}, {"text": "x"}, "no text"),
]


@pytest.mark.parametrize(("constraints", "given"), FITS)
def test_an_input_that_fits_is_taken(constraints: Any, given: Any) -> None:
    assert input_problem(constraints, given) == ""


@pytest.mark.parametrize(("constraints", "given", "words"), DOES_NOT_FIT)
def test_an_input_that_does_not_fit_is_told_where(constraints: Any, given: Any, words: str) -> None:
    assert words in input_problem(constraints, given)


def test_what_would_take_too_long_to_compare_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"properties": {"a": {"items": {"enum": list(range(10))}}}}
    given = {"a": [9] * 8}  # ten values with the list and the object
    for steps, words in ((100, ""), (99, "too long")):
        monkeypatch.setattr(constraints, "STEPS_MAX", steps)
        found = input_problem(schema, given)
        assert (words in found) if words else not found
        found = output_problem({"a": list(range(10))}, given)
        assert (words in found) if words else not found


def test_constraints_of_any_depth_are_read_to_an_end() -> None:
    schema: dict[str, Any] = {}
    value: dict[str, Any] = {}
    for _ in range(500):
        schema, value = {"properties": {"a": schema}}, {"a": value}
    assert "cannot be read" in input_problem(schema, value)


@pytest.mark.parametrize(
    ("offered", "wanted", "agrees"),
    [
        (None, {"format": "pdf"}, True),
        ({"format": "json"}, None, True),
        ({"format": "json"}, {"format": "json", "tone": "plain"}, True),
        ({"format": "json"}, {"format": "pdf"}, False),
        ({"format": ["json", "text"]}, {"format": "text"}, True),
        ({"format": ["json", "text"]}, {"format": ["text", "json"]}, True),
        ({"format": ["json", "text"]}, {"format": ["text", "pdf"]}, False),
        ({"max-length": 1000}, {"max-length": 500}, True),
        ({"max-length": 1000}, {"max-length": 1001}, False),
        ({"min-length": 10}, {"min-length": 20}, True),
        ({"min-length": 10}, {"min-length": 9}, False),
        ({"pages": 2}, {"pages": 3}, False),
        ({"final": True}, {"final": 1}, False),
        ({"style": {"a": [1]}}, {"style": {"a": [1]}}, True),
        ({"style": {"a": [1]}}, {"style": {"a": [True]}}, False),
    ],
)
def test_what_an_order_asks_of_the_output_agrees_with_the_offer(
    offered: Any, wanted: Any, agrees: bool
) -> None:
    assert (output_problem(offered, wanted) == "") is agrees


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [(1, 1, True), (1, True, False), (0, False, False), ("1", 1, False), ([], {}, False)],
)
def test_values_are_equal_as_json_is(left: Any, right: Any, equal: bool) -> None:
    assert same(left, right) is equal

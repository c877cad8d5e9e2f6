"""What the form of a start makes of what was typed. No browser is needed."""

from __future__ import annotations

from typing import Any

import pytest
from multidict import MultiDict

from anabranch.errors import InputError
from anabranch.operations.definitions.inputs import RunInput
from anabranch.surfaces.ui.views.forms import blamed, fields_of, given_of


def form(**typed: str) -> Any:
    made: MultiDict[str] = MultiDict()
    for name, text in typed.items():
        made[f"was:{name}"] = "\0"  # whatever it was, it is not what was typed
        made[f"value:{name}"] = text
    return made


def value(kind: str, text: str, **more: Any) -> Any:
    given = given_of([RunInput("x", kind, **more)], form(x=text))
    return given.errors.get("x") or given.values.get("x", "left out")


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("string", "", ""),
        ("string", "12", "12"),
        ("string", " a\r\nb ", " a\nb "),
        ("number", "1.5", 1.5),
        ("number", "", "left out"),
        ("number", "1e999", "this is not JSON: the body does not fit: Number out of range"),
        ("number", "true", "this is not a number that can be stored"),
        ("integer", "7", 7),
        ("integer", "7.0", 7),
        ("integer", "7.5", "this is not a whole number"),
        ("boolean", "true", True),
        ("boolean", "", False),
        ("object", '{"a": 1}', {"a": 1}),
        ("object", "[1]", "this is not a JSON object"),
        ("array", "[1]", [1]),
        ("array", "{}", "this is not a JSON list"),
        ("any", "words", "words"),
        ("any", "12", 12),
        ("any", '{"a": [1]}', {"a": [1]}),
        ("any", "", "left out"),
    ],
)
def test_a_field_stands_for_a_value_of_its_kind(kind: str, text: str, expected: Any) -> None:
    assert value(kind, text, default="x") == expected


@pytest.mark.parametrize("kind", ["string", "number", "object", "any"])
def test_what_is_needed_and_empty_is_said(kind: str) -> None:
    assert value(kind, " ", required=True, has_default=False) == "this is needed"


@pytest.mark.parametrize("text", ["{", "NaN", '{"a": NaN}', "[" * 100_000])
def test_what_is_not_json_is_said(text: str) -> None:
    assert str(value("object", text)).startswith("this is not JSON")


def test_a_field_has_the_limits_of_a_body() -> None:
    for text in (f"[{'[],' * 300_000}1]", '{"a": 1, "a": 2}', f"{'[' * 201}{']' * 201}"):
        assert str(value("array", text)).startswith("this is not JSON")


def test_a_field_that_nobody_touched_follows_the_definition() -> None:
    untouched = MultiDict({"was:x": "old", "value:x": "old"})
    touched = MultiDict({"was:x": "old", "value:x": "mine"})
    for typed, shown in ((untouched, "new"), (touched, "mine")):
        (field,) = fields_of([RunInput("x", "string", default="new")], typed)
        assert (field.value, field.was) == (shown, "new")


def test_the_whole_as_json_goes_before_the_fields() -> None:
    typed = form(x="1")
    typed["input"] = '{"y": 2}'
    assert given_of([RunInput("x", "number")], typed).values == {"y": 2}
    typed["input"] = "[]"
    assert given_of([RunInput("x", "number")], typed).errors == {"": "the input is one JSON object"}


def test_an_error_is_blamed_on_the_input_that_it_names() -> None:
    error = InputError("parameter 'wait' must be of type string")
    assert blamed(error, ["wait", "text"]) == "wait"
    assert blamed(InputError("the input is not JSON: result.text[0] is a set"), ["text"]) == "text"
    assert blamed(InputError("nobody is at fault"), ["wait"]) == ""

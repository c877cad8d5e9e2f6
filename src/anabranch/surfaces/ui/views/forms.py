"""The form that starts a run: a field for each input, and what it brings back.

A field keeps what somebody typed into it while the definition beside it changes; one that nobody
touched follows the default. Whatever is wrong is said at the field it is about.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

import msgspec

from anabranch.errors import AnabranchError, InputError
from anabranch.operations.definitions.inputs import RunInput
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.request_body import Limits, parse

DEPTH_MAX = Limits().depth

_KINDS = {
    "boolean": "flag",
    "number": "number",
    "integer": "number",
    "object": "json",
    "array": "json",
}
_NOT_JSON = "the body is not JSON: "
_SAID = {"any": "words or JSON", "object": "a JSON object", "array": "a JSON list"}


def text_of(form: Mapping[str, Any], name: str) -> str:
    value: Any = form.get(name, "")
    return value if isinstance(value, str) else ""


class Field(msgspec.Struct, frozen=True):
    """One input as a form asks for it."""

    name: str
    kind: str  # text, long, number, flag, json, any, choice, secret
    type: str
    value: str
    was: str  # the default as text: whoever did not change it follows the definition
    required: bool = False
    whole: bool = False  # only whole numbers
    hint: str = ""
    error: str = ""
    choices: tuple[tuple[str, str], ...] = ()  # as JSON, and as people read them

    @property
    def checked(self) -> bool:
        return self.value == "true"


class Given(msgspec.Struct):
    """What a form brought: the input of a run, or what is wrong with which field."""

    values: dict[str, Any] = {}
    errors: dict[str, str] = {}


def fields_of(
    wanted: Iterable[RunInput], form: Any = None, errors: Mapping[str, str] | None = None
) -> list[Field]:
    return [_field(one, form, (errors or {}).get(one.name, "")) for one in wanted]


def _field(one: RunInput, form: Any, error: str) -> Field:
    was = _text(one)
    kind = _kind(one, was)
    if one.enum:
        was = _json(one.default) if one.has_default else ""
    how = _SAID[one.type] if kind in ("any", "json") else ""
    said = "; ".join(filter(None, (one.description, how)))
    return Field(
        one.name, kind, one.type, _typed(one.name, kind, was, form), was,
        one.required, one.type == "integer", said, error,
        tuple((_json(value), _plain(value)) for value in one.enum),
    )  # fmt: skip


def _kind(one: RunInput, was: str) -> str:
    if one.secret or one.enum:
        return "secret" if one.secret else "choice"
    kind = _KINDS.get(one.type, "any" if one.type == "any" else "text")
    return "long" if kind == "text" and "\n" in was else kind


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _text(one: RunInput) -> str:
    """The default as the form shows it."""
    if one.secret:
        return ""
    if not one.has_default:
        return "false" if one.type == "boolean" else ""
    if one.type == "string" and isinstance(one.default, str):
        return one.default
    if one.default is None:
        return ""
    indent = 2 if isinstance(one.default, dict | list) and one.default else None
    return json.dumps(one.default, ensure_ascii=False, indent=indent, default=str)


def _typed(name: str, kind: str, was: str, form: Any) -> str:
    """What was typed, unless it is what the form itself had put there before."""
    if form is None or f"was:{name}" not in form:
        return was
    if kind == "flag":
        value = "true" if text_of(form, f"value:{name}") == "true" else "false"
    else:
        value = _lines(text_of(form, f"value:{name}"))
    return was if value == _lines(text_of(form, f"was:{name}")) else value


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")


# -- what it brings --------------------------------------------------------------------------------


def given_of(wanted: Iterable[RunInput], form: Any) -> Given:
    """Field by field, or the whole as JSON where that was chosen."""
    whole = text_of(form, "input").strip()
    if whole:
        return _whole(whole)
    given = Given()
    for one in fields_of(wanted, form):
        try:
            value = _value(one)
        except InputError as error:
            given.errors[one.name] = error.message
        else:
            if value is not _NOTHING:
                given.values[one.name] = value
    return given


_NOTHING = object()


def _whole(text: str) -> Given:
    try:
        value = read_json(text, "the input")
        if not isinstance(value, dict):
            raise InputError("the input is one JSON object")
    except InputError as error:
        return Given(errors={"": error.message})
    return Given(values=value)


def _value(one: Field) -> Any:
    """What a field stands for; nothing where it is empty and need not be."""
    text = one.value
    if one.kind == "flag":
        return one.checked
    if not text.strip() and (one.kind not in ("text", "long") or one.required or not one.was):
        if one.required:
            raise InputError("this is needed")
        if one.kind in ("choice", "secret"):
            return _NOTHING
        return "" if one.kind in ("text", "long") and one.type == "string" else _NOTHING
    match one.kind:
        case "choice":
            return _choice(one)
        case "number":
            return _number(text.strip(), whole=one.whole)
        case "json":
            return _json_of(text, one.type)
        case "any":
            return _any(text)
        case _:
            return text


def _choice(one: Field) -> Any:
    if one.value not in (written for written, _ in one.choices):
        raise InputError("this is none of the choices")
    return json.loads(one.value)


def _number(text: str, *, whole: bool) -> int | float:
    value = read_json(text, "this")
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise InputError("this is not a number that can be stored")
    if whole and value != int(value):
        raise InputError("this is not a whole number")
    return int(value) if whole else value


def _json_of(text: str, kind: str) -> Any:
    value = read_json(text, "this")
    if not isinstance(value, dict if kind == "object" else list):
        raise InputError(f"this is not {_SAID[kind]}")
    return value


def _any(text: str) -> Any:
    """JSON where it is JSON, otherwise the words themselves."""
    try:
        return read_json(text, "this")
    except InputError:
        return text


def read_json(text: str, what: str) -> Any:
    """A value that was typed, within the limits of every body."""
    try:
        return parse(text.encode(), Any, DEPTH_MAX)
    except ApiError as error:
        raise InputError(f"{what} is not JSON: {error.detail.removeprefix(_NOT_JSON)}") from None


def blamed(error: AnabranchError, names: Iterable[str]) -> str:
    """The input that an error of a start is about; "" where it names none, or several."""
    quoted = [name for name in names if f"'{name}'" in error.message]
    dotted = [name for name in names if f"result.{name}" in error.message]
    found = quoted or dotted
    return found[0] if len(found) == 1 and error.code != "definition" else ""

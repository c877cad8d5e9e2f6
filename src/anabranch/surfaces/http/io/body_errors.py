"""What is wrong with a body that does not fit its type, in words that help to mend it.

msgspec says what and where. The nearest known key, or the values that may stand there, are read
from the schema of the type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from anabranch.net.problems import did_you_mean
from anabranch.surfaces.http.io.problems import ApiError

_SCHEMA = "GET /api/v1/openapi.json has the schema"
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_PLACE = re.compile(r" - at `\$([^`]*)`$")
_KEY = re.compile(r"\.([^.\[\]]+)")


def misfit(error: msgspec.ValidationError, kind: Any) -> ApiError:
    said = str(error)
    place = _PLACE.search(said)
    hint = _hint(said, kind, _KEY.findall(place.group(1)) if place else [])
    return ApiError(422, "schema", f"the body does not fit: {said}", hint or _SCHEMA)


def _hint(said: str, kind: Any, keys: list[str]) -> str | None:
    try:
        whole = msgspec.json.schema(kind)
    except TypeError:  # a type that has none
        return None
    shapes = _shapes_at(whole, keys)
    unknown = _UNKNOWN.search(said)
    if unknown is not None:
        known = sorted({name for shape in shapes for name in shape.get("properties", ())})
        return did_you_mean(unknown.group(1), known)
    if "enum value" in said:
        values = [str(value) for shape in shapes for value in shape.get("enum", ())]
        return f"give one of {', '.join(values)}" if values else None
    return None


def _shapes_at(whole: Mapping[str, Any], keys: list[str]) -> list[Mapping[str, Any]]:
    """The schemas of what may stand behind these keys."""
    shapes = list(_meant(whole, whole))
    for key in keys:
        inner = [shape["properties"][key] for shape in shapes if key in shape.get("properties", ())]
        shapes = [meant for one in inner for meant in _meant(one, whole)]
    return shapes


def _meant(shape: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A schema without references and alternatives: each of those that it stands for."""
    if "$ref" in shape:
        yield from _meant(whole["$defs"][shape["$ref"].rpartition("/")[2]], whole)
    elif "anyOf" in shape:
        for one in shape["anyOf"]:
            yield from _meant(one, whole)
    elif "items" in shape and isinstance(shape["items"], Mapping):
        yield from _meant(shape["items"], whole)
    else:
        yield shape

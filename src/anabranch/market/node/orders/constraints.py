"""What an offer asks of the input of an order, and what an order asks of the output.

No document says how `constraints/input` and `constraints/output` are written, so this is ours:
`constraints/input` is read as a JSON Schema of `request/input`, of which the keywords below are
carried out. Others are notes for people, as in JSON Schema. `request/output-constraints` must agree
with `constraints/output` where both name a key: the same value, one of a list, no more than a
number under `max…`, no less than one under `min…`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

DEPTH_MAX = 64
#: Comparisons at most: a provider writes the constraints, and the node waits for them.
STEPS_MAX = 5_000_000

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
#: Keyword → the measure of a value that it bounds; None where it says nothing of such a value.
_LEAST: dict[str, Callable[[Any], int | float | None]] = {
    "minimum": lambda value: value if _TYPES["number"](value) else None,
    "minLength": lambda value: len(value) if isinstance(value, str) else None,
    "minItems": lambda value: len(value) if isinstance(value, list) else None,
    "minProperties": lambda value: len(value) if isinstance(value, dict) else None,
}
_MOST = {key.replace("min", "max"): measure for key, measure in _LEAST.items()}


def input_problem(constraints: Any, given: Any, path: str = "request/input") -> str:
    """Why the input does not fit, or "". What cannot be read as a schema fits nothing."""
    if _extent(constraints).widest * _extent(given).values > STEPS_MAX:
        return f"the constraint for {path} is too long to be compared with so large an input"
    return _problem(constraints, given, path, 0)


class _Extent(NamedTuple):
    values: int  # all of them
    widest: int  # entries of the longest list or object


def _extent(value: Any) -> _Extent:
    """Every value of an input meets at most as many entries as the widest part of a schema has."""
    values, widest, left = 0, 1, [value]
    while left:
        each = left.pop()
        values += 1
        if isinstance(each, Mapping | list):
            left.extend(each.values() if isinstance(each, Mapping) else each)
            widest = max(widest, len(each))
    return _Extent(values, widest)


def _problem(schema: Any, value: Any, path: str, depth: int) -> str:
    if not isinstance(schema, Mapping) or depth > DEPTH_MAX:
        return f"the constraint for {path} cannot be read" if schema is not True else ""
    for rule in (_type, _values, _bounds, _fields, _items):
        if problem := rule(schema, value, path, depth):
            return problem
    return ""


def _type(schema: Mapping[str, Any], value: Any, path: str, _depth: int) -> str:
    wanted = schema.get("type")
    if wanted is None:
        return ""
    names = wanted if isinstance(wanted, list) else [wanted]
    known = [name for name in names if isinstance(name, str) and name in _TYPES]
    if len(known) != len(names):
        return f"the constraint for {path} names an unknown type"
    return "" if any(_TYPES[name](value) for name in known) else f"{path} must be {known}"


def _values(schema: Mapping[str, Any], value: Any, path: str, _depth: int) -> str:
    if "const" in schema and not same(schema["const"], value):
        return f"{path} must be the value that the offer names"
    choices = schema.get("enum")
    if isinstance(choices, list) and not _is_among(value, choices):
        return f"{path} must be one of {len(choices)} values that the offer names"
    return ""


def _bounds(schema: Mapping[str, Any], value: Any, path: str, _depth: int) -> str:
    for sign, table in ((1, _LEAST), (-1, _MOST)):
        for key, measure in table.items():
            bound: Any = schema.get(key)
            size = measure(value)
            if _TYPES["number"](bound) and size is not None and (size - bound) * sign < 0:
                return f"{path} does not keep to {key} {bound}"
    return ""


def _fields(schema: Mapping[str, Any], value: Any, path: str, depth: int) -> str:
    if not isinstance(value, dict):
        return ""
    required, fields = schema.get("required"), schema.get("properties")
    for key in required if isinstance(required, list) else ():
        if not isinstance(key, str):
            return f"the constraint for {path} requires a field that is no text"
        if key not in value:
            return f"{path} needs {key[:80]!r}"
    fields = fields if isinstance(fields, Mapping) else {}
    if schema.get("additionalProperties") is False and (more := set(value) - set(fields)):
        return f"{path} has {min(more)[:80]!r}, which the offer does not take"
    for key, inner in fields.items():
        if key in value and (problem := _problem(inner, value[key], f"{path}/{key}", depth + 1)):
            return problem
    return ""


def _items(schema: Mapping[str, Any], value: Any, path: str, depth: int) -> str:
    if not isinstance(value, list) or "items" not in schema:
        return ""
    for position, each in enumerate(value):
        if problem := _problem(schema["items"], each, f"{path}/{position}", depth + 1):
            return problem
    return ""


def output_problem(offered: Any, wanted: Any) -> str:
    """Why the provider cannot give what the order asks for, or ""."""
    if not isinstance(offered, Mapping) or not isinstance(wanted, Mapping):
        return ""
    if _extent(offered).widest * _extent(wanted).values > STEPS_MAX:
        return "constraints/output is too long to be compared with request/output-constraints"
    for key in sorted(set(offered) & set(wanted)):
        if not _agrees(key, offered[key], wanted[key]):
            return f"request/output-constraints asks for another {key[:80]!r} than the offer has"
    return ""


def _agrees(key: str, offered: Any, wanted: Any) -> bool:
    if same(offered, wanted):
        return True
    if isinstance(offered, list):
        choices = wanted if isinstance(wanted, list) else [wanted]
        return all(_is_among(one, offered) for one in choices)
    if _TYPES["number"](offered) and _TYPES["number"](wanted):
        if key.startswith("max"):
            return bool(wanted <= offered)
        return key.startswith("min") and bool(wanted >= offered)
    return False


def _is_among(value: Any, choices: list[Any]) -> bool:
    """What is the same is equal, so `index` finds it, much faster than asking each."""
    at = 0
    while at < len(choices):
        try:
            at = choices.index(value, at)
        except ValueError:
            return False
        if same(choices[at], value):
            return True
        at += 1  # true, where 1 is asked for
    return False


def same(left: Any, right: Any) -> bool:
    """Equal as JSON: true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(left == right)

"""Filters of chains: which messages a module is asked about. Compiled once, when it reports.

    {"msg": "offer-catalog.push"}                    the kind of message
    {"topic": "a"}                                   payload["topic"] is exactly that JSON value
    {"AND": [...]}, {"OR": [...]}, {"NOT": ...}      of other filters

An object with several keys asks for all of them. A filter has a limited depth and size, so that
asking it costs little whatever a module reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from anabranch.errors import InputError

DEPTH_MAX = 32
NODES_MAX = 1024

#: (kind of message, payload) → whether it fits.
Filter = Callable[[str, Any], bool]


def compile_filter(tree: Any) -> Filter:
    """Raises `InputError` with the codes filter_too_deep, filter_too_large and filter_invalid."""
    _require_small(tree)
    return _compiled(tree)


def json_equal(one: Any, other: Any) -> bool:
    """Equality of JSON values: true is not 1, 1 is 1.0. As deep as the shallower of the two."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(json_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(json_equal, one, other))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    return type(one) is type(other) and bool(one == other)


def _require_small(tree: Any) -> None:
    """Level by level, so that depth costs no stack."""
    level, nodes = [tree], 0
    for _ in range(DEPTH_MAX):
        nodes += len(level)
        if nodes > NODES_MAX:
            raise InputError(f"a filter has at most {NODES_MAX} parts", code="filter_too_large")
        level = [child for one in level for child in _children(one)]
        if not level:
            return
    raise InputError(f"a filter is at most {DEPTH_MAX} deep", code="filter_too_deep")


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _compiled(tree: Any) -> Filter:
    if not isinstance(tree, dict) or not tree:
        raise InputError(
            'a filter is an object with at least one key, such as {"msg": "offer-catalog.push"}',
            code="filter_invalid",
        )
    parts = [_compiled_key(key, value) for key, value in tree.items()]
    return parts[0] if len(parts) == 1 else _every(parts)


def _compiled_key(key: str, value: Any) -> Filter:
    match key:
        case "AND":
            return _every(_compiled_list(key, value))
        case "OR":
            parts = _compiled_list(key, value)
            return lambda msg, payload: any(part(msg, payload) for part in parts)
        case "NOT":
            part = _compiled(value)
            return lambda msg, payload: not part(msg, payload)
        case "msg":
            if not isinstance(value, str):
                raise InputError("msg: in a filter it is a string", code="filter_invalid")
            return lambda msg, _payload: msg == value
    return lambda _msg, payload: (
        isinstance(payload, dict) and key in payload and json_equal(payload[key], value)
    )


def _every(parts: list[Filter]) -> Filter:
    return lambda msg, payload: all(part(msg, payload) for part in parts)


def _compiled_list(key: str, value: Any) -> list[Filter]:
    if not isinstance(value, list) or not value:
        raise InputError(f"{key} takes a list of at least one filter", code="filter_invalid")
    return [_compiled(one) for one in value]

"""Reading the inputs of a task: the value in the type that is needed, or what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from anabranch.dialects.durations import parse_duration
from anabranch.errors import InputError
from anabranch.work.secrets.redaction import brief


def text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{what} must be text, not {_kind(value)}")
    return value


def flag(value: Any, what: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise InputError(f"{what} must be true or false, not {brief(value)}")


def mapping(value: Any, what: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"{what} must be a mapping, not {_kind(value)}")
    return value


def scalar(value: Any, what: str) -> str:
    """Text as it is, numbers and booleans the way JSON writes them."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise InputError(f"{what} must be text or a number, not {_kind(value)}")


def seconds(value: Any, what: str) -> float:
    """A duration: a number of seconds, or text such as `30s`, `500ms`, `2m`, `1h30m`, `PT30S`."""
    amount = _amount(value)
    if amount is None or not math.isfinite(amount) or amount <= 0:
        raise InputError(
            f"{what} must be a time above zero such as 30 or '30s', not {brief(value)}"
        )
    return amount


def delay(value: Any, what: str) -> float:
    """Like `seconds`, and zero is fine."""
    amount = _amount(value)
    if amount is None or not math.isfinite(amount) or amount < 0:
        raise InputError(f"{what} must be a number of seconds or text as '5s', not {brief(value)}")
    return amount


def timeout(inputs: Mapping[str, Any]) -> float | None:
    """The time limit a task sets for itself, under either of its two names."""
    for name in ("timeout", "timeout_seconds"):
        if inputs.get(name) is not None:
            return seconds(inputs[name], name)
    return None


def _amount(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    try:
        return parse_duration(value) / 1000 if isinstance(value, str) else None
    except ValueError:
        return None


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return brief(value)

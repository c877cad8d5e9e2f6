"""Values of CEL expressions: the five kinds of number, their texts, the limits, the errors.

A value is what JSON has (None, bool, int, float, str, list, dict), `bytes`, and three more kinds of
integer. A plain `int` is CEL's 64-bit int. The 256-bit kinds are for balances and other numbers of
contracts; outside of expressions they are decimal texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

import msgspec

from anabranch.errors import ExpressionError
from anabranch.expressions.budget import TooMuch, charge_shared

SOURCE_BYTES_MAX: Final = 1024
NODES_MAX: Final = 4096
LIST_MAX: Final = 64  # of every list that comes from outside, however deep
MADE_LIST_MAX: Final = 1024  # of a list that an expression puts together
TEXT_MAX: Final = 1_048_576  # characters of a text that an expression puts together
STEPS_MAX: Final = 250_000  # of one evaluation
STEP_WORK: Final = 64  # what a step takes of the budget of a turn
STEP_CHARACTERS: Final = 64  # read, compared or made by one step
VALUE_DEPTH_MAX: Final = 64

INT64: Final = (-(2**63), 2**63 - 1)
UINT64: Final = (0, 2**64 - 1)
INT256: Final = (-(2**255), 2**255 - 1)
UINT256: Final = (0, 2**256 - 1)

_EXACT = 2**53
_DECIMAL = re.compile(r"-?[0-9]{1,78}")


class CelError(ExpressionError):
    """An expression that cannot be read or evaluated. Messages never repeat a value."""


class CelSyntaxError(CelError):
    """The text is no expression. `column` counts from 1."""

    def __init__(self, message: str, column: int = 1) -> None:
        super().__init__(message)
        self.column = column


class CelLimitError(CelError):
    """More source, nodes, elements or steps than allowed. Nothing absorbs it."""


class CelEvalError(CelError):
    """The evaluation failed: a wrong type, an overflow, a key that is not there."""


class CelMissingName(CelEvalError):
    """The expression names something that is not there."""


class UInt(int):
    """CEL's uint: 64 bits, not negative."""

    __slots__ = ()


class Int256(int):
    __slots__ = ()


class Uint256(int):
    __slots__ = ()


class BoolKey(msgspec.Struct, frozen=True):
    """A boolean as the key of a map: 1 is another one, though not to Python."""

    value: bool


KINDS: Final[Mapping[type, str]] = {
    type(None): "null", bool: "bool", int: "int", UInt: "uint", Int256: "int256",
    Uint256: "uint256", float: "double", str: "string", bytes: "bytes", list: "list",
    tuple: "list", dict: "map",
}  # fmt: skip
WHOLE: Final = frozenset({int, UInt, Int256, Uint256})
NUMBERS: Final = WHOLE | {float}
WIDE: Final = frozenset({Int256, Uint256})
RANGES: Final[Mapping[type, tuple[int, int]]] = {
    int: INT64, UInt: UINT64, Int256: INT256, Uint256: UINT256,
}  # fmt: skip


def kind_of(value: Any) -> str:
    """The CEL type of a value, for messages."""
    return KINDS.get(type(value), type(value).__name__)


def map_key(value: Any) -> Any:
    """A value as the key under which a map keeps it."""
    return BoolKey(value) if value is True or value is False else value


def key_value(key: Any) -> Any:
    """The key of a map as the value that the author wrote."""
    return key.value if type(key) is BoolKey else key


def within_range(kind: type, number: int) -> Any:
    """The number as that kind of integer; an overflow is an error, never a wrap-around."""
    least, most = RANGES[kind]
    if not least <= number <= most:
        raise CelEvalError(f"the result does not fit {KINDS[kind]}: an overflow")
    return number if kind is int else kind(number)


def decimal_integer(text: str) -> int | None:
    """The integer that a decimal text says, or None."""
    return int(text) if _DECIMAL.fullmatch(text) else None


def number_text(number: float) -> str:
    """A double as people and URLs write it: `5`, not `5.0`."""
    if isfinite(number) and number.is_integer() and abs(number) < 1e21:
        return str(int(number))
    return repr(number)


def charge_turn(steps: int) -> None:
    """Of the budget that all evaluations of a turn share, if there is one."""
    try:
        charge_shared(STEP_WORK * steps)
    except TooMuch as error:
        raise CelLimitError(str(error)) from None


def text_of(value: Any) -> str:
    """The value inside a text."""
    match value:
        case str():
            return value
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case float():
            return number_text(value)
        case bytes():
            return "0x" + value.hex()
    return json.dumps(plain_of(value), separators=(",", ":"), ensure_ascii=False)


def plain_of(value: Any, depth: int = 0, left: list[int] | None = None) -> Any:
    """The value as it leaves expressions: plain JSON, with 256-bit integers as decimal texts."""
    left = [STEPS_MAX] if left is None else left
    left[0] -= 1 + (len(value) // STEP_CHARACTERS if isinstance(value, str | bytes) else 0)
    if depth > VALUE_DEPTH_MAX or left[0] < 0:
        raise CelLimitError("the value is nested too deep or too large")
    kind = type(value)
    if kind in WIDE:
        return str(int(value))
    if kind is UInt:
        return int(value)
    if kind is bytes:
        return "0x" + value.hex()
    if kind is float and not isfinite(value):
        raise CelEvalError("the result is not a finite number")
    if kind is list or kind is tuple or kind is dict:
        charge_turn(1 + len(value))
    if kind is list or kind is tuple:
        return [plain_of(item, depth + 1, left) for item in value]
    if kind is dict:
        return {
            text_of(key_value(key)): plain_of(item, depth + 1, left) for key, item in value.items()
        }
    if kind not in KINDS:
        raise CelEvalError(f"a {kind.__name__} is no value of an expression")
    return value


def from_json(value: Any, depth: int = 0) -> Any:
    """Decoded JSON as an expression sees it: numbers are doubles.

    Integers beyond 2**53, which a double could not hold exactly, stay integers."""
    if depth > VALUE_DEPTH_MAX:
        raise CelLimitError(f"the JSON is nested more than {VALUE_DEPTH_MAX} deep")
    match value:
        case bool() | None | str():
            return value
        case int():
            return _from_integer(value)
        case list():
            return [from_json(item, depth + 1) for item in value]
        case dict():
            return {key: from_json(item, depth + 1) for key, item in value.items()}
    return value


def _from_integer(number: int) -> Any:
    if -_EXACT <= number <= _EXACT:
        return float(number)
    if INT64[0] <= number <= INT64[1]:
        return number
    if INT256[0] <= number <= INT256[1]:
        return Int256(number)
    return Uint256(number) if 0 < number <= UINT256[1] else _too_wide(number)


def _too_wide(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        raise CelEvalError("a number of the JSON is too large") from None


def check_lists(value: Any, depth: int = 0) -> None:
    """Refuse a list of more than 64 elements anywhere in what comes from outside."""
    kind = type(value)
    if kind is list or kind is tuple:
        if len(value) > LIST_MAX:
            raise CelLimitError(f"a list has {len(value)} elements; at most {LIST_MAX} are allowed")
        items = value
    elif kind is dict:
        items = value.values()
    else:
        return
    charge_turn(1 + len(value))
    if depth >= VALUE_DEPTH_MAX:
        raise CelLimitError(f"a value is nested more than {VALUE_DEPTH_MAX} deep")
    for item in items:
        if type(item) in (list, tuple, dict):
            check_lists(item, depth + 1)

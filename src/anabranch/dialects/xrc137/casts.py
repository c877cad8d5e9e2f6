"""The types of rule documents, and the cast every value goes through when it enters or leaves.

A value out of the range of its type is an `Overflow`, any other that does not fit a plain
`CastFailed`. Where the field has a default, that is taken instead; without one, an `Overflow` is
always an error. Messages never repeat the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final

from anabranch.errors import AnabranchError
from anabranch.expressions.cel.values import (
    INT64,
    INT256,
    UINT64,
    UINT256,
    WHOLE,
    Int256,
    UInt,
    Uint256,
    decimal_integer,
    number_text,
)

TEXT_MAX: Final = 8192
#: Instants and durations are never negative. In expressions they are signed: the difference of two
#: instants may be.
_MILLISECONDS: Final = (0, INT64[1])
_ADDRESS = re.compile(r"0[xX][0-9a-fA-F]{40}")
_HEX = re.compile(r"0[xX](?:[0-9a-fA-F]{2})*")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")


class CastFailed(AnabranchError):
    """The value is not what its type says."""

    code = "cast"


class Overflow(CastFailed):
    """The value is outside the range of its type."""

    code = "overflow"


def cast(value: Any, type_name: str) -> Any:
    """The value as an expression sees it. 256-bit integers print as decimal texts later."""
    return _CASTS[type_name](value, type_name)


def is_address(text: Any) -> bool:
    return isinstance(text, str) and _ADDRESS.fullmatch(text) is not None


def _no(value: Any, type_name: str) -> CastFailed:
    kinds = {bool: "true or false", str: "a text", float: "a number", dict: "a mapping"}
    if value is None:
        shown = "empty"
    else:
        shown = "a list" if isinstance(value, list) else kinds.get(type(value), "a number")
    return CastFailed(f"it is {shown} that is no {type_name}")


def _text(value: Any, type_name: str) -> str:
    match value:
        case str():
            pass
        case bool():
            value = "true" if value else "false"
        case int():
            value = str(int(value))
        case float() if isfinite(value):
            value = number_text(value)
        case _:
            raise _no(value, type_name)
    if len(value) > TEXT_MAX:
        raise Overflow(f"a text of {len(value)} characters is longer than {TEXT_MAX}")
    return str(value)


def _bool(value: Any, type_name: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in ("true", "false"):
        return value == "true"
    if isinstance(value, int | float) and value == value:  # NaN is neither
        return value != 0
    raise _no(value, type_name)


def _integer(kind: type[int], bounds: tuple[int, int]) -> Callable[[Any, str], int]:
    least, most = bounds

    def to_integer(value: Any, type_name: str) -> int:
        number = _whole(value, type_name)
        if not least <= number <= most:
            raise Overflow(f"it is out of the range of {type_name}")
        return number if kind is int else kind(number)

    return to_integer


def _whole(value: Any, type_name: str) -> int:
    if type(value) in WHOLE:
        return int(value)
    if type(value) is float and isfinite(value) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        number = decimal_integer(value)
        if number is not None:
            return number
        if _INTEGER.fullmatch(value):
            return int(value)
    raise _no(value, type_name)


def _double(value: Any, type_name: str) -> float:
    if isinstance(value, bool):
        raise _no(value, type_name)
    if isinstance(value, str) and not (len(value) <= 400 and _DOUBLE.fullmatch(value)):
        raise _no(value, type_name)
    if not isinstance(value, str | int | float):
        raise _no(value, type_name)
    try:
        number = float(value)
    except OverflowError:
        raise Overflow("it is out of the range of double") from None
    if not isfinite(number):
        raise Overflow("it is out of the range of double")
    return number


def _decimal(value: Any, type_name: str) -> str:
    """Kept as written; a number becomes its shortest text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _no(value, type_name)
    text = value if isinstance(value, str) else _text(value, type_name)
    if not _DECIMAL.fullmatch(text):
        raise _no(value, type_name)
    return _text(text, type_name)


def _formed(form: re.Pattern[str], length: int | None = None) -> Callable[[Any, str], str]:
    def to_formed(value: Any, type_name: str) -> str:
        if not isinstance(value, str) or not form.fullmatch(value):
            raise _no(value, type_name)
        if length is not None and len(value) != length:
            raise _no(value, type_name)
        return _text(value, type_name)

    return to_formed


_CASTS: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "string": _text,
    "bool": _bool,
    "int64": _integer(int, INT64),
    "uint64": _integer(UInt, UINT64),
    "int256": _integer(Int256, INT256),
    "uint256": _integer(Uint256, UINT256),
    "double": _double,
    "decimal": _decimal,
    "uuid": _formed(_UUID),
    "address": _formed(_ADDRESS),
    "bytes": _formed(_HEX),
    "bytes32": _formed(_HEX, 66),
    "timestamp_ms": _integer(int, _MILLISECONDS),
    "duration_ms": _integer(int, _MILLISECONDS),
}
TYPES: Final = tuple(_CASTS)

"""The functions and methods an expression can call.

Every implementation takes `spend` first (what it costs beyond a node) and then its arguments; the
target of a method is its first argument. The tables at the end are all there is; a function that is
not among the `FREE` ones spends by the length of what it reads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from anabranch.expressions.cel import statistics
from anabranch.expressions.cel.operators import (
    Spend,
    as_double,
    comparison,
    equal,
    spend_characters,
)
from anabranch.expressions.cel.regex import compiled
from anabranch.expressions.cel.values import (
    NUMBERS,
    TEXT_MAX,
    WHOLE,
    CelEvalError,
    CelLimitError,
    Int256,
    UInt,
    Uint256,
    decimal_integer,
    kind_of,
    text_of,
    within_range,
)
from anabranch.expressions.text_search import search_cost

Implementation = Callable[..., Any]
Arity = tuple[int, int]

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_UPPER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def _no(function: str, value: Any) -> CelEvalError:
    return CelEvalError(f"{function} does not take {kind_of(value)}")


# -- casts -----------------------------------------------------------------------------------


def _to_whole(name: str, kind: type, *, strict: bool) -> Implementation:
    """To an integer. A strict cast takes no fraction, the others cut it off as CEL does."""

    def apply(_spend: Spend, value: Any) -> Any:
        if type(value) in WHOLE:
            return within_range(kind, int(value))
        if type(value) is float:
            if not math.isfinite(value) or (strict and not value.is_integer()):
                raise CelEvalError(f"{name} needs a whole number")
            if not strict and kind is int and abs(value) >= 2.0**63:
                raise CelEvalError(f"{name}: the number does not fit int: an overflow")
            return within_range(kind, math.trunc(value))
        if isinstance(value, str):
            number = decimal_integer(value)
            if number is None:
                raise CelEvalError(f"{name}: the text is no decimal integer")
            return within_range(kind, number)
        raise _no(name, value)

    return apply


def _double(_spend: Spend, value: Any) -> float:
    if type(value) in NUMBERS:
        return as_double(value)
    if isinstance(value, str):
        if len(value) > 400 or not _NUMBER.fullmatch(value):
            raise CelEvalError("double: the text is no number")
        return float(value)
    raise _no("double", value)


def _string(spend: Spend, value: Any) -> str:
    if value is None or isinstance(value, list | tuple | dict):
        raise _no("string", value)
    if isinstance(value, str | bytes):
        spend_characters(spend, len(value))
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise CelEvalError("string: the bytes are not UTF-8") from None
    return text_of(value)


def _bool(_spend: Spend, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise _no("bool", value)
    if value not in _TRUE and value not in _FALSE:
        words = ", ".join((*_TRUE, *_FALSE))
        raise CelEvalError(f"bool: the text is none of {words}")
    return value in _TRUE


def _bytes(spend: Spend, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        spend_characters(spend, 4 * len(value))
        return value.encode("utf-8", "replace")
    raise _no("bytes", value)


def _address(_spend: Spend, value: Any) -> str:
    """The text of an address: one as it is written, or a number as its 20 bytes."""
    if isinstance(value, str) and _ADDRESS.fullmatch(value):
        return value
    if type(value) in WHOLE and 0 <= int(value) < 1 << 160:
        return f"0x{int(value):040x}"
    if isinstance(value, str):
        raise CelEvalError("address: the text is not 0x and 40 hexadecimal digits")
    if type(value) in WHOLE:
        raise CelEvalError("address: the number has more than 20 bytes, or is negative")
    raise _no("address", value)


def _dyn(_spend: Spend, value: Any) -> Any:
    return value


# -- texts -----------------------------------------------------------------------------------


def _texts(name: str, *values: Any) -> None:
    for value in values:
        if not isinstance(value, str):
            raise _no(name, value)


def _size(_spend: Spend, value: Any) -> int:
    if isinstance(value, str | bytes | list | tuple | dict):
        return len(value)
    raise _no("size", value)


def _contains(spend: Spend, text: Any, part: Any) -> bool:
    _texts("contains", text, part)
    spend_characters(spend, search_cost(len(text), len(part)))
    return part in text


def _at_an_end(name: str, holds: Callable[[str, str], bool]) -> Implementation:
    def apply(spend: Spend, text: Any, part: Any) -> bool:
        _texts(name, text, part)
        spend_characters(spend, min(len(text), len(part)))
        return holds(text, part)

    return apply


def _matches(spend: Spend, text: Any, pattern: Any) -> bool:
    _texts("matches", text, pattern)
    if len(pattern) > 1024:
        raise CelLimitError("the pattern of matches has more than 1024 characters")
    spend_characters(spend, 8 * len(pattern))
    automaton = compiled(pattern)
    spend(2 * automaton.built)  # a pattern may be put together anew for each element
    return automaton.search(text, spend)


def _in_letters(name: str, letters: Mapping[int, int]) -> Implementation:
    def apply(spend: Spend, text: Any) -> str:
        _texts(name, text)
        spend_characters(spend, 4 * len(text))
        return str(text).translate(letters)

    return apply


def _join(spend: Spend, values: Any, separator: Any = "") -> str:
    items = statistics.the_list(values, "join")
    _texts("join", separator)
    spend(len(items))
    parts = []
    size = 0
    for item in items:
        if isinstance(item, list | tuple | dict):
            raise _no("join", item)
        if isinstance(item, str | bytes):
            spend_characters(spend, 2 * len(item))
        parts.append(text_of(item))
        size += len(parts[-1]) + len(separator)
        if size > TEXT_MAX:
            raise CelLimitError(f"a text would get more than {TEXT_MAX:,} characters")
    spend_characters(spend, size)
    return str(separator).join(parts)


def _unique(spend: Spend, values: Any) -> list[Any]:
    kept: list[Any] = []
    for item in statistics.the_list(values, "unique"):
        spend(1 + len(kept))
        if not any(equal(item, other, spend) for other in kept):
            kept.append(item)
    return kept


# -- numbers ---------------------------------------------------------------------------------


def _abs(_spend: Spend, value: Any) -> float:
    number = as_double(value) if type(value) in NUMBERS else math.nan
    if not math.isfinite(number):
        raise CelEvalError("abs takes a finite number")
    return abs(number)


def _pow(_spend: Spend, base: Any, exponent: Any) -> float:
    if type(base) not in NUMBERS or type(exponent) not in NUMBERS:
        return 0.0
    left, right = as_double(base), as_double(exponent)
    try:
        return math.pow(left, right)
    except OverflowError:
        return -math.inf if left < 0 and math.fmod(right, 2) != 0 else math.inf
    except ValueError:
        return math.inf if left == 0 else math.nan


def _safe_div(_spend: Spend, numerator: Any, denominator: Any, fallback: Any) -> Any:
    if type(numerator) not in NUMBERS or type(denominator) not in NUMBERS or denominator == 0:
        return fallback
    return as_double(numerator) / as_double(denominator)


_LESS = comparison("<")


def _clamp(_spend: Spend, value: Any, low: Any, high: Any) -> Any:
    if type(value) not in NUMBERS:
        return value
    if type(low) not in NUMBERS or type(high) not in NUMBERS:
        raise CelEvalError("clamp takes numbers as bounds")
    if _LESS(high, low):
        low, high = high, low
    return low if _LESS(value, low) else high if _LESS(high, value) else value


IMPLEMENTATIONS: Final[Mapping[str, Implementation]] = {
    "abs": _abs,
    "pow": _pow,
    "relDiff": statistics.relative_difference,
    "safeDiv": _safe_div,
    "clamp": _clamp,
    "dist": statistics.dist,
    "within": statistics.within,
    **{
        name: statistics.statistic(name)
        for name in ("max", "min", "sum", "avg", "median", "stdev", "cv", "mad")
    },
    "quorum": statistics.quorum,
    "consensus": statistics.consensus,
    "join": _join,
    "unique": _unique,
    "u256": _to_whole("u256", Uint256, strict=True),
    "uint256": _to_whole("uint256", Uint256, strict=True),
    "int256": _to_whole("int256", Int256, strict=True),
    "int64": _to_whole("int64", int, strict=True),
    "uint64": _to_whole("uint64", UInt, strict=True),
    "int": _to_whole("int", int, strict=False),
    "uint": _to_whole("uint", UInt, strict=False),
    "double": _double,
    "string": _string,
    "bool": _bool,
    "bytes": _bytes,
    "address": _address,
    "dyn": _dyn,
    "size": _size,
    "contains": _contains,
    "startsWith": _at_an_end("startsWith", str.startswith),
    "endsWith": _at_an_end("endsWith", str.endswith),
    "matches": _matches,
    "lowerAscii": _in_letters("lowerAscii", _LOWER),
    "upperAscii": _in_letters("upperAscii", _UPPER),
}

#: They look at a few numbers, or at the first characters of a text.
FREE: Final = frozenset(
    {"abs", "pow", "relDiff", "safeDiv", "clamp", "u256", "uint256", "int256", "int64", "uint64"}
    | {"int", "uint", "double", "bool", "address", "dyn", "size"}
)

#: How many arguments each function takes.
FUNCTIONS: Final[Mapping[str, Arity]] = {
    "abs": (1, 1), "pow": (2, 2), "relDiff": (2, 2), "safeDiv": (3, 3), "clamp": (3, 3),
    "dist": (3, 3), "within": (4, 4), "max": (1, 1), "min": (1, 1), "sum": (1, 1), "avg": (1, 1),
    "median": (1, 1), "stdev": (1, 1), "cv": (1, 1), "mad": (1, 1), "quorum": (4, 5),
    "consensus": (5, 6), "join": (2, 2), "unique": (1, 1), "u256": (1, 1), "uint256": (1, 1),
    "int256": (1, 1), "int64": (1, 1), "uint64": (1, 1), "int": (1, 1), "uint": (1, 1),
    "double": (1, 1), "string": (1, 1), "bool": (1, 1), "bytes": (1, 1), "dyn": (1, 1),
    "size": (1, 1), "matches": (2, 2), "address": (1, 1),
}  # fmt: skip

#: How many arguments each method takes, the target included.
METHODS: Final[Mapping[str, Arity]] = {
    "contains": (2, 2), "startsWith": (2, 2), "endsWith": (2, 2), "matches": (2, 2),
    "size": (1, 1), "lowerAscii": (1, 1), "upperAscii": (1, 1),
}  # fmt: skip

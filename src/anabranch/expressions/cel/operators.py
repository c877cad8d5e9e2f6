"""Operators of CEL over values whose types are known only when they meet.

Integers never wrap around: a result out of range is an error. Mixed numbers are promoted: with a
double to double, 64 bits with 256 bits to 256 bits, unsigned with signed to signed as long as the
result fits there. The strict form refuses the first and the last, as CEL itself does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from anabranch.expressions.cel.values import (
    INT64,
    KINDS,
    MADE_LIST_MAX,
    NUMBERS,
    STEP_CHARACTERS,
    TEXT_MAX,
    VALUE_DEPTH_MAX,
    WHOLE,
    WIDE,
    CelEvalError,
    CelLimitError,
    Int256,
    UInt,
    Uint256,
    decimal_integer,
    kind_of,
    map_key,
    within_range,
)

Spend = Callable[[int], None]
Operator = Callable[[Any, Any], Any]

_LEAST, _MOST = INT64
_UNSIGNED = {UInt, Uint256}
_NARROW = {int, UInt}


def spend_characters(spend: Spend, count: int) -> None:
    """For texts that are read, compared or made; short ones are paid for by their node."""
    if count >= STEP_CHARACTERS:
        spend(count // STEP_CHARACTERS)


def spend_operands(spend: Spend, left: Any, right: Any, *, both: bool) -> None:
    """What an operator reads of texts and lists: all of both sides, or as far as they go along."""
    if isinstance(left, str | bytes) and isinstance(right, str | bytes):
        shorter = min(len(left), len(right))
        spend_characters(spend, len(left) + len(right) if both else shorter)
    elif both and isinstance(left, list | tuple) and isinstance(right, list | tuple):
        spend_characters(spend, 8 * (len(left) + len(right)))


def no_overload(op: str, left: Any, right: Any) -> CelEvalError:
    return CelEvalError(f"`{op}` does not take {kind_of(left)} and {kind_of(right)}")


def _divide(left: int, right: int) -> int:
    if right == 0:
        raise CelEvalError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise CelEvalError("remainder of a division by zero")
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def _divide_doubles(left: float, right: float) -> float:
    if right != 0.0:
        return left / right
    if left == 0.0 or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


_ON_WHOLE: dict[str, Callable[[int, int], int]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divide,
    "%": _remainder,
}
_ON_DOUBLES: dict[str, Callable[[float, float], float]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divide_doubles,
}


def as_double(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        raise CelEvalError("the number does not fit double: an overflow") from None


def arithmetic(op: str, *, strict: bool = False) -> Operator:
    """The operator `+ - * / %`."""
    on_whole = _ON_WHOLE[op]

    def apply(left: Any, right: Any) -> Any:
        if type(left) is int and type(right) is int:
            result = on_whole(left, right)
            if _LEAST <= result <= _MOST:
                return result
            raise CelEvalError("the result does not fit int: an overflow")
        if type(left) in NUMBERS and type(right) in NUMBERS:
            return _on_numbers(op, left, right, strict)
        if op == "+":
            return _joined(left, right)
        raise no_overload(op, left, right)

    return apply


def _on_numbers(op: str, left: Any, right: Any, strict: bool) -> Any:
    kinds = {type(left), type(right)}
    if strict and len(kinds) > 1 and (float in kinds or not kinds & WIDE):
        raise no_overload(op, left, right)
    if float in kinds:
        if op not in _ON_DOUBLES:
            raise CelEvalError("`%` takes integers; convert with int(…)")
        return _ON_DOUBLES[op](as_double(left), as_double(right))
    return _fitted(_ON_WHOLE[op](int(left), int(right)), kinds)


def _fitted(result: int, kinds: set[type]) -> Any:
    """The result as the widest of the kinds; of signed and unsigned, signed unless too large."""
    signed, unsigned = (Int256, Uint256) if kinds & WIDE else (int, UInt)
    if kinds <= _UNSIGNED:
        return within_range(unsigned, result)
    if kinds & _UNSIGNED:
        try:
            return within_range(signed, result)
        except CelEvalError:
            return within_range(unsigned, result)
    return within_range(signed, result)


def _joined(left: Any, right: Any) -> Any:
    """Texts, bytes and lists are put together by `+`."""
    if type(left) is not type(right) and {type(left), type(right)} != {list, tuple}:
        raise no_overload("+", left, right)
    if isinstance(left, str | bytes):
        if len(left) + len(right) > TEXT_MAX:
            raise CelLimitError(f"a text would get more than {TEXT_MAX:,} characters")
        return left + right
    if isinstance(left, list | tuple):
        if len(left) + len(right) > MADE_LIST_MAX:
            raise CelLimitError(f"a list would get more than {MADE_LIST_MAX} elements")
        return [*left, *right]
    raise no_overload("+", left, right)


def negative(value: Any) -> Any:
    match value:
        case bool():
            raise CelEvalError("`-` does not take bool")
        case float():
            return -value
        case UInt():
            raise CelEvalError("`-` does not take uint; convert with int(…)")
        case Int256() | Uint256():
            return within_range(Int256, -int(value))
        case int():
            return within_range(int, -int(value))
    raise CelEvalError(f"`-` does not take {kind_of(value)}")


# -- comparing -------------------------------------------------------------------------------


def _met(left: Any, right: Any) -> tuple[Any, Any]:
    """Two numbers as they are compared: beside a double, a 64-bit integer is one too, as in CEL.

    256-bit integers, which are amounts, are compared exactly."""
    if type(left) is float and type(right) in _NARROW:
        return left, float(right)
    if type(right) is float and type(left) in _NARROW:
        return float(left), right
    return left, right


def equal(left: Any, right: Any, spend: Spend, depth: int = 0) -> bool:
    """Values of different types differ, except that numbers are compared by what they say and a
    256-bit integer equals its decimal text."""
    one, other = type(left), type(right)
    if one in NUMBERS and other in NUMBERS:
        left, right = _met(left, right)
        return bool(left == right)
    if one in WIDE and other is str:
        return bool(decimal_integer(right) == left)
    if other in WIDE and one is str:
        return bool(decimal_integer(left) == right)
    if one in (list, tuple) and other in (list, tuple):
        return _equal_lists(left, right, spend, depth)
    if one is dict and other is dict:
        return _equal_maps(left, right, spend, depth)
    if one is not other:
        return False
    if (one is str or one is bytes) and len(left) == len(right):
        spend_characters(spend, len(left))
    return bool(left == right)


def _deeper(depth: int) -> int:
    if depth >= VALUE_DEPTH_MAX:
        raise CelLimitError(f"a value is nested more than {VALUE_DEPTH_MAX} deep")
    return depth + 1


def _equal_lists(left: Any, right: Any, spend: Spend, depth: int) -> bool:
    spend(1 + len(left))
    inner = _deeper(depth)
    if len(left) != len(right):
        return False
    return all(equal(a, b, spend, inner) for a, b in zip(left, right, strict=True))


def _equal_maps(left: Any, right: Any, spend: Spend, depth: int) -> bool:
    spend(1 + 2 * len(left))
    inner = _deeper(depth)
    if left.keys() != right.keys():
        return False
    return all(equal(value, right[key], spend, inner) for key, value in left.items())


def comparison(op: str) -> Operator:
    """The operator `< <= > >=`."""
    compare: Operator = {
        "<": lambda left, right: left < right,
        "<=": lambda left, right: left <= right,
        ">": lambda left, right: left > right,
        ">=": lambda left, right: left >= right,
    }[op]
    ordered = (str, bytes, bool)

    def apply(left: Any, right: Any) -> Any:
        one, other = type(left), type(right)
        if one in NUMBERS and other in NUMBERS:
            return bool(compare(*_met(left, right)))
        if one is other and one in ordered:
            return compare(left, right)
        if one in WIDE and other is str and (number := decimal_integer(right)) is not None:
            return bool(compare(left, number))
        if other in WIDE and one is str and (number := decimal_integer(left)) is not None:
            return bool(compare(number, right))
        raise no_overload(op, left, right)

    return apply


def contained(item: Any, container: Any, spend: Spend) -> bool:
    """The operator `in`."""
    if isinstance(container, list | tuple):
        spend(len(container))
        return any(equal(item, each, spend) for each in container)
    if isinstance(container, dict):
        return found_key(item, container) is not None
    raise no_overload("in", item, container)


def found_key(key: Any, mapping: dict[Any, Any]) -> tuple[Any] | None:
    """The value at a key, in a tuple, or None. A double finds the integer it equals."""
    if type(key) not in KINDS or isinstance(key, list | tuple | dict):
        return None
    key = map_key(key)
    if key in mapping:
        return (mapping[key],)
    return None


def element(operand: Any, index: Any) -> Any:
    """`operand[index]`."""
    if isinstance(operand, dict):
        found = found_key(index, operand)
        if found is None:
            raise CelEvalError("there is no such key")
        return found[0]
    if not isinstance(operand, list | tuple):
        raise CelEvalError(f"a {kind_of(operand)} has no elements")
    whole = type(index) in WHOLE or (type(index) is float and index.is_integer())
    if not whole:
        raise CelEvalError(f"a list is indexed by a whole number, not by {kind_of(index)}")
    if not 0 <= index < len(operand):
        raise CelEvalError(f"the list has {len(operand)} elements; the index is out of range")
    return operand[int(index)]

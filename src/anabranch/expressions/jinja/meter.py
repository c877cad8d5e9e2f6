"""What a template may make, counted before it is made.

Templates are written by the author of a definition but fed with data from anywhere. So everything
that could grow without measure (repetition, powers, joining, padding, ranges, loops, the text
produced) is counted against `TemplateLimits` first: each value by itself, and the work of one
evaluation together (`spending.py`). Running time is bounded only through these counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final

import msgspec
from jinja2 import Undefined, UndefinedError
from jinja2.runtime import LoopContext

from anabranch.expressions.budget import TooMuch
from anabranch.expressions.jinja.limits import TemplateLimits, finite, whole
from anabranch.expressions.jinja.spending import (
    CALL,
    ELEMENT,
    LOOKUP,
    PART,
    SMALL,
    OwnSpending,
    Spending,
)
from anabranch.expressions.text_search import search_cost

DEPTH_MAX = 200
_AS_SPELLED_OUT: Final = r"[-#0 +]*+\d*+(?:\.\d++)?[hlL]?+[ra]"
_SPELLED_OUT = re.compile(f"%{_AS_SPELLED_OUT}")
_BEHIND_A_KEY = re.compile(_AS_SPELLED_OUT)
_ARGUMENTS: Final = (str, list, tuple)


class Meter:
    """The growing operations, each bounded by the limits and charged before it is carried out."""

    def __init__(self, limits: TemplateLimits) -> None:
        self.limits = limits

    # -- checks ------------------------------------------------------------------------------

    def check_text(self, length: int) -> None:
        if length > self.limits.text_max:
            raise TooMuch("a text of length", length, "text_max", self.limits.text_max)

    def charge_text(self, scope: Spending, length: int) -> None:
        """For a text of this length that is about to be made."""
        self.check_text(length)
        scope.charge(length)

    def _charge_sequence(self, scope: Spending, sequence: Any, length: int) -> None:
        """The same for a text, list or tuple, as this one is."""
        if isinstance(sequence, str):
            self.charge_text(scope, length)
            return
        if length > self.limits.items_max:
            raise TooMuch("a sequence of length", length, "items_max", self.limits.items_max)
        scope.charge(ELEMENT * length)

    def check_bits(self, bits: int) -> None:
        if bits > self.limits.bits_max:
            raise TooMuch("a whole number of bits", bits, "bits_max", self.limits.bits_max)

    # -- operators ---------------------------------------------------------------------------

    def add(self, scope: Spending, left: Any, right: Any) -> Any:
        if isinstance(left, _ARGUMENTS) and isinstance(right, _ARGUMENTS):
            self._charge_sequence(scope, left, len(left) + len(right))
        return left + right

    def floor_divide(self, _scope: Spending, left: Any, right: Any) -> Any:
        self._check_numbers(left, right)
        return left // right

    def _check_numbers(self, left: Any, right: Any) -> None:
        """Dividing takes the square of the digits, so large numbers are refused as such."""
        if isinstance(left, int) and left.bit_length() > self.limits.bits_max:
            self.check_bits(left.bit_length())
        if isinstance(right, int) and right.bit_length() > self.limits.bits_max:
            self.check_bits(right.bit_length())

    def multiply(self, scope: Spending, left: Any, right: Any) -> Any:
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, _ARGUMENTS) and isinstance(count, int):
                self._charge_sequence(scope, sequence, len(sequence) * max(count, 0))
                return sequence * count
        if isinstance(left, int) and isinstance(right, int):
            self.check_bits(left.bit_length() + right.bit_length())
        return left * right

    def power(self, _scope: Spending, left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            self.check_bits(left.bit_length() * abs(right))
        return left**right

    def remainder(self, scope: Spending, left: Any, right: Any) -> Any:
        if isinstance(left, str):
            return self.format(scope, left, right)
        self._check_numbers(left, right)
        return left % right

    def numbers(self, *args: Any) -> range:
        numbers = range(*args)
        if len(numbers) > self.limits.range_max:
            raise TooMuch("a range of length", len(numbers), "range_max", self.limits.range_max)
        return numbers

    # -- text --------------------------------------------------------------------------------

    def text(self, scope: Spending, value: Any) -> str:
        """The text of a value inside other text. What is text already costs nothing."""
        if isinstance(value, str):
            return str(value)
        if isinstance(value, Undefined):
            return ""
        if value is None or isinstance(value, (bool, int, float)):
            scope.charge(LOOKUP)
            if isinstance(value, int):
                self._charge_digits(scope, value)
            return str(value)
        copy = _Copy(self.limits, scope, self.limits.text_max)
        plain = copy.of(value, 0)
        scope.charge(copy.characters)
        text = str(plain)
        self.check_text(len(text))
        return text

    def _charge_digits(self, scope: Spending, number: int) -> None:
        """Writing a number takes the square of its digits."""
        bits = number.bit_length()
        self.check_bits(bits)
        if bits > SMALL:
            scope.charge((bits >> 6) ** 2)

    def format(self, scope: Spending, template: str, values: Any) -> str:
        """`%` formatting. Every width is bounded, because each pads on its own."""
        scope.charge(2 * len(template))
        if "*" in template:
            raise ValueError("a width taken from the arguments (`*`) is not available here")
        width = max((int(digits) for digits in re.findall(r"\d{1,20}", template)), default=0)
        given = values if isinstance(values, (tuple, Mapping)) else (values,)
        scope.charge(CALL * len(given))
        parts = given.values() if isinstance(given, Mapping) else given
        longest = max((len(self.text(scope, part)) for part in parts), default=0)
        if _spells_out(template):  # `%r` and `%a` write a character as up to ten
            longest *= 10
        self.charge_text(scope, len(template) + template.count("%") * (longest + width))
        return template % given

    def join(self, scope: Spending, separator: str, parts: list[Any]) -> str:
        """One text of the parts, whose elements are paid for."""
        if not set(map(type, parts)) <= {str}:
            scope.charge(CALL * len(parts))
            parts = [self.text(scope, part) for part in parts]
        self.charge_text(scope, sum(map(len, parts)) + len(separator) * max(len(parts) - 1, 0))
        return separator.join(parts)

    def replace(self, scope: Spending, text: str, old: str, new: str, count: int = -1) -> str:
        scope.charge(2 * search_cost(len(text), len(old)))
        hits = text.count(old) if count < 0 else min(text.count(old), count)
        self.charge_text(scope, len(text) + hits * max(len(new) - len(old), 0))
        return text.replace(old, new, count)

    def ljust(self, scope: Spending, text: str, width: int, fill: str = " ") -> str:
        self.charge_text(scope, max(len(text), width))
        return text.ljust(width, fill)

    def rjust(self, scope: Spending, text: str, width: int, fill: str = " ") -> str:
        self.charge_text(scope, max(len(text), width))
        return text.rjust(width, fill)

    def center(self, scope: Spending, text: str, width: int, fill: str = " ") -> str:
        self.charge_text(scope, max(len(text), width))
        return text.center(width, fill)

    def zfill(self, scope: Spending, text: str, width: int) -> str:
        self.charge_text(scope, max(len(text), width))
        return text.zfill(width)

    # -- values leaving the template ---------------------------------------------------------

    def plain(self, value: Any, *, lenient: bool = False) -> Any:
        """The value as JSON-like data: no views, tuples, iterators or undefined inside."""
        return _Copy(self.limits, OwnSpending(self.limits), lenient=lenient).of(value, 0)

    def written_out(
        self, scope: Spending, value: Any, write: Callable[[Any], str], rate: int = 1
    ) -> str:
        """The text that `write` makes of the plain value, which costs so many times its parts."""
        copy = _Copy(self.limits, scope, rate=rate)
        plain = copy.of(value, 0)
        self.check_text(copy.characters)
        scope.charge(4 * copy.characters)
        text = write(plain)
        self.check_text(len(text))
        return text

    def copied(self, value: Any) -> Any:
        """The same for a value that was only looked up: it exists, so its size is no danger."""
        return msgspec.to_builtins(value, enc_hook=self.plain)


class _Copy:
    """Copies a value into plain data, counting as it goes so that shared parts cannot explode."""

    def __init__(
        self,
        limits: TemplateLimits,
        scope: Spending,
        characters: int | None = None,
        *,
        lenient: bool = False,
        rate: int = 1,
    ) -> None:
        self._lenient = lenient
        self._rate = rate * PART  # of each part
        self._scope = scope
        self._items_left = limits.items_max
        self._characters_left = 4 * limits.text_max if characters is None else characters
        self._limits = limits
        self.characters = 0  # of all texts in it

    def of(self, value: Any, depth: int) -> Any:
        self._items_left -= 1
        if self._items_left < 0:
            items = self._limits.items_max
            raise TooMuch("a value of size", items + 1, "items_max", items)
        if value is None or value is True or value is False:
            return value
        if isinstance(value, str):
            return self._text(value, depth)
        if isinstance(value, int):
            return whole(value)
        if isinstance(value, float):
            return finite(value)
        return self._structure(value, depth)

    def _text(self, value: str, depth: int) -> str:
        self.characters += len(value)
        if depth:  # a text on its own was bounded when it was made; here many add up
            self._characters_left -= len(value)
            if self._characters_left < 0:
                most = self._limits.text_max
                raise TooMuch("text in one value of more than", most, "text_max", most)
        return str(value)

    def _structure(self, value: Any, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise ValueError(f"the value is nested more than {DEPTH_MAX} deep")
        if isinstance(value, Undefined):
            if self._lenient and _is_missing(value):
                return ""
            require_defined(value)
            return None
        if isinstance(value, Mapping):
            self._pay(len(value), 2)
            return {_key(key): self.of(item, depth + 1) for key, item in value.items()}
        no_list = isinstance(value, (bytes, bytearray, LoopContext))
        if no_list or not hasattr(value, "__iter__"):
            raise TypeError(f"a {type(value).__name__} is not JSON")
        if isinstance(value, (list, tuple)):
            self._pay(len(value))
            return [self.of(item, depth + 1) for item in value]
        return [self.of(item, depth + 1) for item in self._paid(value)]

    def _pay(self, count: int, texts: int = 1) -> None:
        """For so many parts; more than there may be are not even begun."""
        if count > self._items_left:
            items = self._limits.items_max
            raise TooMuch("a value of size", items - self._items_left + count, "items_max", items)
        self._scope.charge(self._rate * (1 + texts * count))

    def _paid(self, value: Any) -> Any:
        for item in value:
            self._scope.charge(self._rate)
            yield item


def json_text(plain: Any, indent: int | None = None) -> str:
    return json.dumps(plain, indent=indent, ensure_ascii=False)


def require_defined(value: Undefined) -> None:
    """Refuse a value that is missing."""
    if not _is_missing(value):
        return
    name, hint = value._undefined_name, value._undefined_hint
    said = hint.rstrip(".") if hint else f"{name!r} is undefined"
    raise UndefinedError(f"{said}; where it may be missing, write `| default('')` after it")


def _spells_out(template: str) -> bool:
    """Whether there is a `%r` or `%a`, also one with a key. A key goes on to the next bracket, so
    each part between two brackets is looked at once, however many keys begin in it."""
    parts = template.split(")")
    return _SPELLED_OUT.search(template) is not None or any(
        "%(" in before and _BEHIND_A_KEY.match(after) for before, after in pairwise(parts)
    )


def _is_missing(value: Undefined) -> bool:
    """`{{ a if b }}` misses nothing: it says when it is empty."""
    return value._undefined_name is not None or value._undefined_hint is not None


def _key(key: Any) -> str:
    if isinstance(key, str):
        return str(key)
    raise TypeError(f"the key {key!r:.100} is not text")

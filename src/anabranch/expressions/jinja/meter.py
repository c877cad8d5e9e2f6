"""What a template may make, counted before it is made.

Templates are written by the author of a definition but fed with data from anywhere. So everything
that could grow without measure (repetition, powers, joining, padding, ranges, loops, the text
produced) is counted against `TemplateLimits` first: each value by itself, and the work of one
evaluation together (`costs.py`). Running time is bounded only through these counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from jinja2 import Undefined, UndefinedError
from jinja2.runtime import LoopContext

from anabranch.expressions.jinja.limits import TemplateLimits, TooMuch, finite, whole

DEPTH_MAX = 200
_SPELLED_OUT = re.compile(r"%(\([^)]*\))?[-#0 +]*\d*(\.\d+)?[hlL]?[ra]")


class Meter:
    """The growing operations, each bounded by the limits."""

    def __init__(self, limits: TemplateLimits) -> None:
        self.limits = limits

    # -- checks ------------------------------------------------------------------------------

    def check_text(self, length: int) -> None:
        if length > self.limits.text_max:
            raise TooMuch("a text of length", length, "text_max", self.limits.text_max)

    def check_length(self, sequence: Any, length: int) -> None:
        if isinstance(sequence, str):
            self.check_text(length)
        elif length > self.limits.items_max:
            raise TooMuch("a sequence of length", length, "items_max", self.limits.items_max)

    def check_bits(self, bits: int) -> None:
        if bits > self.limits.bits_max:
            raise TooMuch("a whole number of bits", bits, "bits_max", self.limits.bits_max)

    # -- operators ---------------------------------------------------------------------------

    def add(self, left: Any, right: Any) -> Any:
        if isinstance(left, (str, list, tuple)) and isinstance(right, (str, list, tuple)):
            self.check_length(left, len(left) + len(right))
        return left + right

    def floor_divide(self, left: Any, right: Any) -> Any:
        self._check_numbers(left, right)
        return left // right

    def _check_numbers(self, left: Any, right: Any) -> None:
        """Dividing takes the square of the digits, so large numbers are refused as such."""
        if isinstance(left, int) and left.bit_length() > self.limits.bits_max:
            self.check_bits(left.bit_length())
        if isinstance(right, int) and right.bit_length() > self.limits.bits_max:
            self.check_bits(right.bit_length())

    def multiply(self, left: Any, right: Any) -> Any:
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, (str, list, tuple)) and isinstance(count, int):
                self.check_length(sequence, len(sequence) * max(count, 0))
                return sequence * count
        if isinstance(left, int) and isinstance(right, int):
            self.check_bits(left.bit_length() + right.bit_length())
        return left * right

    def power(self, left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            self.check_bits(left.bit_length() * abs(right))
        return left**right

    def remainder(self, left: Any, right: Any) -> Any:
        if isinstance(left, str):
            return self.format(left, right)
        self._check_numbers(left, right)
        return left % right

    def numbers(self, *args: Any) -> range:
        numbers = range(*args)
        if len(numbers) > self.limits.range_max:
            raise TooMuch("a range of length", len(numbers), "range_max", self.limits.range_max)
        return numbers

    # -- text --------------------------------------------------------------------------------

    def text(self, value: Any) -> str:
        """The text of a value inside other text."""
        if isinstance(value, str):
            return str(value)
        if isinstance(value, Undefined):
            return ""
        if value is None or isinstance(value, (bool, int, float)):
            if isinstance(value, int):
                self.check_bits(value.bit_length())
            return str(value)
        text = str(_Copy(self.limits, self.limits.text_max).of(value, 0))
        self.check_text(len(text))
        return text

    def format(self, template: str, values: Any) -> str:
        """`%` formatting. Every width is bounded, because each pads on its own."""
        if "*" in template:
            raise ValueError("a width taken from the arguments (`*`) is not available here")
        width = max((int(digits) for digits in re.findall(r"\d{1,20}", template)), default=0)
        given = values if isinstance(values, (tuple, Mapping)) else (values,)
        parts = given.values() if isinstance(given, Mapping) else given
        longest = max((len(self.text(part)) for part in parts), default=0)
        if _SPELLED_OUT.search(template):  # `%r` and `%a` write a character as up to ten
            longest *= 10
        self.check_text(len(template) + template.count("%") * (longest + width))
        return template % given

    def join(self, separator: str, parts: Iterable[Any]) -> str:
        texts = [self.text(part) for part in parts]
        self.check_text(sum(map(len, texts)) + len(separator) * max(len(texts) - 1, 0))
        return separator.join(texts)

    def replace(self, text: str, old: str, new: str, count: int = -1) -> str:
        hits = text.count(old) if count < 0 else min(text.count(old), count)
        self.check_text(len(text) + hits * max(len(new) - len(old), 0))
        return text.replace(old, new, count)

    def ljust(self, text: str, width: int, fill: str = " ") -> str:
        self.check_text(width)
        return text.ljust(width, fill)

    def rjust(self, text: str, width: int, fill: str = " ") -> str:
        self.check_text(width)
        return text.rjust(width, fill)

    def center(self, text: str, width: int, fill: str = " ") -> str:
        self.check_text(width)
        return text.center(width, fill)

    def zfill(self, text: str, width: int) -> str:
        self.check_text(width)
        return text.zfill(width)

    # -- values leaving the template ---------------------------------------------------------

    def plain(self, value: Any, *, lenient: bool = False) -> Any:
        """The value as JSON-like data: no views, tuples, iterators or undefined inside."""
        return _Copy(self.limits, lenient=lenient).of(value, 0)

    def measured(self, value: Any) -> tuple[Any, int]:
        """The same, with how many characters and elements (8 each) it has."""
        copy = _Copy(self.limits)
        plain = copy.of(value, 0)
        return plain, copy.work

    def copied(self, value: Any) -> Any:
        """The same for a value that was only looked up: it exists, so its size is no danger."""
        return msgspec.to_builtins(value, enc_hook=self.plain)


class _Copy:
    """Copies a value into plain data, counting as it goes so that shared parts cannot explode."""

    def __init__(
        self, limits: TemplateLimits, characters: int | None = None, *, lenient: bool = False
    ) -> None:
        self._lenient = lenient
        self._items_left = limits.items_max
        self._characters_left = 4 * limits.text_max if characters is None else characters
        self._characters = self._characters_left
        self._limits = limits

    @property
    def work(self) -> int:
        """What was copied, in the units of `work_max`."""
        items = self._limits.items_max - self._items_left
        return 8 * items + self._characters - self._characters_left

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
            return {_key(key): self.of(item, depth + 1) for key, item in value.items()}
        no_list = isinstance(value, (bytes, bytearray, LoopContext))
        if no_list or not hasattr(value, "__iter__"):
            raise TypeError(f"a {type(value).__name__} is not JSON")
        return [self.of(item, depth + 1) for item in value]


def require_defined(value: Undefined) -> None:
    """Refuse a value that is missing."""
    if not _is_missing(value):
        return
    name, hint = value._undefined_name, value._undefined_hint
    said = hint.rstrip(".") if hint else f"{name!r} is undefined"
    raise UndefinedError(f"{said}; where it may be missing, write `| default('')` after it")


def _is_missing(value: Undefined) -> bool:
    """`{{ a if b }}` misses nothing: it says when it is empty."""
    return value._undefined_name is not None or value._undefined_hint is not None


def _key(key: Any) -> str:
    if isinstance(key, str):
        return str(key)
    raise TypeError(f"the key {key!r} is not text")

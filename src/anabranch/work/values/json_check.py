"""What JSON can hold, and where exactly a value goes beyond it.

Only the standard library is used here: the Python worker process loads this file too, and has to
start fast.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

#: Deeper values would pass here and hit the recursion limit of some later reader.
MAX_DEPTH = 200

#: Python itself refuses to write longer integers as text (`sys.get_int_max_str_digits`).
_INTEGER_BITS = 14_000
_SMALL = 2**63  # whole numbers below it need no look

_HINTS = {
    "set": "make it a list",
    "frozenset": "make it a list",
    "bytes": "decode it to text, or encode it as base64",
    "bytearray": "decode it to text, or encode it as base64",
    "memoryview": "decode it to text, or encode it as base64",
    "datetime": "turn it into text with .isoformat()",
    "date": "turn it into text with .isoformat()",
    "time": "turn it into text with .isoformat()",
    "timedelta": "turn it into a number with .total_seconds()",
    "Decimal": "turn it into text or a float",
    "UUID": "turn it into text with str()",
    "PosixPath": "turn it into text with str()",
    "ndarray": "turn it into a list with .tolist()",
    "DataFrame": "turn it into a list with .to_dict('records')",
    "generator": "collect it with list()",
    "coroutine": "await it first",
    "function": "call it, or leave it out",
    "mappingproxy": "make it a dict",
}

_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))


class NotJsonError(ValueError):
    """A value that JSON cannot hold; `path` leads to the part that is to blame."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path
        self.reason = reason


def plain(value: Any, root: str = "result") -> Any:
    """A copy in the six JSON types: tuples become lists, subclasses become their base."""
    return Walk(root).copy(value)


def to_json(value: Any, walk: type[Walk] | None = None) -> str:
    """The value as JSON text, or `NotJsonError`. `walk` may convert more than `plain` does."""
    if value is None or value is True or value is False:
        return "null" if value is None else "true" if value else "false"
    if type(value) is int and -_SMALL < value < _SMALL:
        return int.__repr__(value)
    try:
        text = _ENCODER.encode(value)
        text.encode()
        # The encoder turns keys into text and enums into values; the way back shows what it bent.
        back = json.loads(text)
        if back == value and not deeper_than(back, MAX_DEPTH):
            return text
    except (TypeError, ValueError, RecursionError):
        pass  # the slow walk below says what is wrong, or that only a tuple was
    return _ENCODER.encode((walk or Walk)("result").copy(value))


def too_deep(content: bytes, value: Any) -> bool:
    """Whether JSON nests more than `MAX_DEPTH` deep; its brackets, counted at C speed, bound it."""
    brackets = content.count(b"[") + content.count(b"{")
    return brackets > MAX_DEPTH and deeper_than(value, MAX_DEPTH)


def deeper_than(value: Any, limit: int) -> bool:
    """Whether plain JSON nests lists and mappings more than `limit` deep; level by level."""
    level = [value] if type(value) in (dict, list) else []
    for _ in range(limit):
        if not level:
            return False
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) in (dict, list)
        ]
    return bool(level)


class Walk:
    def __init__(self, root: str) -> None:
        self._trail: list[str] = [root]
        self._enclosing: set[int] = set()

    def copy(self, value: Any) -> Any:
        if value is None or value is True or value is False:
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int):
            return self._integer(value)
        if isinstance(value, float):
            return self._number(value)
        if isinstance(value, dict | list | tuple):
            return self._container(value)
        return self._other(value)

    def _other(self, value: Any) -> Any:
        return self._refuse(_describe(value))

    def _text(self, value: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            self._refuse("has a lone surrogate, which is not valid text")
        return str.__str__(value)

    def _integer(self, value: int) -> int:
        if value.bit_length() > _INTEGER_BITS:
            self._refuse("is an integer of more than 4,000 digits")
        return int(value)

    def _number(self, value: float) -> float:
        if value != value or value in (float("inf"), float("-inf")):
            self._refuse(f"is {float(value)}, which JSON does not know; use null or a number")
        return float(value)

    def _container(self, value: Any) -> Any:
        if id(value) in self._enclosing:
            self._refuse("contains itself")
        if len(self._enclosing) >= MAX_DEPTH:
            self._trail = [*self._trail[:4], ".…"]
            self._refuse(f"nests more than {MAX_DEPTH} levels deep")
        self._enclosing.add(id(value))
        if isinstance(value, dict):
            copy: Any = dict(self._members(value.items()))
            if len(copy) != len(value):  # only where a walk makes text of keys
                self._refuse("has two keys that are the same as text")
        else:
            copy = [self._at(f"[{index}]", item) for index, item in enumerate(value)]
        self._enclosing.remove(id(value))
        return copy

    def _members(self, items: Iterable[tuple[Any, Any]]) -> Iterable[tuple[str, Any]]:
        for key, value in items:
            text = self._text(key if isinstance(key, str) else self._key(key))
            yield text, self._at(f".{text}" if text.isidentifier() else f"[{text!r:.80}]", value)

    def _key(self, key: Any) -> str:
        self._refuse(f"has the key {key!r:.80}; keys must be text")

    def _at(self, place: str, value: Any) -> Any:
        self._trail.append(place)
        copy = self.copy(value)
        self._trail.pop()
        return copy

    def _refuse(self, reason: str) -> NoReturn:
        raise NotJsonError("".join(self._trail), reason)


def _describe(value: Any) -> str:
    name = type(value).__name__
    hint = _HINTS.get(name, "convert it to text, a number, a list or a dict")
    return f"is a {name}, which JSON cannot hold; {hint}"

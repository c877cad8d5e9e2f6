"""Columns of rows as PostgreSQL's binary arrays, made in one go; of one row as its values.

A batch has a dozen columns and thousands of rows. The driver looks at every value to find out what
it is; here the statement says what a column holds.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

_NULL = b"\xff\xff\xff\xff"  # in place of the length of a value
_TRUE, _FALSE = b"\x00\x00\x00\x01\x01", b"\x00\x00\x00\x01\x00"


def _sized(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def _texts(values: Sequence[Any]) -> bytes:
    """Most columns hold a few texts, many times."""
    known = {text: _NULL if text is None else _sized(text.encode()) for text in set(values)}
    return b"".join([known[text] for text in values])


def _contents(values: Sequence[Any]) -> bytes:
    return b"".join([_NULL if value is None else _sized(value) for value in values])


def _booleans(values: Sequence[Any]) -> bytes:
    return b"".join([_TRUE if value else _FALSE for value in values])


def _integers(letter: str, size: int) -> Callable[[Sequence[Any]], bytes]:
    def packed(values: Sequence[Any]) -> bytes:
        if None in values:
            return b"".join([_NULL if one is None else packed((one,)) for one in values])
        pairs = [size] * (2 * len(values))
        pairs[1::2] = values
        return struct.pack("!" + f"i{letter}" * len(values), *pairs)

    return packed


#: Name of a type → its number, the number of its arrays, and how its values are written.
TYPES: dict[str, tuple[int, int, Callable[[Sequence[Any]], bytes]]] = {
    "text": (25, 1009, _texts),
    "bytea": (17, 1001, _contents),
    "boolean": (16, 1000, _booleans),
    "integer": (23, 1007, _integers("i", 4)),
    "bigint": (20, 1016, _integers("q", 8)),
}


_VALUES: dict[str, Callable[[Any], bytes]] = {
    "text": str.encode,
    "bytea": bytes,
    "boolean": lambda value: b"\x01" if value else b"\x00",
    "integer": struct.Struct("!i").pack,
    "bigint": struct.Struct("!q").pack,
}


def binary_value(kind: str, value: Any) -> bytes | None:
    """Integers that do not fit raise `OverflowError`."""
    if value is None:
        return None
    try:
        return writer_of(kind)(value)
    except struct.error:
        raise OverflowError(f"a number does not fit into {kind}") from None


def writer_of(kind: str) -> Callable[[Any], bytes]:
    """What writes a value of that type. One of an array (`text[]`) is an array of its own."""
    if kind.endswith("[]"):
        return lambda value: binary_array(kind[:-2], (value,))
    return _VALUES[kind]


class RowWriter:
    """Writes rows whose columns have these types, one at a time."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self._kinds = kinds
        self._writers = [writer_of(kind) for kind in kinds]

    def write(self, row: Sequence[Any]) -> list[bytes | None]:
        pairs = zip(self._writers, row, strict=True)
        try:
            return [None if value is None else write(value) for write, value in pairs]
        except struct.error:  # which of them it was, is looked for only then
            return [binary_value(*pair) for pair in zip(self._kinds, row, strict=True)]


def binary_array(kind: str, values: Sequence[Any]) -> bytes:
    """Of one dimension, from 1. Integers that do not fit raise `OverflowError`."""
    number, _, written = TYPES[kind]
    try:
        body = written(values)
    except struct.error:
        raise OverflowError(f"a number does not fit into {kind}") from None
    return struct.pack("!5i", 1, None in values, number, len(values), 1) + body

"""A look over a JSON text before it is parsed: how deep it is, and how much there is in it.

Parsing is one call that nobody can interrupt, and its time depends on the number of values and not
on the number of bytes: sixteen megabytes of `[],[],[]…` would hold everybody up for seconds. This
goes over the text piece by piece, lets others run in between, and stops at the first value too
many. What it counts is right for a text that is JSON; of any other the parser says that it is none.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import accumulate

import msgspec

from anabranch.errors import InputError

PIECE_BYTES = 64 * 1024

_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_BACKSLASHES = re.compile(rb"\\*")


class JsonBounds(msgspec.Struct, frozen=True):
    """How much there may be in a text."""

    values: int
    containers: int  # lists and objects: each takes as long as a hundred numbers
    keys: int


#: Of a request, and of what may be four times as large: it is parsed within half a second.
BODY = JsonBounds(2_000_000, 250_000, 500_000)
PAYLOAD = JsonBounds(8_000_000, 1_000_000, 2_000_000)


class JsonSize(msgspec.Struct):
    """What is outside of the strings of a text."""

    bounds: JsonBounds
    depth: int = 0
    deepest: int = 0
    containers: int = 0
    separators: int = 0  # commas: there is one value more than commas in every list and object
    keys: int = 0

    def take(self, bare: bytes) -> None:
        """The next piece of the text, without its strings."""
        self.containers += bare.count(b"[") + bare.count(b"{")
        self.separators += bare.count(b",")
        self.keys += bare.count(b":")
        self._check("values", self.containers + self.separators, self.bounds.values)
        self._check("lists and objects", self.containers, self.bounds.containers)
        self._check("keys", self.keys, self.bounds.keys)
        steps = memoryview(bare.translate(_STEPS, _NOT_BRACKETS)).cast("b")
        heights = list(accumulate(steps, initial=self.depth))
        self.depth, self.deepest = heights[-1], max(self.deepest, *heights)

    def _check(self, what: str, count: int, most: int) -> None:
        if count > most:
            raise InputError(f"the JSON has more than {most:,} {what}", code="too_many_values")


def scan(body: bytes, bounds: JsonBounds, depth: int) -> JsonSize:
    """Look over a text; refuses one that is too deep or has too much in it."""
    seen, inside = JsonSize(bounds), False
    for piece in _pieces(body):
        plain = piece.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in piece else piece
        parts = plain.split(b'"')  # by turns outside and inside of a string
        seen.take(b"".join(parts[inside::2]))
        inside ^= len(parts) % 2 == 0
        if seen.deepest > depth:
            raise InputError(f"the JSON has more than {depth} levels", code="too_deep")
        if len(body) > PIECE_BYTES:
            time.sleep(0)  # whoever waits for the interpreter gets it now
    return seen


def _pieces(body: bytes) -> Iterator[bytes]:
    """The text in parts, none of which ends between a backslash and what follows it."""
    begin = 0
    while begin < len(body):
        end = begin + PIECE_BYTES
        if end < len(body) and body[end - 1] == 0x5C:
            behind = _BACKSLASHES.match(body, end)
            end = (behind.end() if behind is not None else end) + 1
        yield body[begin:end]
        begin = end


def number(text: str) -> float:
    """A number with a point, in bounded time: what is hard to round takes the parser ages."""
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("Number out of range")
    return value


#: Of a text that was looked over.
decode = msgspec.json.Decoder(float_hook=number).decode

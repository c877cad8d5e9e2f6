"""The one way in for documents of others: few of them are read here, many beside the event loop.

Whoever has made a key can send them. So their bytes are looked at first, then how many values they
have (`VALUES_OF`), and what is more than a little is read where it holds nobody up: ten thousand
bytes may be five thousand values, which take as long as a hundred thousand bytes of text.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import msgspec

from anabranch.market.documents import DocumentProblem, check
from anabranch.market.documents.checking import At
from anabranch.market.node.errors import NodeError

T = TypeVar("T")

LARGE = 16 * 1024  # of what weighs as much, or more, is read beside the event loop
#: Each value is looked at, however few bytes it has: it weighs as much as so many of them.
VALUE_BYTES = 16
DOCUMENT_BYTES = 1024 * 1024  # of a document that is no artifact
#: Of what all strangers have sent and is not decided yet. An artifact is a text until it is read.
WAITING_MAX, WAITING_BYTES = 2048, 64 * 1024 * 1024
AT_ONCE = 2  # readings of what strangers sent, and as many of what those sent whom this node trusts


class LargeReader:
    """Reads large documents beside the event loop, a few at once. One may hold thousands of values,
    and its sender nothing but a key of their own: those of whom this node trusts do not wait behind
    them."""

    def __init__(self) -> None:
        self._places = {trusted: asyncio.Semaphore(AT_ONCE) for trusted in (False, True)}

    async def read(self, work: Callable[[], T], *, trusted: bool) -> T:
        async with self._places[trusted]:
            return await asyncio.get_running_loop().run_in_executor(None, work)


class Waiting:
    """How much of what strangers have sent may wait to be read and decided, of all of them: anyone
    can make keys. What comes from those whom this node trusts does not count, so it finds room."""

    def __init__(self, most: int, bytes_max: int) -> None:
        self._most = most
        self._bytes_max = bytes_max
        self.count = self.bytes = 0

    def take(self, size: int, *, trusted: bool) -> bool:
        """Whether there is room for one more of so many bytes; `leave` gives it back."""
        if trusted:
            return True
        if self.count >= self._most or self.bytes + size > self._bytes_max:
            return False
        self.count += 1
        self.bytes += size
        return True

    def leave(self, size: int, *, trusted: bool) -> None:
        if not trusted:
            self.count -= 1
            self.bytes -= size

    @contextmanager
    def place(self, size: int, *, trusted: bool) -> Iterator[None]:
        """Room while something is read and decided. Raises `NodeError` where there is none."""
        if not self.take(size, trusted=trusted):
            message = "too much of what others sent waits to be read; send it later"
            raise NodeError(429, "peer_busy", message, headers={"Retry-After": "1"})
        try:
            yield
        finally:
            self.leave(size, trusted=trusted)


class Door:
    def __init__(self) -> None:
        self._reader = LargeReader()
        self.waiting = Waiting(WAITING_MAX, WAITING_BYTES)

    async def read(self, work: Callable[[], T], weight: int, *, trusted: bool = False) -> T:
        """What `work` makes of something that weighs so much."""
        if weight < LARGE:
            return work()
        return await self._reader.read(work, trusted=trusted)

    async def problems(
        self, document: Any, kind: str, *, at: At | None = None, trusted: bool = False
    ) -> list[DocumentProblem]:
        """Everything that is wrong with a document, as `check` finds it; of one with too many bytes
        that alone."""
        size = size_of(document)
        if size > DOCUMENT_BYTES:
            message = f"{size:,} bytes; {DOCUMENT_BYTES:,} are the most"
            return [DocumentProblem("", "too-large", message)]
        work = partial(check, document, kind=kind, at=at)
        return await self.read(work, weigh(document), trusted=trusted)


def size_of(value: Any) -> int:
    """Bytes of a value as JSON; of what is none, as if it were large."""
    try:
        return len(msgspec.json.encode(value))
    except (RecursionError, TypeError, ValueError, OverflowError):
        return LARGE


def weigh(value: Any) -> int:
    """How much work it is to look at a value: its bytes as JSON, and how many values it has."""
    try:
        return weigh_text(msgspec.json.encode(value))
    except (RecursionError, TypeError, ValueError, OverflowError):
        return LARGE


def weigh_text(data: bytes) -> int:
    return len(data) + VALUE_BYTES * data.count(b",")


def weigh_artifact(inline: Any) -> int:
    """The same of JSON in base64."""
    if not isinstance(inline, str) or len(inline) >= LARGE:
        return LARGE
    try:
        return weigh_text(b64decode(inline))
    except ValueError:
        return len(inline)


def portions(values: Iterable[Any]) -> Iterator[tuple[list[Any], int]]:
    """Values in their order, by what they weigh and not by their number; how much that is of each
    portion. All but the last one are large."""
    part: list[Any] = []
    weight = 0
    for value in values:
        part.append(value)
        weight += weigh(value)
        if weight >= LARGE:
            yield part, weight
            part, weight = [], 0
    if part:
        yield part, weight

"""The one way in for documents of others: few of them are read here, many beside the event loop.

Whoever has made a key can send them. So their bytes are looked at first, then how many values they
have (`VALUES_OF`), and what is more than a little is read where it holds nobody up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import msgspec

from anabranch.market.documents import DocumentProblem, check
from anabranch.market.documents.checking import At
from anabranch.market.node.errors import NodeError

T = TypeVar("T")

LARGE = 16 * 1024  # bytes that are read beside the event loop
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

    async def read(self, work: Callable[[], T], size: int, *, trusted: bool = False) -> T:
        """What `work` makes of so many bytes."""
        if size < LARGE:
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
        return await self.read(partial(check, document, kind=kind, at=at), size, trusted=trusted)


def size_of(value: Any) -> int:
    """Bytes of a value as JSON; of what is none, as if it were large."""
    try:
        return len(msgspec.json.encode(value))
    except (RecursionError, TypeError, ValueError, OverflowError):
        return LARGE


def portions(values: Iterable[Any]) -> Iterator[tuple[list[Any], int]]:
    """Values in their order, by the bytes that they have and not by their number; how many bytes
    each portion has. All but the last one are large."""
    part: list[Any] = []
    size = 0
    for value in values:
        part.append(value)
        size += size_of(value)
        if size >= LARGE:
            yield part, size
            part, size = [], 0
    if part:
        yield part, size

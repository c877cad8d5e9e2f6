"""The one way in for documents of others: few of them are read here, many beside the event loop.

Whoever has made a key can send them. So their bytes are looked at first, then how many values they
have (`VALUES_OF`), and what is more than a little is read where it holds nobody up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

import msgspec

from anabranch.market.documents import DocumentProblem, check
from anabranch.market.documents.checking import At

T = TypeVar("T")

LARGE = 16 * 1024  # bytes that are read beside the event loop
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


class Door:
    def __init__(self) -> None:
        self._reader = LargeReader()

    async def read(self, work: Callable[[], T], size: int, *, trusted: bool = False) -> T:
        """What `work` makes of so many bytes."""
        if size < LARGE:
            return work()
        return await self._reader.read(work, trusted=trusted)

    async def problems(
        self, document: Any, kind: str, *, at: At | None = None, trusted: bool = False
    ) -> list[DocumentProblem]:
        """Everything that is wrong with a document, as `check` finds it."""
        return await self.read(
            partial(check, document, kind=kind, at=at), size_of(document), trusted=trusted
        )


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

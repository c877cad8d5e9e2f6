"""Small writes of many requests, made durable together.

Every commit waits for the disk, and only one can be under way. So what is asked for while one is
being written goes into the next, all of it in one transaction: a hundred requests at once pay for a
few commits, not for a hundred. The writing is done in a thread: the event loop never waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from anabranch.errors import StoreError
from anabranch.store.access_ports import Access
from anabranch.store.outages import passes

T = TypeVar("T")
Work = Callable[[], Any]


class WriteBatcher:
    def __init__(self, store: Access) -> None:
        self._store = store
        self._waiting: list[tuple[Work, asyncio.Future[Any]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def write(self, work: Callable[[], T]) -> T:
        """Do this writing, in the order of asking; returns what it gave once that is durable."""
        asked: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, asked))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write_all())
        return await asked

    async def _write_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            works = [work for work, _ in batch]
            outcomes = await asyncio.to_thread(self._together, works)
            for (_, asked), (value, error) in zip(batch, outcomes, strict=True):
                if asked.done():
                    continue  # whoever asked has gone; it is written all the same
                if error is not None:
                    asked.set_exception(error)
                else:
                    asked.set_result(value)

    def _together(self, works: Sequence[Work]) -> list[tuple[Any, Exception | None]]:
        try:
            with self._store.together():
                return [(work(), None) for work in works]
        except Exception as error:
            if len(works) == 1 or (isinstance(error, StoreError) and passes(error)):
                return [(None, error)] * len(works)  # perhaps written: to repeat it is for nobody
        # One of them spoils it for all: each by itself, so that only that one fails.
        return [self._together([work])[0] for work in works]

    async def close(self) -> None:
        """Returns when nothing is left to be written."""
        if self._writing is not None:
            await self._writing

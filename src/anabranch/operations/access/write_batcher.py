"""Small writes of many requests, made durable together.

Every commit waits for the disk, and only one can be under way. So what is asked for while one is
being written goes into the next, all of it in one transaction: a hundred requests at once pay for a
few commits, not for a hundred. The writing is done in a thread: the event loop never waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from anabranch.errors import StoreError
from anabranch.store.access_ports import Access
from anabranch.store.outages import passes

T = TypeVar("T")
Work = Callable[[], Any]
Asked = tuple[Work, asyncio.Future[Any]]
Outcome = tuple[Any, Exception | None]


class WriteBatcher:
    def __init__(self, store: Access) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="anabranch-batcher")
        self._waiting: list[Asked] = []
        self._idle: asyncio.Future[None] | None = None  # done when nothing is left; None: idle

    def write(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do this writing, in the order of asking; done, with what it gave, once that is durable.
        Whoever no longer waits for it cancels nothing."""
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[T] = loop.create_future()
        self._waiting.append((work, asked))
        if self._idle is None:
            self._idle = loop.create_future()
            loop.call_soon(self._hand_on, loop)  # with what others ask for in this round
        return asked

    def _hand_on(self, loop: asyncio.AbstractEventLoop) -> None:
        batch, self._waiting = self._waiting, []
        self._thread.submit(self._write_all, loop, batch)

    def _write_all(self, loop: asyncio.AbstractEventLoop, batch: list[Asked]) -> None:
        outcomes = self._together([work for work, _ in batch])
        loop.call_soon_threadsafe(self._written, loop, batch, outcomes)

    def _written(
        self, loop: asyncio.AbstractEventLoop, batch: list[Asked], outcomes: list[Outcome]
    ) -> None:
        for (_, asked), (value, error) in zip(batch, outcomes, strict=True):
            if asked.done():
                continue  # whoever asked has gone; it is written all the same
            if error is not None:
                asked.set_exception(error)
            else:
                asked.set_result(value)
        if self._waiting:
            self._hand_on(loop)
        elif self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _together(self, works: Sequence[Work]) -> list[Outcome]:
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
        while self._idle is not None:
            await asyncio.shield(self._idle)

"""Reads that must not hold up the event loop: in threads, each with a store handle of its own.

On a database the threads share one handle, whose connections are bounded, and the event loop never
reads itself: it does not wait for the network.

A history may be long and a state large. The engine's own handle is left to the engine; what is read
here is what was committed before the question came. What is known to be small is read at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NoReturn, TypeVar

import msgspec
from aiohttp import web

from anabranch.errors import AnabranchError
from anabranch.operations.read.inline_reader import InlineReader, TooLargeInline, require_small
from anabranch.operations.read.reader import Reader
from anabranch.operations.read.timeline import Timelines
from anabranch.operations.sessions.sessions import Sessions
from anabranch.parts import Parts
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Store
from anabranch.surfaces.http.guard.unread_answers import require_room

T = TypeVar("T")
THREADS = 8


class ReadHandle(msgspec.Struct, frozen=True):
    """What a thread reads with."""

    store: Store
    read: Reader
    sessions: Sessions
    near: bool = False  # it is the event loop that reads

    def weigh(self, run: str, after: int = 0) -> None:
        """Where the event loop reads: raises `Far` if the log behind this event is not small."""
        if self.near:
            require_small(self.store, run, after)


class Readers:
    """A few threads that only read."""

    def __init__(self, parts: Parts, settings: Settings) -> None:
        self._parts, self._settings = parts, settings
        self._local = threading.local()
        self._opened: list[Store] = []
        self._opening = threading.Lock()
        self._near: ReadHandle | None = None
        self._timelines = Timelines()
        self._pool = ThreadPoolExecutor(THREADS, "anabranch-read")
        self._places = asyncio.Semaphore(THREADS)

    async def __call__(
        self, work: Callable[[ReadHandle], T], check: Callable[[], None] = lambda: None
    ) -> T:
        """What was read and is not taken yet is little: no more is begun meanwhile. `check` may
        raise when its turn has come."""
        loop = asyncio.get_running_loop()
        async with self._places:
            check()
            return await loop.run_in_executor(self._pool, self._run, work)

    def _run(self, work: Callable[[ReadHandle], T]) -> T:
        looking: ReadHandle | None = getattr(self._local, "looking", None)
        if looking is None:
            looking = self._local.looking = self._open()
        return work(looking)

    async def read_inline(
        self, work: Callable[[ReadHandle], T], check: Callable[[], None] = lambda: None
    ) -> T:
        if self._parts.store.cluster is not None:
            return await self(work, check)
        if self._near is None:
            self._near = self._open(near=True)
        try:
            return work(self._near)
        except TooLargeInline:
            return await self(work, check)

    def _open(self, *, near: bool = False) -> ReadHandle:
        store = self._parts.store
        if not isinstance(store, MemoryStore):
            store = self._open_store(shared=store.cluster is not None)
        read = (InlineReader if near else Reader)(store, self._parts.nets, self._parts.preflight)
        read.asked = self._parts.engine.pools.asked
        read.clusters = self._parts.verbs.read.clusters
        read.processes = self._parts.verbs.read.processes
        read.timelines = self._timelines
        return ReadHandle(store, read, Sessions(store, read, _send), near)

    def _open_store(self, *, shared: bool) -> Store:
        with self._opening:
            if not (shared and self._opened):
                self._opened.append(open_store(self._settings, read_only=True))
            return self._opened[-1]

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        for store in self._opened:
            store.close()
        self._opened.clear()


READERS = web.AppKey("readers", Readers)


async def look(request: web.Request, work: Callable[[ReadHandle], T]) -> T:
    """Do this reading beside the event loop."""
    return await request.app[READERS](work, partial(require_room, request))


async def read_inline(request: web.Request, work: Callable[[ReadHandle], T]) -> T:
    """Do this reading here and now if it is small, else beside the event loop.

    A hop to a thread and back takes longer than looking at a small run. The work weighs what it
    reads, or reads through `by.read`, which does; it may be begun twice.
    """
    return await request.app[READERS].read_inline(work, partial(require_room, request))


async def close_readers(app: web.Application) -> AsyncIterator[None]:
    yield
    await asyncio.to_thread(app[READERS].close)


async def _send(*_said: Any) -> NoReturn:
    raise AnabranchError("who only looks changes nothing")

"""Connections kept open for the next task: one pool per address, filled when needed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

Connect = Callable[[], Awaitable[Any]]

_FRESH_SECONDS = 1.0  # one used so recently is taken without asking whether it still lives


class Pool:
    """Connections to one place. A connection serves one task at a time."""

    def __init__(self, connect: Connect, limit: int, idle_seconds: float) -> None:
        self._connect = connect
        self._slots = asyncio.Semaphore(limit)
        self._idle_seconds = idle_seconds
        self._idle: list[tuple[float, Any]] = []  # since when, oldest first
        self._reaper: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def __repr__(self) -> str:  # an address may have a password in it
        return f"<pool with {len(self._idle)} idle connections>"

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """One that works. It comes back to the pool if all went well, and is closed if not."""
        async with self._slots:
            connection = await self._take()
            try:
                yield connection
                await connection.set_autocommit(True)
                await connection.execute("DISCARD ALL")  # settings, locks and tables of the task
            except BaseException:
                await _close(connection)
                raise
            self._give_back(connection)

    async def close(self) -> None:
        self._closed = True
        if self._reaper is not None:
            self._reaper.cancel()
        idle, self._idle = self._idle, []
        for _, connection in idle:
            await _close(connection)
        if self._closing:
            await asyncio.wait(tuple(self._closing))

    async def _take(self) -> Any:
        while self._idle:
            since, connection = self._idle.pop()
            if await _lives(connection, time.monotonic() - since):
                return connection
            await _close(connection)
        return await self._connect()

    def _give_back(self, connection: Any) -> None:
        self._idle.append((time.monotonic(), connection))
        if self._closed:
            self._close_oldest()
        elif self._reaper is None:
            self._reap_later()

    def _reap_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._reaper = loop.call_later(self._idle_seconds, self._reap)

    def _reap(self) -> None:
        self._reaper = None
        before = time.monotonic() - self._idle_seconds
        while self._idle and self._idle[0][0] <= before:
            self._close_oldest()
        if self._idle:
            self._reap_later()

    def _close_oldest(self) -> None:
        _, connection = self._idle.pop(0)
        closing = asyncio.get_running_loop().create_task(_close(connection))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def _lives(connection: Any, idle_seconds: float) -> bool:
    if connection.closed:
        return False
    if idle_seconds < _FRESH_SECONDS:
        return True
    try:
        await connection.execute("SELECT 1")
    except Exception:
        return False
    return True


async def _close(connection: Any) -> None:
    with suppress(Exception):  # whatever is wrong with it, it is not ours any more
        await connection.close()

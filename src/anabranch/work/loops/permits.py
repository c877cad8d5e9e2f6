"""Permits: so many items of a loop at work at once, however they are spread over shards.

A loop has as many shards in flight as items may run at once, so there is always an item for a free
permit while any is left. Items of one shard need not wait for each other: one that is slow, or that
waits for its retry, holds its own permit and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Permits:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._out = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if self._out < self.limit and not self._waiting:
            self._out += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # given to one that has just been stopped
                self._give_back()
            else:
                self._waiting.remove(turn)
            raise

    async def __aexit__(self, *_exc: object) -> None:
        self._give_back()

    def _give_back(self) -> None:
        self._out -= 1
        while self._waiting and self._out < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self._out += 1
                turn.set_result(None)


class LoopPermits:
    """The permits of every loop that has a shard here."""

    def __init__(self) -> None:
        self._loops: dict[str, tuple[Permits, int]] = {}  # and how many shards use them

    @contextmanager
    def of(self, loop: str, limit: int) -> Iterator[Permits]:
        permits, users = self._loops.get(loop, (None, 0))
        if permits is None:
            permits = Permits(limit)
        permits.limit = limit  # it may have been changed since the last shard
        self._loops[loop] = (permits, users + 1)
        try:
            yield permits
        finally:
            permits, users = self._loops.pop(loop)
            if users > 1:
                self._loops[loop] = (permits, users - 1)

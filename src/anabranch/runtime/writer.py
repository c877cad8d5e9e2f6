"""Durability: a small batch is committed in place, a large one on a thread.

A hop to a thread and back costs more than a small commit on a fast disk, and blocks nobody for
long; a large batch is written while the next turn is computed. Batches become durable strictly in
order, and a failed one ends the engine: what is in memory is then ahead of what is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from anabranch.store.ports import Batch, Journal

SMALL_BATCH = 24  # runs; measured in bench/


class Writer:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="anabranch-writer")
        self._in_flight: asyncio.Future[None] | None = None

    @property
    def busy(self) -> bool:
        return self._in_flight is not None

    @property
    def failed(self) -> bool:
        return self._in_flight is not None and self._in_flight.done()

    async def write(self, batch: Batch, then: Callable[[], None]) -> None:
        """Make the batch durable, then call `then`. Returns early for a large batch."""
        await self.drain()
        if len(batch.commits) <= SMALL_BATCH:
            if batch.commits or batch.payloads or batch.answers:
                self._journal.commit(batch)
            then()
            return
        loop = asyncio.get_running_loop()
        self._in_flight = asyncio.ensure_future(self._later(loop, batch, then))

    async def _later(
        self, loop: asyncio.AbstractEventLoop, batch: Batch, then: Callable[[], None]
    ) -> None:
        await loop.run_in_executor(self._thread, self._journal.commit, batch)
        then()
        self._in_flight = None

    async def drain(self) -> None:
        """Wait until everything handed in is durable; raises if that failed."""
        if self._in_flight is not None:
            await self._in_flight

    def close(self) -> None:
        self._thread.shutdown(wait=True)

"""Durability: a small batch is committed in place, a large one on a thread.

A hop to a thread and back costs more than a small commit on a fast disk, and blocks nobody for
long; a large batch is written while the next turn is computed. So is a small one while the disk is
slow: whoever waits for the network should not have to wait for the disk too. Batches become durable
strictly in order, and a failed one ends the engine: what is in memory is then ahead of the disk.

A patient writer (that of a server) waits where nothing was written and somebody can mend it: until
there is room on the disk again, or the file may be written. Nothing leaves meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from anabranch.errors import StoreError
from anabranch.runtime.metrics.engine_metrics import EngineMetrics
from anabranch.store.ports import Batch, Journal

SMALL_BATCH = 24  # runs; measured in bench/
SLOW_SECONDS = 0.003  # a commit that takes longer, lately, is not worth waiting for in place
_WEIGHT = 0.2  # of the newest commit in what is known of the disk
MENDABLE = frozenset({"store_full", "store_busy", "store_read_only"})
AGAIN_SECONDS = 0.5

log = logging.getLogger("anabranch.engine")


class Writer:
    def __init__(self, journal: Journal, engine_metrics: EngineMetrics | None = None) -> None:
        self._journal = journal
        self._engine_metrics = engine_metrics or EngineMetrics()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="anabranch-writer")
        self._in_flight: asyncio.Future[None] | None = None
        self._seconds = 0.0  # what a commit takes, lately
        self.patient = False
        self.trouble: StoreError | None = None  # what a patient one waits for the end of

    @property
    def busy(self) -> bool:
        return self._in_flight is not None

    @property
    def failed(self) -> bool:
        return self._in_flight is not None and self._in_flight.done()

    async def write(self, batch: Batch, then: Callable[[], None]) -> None:
        """Make the batch durable, then call `then`. Returns early where that may take a while."""
        await self.drain()
        if not (batch.commits or batch.payloads or batch.answers):
            then()
            return
        if len(batch.commits) <= SMALL_BATCH and self._seconds < SLOW_SECONDS:
            try:
                self._commit(batch)
            except StoreError as error:
                self._note(error)
            else:
                then()
                return
        loop = asyncio.get_running_loop()
        self._in_flight = asyncio.ensure_future(self._later(loop, batch, then))

    async def _later(
        self, loop: asyncio.AbstractEventLoop, batch: Batch, then: Callable[[], None]
    ) -> None:
        while True:
            if self.trouble is not None:
                await asyncio.sleep(AGAIN_SECONDS)
            try:
                await loop.run_in_executor(self._thread, self._commit, batch)
                break
            except StoreError as error:
                self._note(error)
        if self.trouble is not None:
            self.trouble = None
            log.warning("the store takes writes again")
        then()
        self._in_flight = None

    def _note(self, error: StoreError) -> None:
        """Something to wait for the end of; or else it goes on being an error."""
        if not self.patient or error.code not in MENDABLE:
            raise error
        if self.trouble is None:
            log.error("%s Nothing moves until then.", error.message)
        self.trouble = error

    def _commit(self, batch: Batch) -> None:
        self._engine_metrics.writing()
        begin = time.perf_counter()
        self._journal.commit(batch)
        taken = time.perf_counter() - begin
        self._engine_metrics.wrote(taken)
        taken = min(taken, 10 * SLOW_SECONDS)  # one hiccup is no slow disk
        if len(batch.commits) <= SMALL_BATCH:
            self._seconds += _WEIGHT * (taken - self._seconds)

    async def drain(self) -> None:
        """Wait until everything handed in is durable; raises if that failed."""
        if self._in_flight is not None:
            await self._in_flight

    def close(self) -> None:
        self._thread.shutdown(wait=True)

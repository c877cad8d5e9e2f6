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
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from anabranch.errors import StoreError
from anabranch.runtime.metrics.engine_metrics import EngineMetrics
from anabranch.runtime.outage import AGAIN_SECONDS, StoreOutage
from anabranch.store.outages import passes
from anabranch.store.ports import Batch, Journal

SMALL_BYTES = 256 * 1024  # of events
SMALL_BATCH = 24  # runs; measured in bench/
SLOW_SECONDS = 0.003  # a commit that takes longer, lately, is not worth waiting for in place
_WEIGHT = 0.2  # of the newest commit in what is known of the disk


class Writer:
    def __init__(
        self,
        journal: Journal,
        engine_metrics: EngineMetrics | None = None,
        seconds: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._journal = journal
        self._now = seconds
        self._engine_metrics = engine_metrics or EngineMetrics()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="anabranch-writer")
        self._in_flight: asyncio.Future[None] | None = None
        self._seconds = 0.0  # what a commit takes, lately
        self._batch: Batch | None = None  # the last one, until its effects have left
        self._abandoned = False
        self.patient = False
        self.trouble: StoreError | None = None  # what a patient one waits for the end of
        self.outage = StoreOutage()
        #: Asked between a commit and its effects, on a store that several servers share.
        self.confirm: Callable[[], Awaitable[None]] | None = None

    @property
    def busy(self) -> bool:
        return self._in_flight is not None

    @property
    def failed(self) -> bool:
        return self._in_flight is not None and self._in_flight.done()

    async def write(self, batch: Batch, then: Callable[[], None]) -> None:
        """Make the batch durable, then call `then`. Returns early where that may take a while."""
        if self._in_flight is not None:
            await self.drain()
        written = batch.commits or batch.payloads or batch.answers or batch.streams
        if not (written or batch.requests):
            then()
            return
        self._batch = batch
        small = len(batch.commits) + len(batch.streams) <= SMALL_BATCH
        for one in batch.commits[:SMALL_BATCH]:
            small = small and len(one.events) <= SMALL_BYTES
        if small and self._seconds < SLOW_SECONDS:
            try:
                self._commit(batch)
            except StoreError as error:
                self._note(error)
            else:
                if self.confirm is not None:
                    await self.confirm()
                then()
                self._batch = None
                return
        loop = asyncio.get_running_loop()
        self._in_flight = asyncio.ensure_future(self._later(loop, batch, then))

    async def _later(
        self, loop: asyncio.AbstractEventLoop, batch: Batch, then: Callable[[], None]
    ) -> None:
        while True:
            if self.trouble is not None:
                await asyncio.sleep(AGAIN_SECONDS)
                if self._abandoned:
                    raise self.trouble
            try:
                await loop.run_in_executor(self._thread, self._commit, batch)
                break
            except StoreError as error:
                self._note(error)
        self._recovered()
        if self.confirm is not None:
            await self.confirm()
        then()
        self._batch = self._in_flight = None

    def _note(self, error: StoreError) -> None:
        """Something to wait for the end of; or else it goes on being an error."""
        if not self.patient or not passes(error) or self._abandoned:
            raise error
        self.outage.begins("writer", error)
        self.trouble = error

    def _recovered(self) -> None:
        if self.trouble is not None:
            self.trouble = None
            self.outage.ends("writer")

    def _commit(self, batch: Batch) -> None:
        self._engine_metrics.writing()
        begin = self._now()
        self._journal.commit(batch)
        taken = self._now() - begin
        self._engine_metrics.wrote(taken)
        taken = min(taken, 10 * SLOW_SECONDS)  # one hiccup is no slow disk
        if len(batch.commits) + len(batch.streams) <= SMALL_BATCH:
            self._seconds += _WEIGHT * (taken - self._seconds)

    async def abandon(self) -> Batch | None:
        """Try no more to write what is on its way. Returns the batch whose effects have not left;
        whether it is durable is for the caller to find out."""
        self._abandoned = True
        try:
            await self.drain()
        except StoreError:
            self._in_flight = None
        finally:
            self._abandoned = False
        self._recovered()
        self._engine_metrics.writing_since = 0.0
        batch, self._batch = self._batch, None
        return batch

    async def drain(self) -> None:
        """Wait until everything handed in is durable; raises if that failed."""
        if self._in_flight is not None:
            await self._in_flight

    def close(self) -> None:
        self._thread.shutdown(wait=True)

"""What an engine puts away now and then: runs that rest, and payloads that no run needs."""

from __future__ import annotations

import asyncio
import logging

from anabranch.errors import StoreError
from anabranch.runtime.core import Core

EVICT_EVERY_SECONDS = 5.0
SWEEP_EVERY_SECONDS = 60.0
#: Some 5 KiB each. Where there are more runs in memory, those that rest leave it sooner.
MANY_RUNS = 20_000
SWEPT_AT_ONCE = 200

log = logging.getLogger("anabranch.engine")


class Housekeeping:
    """On a store that servers share a sweep may wait for the others: it is done in a thread."""

    def __init__(self, core: Core, evict_after_ms: int) -> None:
        self._core = core
        self._shared = core.store.cluster is not None
        self._sweeping: asyncio.Future[None] | None = None
        self._evict_after_ms = evict_after_ms
        self._evicted_at = 0
        self._swept_at = 0

    def look(self, now: int) -> None:
        if now - self._evicted_at >= EVICT_EVERY_SECONDS * 1000:
            self._evicted_at = now
            self._core.evict(now, self._rest_ms())
            if now - self._swept_at >= SWEEP_EVERY_SECONDS * 1000:
                self._swept_at = now
                if not self._shared:
                    self._sweep(now)
                elif self._sweeping is None or self._sweeping.done():
                    self._sweeping = asyncio.ensure_future(asyncio.to_thread(self._sweep, now))

    def _rest_ms(self) -> int:
        """For how long a run may rest in memory."""
        if len(self._core.live) <= MANY_RUNS:
            return self._evict_after_ms
        return min(self._evict_after_ms, int(EVICT_EVERY_SECONDS * 1000))

    async def finish(self, now: int) -> None:
        """Once more, at the end."""
        if self._sweeping is not None:
            await self._sweeping
        if self._shared:
            await asyncio.to_thread(self._sweep, now)
        else:
            self._sweep(now)

    def _sweep(self, now: int) -> None:
        """Delete the payloads that no run needs any more, a few at a time."""
        try:
            gone = self._core.store.expire(now, SWEPT_AT_ONCE)
        except StoreError as error:  # they stay for another time
            log.warning("unused payloads could not be deleted: %s", error.message)
            return
        if gone:
            log.info("%d unused payloads were deleted", gone)

"""Deletes runs by itself once they have been over for as long as the setting `keep_runs` says.

A sweep goes through the runs that are old enough, a few in each transaction, with a pause after
each: whoever works on the same store waits no longer than for these few. What must stay is decided
as for `purge`. Of several servers on one store the one that owns the first partition sweeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from anabranch.ages import kept_ages
from anabranch.cancel import cancel_and_wait
from anabranch.errors import StoreError
from anabranch.operations.runs.purge import STEPS_AT_ONCE, give_back, purge_page
from anabranch.runtime.metrics.registry import Counter, Registry
from anabranch.store.ports import HeadFilter, Store

PORTION = 50  # runs that are looked at, and at most deleted, in one go
PAUSE_SECONDS = 0.05  # between two portions
#: Between two sweeps: a part of the shortest age, within these bounds.
SWEEP_SECONDS = (1.0, 600.0)
PART_OF_AGE = 20

log = logging.getLogger("anabranch.retention")
_T = TypeVar("_T")


class RunRetention:
    """Begins with the engine and ends with it; does nothing where no age is set."""

    def __init__(
        self, store: Store, now: Callable[[], int], keep_runs: str, registry: Registry
    ) -> None:
        self._store = store
        self._now = now
        self._ages = kept_ages(keep_runs)
        self._task: asyncio.Task[None] | None = None
        self._counter: Counter | None = None
        if self._ages:
            self._counter = registry.counter(
                "anabranch_runs_expired_total", "runs deleted because keep_runs says so"
            )

    def begin(self) -> None:
        if self._ages:
            self._task = asyncio.get_running_loop().create_task(self._sweep_forever())

    async def close(self) -> None:
        """What was begun is finished: a thread cannot be stopped half-way."""
        if self._task is not None:
            await cancel_and_wait(self._task)

    async def _sweep_forever(self) -> None:
        least, most = SWEEP_SECONDS
        pause = min(max(min(self._ages.values()) / 1000 / PART_OF_AGE, least), most)
        while True:
            try:
                await self.sweep()
            except StoreError as error:  # they stay for another time
                log.warning("old runs could not be deleted: %s", error.message)
            await asyncio.sleep(pause)

    async def sweep(self) -> int:
        """Delete everything that is old enough now; returns how many runs that were."""
        if not self._is_ours():
            return 0
        gone = 0
        try:
            for wanted in self._filters(self._now()):
                gone += await self._sweep_each(wanted)
        finally:
            if gone:
                log.info("%d runs that were over for long enough were deleted", gone)
        if gone:
            await _finished(give_back, self._store, STEPS_AT_ONCE)
        return gone

    def _is_ours(self) -> bool:
        return self._store.cluster is None or 0 in self._store.cluster.owned

    def _filters(self, now: int) -> Iterator[HeadFilter]:
        for age, statuses in _by_age(self._ages).items():
            before = now - age
            # A run that ended before an instant began before it: younger ones are not looked at.
            yield HeadFilter(
                statuses=statuses, ended_before=before, created_before=before, limit=PORTION
            )

    async def _sweep_each(self, wanted: HeadFilter) -> int:
        gone = 0
        while True:
            page = await _finished(purge_page, self._store, wanted)
            gone += page.runs
            if self._counter is not None:
                self._counter.add(by=page.runs)
            if page.next is None or not self._is_ours():
                return gone
            wanted = replace(wanted, before=page.next)
            await asyncio.sleep(PAUSE_SECONDS)


def _by_age(ages: Mapping[str, int]) -> Mapping[int, list[str]]:
    found: dict[int, list[str]] = {}
    for status, age in ages.items():
        found.setdefault(age, []).append(status)
    return found


async def _finished(act: Callable[..., _T], *given: Any) -> _T:
    """In a thread, and waited for also by who is cancelled: the store is closed after that."""
    doing = asyncio.ensure_future(asyncio.to_thread(act, *given))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        with contextlib.suppress(StoreError):
            await doing
        raise

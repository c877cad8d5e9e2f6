"""Watching: a worker asks which of its jobs it should stop, and is answered when there is one.

The question names the jobs and is answered at once where one of them is cancelled, over, or out
with somebody else; otherwise when that happens, or after a while with nothing. No state is kept
between two questions: one that is cut off, or a server that was killed, costs the next question and
no more. Heartbeats tell the same, later.

On a store that several servers share, a job whose run another one owns is answered at once as well,
with where to ask about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

import msgspec

from anabranch.errors import AnabranchError, InputError
from anabranch.kernel import events as e
from anabranch.operations.workers.claims import CLAIM_MAX, WAIT_SECONDS_MAX
from anabranch.operations.workers.leases import LeaseClaim, require_lease_holder
from anabranch.runtime.effects import DurableEvents
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.messages.codec import RunElsewhere

LOOK_SECONDS = 1.0  # whoever has hung up, and an engine that stops, are noticed that soon
#: After these a job of a worker may be no longer its own.
STOPPING = (e.JobCancelling, e.JobTimedOut, e.JobLost, e.JobDischarged, e.RunFinished)
CANCELLED = "cancelled"


class JobToStop(msgspec.Struct, frozen=True, kw_only=True):
    """A job whose work is to be stopped. `cancelled`: release it then; any other code: drop it."""

    run: str
    job: str
    attempt: int
    code: str
    reason: str


class JobElsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """A job whose run another server owns: ask that one about it."""

    run: str
    job: str
    attempt: int
    server: str  # its URL; empty where no server has taken the run over yet


class WatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    stop: list[JobToStop]
    moved: list[JobElsewhere]

    def __bool__(self) -> bool:
        return bool(self.stop or self.moved)


class CancelWatch:
    """One per engine."""

    def __init__(self, engine: EngineLoop) -> None:
        self._engine = engine
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._stop_listening: Callable[[], None] | None = None  # nobody watches

    @property
    def watched(self) -> Collection[str]:
        """The runs of which somebody watches a job."""
        return self._watchers.keys()

    async def watch(
        self,
        jobs: Sequence[LeaseClaim],
        *,
        wait_seconds: float = 0.0,
        gone: Callable[[], bool] = lambda: False,
    ) -> WatchAnswer:
        """Those of the jobs that are to be stopped, or to be asked about elsewhere; waits until
        there is one."""
        _check(jobs, wait_seconds)
        clock = asyncio.get_running_loop().time
        until, news = clock() + wait_seconds, asyncio.Event()
        runs = {out.run for out in jobs}
        for run in runs:
            self._watchers.setdefault(run, set()).add(news)
        if self._stop_listening is None:
            self._stop_listening = self._engine.listen(self._hear)
        try:
            while True:
                news.clear()
                found = await self._look(jobs)
                left = until - clock()
                if found or left <= 0 or gone() or self._engine.pools.closed:
                    return found
                await _either(news, min(left, LOOK_SECONDS))
        finally:
            for run in runs:
                self._forget(run, news)

    async def _look(self, jobs: Sequence[LeaseClaim]) -> WatchAnswer:
        found = [news for out in jobs if (news := self.to_stop(out)) is not None]
        away = [out for out in found if isinstance(out, LeaseClaim)]
        urls = await self._engine.directory.owner_urls({out.run for out in away}) if away else {}
        return WatchAnswer(
            stop=[out for out in found if isinstance(out, JobToStop)],
            moved=[
                JobElsewhere(run=out.run, job=out.job, attempt=out.attempt, server=urls[out.run])
                for out in away
            ],
        )

    def to_stop(self, out: LeaseClaim) -> JobToStop | LeaseClaim | None:
        """None while it goes on; the claim itself where another server owns its run."""
        try:
            _, job = require_lease_holder(self._engine, out)
        except RunElsewhere:
            return out
        except AnabranchError as refusal:
            code, reason = refusal.code, refusal.message
        else:
            if job.phase != "cancelling":
                return None
            code, reason = CANCELLED, job.reason
        return JobToStop(run=out.run, job=out.job, attempt=out.attempt, code=code, reason=reason)

    def _hear(self, news: DurableEvents) -> None:
        """Something of a run is durable: whoever watches a job of it looks again."""
        watchers = self._watchers.get(news.run)
        if watchers and any(isinstance(event, STOPPING) for event in news.events):
            for each in watchers:
                each.set()

    def wake_all(self) -> None:
        for watchers in self._watchers.values():
            for each in watchers:
                each.set()

    def _forget(self, run: str, news: asyncio.Event) -> None:
        watchers = self._watchers[run]
        watchers.discard(news)
        if not watchers:
            del self._watchers[run]
        if not self._watchers and self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None


async def _either(news: asyncio.Event, seconds: float) -> None:
    """Until there are news, or time is up."""
    try:
        async with asyncio.timeout(seconds):
            await news.wait()
    except TimeoutError:
        return


def _check(jobs: Sequence[LeaseClaim], wait_seconds: float) -> None:
    if not 1 <= len(jobs) <= CLAIM_MAX:
        raise InputError(f"name 1 to {CLAIM_MAX} jobs, not {len(jobs):,}")
    if not 0 <= wait_seconds <= WAIT_SECONDS_MAX:
        raise InputError(f"wait_seconds must be 0 to {WAIT_SECONDS_MAX:g}, not {wait_seconds:g}")

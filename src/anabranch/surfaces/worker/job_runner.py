"""One job of a worker, from the moment it is claimed until the server has heard what became of it.

Three things go on at once: the work; heartbeats, at a third of the lease, which also say how far it
is; and the watch, which is told at once when the job is to be stopped. Told to stop, or told that
the job is no longer its own, the worker stops the work. An answer is kept and said again until the
server that owns the run has heard it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Literal

import msgspec

from anabranch.cancel import cancel_and_wait
from anabranch.kernel.values import failed
from anabranch.operations.workers.cancel_watch import CANCELLED
from anabranch.operations.workers.worker_api import Beat
from anabranch.pools.answers import JobAnswer, worded
from anabranch.pools.remote.server_client import ServerAway, ServerRefused, until_heard
from anabranch.pools.remote.servers import Servers
from anabranch.pools.task_environment import TaskEnvironment
from anabranch.runtime.jobs.wire import ClaimedJob
from anabranch.surfaces.worker.cancel_watch import CancelPoller
from anabranch.surfaces.worker.log_sender import LogSender
from anabranch.work.port import Parked

log = logging.getLogger("anabranch.worker")

BEATS_PER_LEASE = 3
RELEASE_SECONDS = 5.0

Verdict = Literal["stop", "void"]


class Tally(msgspec.Struct):
    """What a worker has done."""

    done: int = 0
    failed: int = 0
    handed_back: int = 0
    void: int = 0  # the server had given it to somebody else, or did not want it any more


class JobRunner:
    """One job of a worker."""

    def __init__(
        self,
        leased: ClaimedJob,
        *,
        servers: Servers,
        environment: TaskEnvironment,
        watch: CancelPoller,
        tally: Tally,
        sender: LogSender | None = None,
    ) -> None:
        self._leased = leased
        self._servers = servers
        self._environment = environment
        self._watch = watch
        self._tally = tally
        self._sender = sender
        self._said_done = -1  # how many items were over when the last progress was told

    async def run(self, shared: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        work = loop.create_task(self._perform(shared))
        beats = loop.create_task(self._beats())
        told = self._watch.over(self._leased.id)
        try:
            waiting: set[asyncio.Future[Any]] = {work, beats, told}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await self._deliver(work)
                return
            verdict = beats.result() if beats.done() else _verdict(told.result())
            await cancel_and_wait(beats, work, ignore=Exception)
            if verdict == "stop":
                await self._release("stopped as it was told")
            else:
                self._tally.void += 1
        except asyncio.CancelledError:  # the grace is over
            await self._hand_back(work)
            raise
        finally:
            self._watch.forget(self._leased.id)
            await cancel_and_wait(beats, work, ignore=Exception)

    async def _perform(self, shared: dict[str, Any]) -> JobAnswer:
        try:
            return await self._environment.perform(self._leased, shared)
        finally:
            if self._sender is not None:
                await self._sender.finish(self._leased.id)
            else:
                self._environment.logs.forget(self._leased.id)

    # -- while it is at work -----------------------------------------------------------------

    async def _beats(self) -> Verdict:
        """Say that it is still at work, until that is no longer wanted."""
        pause = max(self._leased.lease_seconds, 0.3) / BEATS_PER_LEASE
        key, body = self._leased.id, {"lease_seconds": self._leased.lease_seconds}
        while True:
            await asyncio.sleep(pause)
            try:
                beat = await self._servers.json(
                    Beat, key, "POST", "heartbeat", body, seconds=max(pause, 1.0)
                )
                if beat.stop:
                    return "stop"
                await self._tell_progress()
            except ServerAway:
                continue  # the link has said so; the lease may still outlast it
            except ServerRefused as refusal:
                log.info("%s: %s", self, refusal)
                return "void"

    async def _tell_progress(self) -> None:
        key = self._leased.id
        if self._environment.done(key) == max(self._said_done, 0):
            return  # nothing new
        progress = await self._environment.progress(key)
        if progress is not None:
            await self._servers.once(key, "POST", "progress", {"progress": progress})
            self._said_done = progress["done"]

    async def _hand_back(self, work: asyncio.Task[JobAnswer]) -> None:
        """Another worker goes on from where this one stands."""
        with suppress(ServerAway, ServerRefused, TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._tell_progress()
        await cancel_and_wait(work, ignore=Exception)
        await self._release("its worker stops")

    async def _release(self, reason: str) -> None:
        """Best effort: what is not heard is lost with its lease."""
        self._tally.handed_back += 1
        key = self._leased.id
        with suppress(ServerAway, ServerRefused, TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._servers.once(key, "POST", "release", {"reason": reason})

    # -- when it is done ---------------------------------------------------------------------

    async def _deliver(self, work: asyncio.Task[JobAnswer]) -> None:
        try:
            said = work.result()
        except ServerRefused as refusal:
            log.info("%s: %s", self, refusal)
            self._tally.void += 1
            return
        except Exception as defect:
            log.exception("%s: a bug in the worker", self)
            said = JobAnswer(failed("defect", f"the worker failed: {defect!r}", retryable=False))
        try:
            await self._say(*worded(said))
        except ServerRefused as refusal:
            await self._refused(refusal)
            return
        good = isinstance(said.answer, Parked) or said.answer.status == "ok"
        self._tally.done += good
        self._tally.failed += not good

    async def _refused(self, refusal: ServerRefused) -> None:
        log.info("%s: %s", self, refusal)
        if refusal.status in (404, 409):
            self._tally.void += 1
            return
        said = failed("result", f"the server refused the answer: {refusal}", retryable=False)
        with suppress(ServerRefused):
            await self._say(*worded(JobAnswer(said)))
        self._tally.failed += 1

    async def _say(self, verb: str, body: Any) -> None:
        """Until it is heard. Said again it may be refused because it was heard the first time."""
        key = self._leased.id
        heard = False  # perhaps, by a try that had no answer

        async def say() -> None:
            nonlocal heard
            try:
                await self._servers.once(key, "POST", verb, body)
            except ServerAway as away:
                heard = heard or away.heard
                raise

        try:
            await until_heard(say)
        except ServerRefused as refusal:
            if not heard or refusal.status != 409:
                raise

    def __str__(self) -> str:
        return f"job {self._leased.job} of run {self._leased.run}"


def _verdict(code: str) -> Verdict:
    return "stop" if code == CANCELLED else "void"

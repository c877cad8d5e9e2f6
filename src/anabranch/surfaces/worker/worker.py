"""The worker's day: claim as much as there is room for, do it, say how it went.

An orderly stop claims nothing more, finishes what it can within the grace and hands back the rest,
and what a claim may have been given whose answer nobody waits for any more.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import msgspec

from anabranch.cancel import cancel_and_wait
from anabranch.operations.workers.claims import Claimed
from anabranch.runtime.jobs.wire import ClaimedJob
from anabranch.surfaces.worker.cancel_watch import CancelPoller
from anabranch.surfaces.worker.job_runner import RELEASE_SECONDS, JobRunner, Tally
from anabranch.surfaces.worker.server_client import (
    ServerAway,
    ServerClient,
    ServerRefused,
    until_heard,
)
from anabranch.surfaces.worker.task_environment import TaskEnvironment

log = logging.getLogger("anabranch.worker")

WAIT_SECONDS = 20.0  # of one claim
CLAIM_MOST = 100


class Terms(msgspec.Struct, frozen=True):
    """How a worker works."""

    pool: str
    concurrency: int = 1
    lease_seconds: float | None = None  # None is what the definition says
    once: bool = False  # end when nothing waits any more
    grace_seconds: float = 10.0


class Worker:
    """One pool of one server; its name is that of the link."""

    def __init__(self, link: ServerClient, environment: TaskEnvironment, terms: Terms) -> None:
        self._link = link
        self._environment = environment
        self._terms = terms
        self._watch = CancelPoller(link)
        self.tally = Tally()
        self._at_work: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._known = False  # the server has answered a claim
        self._note = ""

    @property
    def at_work(self) -> int:
        return len(self._at_work)

    def stop(self) -> None:
        """Claim nothing more; finish or hand back what is at work."""
        self._stopping.set()

    async def run(self) -> Tally:
        """Until it is told to stop; with `once` until nothing waits. Raises `Final` where the
        server will not have this worker."""
        async with self._watch:
            try:
                while not self._stopping.is_set():
                    await self._turn()
            finally:
                await self._finish()
        return self.tally

    async def _turn(self) -> None:
        room = self._terms.concurrency - len(self._at_work)
        if room <= 0:
            await self._wait_for_some()
            return
        claimed = await self._claim(min(room, CLAIM_MOST))
        if claimed is None:
            return
        for leased in claimed.tasks:
            self._begin(leased, claimed.runs[leased.run])
        if not claimed.tasks and self._terms.once:
            if not self._at_work:
                self.stop()
            else:
                await self._wait_for_some()

    # -- claiming ----------------------------------------------------------------------------

    async def _claim(self, most: int) -> Claimed | None:
        """None when it was told to stop meanwhile."""
        body = {
            "worker": self._link.worker,
            "max": most,
            # The first answer comes at once: a pool that nobody knows is told before the wait.
            "wait_seconds": WAIT_SECONDS if self._known and not self._terms.once else 0,
            "lease_seconds": self._terms.lease_seconds,
            "claim": uuid4().hex,  # asked again under the same name, it is the same question
        }
        asking = asyncio.ensure_future(until_heard(lambda: self._ask(body)))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
        finally:
            await cancel_and_wait(asking, stopping, ignore=(ServerAway, ServerRefused))
        await self._withdraw(body["claim"])
        return None

    async def _ask(self, body: dict[str, Any]) -> Claimed:
        """A server that has never known this worker's token will not know it later."""
        path = self._pool("claim")
        seconds = WAIT_SECONDS + 15
        try:
            claimed = await self._link.json(Claimed, "POST", path, body, seconds=seconds)
        except ServerAway as away:
            if away.status in (401, 403) and not self._known:
                said = f"{away.message} (a worker needs a token with the scope `work`)"
                raise ServerRefused(said, "token", away.status) from None
            raise
        self._known = True
        if claimed.note and claimed.note != self._note:
            log.warning("%s", claimed.note)
        self._note = claimed.note
        return claimed

    async def _withdraw(self, claim: Any) -> None:
        """The question may have been answered on the way: its jobs must not wait for their lease.
        Best effort, as with everything that is handed back."""
        if not self._known:
            return
        body = {"worker": self._link.worker, "claim": claim}
        with suppress(ServerAway, ServerRefused, TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._link.once("POST", self._pool("withdraw"), body)

    def _pool(self, verb: str) -> str:
        return f"/pools/{quote(self._terms.pool, safe='')}/{verb}"

    async def _wait_for_some(self) -> None:
        """Until one of the jobs at work is over, or it is told to stop."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({*self._at_work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(stopping)

    # -- jobs --------------------------------------------------------------------------------

    def _begin(self, leased: ClaimedJob, shared: dict[str, Any]) -> None:
        runner = JobRunner(
            leased,
            link=self._link,
            environment=self._environment,
            watch=self._watch,
            tally=self.tally,
        )
        task = asyncio.get_running_loop().create_task(runner.run(shared))
        self._at_work.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._at_work.discard(task)
        if not task.cancelled() and (defect := task.exception()) is not None:
            log.error("a job was lost to a bug in the worker", exc_info=defect)

    async def _finish(self) -> None:
        if self._at_work:
            await asyncio.wait(self._at_work, timeout=self._terms.grace_seconds)
        left = list(self._at_work)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

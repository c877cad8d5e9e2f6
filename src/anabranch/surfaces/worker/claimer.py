"""Claims of one server: asks for as many jobs as there are places, and waits where there are none.

The only server is asked with a claim that waits. Of several, each is asked for what there is, and
those that have nothing are waited for without a claim: a claim that waits would keep its places
from the others. What a claim may have been given whose answer did not arrive is withdrawn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec

from anabranch.cancel import cancel_and_wait
from anabranch.operations.workers.claims import Claimed
from anabranch.pools.remote.server_client import (
    Backoff,
    ServerAway,
    ServerClient,
    ServerRefused,
    until_heard,
)
from anabranch.runtime.jobs.pool_queues import WorkerReport
from anabranch.runtime.jobs.wire import ClaimedJob
from anabranch.surfaces.http.io.work_shapes import WaitingJobs
from anabranch.surfaces.worker.job_runner import RELEASE_SECONDS
from anabranch.surfaces.worker.room import Room

T = TypeVar("T")
WAIT_SECONDS = 20.0  # of one claim, or of one question whether there is a job
CLAIM_SECONDS = 15.0  # for the answer of a claim that does not wait
AGAIN_SECONDS = 0.05  # another worker was faster: how long before the next question


class Terms(msgspec.Struct, frozen=True):
    """How a worker works."""

    pool: str
    concurrency: int = 1
    lease_seconds: float | None = None  # None is what the definition says
    once: bool = False  # end when nothing waits any more
    grace_seconds: float = 10.0
    about: WorkerReport | None = None  # what servers tell people of this worker


class Claimer:
    """One for each server of a worker. `begin` starts a job that was claimed; `alone` says whether
    this is the only server; `some_ended` returns when a job of the worker has ended."""

    def __init__(
        self,
        client: ServerClient,
        terms: Terms,
        room: Room,
        *,
        begin: Callable[[ServerClient, ClaimedJob, dict[str, Any]], None],
        alone: Callable[[], bool],
        some_ended: Callable[[], Coroutine[Any, Any, Any]],
        changed: Callable[[], None],
    ) -> None:
        self.client = client
        self._terms = terms
        self._about = msgspec.to_builtins(terms.about)
        self._room = room
        self._begin = begin
        self._alone = alone
        self._some_ended = some_ended
        self._changed = changed
        self.known = False  # the server has answered a claim
        self.dry = False  # nothing waits there, or it is away
        self.note = ""  # for people: what may be wrong where nothing ever comes
        self._stopping = False
        self._told = asyncio.Event()  # to stop, or that there are other servers now
        self._unheard: list[str] = []  # claims that may have been given jobs
        room.expect(self)

    def stop(self) -> None:
        """Claim nothing more, and hand back what is on its way."""
        self._stopping = True
        self._told.set()

    def interrupt(self) -> None:
        """Places that a waiting claim keeps are needed elsewhere."""
        self._told.set()

    async def run(self) -> None:
        """Until it is told to stop. Raises `ServerRefused` where the server will not have this
        worker."""
        backoff = Backoff()
        try:
            while not self._stopping:
                try:
                    await self._turn()
                    backoff.reset()
                except ServerAway:
                    await self._rest(backoff.pause())
                if not self._stopping:
                    self._told.clear()
        finally:
            self._room.leave(self)

    async def _turn(self) -> None:
        for claim in list(self._unheard):
            await self._withdraw_unheard(claim)
        places = await self._unless_told(self._room.take(self))
        if places is None:
            return
        given = 0
        try:
            claimed = await self._claim(places)
            if claimed is None:
                return
            for leased in claimed.tasks:
                self._begin(self.client, leased, claimed.runs[leased.run])
            given = len(claimed.tasks)
        finally:
            self._room.give_back(places - given)
        if given >= places:
            self._room.expect(self)
        elif self._terms.once and not given:
            await self._rest(self._some_ended())
        elif not (self._terms.once or self._alone()):
            await self._unless_told(self._until_there_is_one())

    async def _rest(self, until: Coroutine[Any, Any, Any]) -> None:
        """There is nothing to do here until then."""
        self._room.leave(self)
        self.dry = True
        self._changed()
        await self._unless_told(until)
        self.dry = False
        self._room.expect(self)

    # -- claiming ----------------------------------------------------------------------------

    async def _claim(self, most: int) -> Claimed | None:
        """None when it was told to stop, or to let go of its places, meanwhile."""
        alone = self._alone()
        waits = alone and self.known and not self._terms.once
        claim = uuid4().hex  # asked again under the same name, it is the same question
        body = {
            "worker": self.client.worker,
            "max": most,
            # The first answer comes at once: a pool that nobody knows is told before the wait.
            "wait_seconds": WAIT_SECONDS if waits else 0,
            "lease_seconds": self._terms.lease_seconds,
            "claim": claim,
            "about": self._about,
        }
        seconds = CLAIM_SECONDS + (WAIT_SECONDS if alone else 0)
        if alone:
            claimed = await self._unless_told(until_heard(lambda: self._ask(body, seconds)))
        else:
            try:
                claimed = await self._unless_told(self._ask(body, seconds))
            except ServerAway as away:
                if away.heard:
                    self._unheard.append(claim)
                raise
        if claimed is None:
            await self._withdraw(claim)
        return claimed

    async def _ask(self, body: dict[str, Any], seconds: float) -> Claimed:
        """A server that has never known this worker's token will not know it later."""
        path = self._pool("claim")
        try:
            claimed = await self.client.json(Claimed, "POST", path, body, seconds=seconds)
        except ServerAway as away:
            if away.status in (401, 403) and not self.known:
                said = f"{away.message} (a worker needs a token with the scope `work`)"
                raise ServerRefused(said, "token", away.status) from None
            raise
        self.known = True
        if claimed.note != self.note:
            self.note = claimed.note
            self._changed()
        return claimed

    async def _until_there_is_one(self) -> None:
        """Returns when a job of the pool waits at the server."""
        self._room.leave(self)
        await asyncio.sleep(AGAIN_SECONDS)
        body = {
            "worker": self.client.worker,
            "wait_seconds": WAIT_SECONDS,
            "about": self._about,
        }
        path, seconds = self._pool("wait"), WAIT_SECONDS + CLAIM_SECONDS
        while not self._alone():  # or else the claim waits
            found = await self.client.json(WaitingJobs, "POST", path, body, seconds=seconds)
            if found.waiting:
                break
        self._room.expect(self)

    async def _withdraw(self, claim: str) -> None:
        """The question may have been answered on the way: its jobs must not wait for their lease.
        Best effort, as with everything that is handed back. Also where the server has not answered
        yet: the answer that was not waited for may have been its first."""
        with suppress(ServerAway, ServerRefused, TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._say_withdrawn(claim)

    async def _withdraw_unheard(self, claim: str) -> None:
        """Raises while the server is away."""
        with suppress(ServerRefused):
            await self._say_withdrawn(claim)
        self._unheard.remove(claim)

    async def _say_withdrawn(self, claim: str) -> None:
        body = {"worker": self.client.worker, "claim": claim}
        await self.client.once("POST", self._pool("withdraw"), body, seconds=RELEASE_SECONDS)

    def _pool(self, verb: str) -> str:
        return f"/pools/{quote(self._terms.pool, safe='')}/{verb}"

    async def _unless_told(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What it comes to; None where this was told to stop or to let go meanwhile."""
        doing = asyncio.ensure_future(work)
        told = asyncio.ensure_future(self._told.wait())
        try:
            await asyncio.wait({doing, told}, return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else None
        finally:
            await cancel_and_wait(doing, told, ignore=(ServerAway, ServerRefused))

"""The worker's day: claim as much as there is room for, do it, say how it went.

It claims from every server of the store (`claimer`), and has never more jobs than places (`room`).
It goes on as long as one server answers. An orderly stop claims nothing more, finishes what it can
within the grace and hands back the rest, and what a claim may have been given whose answer nobody
waits for any more.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from anabranch.cancel import cancel_and_wait
from anabranch.pools.remote.server_client import ServerClient, ServerRefused
from anabranch.pools.remote.servers import Servers
from anabranch.pools.task_environment import TaskEnvironment
from anabranch.runtime.jobs.wire import ClaimedJob
from anabranch.surfaces.worker.cancel_watch import CancelPoller
from anabranch.surfaces.worker.claimer import Claimer, Terms
from anabranch.surfaces.worker.job_runner import JobRunner, Tally
from anabranch.surfaces.worker.log_sender import LogSender
from anabranch.surfaces.worker.room import Room

log = logging.getLogger("anabranch.worker")

REFUSED_SECONDS = 30.0  # before a server that refused this worker is asked again


class Worker:
    """One pool of the servers of one store; its name is that of the servers."""

    def __init__(self, servers: Servers, environment: TaskEnvironment, terms: Terms) -> None:
        self._servers = servers
        self._environment = environment
        self._terms = terms
        self._watch = CancelPoller(servers)
        self._sender = LogSender(servers, environment.logs)
        self.tally = Tally()
        self._room = Room(terms.concurrency)
        self._claimers: dict[ServerClient, tuple[Claimer, asyncio.Task[None]]] = {}
        self._leaving: set[asyncio.Task[None]] = set()  # claimers of servers that have left
        self._refused: dict[ServerClient, float] = {}
        self._at_work: set[asyncio.Task[None]] = set()
        self._note = ""
        self._stopping = asyncio.Event()
        self._news = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def at_work(self) -> int:
        return len(self._at_work)

    def stop(self) -> None:
        """Claim nothing more; finish or hand back what is at work."""
        self._stopping.set()
        self._news.set()

    async def run(self) -> Tally:
        """Until it is told to stop; with `once` until nothing waits. Raises `ServerRefused` where
        no server will have this worker."""
        async with self._watch, self._sender:
            looking = asyncio.ensure_future(self._look())
            try:
                await self._serve(looking)
            finally:
                await self._stop_claiming()
                await self._finish()
                await cancel_and_wait(looking)
        return self.tally

    async def _look(self) -> None:
        """Who else is there is asked before the first claim, so that they all get their share."""
        await self._servers.refresh()
        self._arrange()
        self._servers.on_change = self._servers_changed
        await self._servers.keep_current()
        await self._stopping.wait()

    async def _serve(self, looking: asyncio.Future[None]) -> None:
        looking.add_done_callback(lambda _done: self._news.set())
        while not self._stopping.is_set():
            self._news.clear()
            if looking.done():
                looking.result()
            self._look_at_refusals()
            self._say_note()
            if self._terms.once and self._nothing_left():
                self.stop()
            await self._news.wait()

    def _nothing_left(self) -> bool:
        """Every server that answers has said so, and one has."""
        claimers = [claimer for claimer, _ in self._claimers.values()]
        heard = self._servers.discovered and any(claimer.known for claimer in claimers)
        return heard and not self._at_work and all(claimer.dry for claimer in claimers)

    # -- claiming ----------------------------------------------------------------------------

    def _servers_changed(self) -> None:
        self._arrange()
        self._news.set()  # it may have been the last thing that `once` waited for

    def _arrange(self) -> None:
        """One claimer for each server."""
        if self._stopping.is_set():
            return
        there = [client for client in self._servers.clients if not self._is_refused(client)]
        for client in [client for client in self._claimers if client not in there]:
            claimer, task = self._claimers.pop(client)
            claimer.stop()
            self._leaving.add(task)
            task.add_done_callback(self._left)
        before = [claimer for claimer, _ in self._claimers.values()]
        for client in [client for client in there if client not in self._claimers]:
            claimer = self._claimer(client)
            task = asyncio.get_running_loop().create_task(claimer.run())
            task.add_done_callback(lambda _done: self._news.set())
            self._claimers[client] = claimer, task
        if len(before) == 1 < len(self._claimers):  # it waits with all places
            before[0].interrupt()

    def _claimer(self, client: ServerClient) -> Claimer:
        return Claimer(
            client,
            self._terms,
            self._room,
            begin=lambda *given: self._begin(*given),
            alone=lambda: len(self._claimers) == 1,
            some_ended=lambda: self._ended.wait(),
            changed=self._news.set,
        )

    def _left(self, task: asyncio.Task[None]) -> None:
        self._leaving.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("a server that has left: %s", error)

    def _is_refused(self, client: ServerClient) -> bool:
        since = self._refused.get(client)
        return since is not None and asyncio.get_running_loop().time() - since < REFUSED_SECONDS

    def _look_at_refusals(self) -> None:
        """A server that refuses this worker is left out while another one has it."""
        for client, (_, task) in list(self._claimers.items()):
            if not task.done():
                continue
            del self._claimers[client]
            error = task.exception()
            if error is not None and not (isinstance(error, ServerRefused) and self._claimers):
                raise error
            log.warning("%s refuses this worker: %s", client.server, error)
            self._refused[client] = asyncio.get_running_loop().time()
            asyncio.get_running_loop().call_later(REFUSED_SECONDS, self._arrange)

    def _say_note(self) -> None:
        """What may be wrong with the pool, where no server knows it."""
        notes = [claimer.note for claimer, _ in self._claimers.values() if claimer.known]
        note = notes[0] if notes and all(notes) else ""
        if note and note != self._note:
            log.warning("%s", note)
        self._note = note

    async def _stop_claiming(self) -> None:
        self._stopping.set()
        tasks = [*self._leaving, *(task for _, task in self._claimers.values())]
        for claimer, _ in self._claimers.values():
            claimer.stop()
        if tasks:
            await asyncio.wait(tasks)

    # -- jobs --------------------------------------------------------------------------------

    def _begin(self, client: ServerClient, leased: ClaimedJob, shared: dict[str, Any]) -> None:
        self._servers.lend(leased.id, client)
        runner = JobRunner(
            leased,
            servers=self._servers,
            environment=self._environment,
            watch=self._watch,
            tally=self.tally,
            sender=self._sender,
        )
        task = asyncio.get_running_loop().create_task(runner.run(shared))
        self._at_work.add(task)
        task.add_done_callback(lambda done: self._over(leased, done))

    def _over(self, leased: ClaimedJob, task: asyncio.Task[None]) -> None:
        self._at_work.discard(task)
        self._servers.forget(leased.id)
        self._room.give_back(1)
        self._ended.set()  # who waits for it is woken, and waits for the next one
        self._ended = asyncio.Event()
        self._news.set()
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

"""The worker's ear: one held question to each server about all jobs at work whose runs it owns,
answered when one is to be stopped, or when its run has moved to another server.

The question is asked anew when other jobs have begun, which ends the one before. Jobs that are over
within a moment are never asked about: of short work the server hears nothing more than its claims
and reports. A question that is lost is asked again; heartbeats tell the same, later.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from anabranch.cancel import cancel_and_wait
from anabranch.pools.remote.server_client import (
    Backoff,
    ServerAway,
    ServerClient,
    ServerRefused,
)
from anabranch.pools.remote.servers import Servers
from anabranch.pools.services import Key
from anabranch.surfaces.http.io.work_shapes import Watched

log = logging.getLogger("anabranch.worker")

WAIT_SECONDS = 25.0  # of one question; proxies tend to hang up after 30 or 60
MOMENT_SECONDS = 0.2
REFUSED_SECONDS = 5.0
LOOK_SECONDS = 2.0  # at whether jobs have come back to a server that was away
JOBS_MOST = 1000  # in one question


class CancelPoller:
    """`async with CancelPoller(servers) as watch:`; `watch.over(key)` for every job that begins."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._jobs: dict[Key, asyncio.Future[str]] = {}
        self._listening: dict[ServerClient, tuple[asyncio.Event, asyncio.Task[None]]] = {}

    async def __aenter__(self) -> CancelPoller:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await cancel_and_wait(*(task for _, task in self._listening.values()))
        self._listening.clear()

    def over(self, key: Key) -> asyncio.Future[str]:
        """Done when this job is to be stopped, with the code that says why."""
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._jobs[key] = told
        self._ask_about(key)
        return told

    def forget(self, key: Key) -> None:
        told = self._jobs.pop(key, None)
        if told is not None:
            told.cancel()

    def _ask_about(self, key: Key) -> None:
        """The question to its server does not name this job yet."""
        client = self._servers.home(key)
        if client not in self._listening:
            more = asyncio.Event()
            listening = asyncio.get_running_loop().create_task(self._listen(client, more))
            self._listening[client] = more, listening
        self._listening[client][0].set()

    def _at(self, client: ServerClient) -> list[Key]:
        found = [key for key in self._jobs if self._servers.home(key) is client]
        return found[:JOBS_MOST]

    async def _listen(self, client: ServerClient, more: asyncio.Event) -> None:
        """Until the server has left."""
        backoff = Backoff()
        while client in self._servers.clients:
            if not self._at(client):
                await self._until(more)
            await asyncio.sleep(MOMENT_SECONDS)
            more.clear()
            named = self._at(client)
            if not named:
                continue
            try:
                settled = await self._ask(client, more, named)
                if settled:
                    backoff.reset()
                else:
                    await backoff.pause()
            except ServerAway:
                for key in named:  # at another server, which knows where they are
                    self._ask_about(key)
                await backoff.pause()
            except ServerRefused as refusal:
                if refusal.status == 404:
                    return  # a server without this question: heartbeats have to do
                log.info("watching: %s", refusal)
                await asyncio.sleep(REFUSED_SECONDS)
        del self._listening[client]
        for key in self._jobs:
            self._ask_about(key)

    async def _until(self, more: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(LOOK_SECONDS if self._jobs else None):
                await more.wait()
        except TimeoutError:
            return

    async def _ask(self, client: ServerClient, more: asyncio.Event, named: list[Key]) -> bool:
        """False where it is not known yet which server owns the run of one of the jobs."""
        loop = asyncio.get_running_loop()
        asking = loop.create_task(self._question(client, named))
        others = loop.create_task(more.wait())
        try:
            await asyncio.wait({asking, others}, return_when=asyncio.FIRST_COMPLETED)
            return self._tell(client, asking.result()) if asking.done() else True
        finally:
            await cancel_and_wait(asking, others, ignore=(ServerAway, ServerRefused))

    async def _question(self, client: ServerClient, named: list[Key]) -> Watched:
        body: dict[str, Any] = {
            "worker": client.worker,
            "jobs": [{"run": run, "job": job, "attempt": attempt} for run, job, attempt in named],
            "wait_seconds": WAIT_SECONDS,
        }
        return await client.json(Watched, "POST", "/jobs/watch", body, seconds=WAIT_SECONDS + 15)

    def _tell(self, client: ServerClient, watched: Watched) -> bool:
        for stop in watched.stop:
            # Asked about once more, it would be told once more.
            told = self._jobs.pop((stop.run, stop.job, stop.attempt), None)
            if told is not None and not told.done():
                told.set_result(stop.code)
        settled = True
        for job in watched.moved:
            key = (job.run, job.job, job.attempt)
            if key in self._jobs and self._servers.moved(key, job.server):
                self._ask_about(key)
            settled = settled and self._servers.home(key) is not client
        return settled

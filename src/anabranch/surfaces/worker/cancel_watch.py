"""The worker's ear: one held question about all jobs at work, answered when one is to be stopped.

The question is asked anew when other jobs have begun, which ends the one before. Jobs that are over
within a moment are never asked about: of short work the server hears nothing more than its claims
and reports. A question that is lost is asked again; heartbeats tell the same, later.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

from anabranch.cancel import cancel_and_wait
from anabranch.surfaces.http.io.work_shapes import Watched
from anabranch.surfaces.worker.server_client import (
    DELAY_SECONDS,
    Key,
    ServerAway,
    ServerClient,
    ServerRefused,
)

log = logging.getLogger("anabranch.worker")

WAIT_SECONDS = 25.0  # of one question; proxies tend to hang up after 30 or 60
MOMENT_SECONDS = 0.2
JOBS_MOST = 1000  # in one question


class CancelPoller:
    """`async with Watch(link) as watch:`; then `watch.over(key)` for every job that begins."""

    def __init__(self, link: ServerClient) -> None:
        self._link = link
        self._jobs: dict[Key, asyncio.Future[str]] = {}
        self._more = asyncio.Event()  # jobs that the question does not name
        self._listening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> CancelPoller:
        self._listening = asyncio.get_running_loop().create_task(self._listen())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._listening is not None:
            await cancel_and_wait(self._listening)

    def over(self, key: Key) -> asyncio.Future[str]:
        """Done when this job is to be stopped, with the code that says why."""
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._jobs[key] = told
        self._more.set()
        return told

    def forget(self, key: Key) -> None:
        told = self._jobs.pop(key, None)
        if told is not None:
            told.cancel()

    async def _listen(self) -> None:
        delay = DELAY_SECONDS[0]
        while True:
            if not self._jobs:
                await self._more.wait()
            await asyncio.sleep(MOMENT_SECONDS)
            self._more.clear()
            named = list(self._jobs)[:JOBS_MOST]
            if not named:
                continue
            try:
                await self._ask(named)
                delay = DELAY_SECONDS[0]
            except ServerAway:
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))
                delay = min(delay * 2, DELAY_SECONDS[1])
            except ServerRefused as refusal:
                if refusal.status == 404:
                    return  # a server without this question: heartbeats have to do
                log.info("watching: %s", refusal)
                await asyncio.sleep(DELAY_SECONDS[1])

    async def _ask(self, named: list[Key]) -> None:
        loop = asyncio.get_running_loop()
        asking = loop.create_task(self._question(named))
        more = loop.create_task(self._more.wait())
        try:
            await asyncio.wait({asking, more}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                self._tell(asking.result())
        finally:
            await cancel_and_wait(asking, more, ignore=(ServerAway, ServerRefused))

    async def _question(self, named: list[Key]) -> Watched:
        body: dict[str, Any] = {
            "worker": self._link.worker,
            "jobs": [{"run": run, "job": job, "attempt": attempt} for run, job, attempt in named],
            "wait_seconds": WAIT_SECONDS,
        }
        return await self._link.json(
            Watched, "POST", "/jobs/watch", body, seconds=WAIT_SECONDS + 15
        )

    def _tell(self, watched: Watched) -> None:
        for stop in watched.stop:
            # Asked about once more, it would be told once more.
            told = self._jobs.pop((stop.run, stop.job, stop.attempt), None)
            if told is not None and not told.done():
                told.set_result(stop.code)

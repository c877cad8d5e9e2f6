"""Sends what the jobs of a worker print to the server that owns their runs, while they run.

One task sends for all jobs, a moment after something was printed. The last of it goes before the
report of the job: afterwards the worker has no right to speak for it. What a server does not take
is lost; the work does not wait for that.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import msgspec

from anabranch.cancel import cancel_and_wait
from anabranch.pools.job_logs import JobLogs
from anabranch.pools.remote.server_client import ServerAway, ServerRefused
from anabranch.pools.remote.servers import Servers
from anabranch.pools.services import Key
from anabranch.work.logs.attempt_log import LogBatch

log = logging.getLogger("anabranch.worker")

PAUSE_SECONDS = 0.3
LAST_SECONDS = 5.0  # for the last lines of a job
BATCHES_AT_ONCE = 8
NO_SUCH_PATH = "no_such_path"


class LogSender:
    """`async with LogSender(servers, logs) as sender:`"""

    def __init__(self, servers: Servers, logs: JobLogs) -> None:
        self._servers = servers
        self._logs = logs
        self._news = asyncio.Event()
        self._sending: dict[Key, asyncio.Lock] = {}
        self._task: asyncio.Task[None] | None = None
        self._unknown = False  # the server is of a version that keeps no logs

    async def __aenter__(self) -> LogSender:
        loop = asyncio.get_running_loop()

        def heard() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._news.set)

        self._logs.heard = heard
        self._task = loop.create_task(self._send_on())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._logs.heard = None
        if self._task is not None:
            await cancel_and_wait(self._task)

    async def _send_on(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(PAUSE_SECONDS)
            self._news.clear()
            for key in self._logs.used():
                try:
                    await self._send(key)
                except ServerAway:  # they are kept, and sent with what follows
                    log.debug("what job %s of run %s printed waits", key[1], key[0])

    async def _send(self, key: Key) -> None:
        """One after the other: the server takes what follows what it has."""
        async with self._sending.setdefault(key, asyncio.Lock()):
            while not self._unknown and (batches := self._logs.take(key)[:BATCHES_AT_ONCE]):
                body = {"batches": [_wire(batch) for batch in batches]}
                try:
                    await self._servers.once(key, "POST", "logs", body)
                except ServerRefused as refusal:
                    self._unknown = refusal.code == NO_SUCH_PATH
                    log.info("job %s of run %s: %s", key[1], key[0], refusal)
                self._logs.sent(key, batches)

    async def finish(self, key: Key) -> None:
        """The job is over: send the rest of what it printed, if the server is there."""
        try:
            if self._logs.take(key):
                async with asyncio.timeout(LAST_SECONDS):
                    await self._send(key)
        except (ServerAway, TimeoutError):
            log.info("the last lines of job %s of run %s are lost", key[1], key[0])
        finally:
            self._logs.forget(key)
            self._sending.pop(key, None)


def _wire(batch: LogBatch) -> dict[str, object]:
    fields = msgspec.structs.asdict(batch)
    return {**fields, "pieces": [msgspec.structs.asdict(piece) for piece in batch.pieces]}

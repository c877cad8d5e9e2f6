"""`worker`: does the jobs of a pool for a server, from this machine."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from anabranch import __version__
from anabranch.errors import InputError
from anabranch.runtime.jobs.pool_queues import WorkerReport
from anabranch.settings import Settings
from anabranch.surfaces.cli import stop_signals, values
from anabranch.surfaces.cli.backend.identity import token_of
from anabranch.surfaces.cli.output import render
from anabranch.work.from_settings import for_others
from anabranch.work.kinds.callables import default_toolbox

if TYPE_CHECKING:
    from anabranch.pools.remote.servers import Servers
    from anabranch.surfaces.worker.claimer import Terms
    from anabranch.surfaces.worker.worker import Worker

HEALTH_SECONDS = 60.0


async def worker(options: argparse.Namespace, settings: Settings) -> int:
    from anabranch.pools.remote.server_services import ServerServices
    from anabranch.pools.remote.servers import Servers
    from anabranch.pools.task_environment import TaskEnvironment
    from anabranch.surfaces.worker.claimer import Terms
    from anabranch.surfaces.worker.worker import Worker

    if "=" in options.pool:
        said = "a worker serves a pool by its name; `serve --pool NAME=URL` gives one to a cluster"
        raise InputError(said, code="usage")
    values.import_tools(options.tools)
    terms = Terms(
        pool=options.pool,
        concurrency=options.concurrency,
        lease_seconds=options.lease,
        once=options.once,
        grace_seconds=settings.grace_seconds if options.grace is None else options.grace,
    )
    name = options.name or f"{socket.gethostname()}-{os.getpid()}"
    logging.getLogger("anabranch.worker").setLevel(logging.INFO)
    given = settings.server.replace(",", " ").split()
    found = Servers(given, token_of(settings), name, discover=options.discover)
    async with found as servers:
        services = ServerServices(servers)
        environment = TaskEnvironment(services, for_others(settings), default_toolbox)
        made = Worker(servers, environment, replace(terms, about=_about(terms, environment.kinds)))
        voice = WorkerOutput(made, servers, terms, lines=options.json)
        try:
            with voice:
                await made.run()
        finally:
            await environment.close()
    voice.say("ended", f"worker {name} ends: {voice.counts()}")
    return 0


def _about(terms: Terms, kinds: list[str]) -> WorkerReport:
    """What servers tell people of this worker."""
    return WorkerReport(
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
        places=terms.concurrency,
        kinds=kinds,
    )


class WorkerOutput:
    """What a worker tells whoever started it: lines for people, or JSON for programs."""

    def __init__(self, made: Worker, servers: Servers, terms: Terms, *, lines: bool) -> None:
        self._made = made
        self._servers = servers
        self._terms = terms
        self._lines = lines
        self._told: tuple[Any, ...] = ()
        self._beating: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        stop_signals.on_stop(self._stop, also={signal.SIGUSR1: self._health})
        self._beating = loop.call_later(HEALTH_SECONDS, self._beat)
        terms, servers = self._terms, self._servers
        self.say(
            "started",
            f"worker {servers.worker} does pool {terms.pool} of {servers}, "
            f"{terms.concurrency} at once",
        )

    def __exit__(self, *_exc: object) -> None:
        if self._beating is not None:
            self._beating.cancel()

    def _stop(self) -> None:
        said = "stopping: running jobs finish or are released (again to stop at once)"
        self.say("stopping", said)
        self._made.stop()

    def _beat(self) -> None:
        """Now and then, where there is something new to tell."""
        self._beating = asyncio.get_running_loop().call_later(HEALTH_SECONDS, self._beat)
        servers = self._servers
        now = (*asdict(self._made.tally).values(), self._made.at_work, *servers.answering)
        if now != self._told:
            self._health()
        self._told = now

    def _health(self) -> None:
        name = self._servers.worker
        told = f"worker {name}: {self._made.at_work} at work, {self.counts()}; {self._door()}"
        self.say("health", told)

    def _door(self) -> str:
        away, (there, known) = self._servers.away_seconds, self._servers.answering
        if known > 1:
            return f"{there} of {known} servers answer"
        return f"the server is away for {away:.0f} s" if away else "the server answers"

    def counts(self) -> str:
        tally = self._made.tally
        handed = f", {tally.handed_back} handed back" if tally.handed_back else ""
        void = f", {tally.void} no longer wanted" if tally.void else ""
        return f"{tally.done} done, {tally.failed} failed{handed}{void}"

    def say(self, event: str, text: str) -> None:
        if not self._lines:
            print(text, file=sys.stderr, flush=True)
            return
        fields = {
            "event": event,
            "worker": self._servers.worker,
            "pool": self._terms.pool,
            "server": str(self._servers),
            "servers": [client.server for client in self._servers.clients],
            "concurrency": self._terms.concurrency,
            "version": __version__,
            "at_work": self._made.at_work,
            **asdict(self._made.tally),
            "away_seconds": round(self._servers.away_seconds, 1),
        }
        with suppress(BrokenPipeError):  # nobody listens any more; the jobs still count
            print(render.json_line(fields), flush=True)

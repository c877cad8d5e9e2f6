"""`worker`: does the jobs of a pool for a server, from this machine."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

from anabranch import app
from anabranch.errors import InputError
from anabranch.settings import Settings
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.desk import token_of

if TYPE_CHECKING:
    from anabranch.surfaces.worker.worker import Worker

INTERRUPTED = 130


async def worker(options: argparse.Namespace, settings: Settings) -> int:
    from anabranch.surfaces.worker.bench import Bench
    from anabranch.surfaces.worker.link import Link
    from anabranch.surfaces.worker.worker import Terms, Worker

    if not settings.server:
        raise InputError(
            "which server? give --server URL, or set ANABRANCH_SERVER", code="no_server"
        )
    values.import_tools(options.tools)
    terms = Terms(
        pool=options.pool,
        name=options.name or f"{socket.gethostname()}-{os.getpid()}",
        concurrency=options.concurrency,
        lease_seconds=options.lease,
        once=options.once,
        grace_seconds=settings.grace_seconds if options.grace is None else options.grace,
    )
    logging.getLogger("anabranch.worker").setLevel(logging.INFO)
    async with Link(settings.server, token_of(settings)) as link:
        bench = Bench(link, settings, app.default_toolbox)
        made = Worker(link, bench, terms)
        _heed_signals(made)
        say(f"worker {terms.name} does pool {terms.pool} of {link.server}, "
            f"{terms.concurrency} at once")  # fmt: skip
        try:
            tally = await made.run()
        finally:
            await bench.close()
    handed = f", {tally.handed_back} handed back" if tally.handed_back else ""
    void = f", {tally.void} no longer wanted" if tally.void else ""
    say(f"worker {terms.name} ends: {tally.done} done, {tally.failed} failed{handed}{void}")
    return 0


def _heed_signals(made: Worker) -> None:
    asked = False

    def stop() -> None:
        nonlocal asked
        if asked:  # asked twice: people mean it
            os._exit(INTERRUPTED)  # its jobs are lost with their leases
        asked = True
        say("stopping: jobs at work are finished or handed back (again to stop at once)")
        made.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

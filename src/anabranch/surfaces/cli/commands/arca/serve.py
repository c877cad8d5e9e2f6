"""`arca serve`: what a node launches. Everything it needs to know is in its environment."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from anabranch.cancel import cancel_and_wait
from anabranch.modules.arca.process import ArcaProcess
from anabranch.surfaces.cli import stop_signals
from anabranch.surfaces.cli.output import render
from anabranch.surfaces.http.module.server import ModuleServer


async def serve(options: argparse.Namespace) -> int:
    stopping = asyncio.Event()
    stop_signals.on_stop(stopping.set)
    async with (
        ArcaProcess(os.environ) as process,
        ModuleServer.of(process.module, process.found) as server,
    ):
        status = {"url": server.url, "home": str(process.found.home), "pid": os.getpid()}
        render.tell(options, status, f"arca listens at {server.url}")
        sys.stdout.flush()
        told = asyncio.ensure_future(stopping.wait())
        broken = asyncio.ensure_future(process.module.broken())
        await asyncio.wait({told, broken}, return_when=asyncio.FIRST_COMPLETED)
        failed = str(broken.result()) if broken.done() else ""
        await cancel_and_wait(told, broken)
    if failed:
        print(f"anabranch: the engine of arca has stopped: {failed}", file=sys.stderr)
        return 1
    return 0

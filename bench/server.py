"""Many clients of one server: how long does it take to be shown a run, and does anything fail?

The server is a process of its own. Every client asks about once a second: mostly for a run, at
times for a list, a page of events, or for a new run to be begun. The probe is a second process that
answers every question with the same few bytes: its p99 is what the machine itself does to them.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from bench import world
from bench.rows import Row

API = "/api/v1"
CLIENTS = int(os.environ.get("ANABRANCH_BENCH_CLIENTS", "200"))
SECONDS = float(os.environ.get("ANABRANCH_BENCH_SECONDS", "60"))
PAUSE_SECONDS = 1.0
AIM_MS = 50.0
SERVE = """
import asyncio, sys
from anabranch.settings import Settings
from anabranch.surfaces.http.serving import Server

async def main():
    async with Server(Settings(store=sys.argv[1], serve_port=0), mounts=()) as server:
        print(server.url, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""

BARE = """
import asyncio, sys
from aiohttp import web

async def main():
    async def same(request):
        return web.json_response({"run": "x" * 700})
    app = web.Application()
    app.router.add_get("/", same)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print("http://127.0.0.1:%d" % runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


@dataclass(slots=True)
class Load:
    """What the clients saw."""

    url: str
    bare: str
    definition: str
    shown: list[float] = field(default_factory=list)  # seconds of GET run
    probed: list[float] = field(default_factory=list)  # seconds of the probe
    requests: int = 0
    errors: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)


async def server(folder: Path) -> list[Row]:
    store = str(folder / "server.db")
    async with _process(SERVE, store) as url, _process(BARE) as bare:
        load = Load(url, bare, world.playbook("load", [{"step": "a", "tool": {"kind": "noop"}}]))
        connector = TCPConnector(limit=0)
        async with ClientSession(connector=connector, timeout=ClientTimeout(30)) as session:
            for _ in range(20):
                await _start(session, load)
            begin = time.perf_counter()
            until = begin + SECONDS
            await asyncio.gather(*(_client(session, load, until, n) for n in range(CLIENTS)))
            seconds = time.perf_counter() - begin
    return _rows(load, seconds)


def _rows(load: Load, seconds: float) -> list[Row]:
    p50, p99 = _part(load.shown, 0.5), _part(load.shown, 0.99)
    bare50, bare99 = _part(load.probed, 0.5), _part(load.probed, 0.99)
    words = f"{CLIENTS} clients, {load.requests / seconds:,.0f} requests/s, {len(load.runs):,} runs"
    aim = f"≤ {AIM_MS:g} ms"
    failed = len(load.errors)
    for error in sorted(set(load.errors))[:5]:
        print(f"  {error}", file=sys.stderr)
    return [
        Row("server GET run, median", p50, "ms", f"bare: {bare50:.1f} ms", p50 / bare50, "", None),
        Row(
            "server GET run, p99",
            p99,
            "ms",
            f"bare: {bare99:.1f} ms",
            p99 / bare99,
            aim,
            p99 <= AIM_MS,
        ),
        Row("server errors", failed, "", words, None, "0", failed == 0),
    ]


def _part(taken: list[float], part: float) -> float:
    """In milliseconds."""
    return sorted(taken)[int(len(taken) * part)] * 1000


async def _client(session: ClientSession, load: Load, until: float, number: int) -> None:
    dice = random.Random(number)
    await asyncio.sleep(dice.random() * PAUSE_SECONDS)
    while time.perf_counter() < until:
        load.requests += 1
        try:
            await _one(session, load, dice)
        except (ClientError, TimeoutError, OSError) as error:
            load.errors.append(repr(error))
        await asyncio.sleep(PAUSE_SECONDS * (0.5 + dice.random()))


async def _one(session: ClientSession, load: Load, dice: random.Random) -> None:
    run = dice.choice(load.runs)
    match dice.randrange(10):
        case 0:
            await _start(session, load)
        case 1:
            await _get(session, load, "/runs?limit=20")
        case 2:
            await _get(session, load, f"/runs/{run}/events")
        case 3 | 4:
            begin = time.perf_counter()
            async with session.get(load.bare) as response:
                await response.read()
            load.probed.append(time.perf_counter() - begin)
        case _:
            begin = time.perf_counter()
            await _get(session, load, f"/runs/{run}")
            load.shown.append(time.perf_counter() - begin)


async def _get(session: ClientSession, load: Load, path: str) -> None:
    async with session.get(f"{load.url}{API}{path}") as response:
        await response.read()
        if response.status != 200:
            load.errors.append(f"GET {path}: {response.status}")


async def _start(session: ClientSession, load: Load) -> None:
    body: dict[str, Any] = {"definition": f"{load.definition}\n"}
    async with session.post(f"{load.url}{API}/runs", json=body) as response:
        said = await response.json()
        if response.status != 201:
            load.errors.append(f"POST /runs: {response.status} {said}")
            return
    load.runs.append(said["run"])


@asynccontextmanager
async def _process(*program: str) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", *program),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()

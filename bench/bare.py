"""What the machine itself does to requests: a server that does next to nothing, asked beside ours.

It answers a GET with a few bytes, a POST after one durable commit, and a stream tells the time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from aiohttp import ClientSession

PAUSE_SECONDS = 0.05
ASKING = 4  # of each kind
PROGRAM = """
import asyncio, sqlite3, sys, time
from aiohttp import web

async def main():
    db = sqlite3.connect(sys.argv[1], isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE probe (id INTEGER PRIMARY KEY, body BLOB)")
    one = asyncio.Lock()

    async def same(request):
        return web.json_response({"run": "x" * 700})

    async def keep(request):
        body = await request.read()
        async with one:
            await asyncio.to_thread(db.execute, "INSERT INTO probe (body) VALUES (?)", (body,))
        return web.json_response({"run": "x"}, status=201)

    async def stream(request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            while True:
                await response.write(b"%r\\n" % time.time())
                await asyncio.sleep(0.05)
        except ConnectionError:
            return response  # who listened has gone

    app = web.Application()
    app.router.add_get("/", same)
    app.router.add_post("/", keep)
    app.router.add_get("/stream", stream)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print("http://127.0.0.1:%d" % runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()

asyncio.run(main())
"""


@dataclass(slots=True)
class Probe:
    """Seconds, by what was asked."""

    url: str
    got: list[float] = field(default_factory=list)
    posted: list[float] = field(default_factory=list)
    told: list[float] = field(default_factory=list)


class BareServer(NamedTuple):
    url: str
    process: int

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@asynccontextmanager
async def probing(folder: Path) -> AsyncIterator[Probe]:
    """A bare server, asked from this very event loop as long as the block lasts."""
    async with bare_server(folder) as server, ClientSession() as session:
        probe = Probe(server.url)
        work = (_get, _post, _listen)
        asking = [asyncio.ensure_future(one(session, probe)) for one in work * ASKING]
        try:
            yield probe
        finally:
            for one in asking:
                one.cancel()
            await asyncio.wait(asking)


@asynccontextmanager
async def bare_server(folder: Path) -> AsyncIterator[BareServer]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(folder / "bare.db")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().strip()
        yield BareServer(url, process.pid)
    finally:
        process.stdin.close()
        await process.wait()


async def _get(session: ClientSession, probe: Probe) -> None:
    while True:
        begin = time.perf_counter()
        async with session.get(probe.url) as response:
            await response.json()
        probe.got.append(time.perf_counter() - begin)
        await asyncio.sleep(PAUSE_SECONDS)


async def _post(session: ClientSession, probe: Probe) -> None:
    while True:
        begin = time.perf_counter()
        async with session.post(probe.url, data=b"x" * 1000) as response:
            await response.json()
        probe.posted.append(time.perf_counter() - begin)
        await asyncio.sleep(PAUSE_SECONDS)


async def _listen(session: ClientSession, probe: Probe) -> None:
    async with session.get(f"{probe.url}/stream") as response:
        async for line in response.content:
            probe.told.append(max(0.0, time.time() - float(line)))

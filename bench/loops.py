"""Benchmarks of loops: B4 and B5 count items, B6 waits for a server."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import probe, world
from bench.rows import Row

_MEASURE = """
import asyncio, json, sys
from pathlib import Path
from bench import loops
print(json.dumps(asyncio.run(loops.count(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))))
"""


def counting(items: int, shard_size: int) -> str:
    """A fan-out over a range whose items do nothing and are summed up."""
    fanout = {"max_concurrent": 3 if shard_size == 0 else 64, "reducers": {"total": "sum"}}
    if shard_size:
        fanout["shard_size"] = shard_size
    rule = {"else": {"then": {"do": "continue", "set_shared": {"total": "{{ outcome.result }}"}}}}
    step = {
        "step": "each",
        "spec": {"loop_mode": "fanout", "fanout": fanout},
        "loop": {"in": {"range": [0, items]}, "iterator": "n"},
        "tool": {"kind": "give", "value": "{{ iter.n }}", "spec": {"policy": {"rules": [rule]}}},
    }
    return world.playbook(f"count-{items}", [step])


async def count(folder: Path, items: int, shard_size: int) -> dict[str, Any]:
    """Run one counting loop; called in a process of its own, for its memory."""
    prepared = world.prepared(counting(items, shard_size))
    path = folder / f"count-{items}-{shard_size}.db"
    async with world.engine(path) as parts:
        begin = time.perf_counter()
        run = await parts.engine.start(prepared.definition, prepared.net)
        state = await parts.engine.wait(run)
        seconds = time.perf_counter() - begin
    if state.ctx.get("total") != sum(range(items)):
        raise RuntimeError(f"{items} items came to {state.ctx.get('total')}: {state.problem}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "peak_kib": peak, "bytes": path.stat().st_size}


def measured(folder: Path, items: int, shard_size: int) -> dict[str, Any]:
    command = [sys.executable, "-c", _MEASURE, str(folder), str(items), str(shard_size)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def b4(folder: Path) -> list[Row]:
    """A fan-out of N items that do nothing, sharded automatically, summed up."""
    rows, found = [], {}
    best = probe.rows_per_second(folder)
    for items in (1_000, 10_000, 100_000, 1_000_000):
        one = found[items] = measured(folder, items, 0)
        rate = items / one["seconds"]
        aim, met = ("≥ 30,000/s", rate >= 30_000) if items == 100_000 else ("", None)
        words = f"{best:,.0f} raw rows/s"
        rows.append(Row(f"B4 ×{items:,}", rate, "items/s", words, rate / best, aim, met))
    memory = found[1_000_000]["peak_kib"] / found[10_000]["peak_kib"]
    longer = found[1_000_000]["seconds"] / found[100_000]["seconds"]
    size = found[100_000]["bytes"] / 100_000
    rows.append(Row("B4 peak memory 10⁶ / 10⁴", memory, "×", "", None, "≤ 1.2", memory <= 1.2))
    rows.append(Row("B4 time 10⁶ / 10⁵", longer, "×", "", None, "≤ 11", longer <= 11))
    rows.append(Row("B4 database an item at 10⁵", size, "bytes", "", None, "< 200", size < 200))
    return rows


async def b5(folder: Path, items: int = 10_000) -> list[Row]:
    """The same with every item its own job."""
    rate = items / measured(folder, items, 1)["seconds"]
    commits = 1 / probe.commit_seconds(folder)
    words = f"{commits:,.0f} raw commits/s"
    ratio = rate / commits
    return [Row("B5 shard_size 1", rate, "items/s", words, ratio, "≥ 4,000/s", rate >= 4_000)]


_SERVER = """
import asyncio
from aiohttp import web
async def slow(_request):
    await asyncio.sleep(0.02)
    return web.json_response({"ok": True})
async def main():
    app = web.Application()
    app.router.add_get("/", slow)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    print(site._server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(120)
asyncio.run(main())
"""


async def b6(folder: Path, calls: int = 1_000, at_once: int = 100) -> list[Row]:
    """A local parallel loop of HTTP calls to a server that takes 20 ms each."""
    server = subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        port = int(server.stdout.readline())
        step = {
            "step": "each",
            "loop": {
                "in": f"{{{{ range({calls}) | list }}}}",
                "iterator": "n",
                "spec": {"mode": "parallel", "max_in_flight": at_once},
            },
            "tool": {"kind": "http", "url": f"http://127.0.0.1:{port}/"},
        }
        prepared = world.prepared(world.playbook("calls", [step]))
        async with world.engine(folder / "b6.db") as parts:
            seconds = min([await _timed(parts, prepared) for _ in range(3)])
    finally:
        server.kill()
        server.wait()
    ideal = calls / at_once * 0.02
    words = f"ideal: {ideal * 1000:.0f} ms"
    ratio = seconds / ideal
    return [
        Row(
            "B6 1,000 calls, 100 at once",
            seconds * 1000,
            "ms",
            words,
            ratio,
            "≤ 1.3×",
            ratio <= 1.3,
        )
    ]


async def _timed(parts: Any, prepared: Any) -> float:
    begin = time.perf_counter()
    run = await parts.engine.start(prepared.definition, prepared.net)
    state = await parts.engine.wait(run)
    if state.status != "completed":
        raise RuntimeError(f"{state.status}: {state.problem}")
    return time.perf_counter() - begin

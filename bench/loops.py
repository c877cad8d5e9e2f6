"""Benchmarks of loops: B4 and B5 count items, B6 waits for a server, B11 runs inline Python."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from anabranch.kernel import stimuli as s
from bench import probe, world
from bench.rows import Row

_MEASURE = """
import asyncio, json, sys
from pathlib import Path
from bench import loops
print(json.dumps(asyncio.run(loops.count(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))))
"""


def counting(items: int, shard_size: int, kind: str = "give") -> str:
    """A fan-out over a range whose items do nothing and are summed up."""
    fanout = {"max_concurrent": 3 if shard_size == 0 else 64, "reducers": {"total": "sum"}}
    if shard_size:
        fanout["shard_size"] = shard_size
    rule = {"else": {"then": {"do": "continue", "set_shared": {"total": "{{ outcome.result }}"}}}}
    step = {
        "step": "each",
        "spec": {"loop_mode": "fanout", "fanout": fanout},
        "loop": {"in": {"range": [0, items]}, "iterator": "n"},
        "tool": {"kind": kind, "value": "{{ iter.n }}", "spec": {"policy": {"rules": [rule]}}},
    }
    return world.playbook(f"count-{items}", [step])


async def count(folder: Path, items: int, shard_size: int) -> dict[str, Any]:
    """Run one counting loop; called in a process of its own, for its memory."""
    path = folder / f"count-{items}-{shard_size}.db"
    found = await count_on(path, items, shard_size)
    return {**found, "peak_kib": _peak_kib(), "bytes": path.stat().st_size}


async def count_on(store: Path | str, items: int, shard_size: int) -> dict[str, Any]:
    """The same on a store of any kind."""
    prepared = world.prepared(counting(items, shard_size))
    async with world.engine(store) as parts:
        begin, used = time.perf_counter(), time.process_time()
        run = await parts.engine.start(prepared.definition, prepared.net)
        state = await parts.engine.wait(run)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - used
    if state.ctx.get("total") != sum(range(items)):
        raise RuntimeError(f"{items} items came to {state.ctx.get('total')}: {state.problem}")
    return {"seconds": seconds, "cpu": cpu}


def _peak_kib() -> int:
    """The most memory this process had. `ru_maxrss` would begin with what its parent had."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(status.partition("VmHWM:")[2].split()[0])


def measured(folder: Path, items: int, shard_size: int, times: int = 1) -> dict[str, Any]:
    """The quickest of so many runs, each in a process of its own: the machine is shared."""
    found: list[dict[str, Any]] = []
    for number in range(times):
        place = folder / f"{items}-{shard_size}-{number}"
        place.mkdir()
        command = [sys.executable, "-c", _MEASURE, str(place), str(items), str(shard_size)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout))
    return min(found, key=lambda one: float(one["seconds"]))


async def b4(folder: Path) -> list[Row]:
    """A fan-out of N items that do nothing, sharded automatically, summed up."""
    rows, found = [], {}
    best = probe.rows_per_second(folder)
    for items, times in ((1_000, 3), (10_000, 3), (100_000, 3), (1_000_000, 2)):
        one = found[items] = measured(folder, items, 0, times)
        rate = items / one["seconds"]
        aim, met = ("≥ 60,000/s", rate >= 60_000) if items == 100_000 else ("", None)
        cpu = one["cpu"] / items * 1e6
        words = f"{best:,.0f} raw rows/s"
        rows.append(Row(f"B4 ×{items:,}", rate, "items/s", words, rate / best, aim, met, cpu))
    memory = found[1_000_000]["peak_kib"] / found[10_000]["peak_kib"]
    longer = found[1_000_000]["seconds"] / found[100_000]["seconds"]
    busier = found[1_000_000]["cpu"] / found[100_000]["cpu"]
    size = found[100_000]["bytes"] / 100_000
    rows.append(Row("B4 peak memory 10⁶ / 10⁴", memory, "×", "", None, "≤ 1.2", memory <= 1.2))
    words = f"by the clock: {longer:.2f}×"
    name = "B4 time of the processor 10⁶ / 10⁵"
    rows.append(Row(name, busier, "×", words, None, "≤ 10.5", busier <= 10.5))
    rows.append(Row("B4 database an item at 10⁵", size, "bytes", "", None, "< 200", size < 200))
    commit = probe.commit_seconds(folder)
    first = min([await first_item(folder / f"first-{number}.db") for number in range(3)])
    words, ratio = f"one commit: {commit * 1000:.2f} ms", first / commit
    aim = "≤ 100 ms"
    name = "B4 first item of 10⁶ begins"
    rows.append(Row(name, first * 1000, "ms", words, ratio, aim, first <= 0.1))
    return rows


async def first_item(path: Path, items: int = 1_000_000) -> float:
    """From the start of a run until the first item of its loop is at work."""
    prepared = world.prepared(counting(items, 0, "mark"))
    async with world.engine(path) as parts:
        world.MARKED.clear()
        begin = time.perf_counter()
        run = await parts.engine.start(prepared.definition, prepared.net)
        while not world.MARKED:
            await asyncio.sleep(0)
        await parts.engine.send(run, s.Cancel("bench", "it has begun"))
        return world.MARKED[0] - begin


async def b5(folder: Path, items: int = 10_000) -> list[Row]:
    """The same with every item its own job."""
    found = measured(folder, items, 1, 3)
    rate, cpu = items / found["seconds"], found["cpu"] / items * 1e6
    commits = 1 / probe.commit_seconds(folder)
    words = f"{commits:,.0f} raw commits/s"
    ratio = rate / commits
    aim = "≥ 8,000/s"
    return [Row("B5 shard_size 1", rate, "items/s", words, ratio, aim, rate >= 8_000, cpu)]


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
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/"
        step = {
            "step": "each",
            "loop": {
                "in": f"{{{{ range({calls}) | list }}}}",
                "iterator": "n",
                "spec": {"mode": "parallel", "max_in_flight": at_once},
            },
            "tool": {"kind": "http", "url": url},
        }
        prepared = world.prepared(world.playbook("calls", [step]))
        bare, taken, used = [], [], []
        async with world.engine(folder / "b6.db") as parts:
            for _ in range(5):  # by turns, so that both meet the same minutes of the machine
                bare.append(await probe.http_seconds(url, calls, at_once))
                busy = time.process_time()
                taken.append(await _timed(parts, prepared))
                used.append(time.process_time() - busy)
    finally:
        server.kill()
        server.wait()
    seconds, least = min(taken), min(bare)
    ideal = calls / at_once * 0.02
    words = f"the client alone: {least * 1000:.0f} ms; ideal: {ideal * 1000:.0f} ms"
    ratio = seconds / least
    name = "B6 1,000 calls, 100 at once"
    cpu = min(used) / calls * 1e6
    return [Row(name, seconds * 1000, "ms", words, ratio, "≤ 1.3×", ratio <= 1.3, cpu)]


_CODE = "return n * 2"
_BARE = f"""
import json, time
code = compile("def item(n):\\n    {_CODE}\\nresult = item(n)", "bare", "exec")
begin, used, count = time.perf_counter(), time.process_time(), 20_000
for n in range(count):
    names = json.loads(json.dumps({{"n": n}}))
    exec(code, names)
    json.loads(json.dumps(names["result"]))
print(json.dumps([time.perf_counter() - begin, time.process_time() - used, count]))
"""


async def b11(folder: Path, items: int = 20_000) -> list[Row]:
    """A fan-out over a range whose items are inline Python, done by processes of their own."""
    rates, bare, used = [], [], []
    step = {
        "step": "each",
        "spec": {"loop_mode": "fanout", "fanout": {"max_concurrent": 3}},
        "loop": {"in": {"range": [0, items]}, "iterator": "n"},
        "tool": {"kind": "python", "code": _CODE, "args": {"n": "{{ iter.n }}"}},
    }
    prepared = world.prepared(world.playbook("inline", [step]))
    for number in range(3):  # by turns, so that both meet the same minutes of the machine
        command = [sys.executable, "-c", _BARE]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds, _, count = json.loads(done.stdout)
        bare.append(count / seconds)
        before, own = _of_children(), time.process_time()
        async with world.engine(folder / f"b11-{number}.db") as parts:
            rates.append(items / await _timed(parts, prepared))
        used.append((time.process_time() - own, _of_children() - before))
    rate, best, (ours, theirs) = max(rates), max(bare), min(used)
    each = f"{ours / items * 1e6:.0f} + {theirs / items * 1e6:.0f} µs each"
    words = f"one bare process: {best:,.0f}/s; processor: {each}"
    name, aim = f"B11 inline Python ×{items:,}", "≥ 20,000/s"
    return [Row(name, rate, "items/s", words, rate / best, aim, rate >= 20_000)]


def _of_children() -> float:
    """Time of the processor that ended children took."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


async def _timed(parts: Any, prepared: Any) -> float:
    begin = time.perf_counter()
    run = await parts.engine.start(prepared.definition, prepared.net)
    state = await parts.engine.wait(run)
    if state.status != "completed":
        raise RuntimeError(f"{state.status}: {state.problem}")
    return time.perf_counter() - begin

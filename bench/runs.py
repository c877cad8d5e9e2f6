"""B1 to B3: one run, many runs, and runs that are found again; and the memory of one that waits."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import probe, world
from bench.chains import many, no_worse, one_run, start
from bench.idle import idle_bytes
from bench.rows import Row

# -- B1: latency of one run ------------------------------------------------------------------


_B1_AIMS = {"nothing_in_place": 1.7, "nothing_async": 2.0, "nothing_in_thread": 2.7}


async def b1(folder: Path) -> list[Row]:
    """One run of 10 sequential no-op callables, against 11 raw commits."""
    rows = []
    for kind, most in _B1_AIMS.items():
        prepared = world.prepared(world.chain(10, kind))
        before = probe.commit_seconds(folder)
        async with world.engine(folder / f"b1-{kind}.db") as parts:
            for _ in range(100):
                await one_run(parts, prepared)
            busy = time.process_time()
            taken = sorted([await one_run(parts, prepared) for _ in range(300)])
            cpu = (time.process_time() - busy) / len(taken) * 1e6
        limit = 11 * (before + probe.commit_seconds(folder)) / 2
        seconds = taken[len(taken) // 2]
        ratio = seconds / limit
        words = f"11 commits: {limit * 1000:.2f} ms"
        aim = f"≤ {most}×"
        rows.append(Row(f"B1 {kind}", seconds * 1000, "ms", words, ratio, aim, ratio <= most, cpu))
    return rows


# -- B2: throughput of many runs -------------------------------------------------------------


#: Steps a second, and microseconds of the processor a step.
_B2_AIMS = {"nothing_in_place": (14_000, 70), "nothing_async": (11_000, 90)}


async def b2(folder: Path) -> list[Row]:
    """Many runs of 3 steps started together."""
    rows = []
    for kind, (least, most) in _B2_AIMS.items():
        per_step: dict[int, float] = {}
        for runs in (2_000, 10_000):
            seconds, busy = await many(folder / f"b2-{kind}-{runs}.db", kind, runs)
            best = probe.rows_per_second(folder)
            rate = runs * 3 / seconds
            per_step[runs] = seconds / (runs * 3)
            cpu = busy / (runs * 3) * 1e6
            aim, met = f"≥ {least:,}/s", rate >= least
            if runs == 10_000:
                aim, met = no_worse(per_step[10_000] / per_step[2_000])
            words = f"{best:,.0f} raw rows/s"
            name = f"B2 {kind} ×{runs:,}"
            rows.append(Row(name, rate, "steps/s", words, rate / best, aim, met, cpu))
            if runs == 2_000:
                aim, met = f"≤ {most} µs", cpu <= most
                rows.append(Row(f"B2 {kind}, processor", cpu, "µs/step", "", None, aim, met))
    return rows


# -- B3: recovery ----------------------------------------------------------------------------

_ABANDON = """
import asyncio, os, sys
from pathlib import Path
from bench import runs
asyncio.run(runs.abandon(Path(sys.argv[1]), int(sys.argv[2])))
"""


async def abandon(path: Path, runs: int) -> None:
    """Start runs that hang in their first step, then die without a word."""
    prepared = world.prepared(world.chain(2, "nothing_for_now"))
    async with world.engine(path, jobs_max=runs + 10) as parts:
        await asyncio.gather(*(start(parts, prepared) for _ in range(runs)))
        while parts.engine._core.job_queues.at_work < runs:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        os._exit(9)


async def b3(folder: Path, runs: int = 10_000) -> list[Row]:
    """That many unfinished runs reopened; until every one has moved."""
    path = folder / "b3.db"
    environment = {**os.environ, "ANABRANCH_BENCH_HANG": "yes"}
    command = [sys.executable, "-c", _ABANDON, str(path), str(runs)]
    subprocess.run(command, check=False, env=environment)
    begin, used = time.perf_counter(), time.process_time()
    async with world.engine(path) as parts:
        opened = time.perf_counter() - begin
        left = set(parts.engine._core.live)
        found = len(left)
        moved = asyncio.get_running_loop().create_future()

        def hear(news: Any) -> None:
            left.discard(news.run)
            if not left and not moved.done():
                moved.set_result(None)

        parts.engine.listen(hear)
        await asyncio.wait_for(moved, 120)
        seconds = time.perf_counter() - begin
        cpu = (time.process_time() - used) / found * 1e6
    probe.rows_per_second(folder)
    raw = found / probe.read_rows_per_second(folder)
    words = f"{found:,} runs; reading as many raw rows: {raw * 1000:.0f} ms"
    return [
        Row("B3 until all moved", seconds, "s", words, seconds / raw, "≤ 5 s", seconds <= 5, cpu),
        Row("B3 engine open", opened, "s", words, opened / raw, "", None),
    ]


# -- memory ----------------------------------------------------------------------------------


async def memory(folder: Path, runs: int = 2_000) -> list[Row]:
    """What an idle run costs, in memory and after it was evicted."""
    idle, after = await idle_bytes(folder, runs)
    words = f"{runs:,} runs at a closed gate"
    return [
        Row("memory of an idle run", idle / 1024, "KiB", words, None, "≤ 3 KiB", idle <= 3 * 1024),
        Row("memory of an evicted run", after / 1024, "KiB", words, None, "", None),
    ]

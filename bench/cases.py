"""The cases. Each returns rows: what was measured, the probe beside it, their ratio, the aim."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bench import probe, world
from bench.chains import many, no_worse, one_run, start
from bench.joins import b7
from bench.loops import b4, b5, b6
from bench.market_fan_out import m2
from bench.node_deliveries import n2
from bench.node_directory import n3
from bench.node_orders import n1, n4
from bench.offer_catalog import m3
from bench.parties import b8, b9, b10
from bench.postgres.cases import p1, p2, p3, p4, p5, p6
from bench.rows import Row
from bench.server import server, server_top
from bench.stories import m1, m4

# -- B1: latency of one run ------------------------------------------------------------------


async def b1(folder: Path) -> list[Row]:
    """One run of 10 sequential no-op callables, against 11 raw commits."""
    rows = []
    for kind in ("nothing_in_place", "nothing_async", "nothing_in_thread"):
        prepared = world.prepared(world.chain(10, kind))
        before = probe.commit_seconds(folder)
        async with world.engine(folder / f"b1-{kind}.db") as parts:
            for _ in range(100):
                await one_run(parts, prepared)
            taken = sorted([await one_run(parts, prepared) for _ in range(300)])
        limit = 11 * (before + probe.commit_seconds(folder)) / 2
        seconds = taken[len(taken) // 2]
        ratio = seconds / limit
        words = f"11 commits: {limit * 1000:.2f} ms"
        rows.append(Row(f"B1 {kind}", seconds * 1000, "ms", words, ratio, "≤ 2.5×", ratio <= 2.5))
    return rows


# -- B2: throughput of many runs -------------------------------------------------------------


async def b2(folder: Path) -> list[Row]:
    """Many runs of 3 steps started together."""
    rows = []
    for kind in ("nothing_in_place", "nothing_async"):
        per_step: dict[int, float] = {}
        for runs in (2_000, 10_000):
            seconds = await many(folder / f"b2-{kind}-{runs}.db", kind, runs)
            best = probe.rows_per_second(folder)
            rate = runs * 3 / seconds
            per_step[runs] = seconds / (runs * 3)
            aim, met = "≥ 8,000/s", rate >= 8_000
            if runs == 10_000:
                aim, met = no_worse(per_step[10_000] / per_step[2_000])
            words = f"{best:,.0f} raw rows/s"
            rows.append(Row(f"B2 {kind} ×{runs:,}", rate, "steps/s", words, rate / best, aim, met))
    return rows


# -- B3: recovery ----------------------------------------------------------------------------

_ABANDON = """
import asyncio, os, sys
from pathlib import Path
from bench import cases
asyncio.run(cases.abandon(Path(sys.argv[1]), int(sys.argv[2])))
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
    begin = time.perf_counter()
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
    probe.rows_per_second(folder)
    raw = found / probe.read_rows_per_second(folder)
    words = f"{found:,} runs; reading as many raw rows: {raw * 1000:.0f} ms"
    return [
        Row("B3 until all moved", seconds, "s", words, seconds / raw, "≤ 5 s", seconds <= 5),
        Row("B3 engine open", opened, "s", words, opened / raw, "", None),
    ]


# -- memory ----------------------------------------------------------------------------------


async def memory(folder: Path, runs: int = 2_000) -> list[Row]:
    """What an idle run costs, in memory and after it was evicted."""
    prepared = world.prepared(world.gated())
    async with world.engine(folder / "memory.db", evict_after_seconds=3600.0) as parts:
        await start(parts, prepared)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        await asyncio.gather(*(start(parts, prepared) for _ in range(runs)))
        gc.collect()
        idle = (tracemalloc.get_traced_memory()[0] - before) / runs
        now = parts.engine.clock.now()
        parts.engine._core.evict(now, 0)
        evicted = parts.engine._core.evict(now + 1, 0)
        gc.collect()
        after = (tracemalloc.get_traced_memory()[0] - before) / runs
        tracemalloc.stop()
    words = f"{runs:,} runs at a closed gate"
    assert evicted >= 0
    return [
        Row("memory of an idle run", idle / 1024, "KiB", words, None, "", None),
        Row("memory of an evicted run", after / 1024, "KiB", words, None, "", None),
    ]


Case = Callable[[Path], Coroutine[Any, Any, list[Row]]]

CASES: dict[str, Case] = {
    case.__name__: case
    for case in (
        *(b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, memory, server, server_top),
        *(p1, p2, p3, p4, p5, p6),
        *(n1, n2, n3, n4),
        *(m1, m2, m3, m4),
    )
}

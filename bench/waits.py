"""E4: what a run costs in memory that waits for a signal or for time, once it was evicted."""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from pathlib import Path

from anabranch.operations.definitions.prepare import Prepared
from anabranch.parts import Parts
from bench import world
from bench.chains import start
from bench.rows import Row

RUNS = 10_000
ROOM = 64  # bytes a run: the names of runs, of which no two are the same, come and go
TOGETHER = 500


def waiting(**keys: object) -> str:
    return world.playbook("waiting", [{"step": "wait", "tool": {"kind": "wait", **keys}}])


async def e4(folder: Path, runs: int = RUNS) -> list[Row]:
    """Runs at a closed gate beside runs that wait."""
    texts = {
        "at a closed gate": world.gated(),
        "waiting for a signal": waiting(event="paid"),
        "waiting for time": waiting(**{"for": "30d"}),
    }
    rows: list[Row] = []
    plain = timer = 0.0
    for number, (words, text) in enumerate(texts.items()):
        store = folder / f"e4-{number}.db"
        async with world.engine(store, evict_after_seconds=3600.0) as parts:
            each = await _bytes_a_run(parts, world.prepared(text), runs)
        if not number:
            plain = each
            rows.append(Row(f"E4 {words}", each, "bytes", f"{runs:,} evicted runs", None, "", None))
            continue
        timer = _timer_bytes() if number == 2 else 0.0
        most = plain + timer + ROOM
        aim = "≤ an evicted run" + (f" and its timer ({timer:.0f})" if timer else "")
        words_of = f"{runs:,} evicted runs; at a gate {plain:.0f}"
        rows.append(Row(f"E4 {words}", each, "bytes", words_of, each / plain, aim, each <= most))
    return rows


async def _bytes_a_run(parts: Parts, prepared: Prepared, runs: int) -> float:
    await start(parts, prepared)
    await _all_parked(parts, 1)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(runs // TOGETHER):
        await asyncio.gather(*(start(parts, prepared) for _ in range(TOGETHER)))
    await _all_parked(parts, runs + 1)
    core = parts.engine._core
    core.evict(parts.engine.clock.now() + 3_600_000, 0)
    core.evict(parts.engine.clock.now() + 3_600_001, 0)
    assert not core.live, "a run that waits is evicted"
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / runs


async def _all_parked(parts: Parts, runs: int) -> None:
    """Until nothing moves any more."""
    for _ in range(100_000):
        if parts.store.statistics()["runs"].get("waiting", 0) >= runs:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not all runs have come to their wait")


def _timer_bytes() -> float:
    """An entry of a heap and of a dictionary: an instant and a name that is there already."""
    entries = {f"r{number}": 10**12 + number for number in range(RUNS)}
    heap = [(at, name) for name, at in entries.items()]
    one = sys.getsizeof(heap[0]) + sys.getsizeof(heap[0][0])
    return (sys.getsizeof(entries) + sys.getsizeof(heap)) / RUNS + one

"""What a run costs that stands at a closed gate: in memory, and after it was evicted."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path

from bench import world
from bench.chains import start


async def idle_bytes(folder: Path, runs: int) -> tuple[float, float]:
    """Bytes a run, both."""
    prepared = world.prepared(world.gated())
    async with world.engine(folder / "memory.db", evict_after_seconds=3600.0) as parts:
        await start(parts, prepared)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        await asyncio.gather(*(start(parts, prepared) for _ in range(runs)))
        await asyncio.sleep(0)  # until then the event loop has the tasks of those who started them
        gc.collect()
        idle = (tracemalloc.get_traced_memory()[0] - before) / runs
        now = parts.engine.clock.now()
        parts.engine._core.evict(now, 0)
        parts.engine._core.evict(now + 1, 0)
        gc.collect()
        after = (tracemalloc.get_traced_memory()[0] - before) / runs
        tracemalloc.stop()
    return idle, after

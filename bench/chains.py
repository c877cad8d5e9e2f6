"""Runs of no-op steps in a row, on a store of any kind."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path

from anabranch.operations.definitions.prepare import Prepared
from anabranch.parts import Parts
from bench import world


async def start(parts: Parts, prepared: Prepared) -> str:
    return await parts.engine.start(prepared.definition, prepared.net)


async def one_run(parts: Parts, prepared: Prepared) -> float:
    """Seconds from the start of a run to its end."""
    begin = time.perf_counter()
    await parts.engine.wait(await start(parts, prepared))
    return time.perf_counter() - begin


async def many(store: Path | str, kind: str, runs: int) -> tuple[float, float]:
    """Seconds by the clock and of the processor, for so many runs of 3 steps started together."""
    prepared = world.prepared(world.chain(3, kind))
    async with world.engine(store) as parts:
        await one_run(parts, prepared)
        gc.collect()
        begin, busy = time.perf_counter(), time.process_time()
        await asyncio.gather(*(one_run(parts, prepared) for _ in range(runs)))
        return time.perf_counter() - begin, time.process_time() - busy


def no_worse(ratio: float) -> tuple[str, bool]:
    """The aim for a step at more runs, over one at fewer."""
    return f"no worse a step (×{ratio:.2f})", ratio <= 1.1

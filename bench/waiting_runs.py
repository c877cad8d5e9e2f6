"""S8: memory of runs that wait: in memory, and in a server that was begun again.

The first is counted by `tracemalloc`, where other programs do not matter. The second is the memory
of a process that opens a store with so many waiting runs, less that of one whose store is empty.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from bench import world
from bench.chains import start
from bench.idle import idle_bytes
from bench.rows import Row

RUNS = 100_000
TOGETHER = 1_000
IDLE = 2_000
AIM_KIB, AIM_MB = 3.0, 150.0
_OPEN = """
import asyncio, json, sys
from pathlib import Path
from bench import waiting_runs
print(json.dumps(asyncio.run(waiting_runs.opened(Path(sys.argv[1])))))
"""


async def s8(folder: Path, runs: int = RUNS) -> list[Row]:
    idle, _ = await idle_bytes(folder, IDLE)
    await fill(folder / "waiting.db", runs)
    empty, full = _opened(folder / "empty.db"), _opened(folder / "waiting.db")
    grown = (full["bytes"] - empty["bytes"]) / 1e6
    words = f"{full['runs']:,} runs; an empty store: {empty['bytes'] / 1e6:.0f} MB"
    kib = idle / 1024
    at_gate = f"{IDLE:,} runs at a closed gate"
    return [
        Row("S8 idle run", kib, "KiB", at_gate, None, f"≤ {AIM_KIB:g} KiB", kib <= AIM_KIB),
        Row(
            "S8 waiting runs, reopened",
            grown,
            "MB",
            words,
            None,
            f"≤ {AIM_MB:g} MB",
            grown <= AIM_MB,
        ),
        Row("S8 until it is open", full["seconds"], "s cpu", words, None, "", None),
    ]


async def fill(path: Path, runs: int) -> None:
    prepared = world.prepared(world.gated())
    async with world.engine(path, evict_after_seconds=0.5) as parts:
        for _ in range(runs // TOGETHER):
            await asyncio.gather(*(start(parts, prepared) for _ in range(TOGETHER)))
            await asyncio.sleep(0)


def _opened(path: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", _OPEN, str(path)], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


async def opened(path: Path) -> dict[str, float]:
    """Called in a process of its own: its memory once all runs are found and evicted again."""
    import time

    before = time.process_time()
    async with world.engine(path) as parts:
        seconds = time.process_time() - before
        for _ in range(2):
            parts.engine._core.evict(parts.engine.clock.now() + 3_600_000, 0)
        count = sum(parts.store.statistics()["runs"].values())
        return {"bytes": _resident(), "runs": count, "seconds": seconds}


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")

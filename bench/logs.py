"""Benchmarks of logs: E2 counts the lines of one attempt, and what they cost a loop beside it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from anabranch.store.ports import Store
from anabranch.store.work_log_ports import LogFilter
from bench import loops, world
from bench.rows import Row

LINES = 100_000
PER_SECOND = 50_000
TEXT = "one line of an everyday log, about as long as such lines are: number "

#: Prints at a given pace until its time is over: so many lines every hundredth of a second.
_PACED = """
import sys, time
per_second, seconds = int(sys.argv[1]), float(sys.argv[2])
begin, printed = time.monotonic(), 0
while (passed := time.monotonic() - begin) < seconds:
    due = int(passed * per_second)
    if due > printed:
        sys.stdout.write("".join(f"{sys.argv[3]}{n}\\n" for n in range(printed, due)))
        sys.stdout.flush()
        printed = due
    time.sleep(0.01)
"""

_MEASURE = """
import asyncio, json, sys
from pathlib import Path
from bench import logs
print(json.dumps(asyncio.run(logs.beside(Path(sys.argv[1]), int(sys.argv[2])))))
"""


async def e2(folder: Path) -> list[Row]:
    """Lines through one attempt, and a loop beside an attempt that prints."""
    rows = []
    raw = _bare_lines_per_second()
    words = f"{raw:,.0f} lines/s through a bare pipe"
    for name, tool in _PRINTERS.items():
        rate = max([await printed(folder / f"{name}-{n}.db", tool) for n in range(3)])
        aim = f"≥ {PER_SECOND:,}/s"
        rows.append(Row(f"E2 {name}", rate, "lines/s", words, rate / raw, aim, rate >= PER_SECOND))
    return [*rows, *_beside_rows(folder)]


def _beside_rows(folder: Path) -> list[Row]:
    """By the clock, and by what the thread of the engine has spent: on a busy machine only the
    second says what lines cost a loop. Where the printing attempt did not get that far, nothing is
    said of the aim."""
    alone, busy = _compared(folder, times=3)
    rows = []
    for what, said in (("seconds", "on the wall"), ("thread", "by processor")):
        least = min(one[what] for one in alone)
        beside = min(busy, key=lambda one: one[what])
        slower = 100 * (beside[what] / least - 1)
        words = f"{100_000 / least:,.0f} items/s alone; {beside['lines']:,.0f} lines/s beside"
        met = slower <= 10 if beside["lines"] >= 0.8 * PER_SECOND else None
        rows.append(
            Row(f"E2 B4 beside lines, {said}", slower, "% slower", words, None, "≤ 10 %", met)
        )
    return rows


_PRINTERS: dict[str, dict[str, Any]] = {
    "callable": {"kind": "print_lines", "args": {"lines": LINES}},
    "inline python": {"kind": "python", "code": f"for n in range({LINES}): print('{TEXT}', n)"},
    "shell": {"kind": "shell", "command": f"yes '{TEXT}' | head -n {LINES}"},
}


async def printed(path: Path, tool: dict[str, Any]) -> float:
    """Lines a second, from the start of the run until its last line is in the store."""
    prepared = world.prepared(world.playbook("prints", [{"step": "print", "tool": tool}]))
    async with world.engine(path) as parts:
        begin = time.perf_counter()
        run = await parts.engine.start(prepared.definition, prepared.net)
        state = await parts.engine.wait(run)
        parts.engine.logs.flush()
        seconds = time.perf_counter() - begin
        last = parts.store.log_rows(LogFilter(run=run, newest=True, limit=1))[0]
    if state.status != "completed" or last.first_line + last.lines != LINES:
        raise RuntimeError(f"{tool['kind']}: {last.first_line + last.lines} lines: {state.problem}")
    return LINES / seconds


def _bare_lines_per_second() -> float:
    command = [sys.executable, "-c", f"for n in range({LINES}): print('{TEXT}', n)"]
    begin = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = done.stdout.count("\n")
    return lines / (time.perf_counter() - begin)


def _compared(folder: Path, times: int) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """B4 alone and beside an attempt that prints, by turns."""
    found: dict[int, list[dict[str, float]]] = {0: [], PER_SECOND: []}
    for number in range(times):
        for pace, measured in found.items():
            place = folder / f"beside-{pace}-{number}"
            place.mkdir()
            command = [sys.executable, "-c", _MEASURE, str(place), str(pace)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            measured.append(json.loads(done.stdout))
    return found[0], found[PER_SECOND]


async def beside(folder: Path, pace: int) -> dict[str, float]:
    """B4 at 10⁵, with an attempt of another run that prints at this pace all the while."""
    items = 100_000
    script = folder / "paced.py"
    script.write_text(_PACED)
    command = f"{sys.executable} {script} {pace} 60 '{TEXT}'"
    printing = world.prepared(
        world.playbook("paced", [{"step": "s", "tool": {"kind": "shell", "command": command}}])
    )
    counting = world.prepared(loops.counting(items, 0))
    async with world.engine(folder / "s.db") as parts:
        if pace:
            run = await parts.engine.start(printing.definition, printing.net)
            while parts.engine.logs.stored_bytes == 0:
                await asyncio.sleep(0.01)
            before = _lines(parts.store, run)
        begin, used = time.perf_counter(), time.thread_time()
        state = await parts.engine.wait(await parts.engine.start(counting.definition, counting.net))
        seconds, thread = time.perf_counter() - begin, time.thread_time() - used
        lines = _lines(parts.store, run) - before if pace else 0
    if state.ctx.get("total") != sum(range(items)):
        raise RuntimeError(f"{items} items came to {state.ctx.get('total')}: {state.problem}")
    return {"seconds": seconds, "thread": thread, "lines": lines / seconds}


def _lines(store: Store, run: str) -> int:
    last = store.log_rows(LogFilter(run=run, newest=True, limit=1))[0]
    return last.first_line + last.lines

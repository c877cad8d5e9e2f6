"""E1: ten thousand schedules that are due in the same second.

Each begins a run of one step. Measured is the time from the tick to the instant at which the last
of the runs is durable; beside it the processor time that the process has spent until then, and that
of as many runs which are begun at once without schedules: that is what the engine itself needs. The
garbage collector is set up as `serve` does it.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anabranch
from anabranch.dialects.schedule import ScheduleSpec
from anabranch.operations.definitions.catalog import Draft
from anabranch.operations.definitions.prepare import prepare
from anabranch.operations.schedules.schedule import Schedule, Target, record_of
from anabranch.runtime.effects import DurableEvents
from anabranch.runtime.engine import EngineLoop
from anabranch.store.ports import Store
from anabranch.store.record_ports import RecordChange
from anabranch.surfaces.cli.commands.serve.serve import spare_the_collector
from bench.rows import Row

SCHEDULES = 10_000
LEAD_MS = 3000  # from now to the tick: the engine sleeps until then
AIM_SECONDS = 2.0
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: tick, path: bench/tick}
workflow:
- step: note
  tool: {kind: noop}
"""


async def e1(folder: Path) -> list[Row]:
    with _collected_as_by_a_server():
        bare = await _bare(folder / "bare.db")
        seconds, used = await _scheduled(folder / "e1.db")
    aim = f"≤ {AIM_SECONDS:g} s"
    probe = f"{bare:.2f} s without schedules"
    return [
        Row("E1 10,000 schedules at once", seconds, "s", "", None, aim, seconds <= AIM_SECONDS),
        Row("E1 processor time for it", used, "s", probe, used / bare, "", None),
    ]


async def _scheduled(path: Path) -> tuple[float, float]:
    async with anabranch.Engine(path) as engine:
        engine.catalog.register([Draft(PLAYBOOK, "tick.yaml")], 1)
        parts = engine._open
        tick = _add(parts.store)
        engine.schedules.changed()
        all_begun = _until_begun(parts.engine)
        while time.time() * 1000 < tick - 50:
            await asyncio.sleep(0.01)
        before = time.process_time()
        await all_begun
        used = time.process_time() - before
        seconds = time.time() - tick / 1000
        if (found := _begun(parts.store)) != SCHEDULES:
            raise RuntimeError(f"{found} runs of {SCHEDULES} schedules")
    return seconds, used


async def _bare(path: Path) -> float:
    """Processor time for as many runs that are begun at once."""
    prepared = prepare(PLAYBOOK)
    names = [f"bare-{number:05}" for number in range(SCHEDULES)]
    async with anabranch.Engine(path) as engine:
        start, before = engine._open.verbs.start, time.process_time()
        labels = {"schedule": "bare", "schedule_time": "2026-11-17T02:00:00Z"}
        await asyncio.gather(*(start(prepared, run=name, labels=labels) for name in names))
        return time.process_time() - before


@contextmanager
def _collected_as_by_a_server() -> Iterator[None]:
    before = gc.get_threshold()
    spare_the_collector()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _add(store: Store) -> int:
    now = int(time.time() * 1000)
    tick = (now + LEAD_MS) // 1000 * 1000
    spec, target = ScheduleSpec(cron="* * * * *"), Target(path="bench/tick")
    made = [
        Schedule(name=f"s{number:05}", spec=spec, target=target, next_tick=tick)
        for number in range(SCHEDULES)
    ]
    store.put_records([RecordChange(record_of(one, now)) for one in made])
    return tick


def _until_begun(engine: EngineLoop) -> asyncio.Future[None]:
    """Until the last run is durable. To ask the store meanwhile would be part of the figure."""
    begun = itertools.count(1)
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def heard(news: DurableEvents) -> None:
        if news.first_seq == 1 and next(begun) == SCHEDULES:
            over.set_result(None)

    engine.listen(heard)
    return over


def _begun(store: Store) -> int:
    return sum(count for _, _, count in store.run_counts())

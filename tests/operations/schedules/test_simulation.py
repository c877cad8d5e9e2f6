"""Schedules in virtual time, with crashes between any two calls, outages and several servers.

Laws: a tick begins at most one run, and only ticks do; within its window it begins at least one,
unless its policy skipped it while a run went on, its input does not fit, or no server had a whole
look in that time. A run is cancelled only for one that begins.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.clock import ManualClock
from anabranch.dialects.schedule import read_schedule, timetable_of
from anabranch.dialects.timetable import times
from anabranch.operations.schedules.plan import Begun
from anabranch.operations.schedules.schedule import (
    FAMILY,
    SCHEDULES,
    Schedule,
    Target,
    TickSeen,
    fires_at,
    record_of,
    run_of,
)
from anabranch.operations.schedules.scheduler import Scheduler
from anabranch.operations.schedules.starter import Wanted
from anabranch.store.memory.store import MemoryStore
from anabranch.store.record_ports import RecordChange
from anabranch.testing.store_suite.samples import a_batch, a_commit
from seeds import seeds

from .in_place import run_in_place

BEGIN = 1_794_916_800_000
HOUR = 3_600_000
HORIZON = BEGIN + 4 * HOUR
REFUSED = "refused"


class Crash(BaseException):
    """The process is gone."""


class World:
    """One store that outlives servers, and runs that take their time."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.clock = ManualClock(BEGIN)
        self.store = MemoryStore()
        self.ends: dict[str, int] = {}  # of runs that go on
        self.begun: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self.creations: Counter[str] = Counter()
        self.seen: dict[tuple[str, int], TickSeen] = {}
        self.looks: list[tuple[int, int]] = []  # whole ones: begun, over
        self.crash_chance = self.dice.choice([0.0, 0.02, 0.1, 0.3])
        self.crashes = 0
        self.refused_of = self.dice.choice([0, 2, 5])  # ticks, how many of them
        self.cancelled: Counter[str] = Counter()  # by schedule

    def refuses(self, run: str) -> bool:
        return bool(self.refused_of) and sum(run.encode()) % self.refused_of == 0

    def may_crash(self) -> None:
        if self.dice.random() < self.crash_chance:
            self.crashes += 1
            raise Crash

    def begin(self, run: str) -> bool:
        if self.store.head(run) is not None:
            return False
        self.store.commit(a_batch(a_commit(run, 1)))
        self.creations[run] += 1
        self.begun[run] = self.clock.now()
        self.ends[run] = self.clock.now() + self.dice.choice([1000, 30_000, 400_000])
        return True

    def end(self, run: str) -> None:
        self.ends.pop(run, None)
        self.ended[run] = self.clock.now()
        self.store.commit(a_batch(a_commit(run, 2, finished=True)))

    def went_on(self, name: str, at: int) -> bool:
        return any(
            begun <= at <= self.ended.get(run, HORIZON)
            for run, begun in self.begun.items()
            if run.startswith(f"{name}-")
        )

    def end_what_is_over(self) -> list[str]:
        over = [run for run, at in self.ends.items() if at <= self.clock.now()]
        for run in over:
            self.end(run)
        return over


class CrashingStore:
    """Crashes before a call, or after it has taken effect."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._world.store, name)

        def call(*given: Any) -> Any:
            self._world.may_crash()
            found = real(*given)
            if name == "put_records":
                self._note(given[0], found)
            self._world.may_crash()
            return found

        return call

    def _note(self, changes: Sequence[RecordChange], written: list[bool]) -> None:
        for change, fits in zip(changes, written, strict=True):
            if fits:
                schedule = SCHEDULES.document(change.record)
                for one in schedule.last:
                    self._world.seen[schedule.name, one.tick] = one


class Starter:
    """Runs begin one after the other, with a crash between any two."""

    def __init__(self, world: World, number: int, servers: int) -> None:
        self._world, self._number, self._servers = world, number, servers

    def prefers(self, run: str) -> bool:
        return sum(run.encode()) % self._servers == self._number

    async def begin(self, wanted: Sequence[Wanted]) -> list[Begun | None]:
        outcomes: list[Begun | None] = []
        for one in wanted:
            self._world.may_crash()
            if self._world.dice.random() < self._world.crash_chance / 3:
                outcomes.append(None)  # the store is away for a moment
                continue
            run = one.begin.run
            if self._world.refuses(run):
                outcomes.append(Begun(refused=REFUSED))
            else:
                outcomes.append(Begun(existed=not self._world.begin(run)))
        self._world.may_crash()
        return outcomes

    async def cancel(self, run: str, _reason: str) -> bool:
        self._world.may_crash()
        if run in self._world.ends:
            self._world.end(run)
            self._world.cancelled[run.rpartition("-")[0]] += 1
        return True


class Server:
    def __init__(self, world: World, number: int, servers: int) -> None:
        self._world, self._number, self._servers = world, number, servers
        self.wake = BEGIN
        self._open()

    def _open(self) -> None:
        starter = Starter(self._world, self._number, self._servers)
        store: Any = CrashingStore(self._world)
        self.scheduler = Scheduler(store, starter, self._world.clock)

    async def look(self) -> None:
        now = self._world.clock.now()
        try:
            wait = await self.scheduler.look()
        except Crash:
            self._open()
            self.wake = now + self._world.dice.choice([1, 5000, 90_000, 900_000])
            return
        # Else there is more to do, or something could not be done, and is done again.
        if wait > 0 and not self.scheduler._resting:
            self._world.looks.append((now, self._number))
        self.wake = now + max(wait, 1)


def schedules_of(dice: random.Random) -> list[Schedule]:
    found = []
    for number in range(dice.randint(2, 6)):
        given: dict[str, Any] = dice.choice(
            [
                {"every": f"{dice.randint(1, 20)}m"},
                {"cron": f"*/{dice.randint(2, 30)} * * * *", "timezone": "Europe/Berlin"},
                {"cron": f"{dice.randint(0, 59)} * * * *", "timezone": "Asia/Kolkata"},
            ]
        )
        given["overlap"] = dice.choice(["skip", "queue", "cancel_running"])
        given["catch_up"] = dice.choice(["10s", "5m", "1h"])
        given["jitter"] = dice.choice(["0s", "20s"])
        spec = read_schedule(given)
        first = timetable_of(spec).next_after(BEGIN)
        found.append(
            Schedule(name=f"s{number}", spec=spec, target=Target(path="p"), next_tick=first)
        )
    return found


async def simulate(world: World, servers: int) -> list[Schedule]:
    schedules = schedules_of(world.dice)
    for one in schedules:
        world.store.put_record(record_of(one, BEGIN))
    crew = [Server(world, number, servers) for number in range(servers)]
    for _ in range(20_000):
        now = world.clock.now()
        if now >= HORIZON:
            break
        for run in world.end_what_is_over():
            for server in crew:
                server.scheduler._poked.add(run.rpartition("-")[0])
                server.wake = min(server.wake, now + 1) if server.wake > now else server.wake
        for server in crew:
            if server.wake <= now:
                await server.look()
        nearest = min([server.wake for server in crew] + list(world.ends.values()))
        world.clock.advance_to(max(now + 1, min(nearest, HORIZON)))
    assert world.clock.now() >= HORIZON
    return schedules


def check(world: World, schedule: Schedule) -> None:
    record = world.store.record(FAMILY, schedule.name)
    assert record is not None
    after = SCHEDULES.document(record)
    ticks = list(times(timetable_of(schedule.spec), BEGIN, HORIZON - HOUR))
    runs = {run_of(schedule.name, tick): tick for tick in ticks}
    mine = {run for run in world.creations if run.startswith(f"{schedule.name}-")}
    every = {run_of(schedule.name, t) for t in times(timetable_of(schedule.spec), BEGIN, HORIZON)}
    assert mine <= every, "only ticks begin runs"
    assert all(world.creations[run] == 1 for run in mine), "at most one"
    waiting = set(after.queued)
    for run, tick in runs.items():
        due = fires_at(schedule, tick)
        window = schedule.spec.catch_up_ms
        if world.refuses(run):
            assert run not in mine
            continue
        if run in mine:
            if schedule.spec.overlap != "queue":
                assert due <= world.begun[run], "not before its time"
            continue
        if tick in waiting:
            continue
        seen = world.seen.get((schedule.name, tick))
        if seen is not None and seen.why == "overlap":
            assert schedule.spec.overlap == "skip"
            assert world.went_on(schedule.name, seen.at), "no run went on"
            continue
        if seen is not None and seen.why == "queue_full":
            assert schedule.spec.overlap == "queue"
            continue
        if seen is None and after.skipped.keys() & {"overlap", "queue_full"}:
            continue  # more were skipped at once than a record tells of; they are counted below
        # Another server may have been left the tick for two seconds.
        in_time = [at for at, _ in world.looks if due + 2100 <= at <= due + window]
        assert not in_time, f"{run} was not begun though a server looked in time"
    told = sum(after.skipped.values()) + after.fired + len(after.queued)
    passed = list(times(timetable_of(schedule.spec), BEGIN, after.next_tick))
    assert told == len(passed), "every tick is accounted for"
    if schedule.spec.overlap == "skip":
        assert set(after.skipped) <= {"late", "overlap", REFUSED}
    if schedule.spec.overlap == "cancel_running":
        assert set(after.skipped) <= {"late", REFUSED}
    assert world.cancelled[schedule.name] < max(1, len(mine)), "only where another begins"


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("seed", seeds(100, least=6))
def test_a_tick_begins_one_run_whatever_crashes(seed: int, servers: int) -> None:
    world = World(seed)
    for one in run_in_place(simulate(world, servers)):
        check(world, one)


def test_without_crashes_and_with_short_runs_every_tick_begins_its_run() -> None:
    world = World(1)
    world.crash_chance, world.refused_of = 0.0, 0
    spec = read_schedule({"every": "7m"})
    one = Schedule(name="s", spec=spec, target=Target(path="p"))
    one = replace(one, next_tick=timetable_of(spec).next_after(BEGIN))
    world.store.put_record(record_of(one, BEGIN))

    async def whole() -> None:
        server = Server(world, 0, 1)
        while world.clock.now() < HORIZON:
            for run in list(world.ends):
                world.end(run)
            await server.look()
            assert server.wake - world.clock.now() <= 60_000, "it looks every minute"
            world.clock.advance_to(server.wake)

    run_in_place(whole())
    expected = [run_of("s", t) for t in times(timetable_of(spec), BEGIN, HORIZON)]
    assert sorted(world.creations) == expected

"""Everything that can happen to a schedule, in any order, against an oracle that counts out the
minutes: ticks beside pauses, outages, backfills, runs on demand, other timetables, a purge, and
input that does not fit each tick.

Crashes between two calls are the matter of `test_simulation`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from zoneinfo import ZoneInfo

import msgspec
import pytest

from anabranch.clock import ManualClock
from anabranch.dialects.timetable import UTC
from anabranch.errors import Conflict
from anabranch.operations.definitions.prepare import prepare
from anabranch.operations.schedules.plan import QUEUE_MAX, Begun
from anabranch.operations.schedules.schedule import (
    FAMILY,
    SCHEDULES,
    Schedule,
    fires_at,
    run_now_of,
    run_of,
)
from anabranch.operations.schedules.scheduler import Scheduler
from anabranch.operations.schedules.schedules import BackfillRequest, ScheduleDraft, Schedules
from anabranch.operations.schedules.starter import Wanted
from anabranch.store.memory.store import MemoryStore
from anabranch.testing.store_suite.samples import a_batch, a_commit
from seeds import SHARE, seeds

from .in_place import run_in_place

NAME = "s"
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
#: Three hours before clocks are set back in Berlin, and three hours after.
BEGIN = 1_792_880_000_000 // HOUR * HOUR
STEP = 10 * SECOND
STEPS = 6 * HOUR // STEP
WORLDS = 200 if SHARE >= 1 else 120  # of which a part: they are long
KEPT_MS = HOUR  # finished runs are purged after that long
PLAYBOOK = """apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: tick, path: tick}
workflow: [{step: note, tool: {kind: noop}}]
"""


class Times(msgspec.Struct, frozen=True):
    """A timetable that can be counted out: the minutes of each hour, by the clock of a zone."""

    minutes: frozenset[int]
    zone: str

    @property
    def cron(self) -> str:
        return f"{','.join(map(str, sorted(self.minutes)))} * * * *"

    def holds(self, minute: int) -> bool:
        return datetime.fromtimestamp(minute // 1000, ZoneInfo(self.zone)).minute in self.minutes

    def between(self, after: int, end: int) -> list[int]:
        """Later than the first instant, before the second."""
        first = after // MINUTE * MINUTE + MINUTE
        return [minute for minute in range(first, end, MINUTE) if self.holds(minute)]


class Runs:
    """What an engine would have: runs that take their time."""

    def __init__(self, dice: random.Random, clock: ManualClock, store: MemoryStore) -> None:
        self._dice, self._clock, self._store = dice, clock, store
        self.begun: Counter[str] = Counter()
        self.cancelled: list[str] = []
        self.ends: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self._every = dice.choice([0, 2, 3, 10])

    def refuses(self, tick: int) -> bool:
        """Input that follows from the tick need not fit the definition."""
        return bool(self._every) and tick // MINUTE % self._every == 0

    def prefers(self, _run: str) -> bool:
        return True

    async def begin(self, wanted: Sequence[Wanted]) -> list[Begun | None]:
        return [self._begin(one.begin.run, one.begin.tick) for one in wanted]

    def _begin(self, run: str, tick: int) -> Begun:
        if self._store.head(run) is not None:
            return Begun(existed=True)
        if self.refuses(tick):
            return Begun(refused="the input does not fit")
        self._store.commit(a_batch(a_commit(run, 1)))
        self.begun[run] += 1
        self.ends[run] = self._clock.now() + self._dice.choice([1, 2 * MINUTE, 20 * MINUTE])
        return Begun()

    async def cancel(self, run: str, _reason: str) -> bool:
        if run in self.ends:
            self.cancelled.append(run)
            self.end(run)
        return True

    def end(self, run: str) -> None:
        del self.ends[run]
        self.ended[run] = self._clock.now()
        self._store.commit(a_batch(a_commit(run, 2, finished=True)))

    def end_what_is_over(self) -> bool:
        over = [run for run, at in self.ends.items() if at <= self._clock.now()]
        for run in over:
            self.end(run)
        return bool(over)

    def purge(self) -> None:
        """As retention does."""
        old = [run for run, at in self.ended.items() if at < self._clock.now() - KEPT_MS]
        self._store.forget(old)
        for run in old:
            del self.ended[run]


class Oracle:
    """What should have begun, tick by tick."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self.times, self.overlap, self.window = Times(frozenset(), "UTC"), "skip", 0
        self.waiting: list[int] = []  # ticks that are not seen to, in order
        self.queued: list[int] = []
        self.paused = True
        self.newest = ""
        self.asked: list[int] = []
        self.past: list[int] | None = None  # a backfill under way
        self.begun: Counter[str] = Counter()
        self.cancelled: list[str] = []
        self.skipped: Counter[str] = Counter()
        self._fresh: set[str] = set()  # that begin in this look

    def look(self, now: int, schedule: Schedule) -> None:
        """Before the scheduler does: the runs are those of before."""
        self._fresh = set()
        for run, at in [(run_now_of(NAME, at), at) for at in self.asked]:
            self._begins(run, at)
        for tick in self.past or ():
            if run_of(NAME, tick) not in self._all():
                self._begins(run_of(NAME, tick), tick)
        self.asked, self.past = [], None
        known = set[str]()  # of what begins now
        newest, late = "", ""  # of this look
        busy = self.newest if self.newest in self._runs.ends else ""
        while not self.paused and self.waiting and fires_at(schedule, self.waiting[0]) <= now:
            tick = self.waiting.pop(0)
            run = run_of(NAME, tick)
            live = run in self._runs.ends or run in known
            if (live or run in self._all()) and self.overlap != "queue":
                # a backfill came before its jitter
                if live and busy and self.overlap == "cancel_running":
                    self.cancelled.append(busy)
                newest = run if live or not busy else newest
                busy = run if live else busy
            elif now - fires_at(schedule, tick) > self.window:
                if live or run in self._fresh:
                    late = run
                elif run not in self._runs.ended:
                    self.skipped["late"] += 1
            elif self.overlap == "queue":
                if len(self.queued) < QUEUE_MAX:
                    self.queued.append(tick)
                else:
                    self.skipped["queue_full"] += 1
            elif busy and self.overlap == "skip":
                self.skipped["overlap"] += 1
            elif self._begins(run, tick):
                self.cancelled += [busy] if busy else []
                newest = busy = run
            elif self.overlap == "skip":
                known = set(self._fresh)  # it looks again for those behind
        while not self.paused and self.queued and not busy:
            tick = self.queued.pop(0)
            run = run_of(NAME, tick)
            if run in self._all() or self._begins(run, tick):
                newest = run
                busy = newest if newest not in self._runs.ended else ""
        self.newest = newest or late or self.newest
        self.begun.update(self._fresh)

    def leave_out_queued(self, why: str) -> None:
        if self.queued:
            self.skipped[why] += len(self.queued)
        self.queued = []

    def _begins(self, run: str, tick: int) -> bool:
        refused = self._runs.refuses(tick)
        if refused:
            self.skipped["refused"] += 1
        else:
            self._fresh.add(run)
        return not refused

    def _all(self) -> set[str]:
        return self._runs.ends.keys() | self._runs.ended.keys()


class World:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.clock = ManualClock(BEGIN)
        self.store = MemoryStore()
        self.runs = Runs(self.dice, self.clock, self.store)
        self.scheduler = Scheduler(self.store, self.runs, self.clock)
        net = prepare(PLAYBOOK).net
        self.schedules = Schedules(self.store, self.clock, lambda _target: net)
        self.oracle = Oracle(self.runs)
        self.seen_to = BEGIN  # until then the oracle has counted out the ticks
        self.did: Counter[str] = Counter()
        self.away = 0  # until when no engine looks

    def schedule(self) -> Schedule:
        record = self.store.record(FAMILY, NAME)
        assert record is not None
        return SCHEDULES.document(record)

    # -- what people do ----------------------------------------------------------------------

    def draft(self, times: Times) -> ScheduleDraft:
        pick, oracle = self.dice.choice, self.oracle
        oracle.overlap = pick(["skip", "queue", "cancel_running"])
        minutes = pick([1, 5, 60])
        oracle.window = minutes * MINUTE
        return ScheduleDraft(
            name=NAME,
            path="tick",
            cron=times.cron,
            timezone=times.zone,
            overlap=oracle.overlap,
            catch_up=f"{minutes}m",
            jitter=pick(["0s", "25s", "3m"]),
            replace=True,
        )

    def any_times(self) -> Times:
        every = self.dice.choice([1, 2, 7, 30])
        minutes = frozenset(range(self.dice.randrange(every), 60, every))
        return Times(minutes, self.dice.choice(["UTC", "Europe/Berlin", "Asia/Kolkata"]))

    def do_replace(self) -> None:
        oracle, times = self.oracle, self.any_times()
        if self.dice.random() < 0.4 and oracle.times.minutes:
            times = oracle.times  # only the rest changes
        self.schedules.add(self.draft(times))
        if times != oracle.times:
            oracle.leave_out_queued("replaced")
            oracle.times, oracle.waiting, oracle.past = times, [], None

    def do_pause(self) -> None:
        self.schedules.pause(NAME)
        if not self.oracle.paused:
            self.oracle.paused = True
            self.oracle.leave_out_queued("paused")

    def do_resume(self) -> None:
        self.schedules.resume(NAME)
        if self.oracle.paused:
            self.oracle.paused, self.oracle.waiting = False, []

    def do_run_now(self) -> None:
        asked = self.schedules.run_now(NAME)
        at = next(at for at in self.schedule().asked if run_now_of(NAME, at) == asked.run)
        self.oracle.asked.append(at)

    def do_backfill(self) -> None:
        now, oracle = self.clock.now(), self.oracle
        begin = now - self.dice.choice([HOUR, 30 * MINUTE])
        texts = [f"{datetime.fromtimestamp(at // 1000, UTC):%FT%TZ}" for at in (begin, now)]
        ticks = oracle.times.between(begin // SECOND * SECOND - 1, now // SECOND * SECOND)
        try:
            self.schedules.backfill(NAME, BackfillRequest(begin=texts[0], end=texts[1]))
        except Conflict:
            assert oracle.past is not None, "only one at a time"
        else:
            oracle.past = ticks or oracle.past

    def do_leave(self) -> None:
        self.away = self.clock.now() + self.dice.choice([MINUTE, 10 * MINUTE, HOUR])

    def do_purge(self) -> None:
        self.runs.purge()

    # -- what happens ------------------------------------------------------------------------

    def act(self) -> None:
        verbs = sorted(name for name in dir(self) if name.startswith("do_"))
        verb = self.dice.choice(verbs)
        self.did[verb] += 1
        getattr(self, verb)()

    async def step(self) -> None:
        now, oracle = self.clock.now(), self.oracle
        oracle.waiting += oracle.times.between(self.seen_to, now + 1)
        self.seen_to = now
        if self.dice.random() < 0.02:
            self.act()
        if now >= self.away:
            if self.runs.end_what_is_over():
                self.scheduler._poked.add(NAME)
            oracle.look(now, self.schedule())
            while await self.scheduler.look() == 0:
                pass
            self.check()
        self.clock.advance_to(now + STEP)

    def check(self) -> None:
        after, oracle = self.schedule(), self.oracle
        where = f"at {datetime.fromtimestamp(self.clock.now() // 1000, UTC)}"
        assert self.runs.begun == oracle.begun, where
        assert self.runs.cancelled == oracle.cancelled, where
        assert list(after.queued) == oracle.queued, where
        assert after.skipped == dict(oracle.skipped), where
        assert after.asked == (), where


async def play(world: World) -> None:
    world.do_replace()
    world.oracle.paused = False
    for _ in range(STEPS):
        await world.step()


@cache
def played(seed: int) -> tuple[Counter[str], Counter[str]]:
    """What was done, and why ticks were skipped."""
    world = World(seed)
    run_in_place(play(world))
    return world.did, world.oracle.skipped


@pytest.mark.parametrize("seed", seeds(WORLDS, least=6))
def test_whatever_is_done_to_a_schedule_its_runs_are_those_of_the_oracle(seed: int) -> None:
    played(seed)


def test_the_combinations_are_met() -> None:
    did: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for seed in range(12):
        did += played(seed)[0]
        skipped += played(seed)[1]
    reasons = {"late", "overlap", "refused", "paused", "replaced"}
    assert set(skipped) - {"queue_full"} == reasons
    assert len(did) == 7
    assert min(did.values()) > 10

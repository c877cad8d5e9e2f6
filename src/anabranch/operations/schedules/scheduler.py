"""Begins the runs of schedules beside an engine: sleeps until the next one is due.

Every server of a shared store may look after every schedule. A run is begun under the id of its
tick, then the record moves on in the version that was read: of two servers that come at once, one
begins the run and one writes the record. A server leaves a tick whose run another one would own to
that one for a moment.

It wakes for the next instant that is due, for a change of a schedule in this process or another
one, and for the end of a run that others queue behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import replace

from anabranch.clock import Clock
from anabranch.errors import AnabranchError
from anabranch.kernel.state import State
from anabranch.operations.schedules.labels import LABEL
from anabranch.operations.schedules.plan import (
    LATE,
    Begun,
    Plan,
    concluded,
    late_runs,
    plan,
    reconcile,
    runs_asked,
)
from anabranch.operations.schedules.schedule import FAMILY, SCHEDULES, Schedule, record_of, run_of
from anabranch.operations.schedules.starter import RunStarter, Wanted
from anabranch.runtime.metrics.registry import Counter, Histogram
from anabranch.store.ports import Store
from anabranch.store.record_ports import NEVER, NamedRecord, RecordChange

log = logging.getLogger("anabranch.schedules")

AT_ONCE = 20_000  # schedules of one look
LEFT_MS = 2000  # how long a tick is left to the server that would own its run
AGAIN_MS = 1000  # after something could not be done
LOOKED_AHEAD = 200  # records, to find the next behind those that are due and left alone
SLEEP_MS = 60_000  # at most: clocks are set, and news can be lost
LAG_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 60, 600, 3600)


class Due(msgspec.Struct, frozen=True):
    record: NamedRecord
    schedule: Schedule
    plan: Plan


class Seen(msgspec.Struct, frozen=True):
    """What one look at the store has found."""

    due: list[Due]
    left: int  # when to look at what is left to others
    rest: int  # in how many milliseconds to look again, where nothing is due
    full: bool  # there may be more


class Scheduler:
    def __init__(self, store: Store, starter: RunStarter, clock: Clock) -> None:
        self._store = store
        self._starter = starter
        self._clock = clock
        self._wake = asyncio.Event()
        self._poked: set[str] = set()  # schedules that may go on: a run of theirs has ended
        self._resting: dict[str, int] = {}  # schedules that cannot be done → until when
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._failing = False
        self.fired = Counter("anabranch_schedule_fired_total", "runs that schedules have begun")
        self.skipped = Counter(
            "anabranch_schedule_skipped_total", "ticks that began no run, by reason", ["why"]
        )
        self.lag = Histogram(
            "anabranch_schedule_lag_seconds",
            "from the instant of a tick to the start of its run",
            bounds=LAG_SECONDS,
        )

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def changed(self) -> None:
        """A schedule may have changed; on the thread of the event loop."""
        self._wake.set()

    def ended(self, state: State) -> None:
        """A run has ended: another of its schedule may wait for that."""
        if name := state.labels.get(LABEL):
            self._poked.add(name)
            self._wake.set()

    async def _run(self) -> None:
        while not self._closing:
            try:
                wait = await self.look()
                self._failing = False
            except AnabranchError as error:  # the store is busy or gone; a later look tells
                if not self._failing:  # said once
                    log.warning("schedules: %s", error.message)
                self._failing, wait = True, AGAIN_MS
            except Exception:  # a defect of ours must not end all schedules for good
                log.exception("schedules: a look failed")
                wait = AGAIN_MS
            if wait > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), wait / 1000)
            self._wake.clear()

    # -- one look ----------------------------------------------------------------------------

    async def look(self) -> int:
        """Do what is due; returns in how many milliseconds to look again."""
        now = self._clock.now()
        poked, self._poked = self._poked, set()
        self._resting = {name: until for name, until in self._resting.items() if until > now}
        seen = await asyncio.to_thread(self._look, now, poked)
        if not seen.due:
            return 0 if self._poked else seen.rest
        await self._carry_out(seen.due)
        if self._poked or seen.full:
            return 0
        return await asyncio.to_thread(self._rest, now, seen.left)

    def _look(self, now: int, poked: set[str]) -> Seen:
        """All that is asked of the store where nothing is due, in one go."""
        records = self._due(now, poked)
        left, due = self._planned(records, now)
        rest = 0 if due else self._rest(now, left)
        return Seen(due, left, rest, len(records) >= AT_ONCE)

    def _due(self, now: int, poked: set[str]) -> list[NamedRecord]:
        found = {one.name: one for one in self._store.due_records(FAMILY, now, AT_ONCE)}
        for name in sorted(poked - found.keys()):
            record = self._store.record(FAMILY, name)
            if record is not None:
                found[name] = record
        return [one for name, one in found.items() if self._resting.get(name, 0) <= now]

    def _planned(self, records: Sequence[NamedRecord], now: int) -> tuple[int, list[Due]]:
        """What to do, and when to look again at what is left to others."""
        read = [(record, one) for record in records if (one := self._read(record, now))]
        runs = [run for _, one in read for run in runs_asked(one, now)]
        known = self._store.runs_known(runs) if runs else {}
        left, due = NEVER, []
        for record, one in read:
            made = plan(one, now, known)
            asked = record.due is not None and record.due <= now
            if not asked and made.empty:
                continue  # it was poked, and there is nothing to do
            until = record.due + LEFT_MS if record.due is not None and asked else now
            if now < until and made.begins and not self._starter.prefers(made.begins[0].run):
                left = min(left, until)
                continue
            due.append(Due(record, one, made))
        return left, due

    def _read(self, record: NamedRecord, now: int) -> Schedule | None:
        try:
            return SCHEDULES.document(record)
        except AnabranchError as error:
            log.error("%s", error.message)
            self._resting[record.name] = now + SLEEP_MS
            return None

    async def _carry_out(self, due: Sequence[Due]) -> None:
        wanted = [Wanted(one.schedule, begin) for one in due for begin in one.plan.begins]
        outcomes = await self._starter.begin(wanted) if wanted else []
        begun = {one.begin.run: out for one, out in zip(wanted, outcomes, strict=True)}
        known = {run: one for run, one in begun.items() if one is not None}
        done = [whole for one in due if (whole := await self._whole(one, known)) is not None]
        if done:
            await asyncio.to_thread(self._write, done, known)

    async def _whole(self, one: Due, begun: dict[str, Begun]) -> Due | None:
        """With what its plan has come to; None where not all of it could be done: the whole of it
        is done again."""
        made = one.plan
        fits = all(begin.run in begun for begin in made.begins)
        if fits:
            made = reconcile(made, begun)
            reason = f"schedule {one.schedule.name} begins its next run"
            for run in made.cancels:
                fits = await self._starter.cancel(run, reason) and fits
        if not fits:
            self._resting[one.schedule.name] = self._clock.now() + AGAIN_MS
            return None
        return replace(one, plan=made)

    def _write(self, done: Sequence[Due], outcomes: dict[str, Begun]) -> None:
        now = self._clock.now()
        late = {run for one in done for run in late_runs(one.schedule, one.plan)}
        found = self._store.runs_known(sorted(late)) if late else {}
        after = [concluded(one.schedule, one.plan, outcomes, now, found) for one in done]
        changes = [
            RecordChange(record_of(new, now), one.record.version)
            for one, new in zip(done, after, strict=True)
        ]
        for change, one, written in zip(
            changes, done, self._store.put_records(changes), strict=True
        ):
            if written:
                self._count(one, outcomes, found, now)
            if written and change.record.due is not None and change.record.due <= now:
                self._poked.add(change.record.name)  # there is more that is due

    def _count(self, one: Due, begun: dict[str, Begun], found: Collection[str], now: int) -> None:
        for begin in one.plan.begins:
            outcome = begun[begin.run]
            if one.plan.queued and (outcome.refused or outcome.existed):
                self._poked.add(one.schedule.name)  # no end may come: the next has its turn
            if outcome.refused:
                self.skipped.add(("refused",))
            elif begin.kind == "tick":
                self.fired.add()
                self.lag.observe(max(0, now - begin.tick) / 1000)
        for skip in one.plan.skips:
            there = skip.why == LATE and run_of(one.schedule.name, skip.tick) in found
            if not there:
                self.skipped.add((skip.why,))

    def _rest(self, now: int, left: int) -> int:
        """Until the next one is due, or one that is left to others still is."""
        wake = min([left, *self._resting.values(), now + SLEEP_MS])
        waiting = left < NEVER or bool(self._resting)  # for what is due already
        found = self._store.due_records(FAMILY, NEVER, LOOKED_AHEAD if waiting else 1)
        ahead = [one.due for one in found if one.due is not None and one.name not in self._resting]
        if waiting:
            ahead = [due for due in ahead if due > now] or [now + AGAIN_MS]
        return max(0, min([wake, *ahead]) - self._clock.now())

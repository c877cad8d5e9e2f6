"""Decides what a schedule does now: a pure function of what it is, the time, and whether its run
goes on. Nothing here starts a run or writes a record.

Runs are begun first, under ids that follow from their ticks; then what `concluded` makes of it is
written in the version that was read. A crash in between repeats the plan: the runs are there, and
nothing happens twice. A tick that is late is one that nobody could begin within the window. A plan
supposes that its runs can be begun; of one that was refused `reconcile` takes back what followed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice

import msgspec
from msgspec.structs import replace

from anabranch.dialects.schedule import timetable_of
from anabranch.dialects.timetable import times
from anabranch.operations.schedules.schedule import (
    LAST_KEPT,
    Backfill,
    Kind,
    Outcome,
    Schedule,
    TickSeen,
    fires_at,
    run_now_of,
    run_of,
)

TICKS_AT_ONCE = 1000
BACKFILLED_AT_ONCE = 100
QUEUE_MAX = 100
LEFT_MAX = 20  # ticks that are looked at for runs from before a crash

_NONE: Mapping[str, bool] = {}
LATE, OVERLAP, FULL, REFUSED = "late", "overlap", "queue_full", "refused"


class Begin(msgspec.Struct, frozen=True):
    """A run to begin."""

    run: str
    tick: int
    kind: Kind = "tick"
    over: bool = False  # it has ended already, while the one before goes on


class Begun(msgspec.Struct, frozen=True):
    """What came of it."""

    existed: bool = False  # from before: a crash came between the run and the record
    refused: str = ""  # why it cannot be begun, now or later
    full: bool = False  # there is no place for it, and the run before may be what has it


class Skip(msgspec.Struct, frozen=True):
    tick: int
    why: str
    behind: str = ""  # a run of the same plan, which is supposed to go on


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    begins: list[Begin]
    cancels: list[str]  # runs that make room
    skips: list[Skip]
    queued: tuple[int, ...]
    next_tick: int | None
    backfilled: int | None = None  # the last tick of the past that is seen to
    backfill_over: bool = False

    @property
    def empty(self) -> bool:
        return not (self.begins or self.skips or self.backfill_over)


def runs_asked(schedule: Schedule, now: int) -> list[str]:
    """The runs that decide what is done: the one before, and those that crashes may have left."""
    found = [schedule.running] if schedule.running else []
    ticks = [*schedule.queued[:1]]
    if schedule.next_tick is not None:
        following = times(timetable_of(schedule.spec), schedule.next_tick, now + 1)
        ticks += [schedule.next_tick, *islice(following, LEFT_MAX)]
    return [*found, *(run_of(schedule.name, tick) for tick in ticks)]


def plan(schedule: Schedule, now: int, known: Mapping[str, bool]) -> Plan:
    """`known` says of `runs_asked` which are there, and whether they have finished."""
    begins = [Begin(run_now_of(schedule.name, at), at, "now") for at in schedule.asked]
    fresh = ""  # the newest run that the plan begins
    backfilled, over = _backfill(schedule, begins)
    if schedule.paused_at is not None:
        return Plan(
            begins=begins,
            cancels=[],
            skips=[],
            queued=schedule.queued,
            next_tick=schedule.next_tick,
            backfilled=backfilled,
            backfill_over=over,
        )
    cancels: list[str] = []
    skips: list[Skip] = []
    queued = list(schedule.queued)
    table = timetable_of(schedule.spec)
    running = schedule.running if known.get(schedule.running) is False else ""
    tick, policy = schedule.next_tick, schedule.spec.overlap
    for _ in range(TICKS_AT_ONCE):
        if tick is None or fires_at(schedule, tick) > now:
            break
        run = run_of(schedule.name, tick)
        if run in known and policy != "queue":  # begun before a crash
            begins.append(Begin(run, tick, over=bool(running) and known[run]))
            if policy == "cancel_running" and running and not known[run]:
                cancels.append(running)  # which the crash, or a store that was away, has spared
            running = running if known[run] else run
        elif now - fires_at(schedule, tick) > schedule.spec.catch_up_ms:
            skips.append(Skip(tick, LATE))
        elif policy == "queue":
            skips += _queue(queued, tick)
        elif running and policy == "skip":
            skips.append(Skip(tick, OVERLAP, fresh if running == fresh else ""))
        else:
            cancels += [running] if running else []
            running = fresh = run
            begins.append(Begin(run, tick))
        tick = table.next_after(tick)
        if fresh and schedule.refusals and policy == "skip":
            break  # the next may be refused as well: to plan what is taken back costs time
    if queued and not running:
        first = queued.pop(0)
        begins.append(Begin(run_of(schedule.name, first), first))
    return Plan(
        begins=begins,
        cancels=cancels,
        skips=skips,
        queued=tuple(queued),
        next_tick=tick,
        backfilled=backfilled,
        backfill_over=over,
    )


def _queue(queued: list[int], tick: int) -> list[Skip]:
    if len(queued) >= QUEUE_MAX:
        return [Skip(tick, FULL)]
    queued.append(tick)
    return []


def _backfill(schedule: Schedule, begins: list[Begin]) -> tuple[int | None, bool]:
    """Adds the next ticks of the past; how far that is, and whether it was the rest."""
    asked = schedule.backfill
    if asked is None or asked.done_at is not None:
        return None, False
    table = timetable_of(schedule.spec)
    ticks = list(islice(times(table, asked.at, asked.end), BACKFILLED_AT_ONCE + 1))
    over = len(ticks) <= BACKFILLED_AT_ONCE
    ticks = ticks[:BACKFILLED_AT_ONCE]
    begins += [Begin(run_of(schedule.name, tick), tick, "backfill") for tick in ticks]
    return ticks[-1] if ticks else asked.at, over


def reconcile(made: Plan, begun: Mapping[str, Begun]) -> Plan:
    """What is left of a plan once it is known which runs could be begun. One that was refused
    cancels no other, and the ticks behind it have their turn anew."""
    kept = replace(made, cancels=_with_successor(made, begun))
    for skip in made.skips:
        if skip.behind and begun[skip.behind].refused:
            return _up_to(kept, skip.tick)
    return kept


def _with_successor(made: Plan, begun: Mapping[str, Begun]) -> list[str]:
    """The runs that one begun after them takes the place of. Where there is no place, they go all
    the same: the next tick would find it taken by them for ever."""
    ticks = [begin.run for begin in made.begins if begin.kind == "tick" and not begin.over]
    while ticks and not _takes_place(begun[ticks[-1]]):
        ticks.pop()
    left = {*ticks[-1:], *(run for run, outcome in begun.items() if outcome.refused)}
    return [run for run in made.cancels if run not in left] if ticks else []


def _takes_place(outcome: Begun) -> bool:
    return outcome.full or not outcome.refused


def _up_to(made: Plan, tick: int) -> Plan:
    return replace(
        made,
        begins=[one for one in made.begins if one.kind != "tick" or one.tick < tick],
        skips=[one for one in made.skips if one.tick < tick],
        next_tick=tick,
    )


def late_runs(schedule: Schedule, made: Plan) -> dict[str, int]:
    """Runs of ticks that seem to be missed: one that is there was begun before a crash."""
    return {run_of(schedule.name, skip.tick): skip.tick for skip in made.skips if skip.why == LATE}


def concluded(
    schedule: Schedule,
    made: Plan,
    begun: Mapping[str, Begun],
    now: int,
    found: Mapping[str, bool] = _NONE,
) -> Schedule:
    """The schedule after a plan was carried out; `found` are the late runs that are there, and
    whether they have finished."""
    seen: list[TickSeen] = []
    skipped, fired, running = Counter(schedule.skipped), schedule.fired, schedule.running
    refusals = schedule.refusals
    for skip in made.skips:
        run = run_of(schedule.name, skip.tick)
        if run in found:
            fired += 1
            running = running if found[run] else run
            seen.append(_seen(skip.tick, now, "started", run))
        else:
            skipped[skip.why] += 1
            seen.append(_seen(skip.tick, now, "skipped", why=skip.why))
    for begin in made.begins:
        outcome = begun[begin.run]
        if outcome.refused:
            skipped[REFUSED] += 1
            refusals += 1
            why = outcome.refused
            seen.append(_seen(begin.tick, now, "refused", why=why, kind=begin.kind))
            continue
        if begin.kind == "tick" and not begin.over:
            running = begin.run
        if begin.kind != "backfill" or not outcome.existed:
            fired += 1
            seen.append(_seen(begin.tick, now, "started", begin.run, kind=begin.kind))
        refusals = 0
    return replace(
        schedule,
        next_tick=made.next_tick,
        queued=made.queued,
        running=running,
        asked=(),
        backfill=_backfilled(schedule.backfill, made, begun, now),
        fired=fired,
        skipped=dict(skipped),
        last=_newest_first(seen, schedule.last),
        refusals=refusals,
    )


def _newest_first(seen: list[TickSeen], before: tuple[TickSeen, ...]) -> tuple[TickSeen, ...]:
    fresh = sorted(seen, key=lambda one: one.tick, reverse=True)
    return (*fresh, *before)[:LAST_KEPT]


def _seen(
    tick: int, at: int, outcome: Outcome, run: str = "", *, why: str = "", kind: Kind = "tick"
) -> TickSeen:
    return TickSeen(tick=tick, at=at, outcome=outcome, run=run, why=why, kind=kind)


def _backfilled(
    before: Backfill | None, made: Plan, begun: Mapping[str, Begun], now: int
) -> Backfill | None:
    if before is None or made.backfilled is None:
        return before
    outcomes = [begun[begin.run] for begin in made.begins if begin.kind == "backfill"]
    refused = sum(bool(one.refused) for one in outcomes)
    existing = sum(one.existed for one in outcomes)
    return replace(
        before,
        at=made.backfilled,
        started=before.started + len(outcomes) - refused - existing,
        existing=before.existing + existing,
        refused=before.refused + refused,
        done_at=now if made.backfill_over else None,
    )

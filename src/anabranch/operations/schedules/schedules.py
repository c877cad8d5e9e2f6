"""The verbs of schedules. Each changes one record in the version that was read, so it does not
matter which process it comes from, or whether an engine is at work on the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from itertools import islice
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from anabranch.clock import Clock
from anabranch.dialects.schedule import (
    INSTANTS_MAX,
    ScheduleError,
    ScheduleSpec,
    given_at,
    plain_schedule,
    read_schedule,
    timetable_of,
)
from anabranch.dialects.timetable import next_times, read_instant, times
from anabranch.errors import AnabranchError, Conflict, InputError
from anabranch.net.net import Net
from anabranch.operations.definitions.catalog import wanted
from anabranch.operations.definitions.input_check import require_input, require_no_secret
from anabranch.operations.definitions.prepare import Prepared
from anabranch.operations.schedules.schedule import (
    FAMILY,
    PAUSED,
    SCHEDULES,
    Backfill,
    Schedule,
    Target,
    TickSeen,
    after_now,
    carried_over,
    record_of,
    run_now_of,
    run_of,
    without_queue,
)
from anabranch.store.ports import Store
from anabranch.store.record_ports import NamedRecord

NEXT_SHOWN = 5
NEXT_MOST = 100
BACKFILL_MAX = 10_000
PAGE_MOST = 500


class ScheduleDraft(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A schedule to add: what is run (a path of the catalog, or a definition), and when."""

    name: str
    path: str | None = None  # of the catalog, in its newest version
    version: int | None = None  # of the path, instead of the newest
    fingerprint: str | None = None  # of a stored definition
    definition: str | dict[str, Any] | None = None  # its text or JSON; it is stored
    file: str = "<text>"  # what the file of the definition is called; none is read
    cron: str | None = None
    every: str | int | float | None = None
    at: str | Annotated[list[str], msgspec.Meta(max_length=INSTANTS_MAX)] | None = None
    timezone: str | None = None
    begin: str | None = None  # no tick comes before
    overlap: str | None = None  # skip, queue or cancel_running
    catch_up: str | int | float | None = None
    jitter: str | int | float | None = None
    input: dict[str, Any] = {}
    labels: dict[str, str] = {}
    paused: bool = False
    replace: bool = False  # in the place of one of this name; its counts stay


class ScheduleCard(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as people and programs see it."""

    name: str
    state: str  # on, paused, or ended: no tick is left
    target: Target
    schedule: dict[str, Any]  # as an author writes it
    next: list[int]
    fired: int
    skipped: dict[str, int]
    queued: int
    running: str  # its newest run
    last: list[TickSeen]
    backfill: Backfill | None
    paused_at: int | None
    paused_by: str
    from_definition: bool
    created_at: int
    created_by: str
    version: int


class NextTimes(msgspec.Struct, frozen=True, kw_only=True):
    timezone: str
    items: list[int]


class BackfillRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    begin: str  # the first instant that counts
    end: str  # the first one that does not
    dry_run: bool = False


class BackfillPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a backfill does, or would do."""

    total: int
    existing: int  # ticks of it that have a run
    first: int | None
    last: int | None
    runs: list[str]  # the first few that it begins
    dry_run: bool


class AskedRun(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    how: str  # engine: one begins it within a moment; recorded: the next one does


#: The definition of a target; raises where there is none.
Find = Callable[[Target], Net]


class Schedules:
    def __init__(self, store: Store, clock: Clock, find: Find) -> None:
        self._store = store
        self._clock = clock
        self._find = find
        self.changed: Callable[[], None] = lambda: None  # tells the scheduler of this process

    # -- looking -----------------------------------------------------------------------------

    def page(self, after: str = "", limit: int = 50) -> list[ScheduleCard]:
        """In the order of their names."""
        return [self._card(record, 1) for record in self._store.records(FAMILY, after, limit)]

    def all(self) -> Iterable[ScheduleCard]:
        after = ""
        while found := self.page(after, PAGE_MOST):
            yield from found
            after = found[-1].name

    def show(self, name: str) -> ScheduleCard:
        return self._card(SCHEDULES.record(self._store, name), NEXT_SHOWN)

    def next(self, name: str, count: int = NEXT_SHOWN) -> NextTimes:
        schedule = SCHEDULES.document(SCHEDULES.record(self._store, name))
        return upcoming(schedule.spec, self._clock.now(), count)

    def _card(self, record: NamedRecord, upcoming_shown: int) -> ScheduleCard:
        schedule = SCHEDULES.document(record)
        following: list[int] = []
        if schedule.next_tick is not None and schedule.paused_at is None:
            table, first = timetable_of(schedule.spec), schedule.next_tick
            following = [first, *next_times(table, first, upcoming_shown - 1)]
        state = "paused" if schedule.paused_at is not None else "on" if following else "ended"
        return ScheduleCard(
            name=schedule.name,
            state=state,
            target=schedule.target,
            schedule=plain_schedule(schedule.spec),
            next=following,
            fired=schedule.fired,
            skipped=schedule.skipped,
            queued=len(schedule.queued),
            running=schedule.running,
            last=list(schedule.last),
            backfill=schedule.backfill,
            paused_at=schedule.paused_at,
            paused_by=schedule.paused_by,
            from_definition=schedule.from_definition,
            created_at=schedule.created_at,
            created_by=schedule.created_by,
            version=record.version,
        )

    # -- changing ----------------------------------------------------------------------------

    def add(
        self, draft: ScheduleDraft, prepared: Prepared | None = None, actor: str = ""
    ) -> ScheduleCard:
        """`prepared` is the definition of the draft, where it brings one. Everything is checked
        before anything is written."""
        spec, now = spec_of(draft), self._clock.now()
        target = _target(draft, prepared)
        made = Schedule(
            name=SCHEDULES.checked_name(draft.name),
            spec=spec,
            target=target,
            created_at=now,
            created_by=actor,
            next_tick=after_now(spec, now),
            paused_at=now if draft.paused else None,
            paused_by=actor if draft.paused else "",
        )
        _require_future(made)
        net = prepared.net if prepared is not None else self._find(target)
        _require_startable(net, made)
        if target.fingerprint:
            made = replace(made, target=replace(target, name=net.name))
        if prepared is not None:
            self._store.put_definition(replace(prepared.definition, created_at=now))
        return self._put(made, now, over=draft.replace)

    def _put(self, made: Schedule, now: int, *, over: bool) -> ScheduleCard:
        def make(known: Schedule | None) -> Schedule:
            if known is None:
                return made
            if not over:
                raise Conflict(
                    f"there is a schedule {made.name!r} already; nothing was changed. Give another "
                    "name, or replace it (--replace)",
                    code="schedule_exists",
                )
            return replaced(known, made, now)

        SCHEDULES.put(self._store, made.name, make, lambda one: record_of(one, now))
        self.changed()
        return self.show(made.name)

    def pause(self, name: str, actor: str = "") -> ScheduleCard:
        now = self._clock.now()

        def paused(one: Schedule) -> Schedule:
            if one.paused_at is not None:
                return one
            return replace(without_queue(one, PAUSED, now), paused_at=now, paused_by=actor)

        return self._change(name, paused)

    def resume(self, name: str) -> ScheduleCard:
        """What would have come meanwhile is not made up for: `backfill` does that."""
        now = self._clock.now()

        def resumed(one: Schedule) -> Schedule:
            if one.paused_at is None:
                return one
            return replace(one, paused_at=None, paused_by="", next_tick=after_now(one.spec, now))

        return self._change(name, resumed)

    def remove(self, name: str) -> ScheduleCard:
        """Its runs stay."""
        card = SCHEDULES.drop(self._store, name, lambda record: self._card(record, NEXT_SHOWN))
        self.changed()
        return card

    def run_now(self, name: str) -> AskedRun:
        """A run beside the timetable; `overlap` does not hold for it."""
        asked: list[int] = []

        def with_one(one: Schedule) -> Schedule:
            at = self._clock.now()
            while at in one.asked:
                at += 1
            asked[:] = [at]
            return replace(one, asked=(*one.asked, at))

        self._change(name, with_one)
        how = "engine" if self._store.owner() is not None else "recorded"
        return AskedRun(run=run_now_of(name, asked[0]), how=how)

    def backfill(self, name: str, asked: BackfillRequest) -> BackfillPlan:
        """Begin the runs of the ticks of a time that is over; those that have one keep it."""
        now = self._clock.now()
        schedule = SCHEDULES.document(SCHEDULES.record(self._store, name))
        begin, end = _range(asked, schedule.spec, now)
        table = timetable_of(schedule.spec)
        ticks = list(islice(times(table, begin - 1, end), BACKFILL_MAX + 1))
        if len(ticks) > BACKFILL_MAX:
            raise InputError(
                f"the schedule {name} comes more than {BACKFILL_MAX:,} times in that range: ask "
                "for less at once",
                code="backfill_too_large",
            )
        runs = [run_of(name, tick) for tick in ticks]
        known = self._store.runs_known(runs)
        if not asked.dry_run and ticks:
            fresh = Backfill(begin=begin, end=end, total=len(ticks), at=begin - 1, asked_at=now)
            self._change(name, lambda one: _with_backfill(one, fresh))
        return BackfillPlan(
            total=len(ticks),
            existing=len(known),
            first=ticks[0] if ticks else None,
            last=ticks[-1] if ticks else None,
            runs=[run for run in runs if run not in known][:20],
            dry_run=asked.dry_run,
        )

    def _change(self, name: str, change: Callable[[Schedule], Schedule]) -> ScheduleCard:
        def record(one: Schedule) -> NamedRecord:
            return record_of(one, self._clock.now())

        if SCHEDULES.change(self._store, name, change, record) is not None:
            self.changed()
        return self.show(name)


def _target(draft: ScheduleDraft, prepared: Prepared | None) -> Target:
    given = [one for one in (draft.path, draft.fingerprint, draft.definition) if one]
    if len(given) != 1:
        raise InputError(
            "a schedule runs one thing: a `path` of the catalog, a `fingerprint` or a `definition`",
            code="usage",
        )
    if draft.version is not None and not draft.path:
        raise InputError("a version belongs to a path of the catalog", code="usage")
    if prepared is not None:
        return Target(fingerprint=prepared.net.fingerprint)
    if draft.fingerprint:
        return Target(fingerprint=draft.fingerprint)
    asked = wanted(draft.path or "")
    if not asked.path:
        raise InputError("a schedule names a path of the catalog, not its number", code="usage")
    if None not in (asked.version, draft.version) and asked.version != draft.version:
        raise InputError("the path and `version` name different versions", code="usage")
    return Target(path=asked.path, version=asked.version or draft.version)


def upcoming(spec: ScheduleSpec, now: int, count: int) -> NextTimes:
    if not 1 <= count <= NEXT_MOST:
        raise InputError(f"1 to {NEXT_MOST} times can be shown, not {count}", code="usage")
    found = next_times(timetable_of(spec), now, count)
    return NextTimes(timezone=spec.timezone, items=found)


def spec_of(draft: ScheduleDraft) -> ScheduleSpec:
    fields = msgspec.structs.asdict(draft)
    named = ("cron", "every", "at", "timezone", "begin", "overlap", "catch_up", "jitter")
    given = {key: fields[key] for key in named if fields[key] is not None}
    return read_spec({**given, "input": draft.input, "labels": draft.labels})


def read_spec(given: Mapping[str, Any]) -> ScheduleSpec:
    try:
        return read_schedule(given)
    except ScheduleError as error:
        raise InputError(str(error), code="bad_schedule") from None


def replaced(before: Schedule, made: Schedule, now: int) -> Schedule:
    """What was counted stays, and so do a pause and what was asked for."""
    fields = ("created_at", "created_by", "running", "fired", "skipped", "last")
    kept = {name: getattr(before, name) for name in fields} | carried_over(before, made, now)
    if before.paused_at is not None:
        kept |= {"paused_at": before.paused_at, "paused_by": before.paused_by}
    return replace(made, **kept)


def _with_backfill(one: Schedule, fresh: Backfill) -> Schedule:
    if one.backfill is not None and one.backfill.done_at is None:
        raise Conflict(
            f"a backfill of {one.name} is under way ({_progress(one.backfill)}); `anabranch "
            f"schedule show {one.name}` tells how far it is",
            code="backfill_under_way",
        )
    return replace(one, backfill=fresh)


def _progress(one: Backfill) -> str:
    return f"{one.started + one.existing + one.refused:,} of {one.total:,}"


def _range(asked: BackfillRequest, spec: ScheduleSpec, now: int) -> tuple[int, int]:
    try:
        begin, end = (read_instant(text, spec.timezone) for text in (asked.begin, asked.end))
    except (ValueError, OverflowError) as error:
        raise InputError(str(error), code="bad_instant") from None
    if begin >= end:
        raise InputError("the range of a backfill ends after it begins", code="bad_range")
    if end > now:
        over = timedelta(milliseconds=end - now)
        raise InputError(
            f"a backfill is about the past, and the range ends in {over}: what is still to come "
            "comes by itself",
            code="bad_range",
        )
    return begin, end


def _require_future(made: Schedule) -> None:
    if made.next_tick is None:
        raise InputError(
            "the schedule never comes: all of its instants are over", code="bad_schedule"
        )


def _require_startable(net: Net, made: Schedule) -> None:
    """What every tick would be refused for is said now."""
    assert made.next_tick is not None
    try:
        given, _ = given_at(made.name, made.spec, made.next_tick)
    except AnabranchError as error:
        raise InputError(
            f"the input of the schedule cannot be made: {error.message}", code="bad_schedule"
        ) from None
    require_no_secret(net, given)
    require_input(net, given)

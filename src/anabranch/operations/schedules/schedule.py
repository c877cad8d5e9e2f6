"""A schedule as the store keeps it: what was asked for, how far it is, and what came of it.

A tick is an instant at which the timetable comes round. The id of its run follows from the name of
the schedule and the tick, so a tick that is begun twice begins one run.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from anabranch.dialects.schedule import ScheduleSpec, timetable_of
from anabranch.dialects.timetable import UTC
from anabranch.errors import AnabranchError
from anabranch.operations.record_families import RecordFamily
from anabranch.store.record_ports import NamedRecord

FAMILY = "schedule"
LAST_KEPT = 10  # ticks that `show` tells of
PAUSED, REPLACED = "paused", "replaced"  # why ticks that waited have no run
QUEUE_LOOK_MS = 30_000  # a queue looks again by itself, should the news of an end be lost

Kind = Literal["tick", "now", "backfill"]
Outcome = Literal["started", "skipped", "refused"]


class Target(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is run: a path of the catalog, in its newest version or this one, or a definition."""

    path: str = ""
    version: int | None = None
    fingerprint: str = ""
    name: str = ""  # of the definition with this fingerprint


class TickSeen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a tick."""

    tick: int
    at: int  # when that was decided
    outcome: Outcome
    run: str = ""
    why: str = ""
    kind: Kind = "tick"


class Backfill(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ticks of the past that are begun now; `at` is the last one that was seen to."""

    begin: int
    end: int
    total: int
    at: int
    started: int = 0
    existing: int = 0  # they had a run already
    refused: int = 0
    asked_at: int = 0
    done_at: int | None = None


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    spec: ScheduleSpec
    target: Target
    from_definition: bool = False  # `register` put it here, and changes it
    created_at: int = 0
    created_by: str = ""
    paused_at: int | None = None
    paused_by: str = ""
    next_tick: int | None = None
    queued: tuple[int, ...] = ()  # ticks that wait for the run before
    running: str = ""  # the newest run; it may have ended
    asked: tuple[int, ...] = ()  # instants at which somebody wanted a run now
    backfill: Backfill | None = None
    fired: int = 0
    skipped: dict[str, int] = {}  # by reason
    last: tuple[TickSeen, ...] = ()  # newest first
    refusals: int = 0  # in a row


def run_of(name: str, tick: int) -> str:
    """The id of the run of a tick."""
    return f"{name}-{_stamp(tick)}"


@lru_cache(maxsize=1000)
def _stamp(tick: int) -> str:
    """Many schedules share a tick."""
    return f"{datetime.fromtimestamp(tick // 1000, UTC):%Y%m%dT%H%M%SZ}"


def run_now_of(name: str, asked: int) -> str:
    stamp = datetime.fromtimestamp(asked // 1000, UTC)
    return f"{name}-now-{stamp:%Y%m%dT%H%M%S}.{asked % 1000:03}Z"


def fires_at(schedule: Schedule, tick: int) -> int:
    """Jitter follows from the schedule and the tick: whoever looks finds the same."""
    jitter = schedule.spec.jitter_ms
    if not jitter:
        return tick
    digest = sha256(f"{schedule.name} {tick}".encode()).digest()
    return tick + int.from_bytes(digest[:8], "big") % jitter


def due_of(schedule: Schedule, now: int) -> int | None:
    """When somebody has to look at it."""
    if schedule.asked or (schedule.backfill is not None and schedule.backfill.done_at is None):
        return now
    if schedule.paused_at is not None:
        return None
    due = None if schedule.next_tick is None else fires_at(schedule, schedule.next_tick)
    if not schedule.queued:
        return due
    look = now + QUEUE_LOOK_MS
    return look if due is None else min(due, look)


def after_now(spec: ScheduleSpec, now: int) -> int | None:
    return timetable_of(spec).next_after(now)


def without_queue(one: Schedule, why: str, now: int) -> Schedule:
    """The ticks that wait have no run, and are counted with this reason."""
    if not one.queued:
        return one
    seen = [
        TickSeen(tick=tick, at=now, outcome="skipped", why=why) for tick in reversed(one.queued)
    ]
    skipped = one.skipped | {why: one.skipped.get(why, 0) + len(one.queued)}
    return replace(one, queued=(), skipped=skipped, last=(*seen, *one.last)[:LAST_KEPT])


def carried_over(before: Schedule, made: Schedule, now: int) -> dict[str, Any]:
    """What stays of a schedule that another one replaces: runs that somebody asked for; and where
    the instants are the same, ticks that are due, those that wait, and a backfill. At other
    instants a backfill ends where it is, and ticks that wait are counted as skipped."""
    kept: dict[str, Any] = {"asked": before.asked}
    if _instants(before.spec) == _instants(made.spec):
        fields = ("next_tick", "queued", "backfill")
        return kept | {name: getattr(before, name) for name in fields}
    backfill = before.backfill
    if backfill is not None and backfill.done_at is None:
        backfill = replace(backfill, done_at=now)
    left = without_queue(before, REPLACED, now)
    kept |= {name: getattr(left, name) for name in ("queued", "skipped", "last")}
    return kept | {"next_tick": made.next_tick, "backfill": backfill}


def _instants(spec: ScheduleSpec) -> tuple[object, ...]:
    return spec.cron, spec.every_ms, spec.at, spec.timezone, spec.begin


def record_of(schedule: Schedule, now: int) -> NamedRecord:
    return NamedRecord(
        family=FAMILY,
        name=schedule.name,
        body=msgspec.json.encode(schedule),
        due=due_of(schedule, now),
        updated_at=now,
    )


SCHEDULES = RecordFamily(FAMILY, Schedule, "the name of a schedule")


def refused_text(error: AnabranchError) -> str:
    return error.message[:300]

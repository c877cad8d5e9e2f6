"""The overview of a store: runs over time, by definition, what waits longest, who does the work.

On a store that several servers share, the runs are those of all of them. The server that answers
adds its health, and the queues of pools: its own and, from their records, those of the others.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.operations.health import HealthReport
from anabranch.operations.overview.windows import WINDOWS, Window
from anabranch.store.ports import DefinitionRuns, Head, HeadFilter, Store

#: A run in one of these did not do what it was for; a cancelled one was not allowed to.
FAILED = ("failed", "step_timeout", "deadline_exceeded")
UNFINISHED = ("queued", "running", "waiting", "paused")
DEFINITIONS_SHOWN = 50
OLDEST_SHOWN = 10
#: What took so long to count is shown again for ten times as long.
QUICK_SECONDS, KEPT_FOR = 0.05, 10


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that began in a part of the time, by status."""

    at: int  # when it begins
    statuses: dict[str, int]


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that began in the time. The failure rate is that of those that have ended; null when
    none has."""

    runs: int
    ended: int
    failed: int
    failure_rate: float | None
    statuses: dict[str, int]


class CountedDefinition(Counted, frozen=True, kw_only=True):
    """Of those that have ended, half took `p50_ms` at most, and nineteen of twenty `p95_ms`."""

    name: str
    p50_ms: int | None
    p95_ms: int | None


class LongWait(msgspec.Struct, frozen=True, kw_only=True):
    """An unfinished run that waits, and since when it has not moved."""

    run: str
    name: str
    status: str
    created_at: int
    since: int
    reason: str


class PoolLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A pool: jobs that wait for a worker, jobs that are out, workers that asked."""

    pool: str
    waiting: int
    waiting_since: int  # of the job that has waited longest; 0 when none does
    out: int
    workers: int
    cluster: str = ""  # the compute cluster that does its jobs, and how it stands
    server: str = ""  # whose numbers these are, where several servers share the store


class ServerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A server of a store that several share."""

    id: str
    name: str
    state: str
    partitions: int
    here: bool  # it is the one that answers


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at a glance. `runs`, `need_attention`, `slots` and `definitions` are of runs that
    began in the window; `unfinished` and `oldest` are of all runs."""

    at: int
    window: Window
    since: int
    slot_ms: int
    runs: Counted
    need_attention: int  # runs that failed, and that no other run redrives
    slots: list[Slot]
    definitions: list[CountedDefinition]
    definitions_left_out: int
    unfinished: dict[str, int]
    oldest: list[LongWait]
    pools: list[PoolLoad] = []
    servers: list[ServerLoad] = []
    health: HealthReport | None = None  # null where a store is read without a server


def window_of(text: str) -> Window:
    for window in WINDOWS:
        if window == text:
            return window
    said = f"a window is one of {', '.join(WINDOWS)}, not {text[:40]!r}"
    raise InputError(said, code="bad_window")


def read_overview(store: Store, window: Window, now: int) -> Overview:
    """What the store knows."""
    length, width = WINDOWS[window]
    first = (now - length) // width + 1  # so that the newest slot is the one of now
    history = store.run_history(first * width, width)
    failed = HeadFilter(statuses=FAILED, redriven=False, created_after=first * width)
    return Overview(
        at=now,
        window=window,
        since=first * width,
        slot_ms=width,
        runs=Counted(**_counts(_all(history.definitions))),
        need_attention=sum(store.run_slots(failed, width).values()),
        slots=slots_of(history.slots, first, now // width, width),
        definitions=_definitions(history.definitions),
        definitions_left_out=max(0, len(history.definitions) - DEFINITIONS_SHOWN),
        unfinished=dict(sorted(store.unfinished_counts().items())),
        oldest=[_long_wait(head) for head in store.waiting_longest(OLDEST_SHOWN)],
    )


def slots_of(
    counts: Mapping[tuple[int, str], int], first: int, last: int, width: int
) -> list[Slot]:
    """A slot for every part of the time, also where no run began."""
    by_slot: dict[int, dict[str, int]] = {slot: {} for slot in range(first, last + 1)}
    for (slot, status), count in counts.items():
        if first <= slot:
            shown = by_slot.setdefault(min(slot, last), {})  # a clock may be ahead of ours
            shown[status] = shown.get(status, 0) + count
    return [Slot(at=slot * width, statuses=found) for slot, found in by_slot.items()]


def _all(definitions: Sequence[DefinitionRuns]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for each in definitions:
        for status, count in each.statuses.items():
            sums[status] = sums.get(status, 0) + count
    return sums


def _counts(statuses: Mapping[str, int]) -> dict[str, Any]:
    runs = sum(statuses.values())
    ended = runs - sum(statuses.get(status, 0) for status in UNFINISHED)
    failed = sum(statuses.get(status, 0) for status in FAILED)
    return {
        "runs": runs,
        "ended": ended,
        "failed": failed,
        "failure_rate": failed / ended if ended else None,
        "statuses": dict(sorted(statuses.items())),
    }


def _definitions(found: Sequence[DefinitionRuns]) -> list[CountedDefinition]:
    """Those with the most runs first."""
    by_runs = sorted(found, key=lambda one: (-sum(one.statuses.values()), one.name))
    return [
        CountedDefinition(
            name=one.name, p50_ms=one.p50_ms, p95_ms=one.p95_ms, **_counts(one.statuses)
        )
        for one in by_runs[:DEFINITIONS_SHOWN]
    ]


def _long_wait(head: Head) -> LongWait:
    return LongWait(
        run=head.run,
        name=head.name,
        status=head.status,
        created_at=head.created_at,
        since=head.updated_at,
        reason=head.reason,
    )


class KeptOverviews:
    """The last overview of each window, for many who look at the same time: what took long to count
    is not counted again at once. Safe for threads: the worst is that it is counted twice."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, Overview]] = {}  # until when

    def read(self, store: Store, window: Window, now: int) -> Overview:
        until, kept = self._kept.get(window, (0.0, None))
        if kept is not None and time.monotonic() < until:
            return kept
        begin = time.monotonic()
        found = read_overview(store, window, now)
        took = time.monotonic() - begin
        if took >= QUICK_SECONDS:
            self._kept[window] = (begin + took + took * KEPT_FOR, found)
        return found

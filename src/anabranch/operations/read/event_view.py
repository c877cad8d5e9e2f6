"""Events as people and programs see them.

The log keeps what cannot be worked out, in as few bytes as it takes. Who reads it wants the names
of the fan-out profile (`loop.fanout.started`, `loop.shard.done`, …) and, on everything that belongs
to a shard, `loop_id`, `shard_id` and which items it is about. `EventView` adds that while it goes
through the events of one run in order. Of shards it remembers those that are out.

    loop.opened          loop.fanout.started, or loop.started for a local loop
    loop.shard_scheduled loop.shard.enqueued
    job.started          loop.shard.started, where the job is a shard
    loop.shard_closed    loop.shard.done, or loop.shard.failed when an item of it failed
    loop.settled         loop.fanin.completed, or loop.done for a local loop
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from anabranch.kernel import events as e
from anabranch.kernel.privacy import public
from anabranch.kernel.tracker import Shard, ShardReport, loop_name, shard_name

SHOWN_KINDS = (
    *("loop.fanout.started", "loop.shard.enqueued", "loop.shard.started", "loop.shard.done"),
    *("loop.shard.failed", "loop.fanin.completed", "loop.started", "loop.done"),
)
_OF_LOOPS = frozenset(
    {
        *(e.LoopOpened, e.LoopCutting, e.LoopCut, e.LoopStopped, e.LoopTuned, e.LoopSettled),
        *(e.ShardScheduled, e.ShardClosed),
    }
)


class EventRecord(msgspec.Struct, frozen=True):
    """One event as surfaces show it."""

    seq: int
    at: int
    kind: str
    fields: dict[str, Any]


class EventView:
    """The records of one run; every event must be shown to it, from the first on."""

    def __init__(self, run: str, private: str = "") -> None:
        self._run = run
        self._private = private  # keys that begin so are shown to nobody
        self._modes: dict[str, str] = {}  # loop → local or fanout
        self._shards: dict[str, Shard] = {}  # job → the shard it works on
        self._reports: dict[str, ShardReport | None] = {}
        self._ended: dict[str, tuple[int, int]] = {}  # loop → items that succeeded, and failed
        self._closed_in: dict[str, int] = {}  # loop → shards that came back once
        self._cut_in: dict[str, int] = {}  # loop → shards that its reader found
        self.seq = 0

    def skip(self, pairs: Iterable[tuple[int, e.Event]]) -> None:
        """Take note of events that nobody wants to see."""
        for at, event in pairs:
            self.record(at, event)

    def record(self, at: int, event: e.Event) -> EventRecord:
        self.seq += 1
        fields = e.fields_of(event)
        if self._shards or type(event) in _OF_LOOPS:
            kind, more = self._named(event)
            if isinstance(event, e.ShardScheduled):
                del fields["shard"]  # said in words by what follows
            fields |= more
        else:  # as it is: most events have nothing to do with a loop
            kind = e.kind_of(event)
        if self._private:
            fields = public(fields, self._private)
        return EventRecord(self.seq, at, kind, fields)

    def _named(self, event: e.Event) -> tuple[str, dict[str, Any]]:
        match event:
            case e.LoopOpened():
                return self._opened(event)
            case e.ShardScheduled():
                self._shards[event.job] = event.shard
                return "loop.shard.enqueued", self._ids(event.job)
            case e.ShardClosed():
                return self._closed(event)
            case e.LoopSettled():
                local = self._modes.get(event.loop) == "local"
                good, bad = self._ended.pop(event.loop, (0, 0))
                shards = self._closed_in.pop(event.loop, 0)
                self._cut_in.pop(event.loop, None)
                more = {**self._loop(event.loop), "succeeded": good, "failed": bad}
                more["shards"] = shards
                return "loop.done" if local else "loop.fanin.completed", more
            case e.LoopCut():
                return e.kind_of(event), {**self._loop(event.loop), **self._cut(event)}
            case e.LoopCutting() | e.LoopStopped() | e.LoopTuned():
                loop = f"l{event.token}" if isinstance(event, e.LoopCutting) else event.loop
                return e.kind_of(event), self._loop(loop)
            case _:
                return self._of_job(event)

    def _of_job(self, event: e.Event) -> tuple[str, dict[str, Any]]:
        kind, job = e.kind_of(event), getattr(event, "job", "")
        if job not in self._shards:
            return kind, {}
        ids = self._ids(job)
        if isinstance(event, e.JobStarted):
            return "loop.shard.started", ids
        if isinstance(event, e.JobReported):
            self._reports[job] = report = event.answer.shard
            return kind, {**ids, **self._key(job, report)}
        if isinstance(event, e.JobDischarged):
            self._forget(job)
        return kind, ids

    def _opened(self, event: e.LoopOpened) -> tuple[str, dict[str, Any]]:
        self._modes[event.loop] = event.mode
        self._ended[event.loop] = ((event.carried or {}).get("succeeded", 0), 0)
        more = self._loop(event.loop)
        if (shards := _shards_of(event)) is not None:
            more["shards"] = shards
        return "loop.started" if event.mode == "local" else "loop.fanout.started", more

    def _cut(self, event: e.LoopCut) -> dict[str, Any]:
        """At the end of a collection its shards are known."""
        found = self._cut_in.get(event.loop, 0) + len(event.shards)
        self._cut_in[event.loop] = found
        return {"shards_found": found} if event.end else {}

    def _closed(self, event: e.ShardClosed) -> tuple[str, dict[str, Any]]:
        shard, ids = self._shards.get(event.job), self._ids(event.job)
        report = self._reports.get(event.job)
        ids |= self._key(event.job, report)
        self._forget(event.job)
        if shard is not None and not (shard.tries or shard.lost):
            self._closed_in[event.loop] = self._closed_in.get(event.loop, 0) + 1
        if event.fault is not None or report is None:
            failed = shard.size if shard is not None else 0
            self._count(event.loop, 0, 0 if event.whole else failed)
            return "loop.shard.failed", {**ids, "succeeded": 0, "failed": failed}
        counts = {"succeeded": report.succeeded, "failed": len(report.failed)}
        if report.unbegun:
            counts["unbegun"] = len(report.unbegun)
        self._count(event.loop, report.succeeded, len(report.failed) - len(event.again))
        if not report.failed:
            return "loop.shard.done", {**ids, **counts}
        failures = [
            {"iter_index": one.index, "iter_key": one.key or str(one.index), "kind": one.kind,
             "message": one.message}
            for one in report.failed
        ]  # fmt: skip
        return "loop.shard.failed", {**ids, **counts, "failures": failures}

    def _count(self, loop: str, succeeded: int, failed: int) -> None:
        good, bad = self._ended.get(loop, (0, 0))
        self._ended[loop] = (good + succeeded, bad + failed)

    def _forget(self, job: str) -> None:
        self._shards.pop(job, None)
        self._reports.pop(job, None)

    def _loop(self, loop: str) -> dict[str, Any]:
        return {"loop_id": loop_name(self._run, loop)}

    def _key(self, job: str, report: ShardReport | None) -> dict[str, Any]:
        """The key of the one item of a shard; of several each has its own."""
        shard = self._shards.get(job)
        if shard is None or shard.size != 1 or report is None or report.keys is None:
            return {}
        index = shard.only[0] if shard.only else shard.first
        return {"iter_key": report.keys[0] if report.keys else str(index)}

    def _ids(self, job: str) -> dict[str, Any]:
        """Which loop, which shard, and which of its items: one, some, or all of it."""
        shard = self._shards.get(job)
        loop = loop_name(self._run, f"l{job.partition('.')[0]}")
        if shard is None:
            return {"loop_id": loop}
        ids: dict[str, Any] = {"loop_id": loop, "shard_id": shard_name(loop, shard)}
        if shard.size == 1:
            return {**ids, "iter_index": shard.only[0] if shard.only else shard.first}
        ids |= {"first": shard.first, "count": shard.count}
        return {**ids, "only": list(shard.only)} if shard.only else ids


def _shards_of(event: e.LoopOpened) -> int | None:
    """Into how many shards a loop is cut, where that is known when it begins.

    Shards of automatic size are known where all of them go out at once, before anything can be
    measured. A redriven loop sends out what was left first, as it was.
    """
    carried = event.carried or {}
    again = len(carried.get("again", ()))
    if carried.get("exhausted"):
        return again
    size = carried.get("size", event.size)
    if size < 0 and not event.automatic:
        size = _length(event.source)
    if size < 0:
        return None
    new = -(-(size - carried.get("next_index", 0)) // event.shard_size)
    unsure = event.automatic and new > 1 and again + new > event.window
    return None if unsure else again + new


def _length(source: Any) -> int:
    """How many items a range has; -1 for what has to be read first."""
    given = source.get("range") if isinstance(source, dict) and len(source) == 1 else None
    numbers = given if isinstance(given, list) else [given]
    if not 1 <= len(numbers) <= 3 or any(type(one) is not int for one in numbers):
        return -1
    return len(range(*numbers)) if len(numbers) < 3 or numbers[2] else -1

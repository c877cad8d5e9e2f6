"""The laws of loops, as code; `kernel.laws` calls them.

`broken_loops(state)` looks at a state. `Recount` follows the events and counts for itself, from the
reports of the shards alone: every item ends at most once, nothing counts after the loop is settled,
and what the kernel counted is what was reported.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

from anabranch.errors import LawBroken
from anabranch.kernel import events as e
from anabranch.kernel.state import State
from anabranch.kernel.tracker import Shard, ShardReport, Tracker, finished, ranges_of


def broken_loops(state: State) -> Iterator[str]:
    """Every item of a loop is in one place: finished, out, given up, or yet to come."""
    for tracker in state.loops.values():
        ended = sum(stop - start for start, stop in tracker.done)
        if ended != finished(tracker):
            yield f"loop {tracker.id} counts {finished(tracker)} items and has {ended} finished"
        if any(a[1] >= b[0] for a, b in pairwise(tracker.done)):
            yield f"loop {tracker.id} has ranges that overlap or touch"
        if tracker.size >= 0 and max((r[1] for r in tracker.done), default=0) > tracker.size:
            yield f"loop {tracker.id} finished items beyond its end"
        gone = [job for job in tracker.in_flight if job not in state.jobs]
        if gone:
            yield f"loop {tracker.id} waits for jobs that are gone: {gone}"
        if len(tracker.in_flight) > max(tracker.window, tracker.out_when_tuned):
            yield f"loop {tracker.id} has {len(tracker.in_flight)} shards out, over its window"
        yield from _every_item_somewhere(tracker)
        yield from _queue_times(state, tracker)
        yield from _settled(state, tracker)


def _every_item_somewhere(tracker: Tracker) -> Iterator[str]:
    """No item is in two places, and none of those that were cut is in no place."""
    shards = (*tracker.in_flight.values(), *tracker.again, *tracker.ready, *tracker.given_up)
    places = sorted([*tracker.done, *(pair for shard in shards for pair in ranges_of(shard))])
    if any(a[1] > b[0] for a, b in pairwise(places)):
        yield f"loop {tracker.id} has an item in two places"
    known = sum(stop - start for start, stop in places)
    if known != tracker.next_index:
        yield f"loop {tracker.id} has cut {tracker.next_index} items and knows of {known}"


def _queue_times(state: State, tracker: Tracker) -> Iterator[str]:
    """The queue time of a shard runs while it waits for a worker, and only then."""
    if state.ending:
        return
    for name in tracker.in_flight:
        job = state.jobs.get(name)
        waits = job is not None and job.phase == "scheduled" and not state.paused
        runs = f"queue:{name}" in state.timers.due
        if runs != (waits and tracker.queue_ttl > 0):
            yield f"the queue time of shard {name} {'runs' if runs else 'does not run'}"


def _settled(state: State, tracker: Tracker) -> Iterator[str]:
    """Nothing counts any more once a loop is settled, and only what is over is settled as done."""
    record = state.looped[tracker.id]
    if record.status != tracker.status:
        yield f"loop {tracker.id} is {tracker.status} and listed as {record.status}"
    if tracker.status == "open":
        return
    counted = (tracker.succeeded, tracker.failed, tracker.retries)
    if (record.succeeded, record.failed, record.retries) != counted:
        yield f"loop {tracker.id} went on counting after it was settled"
    if tracker.status == "complete" and tracker.succeeded != record.total:
        yield f"loop {tracker.id} is complete with {tracker.succeeded} of {record.total} items"


class Recount:
    """What one loop has come to, by the reports of its shards."""

    def __init__(self, opened: e.LoopOpened) -> None:
        carried = opened.carried or {}
        self.loop = opened.loop
        self.ended = [(start, stop) for start, stop in carried.get("done", ())]
        self.succeeded: int = carried.get("succeeded", 0)
        self.failed = 0
        self.settled = False
        self._shards: dict[str, Shard] = {}
        self._reports: dict[str, ShardReport | None] = {}

    def scheduled(self, event: e.ShardScheduled) -> None:
        self._demand(not self.settled, "began a shard after it was settled")
        self._demand(event.job not in self._shards, f"began shard {event.job} twice")
        self._shards[event.job] = event.shard

    def reported(self, event: e.JobReported) -> None:
        if event.job in self._shards:
            self._reports[event.job] = event.answer.shard

    def closed(self, event: e.ShardClosed) -> None:
        self._demand(not self.settled, "counted a shard after it was settled")
        shard = self._shards.pop(event.job, None)
        self._demand(shard is not None, f"counted shard {event.job}, which was not out")
        report = self._reports.pop(event.job, None)
        if shard is None or event.whole:
            return
        if event.fault is not None or report is None:
            self.failed += shard.size
            self._end(shard, set())
            return
        again = set(event.again)
        bad = {failure.index for failure in report.failed}
        self._demand(again <= bad, "sent items out again that had not failed")
        unbegun = set(report.unbegun)
        self._demand(not unbegun & bad, "had items fail that were not begun")
        self.succeeded += shard.size - len(bad) - len(unbegun)
        self.failed += len(bad - again)
        self._end(shard, again | unbegun)

    def _end(self, shard: Shard, open_ones: set[int]) -> None:
        if open_ones:
            items = shard.only or range(shard.first, shard.first + shard.count)
            ranges = [(index, index + 1) for index in items if index not in open_ones]
        else:
            ranges = ranges_of(shard)
        for start, stop in ranges:
            at = bisect_left(self.ended, (start, start))
            before = self.ended[at - 1][1] if at else 0
            behind = self.ended[at][0] if at < len(self.ended) else stop
            self._demand(before <= start and stop <= behind, f"ended item {start} twice")
            self.ended.insert(at, (start, stop))

    def settles(self) -> None:
        self._demand(not self.settled, "was settled twice")
        self.settled = True

    def agrees(self, state: State) -> None:
        """The kernel has counted the same."""
        here = state.loops.get(self.loop) or state.looped[self.loop]
        if isinstance(here, Tracker) or here.status != "open":
            told, found = (here.succeeded, here.failed), (self.succeeded, self.failed)
            self._demand(told == found, f"counts {told} and its shards reported {found}")

    def _demand(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise LawBroken(f"loop {self.loop} {otherwise}")

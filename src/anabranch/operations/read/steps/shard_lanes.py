"""The shards of one loop as lanes of a timeline: when each was out, and how it ended.

A loop may have any number of shards. The first ones are read, and whether there are more is said.
"""

from __future__ import annotations

import msgspec

from anabranch.errors import NotFound
from anabranch.kernel import events as e
from anabranch.kernel.tracker import Shard
from anabranch.operations.read.reader import Reader
from anabranch.operations.read.timeline import Lane
from anabranch.store.damage import events_of

SHARDS_SHOWN = 300
EVENTS_READ = 20_000
ROWS_AT_ONCE = 64


class ShardLanes(msgspec.Struct):
    lanes: list[Lane]
    more: bool  # the loop has shards that are not among them


def shard_lanes(read: Reader, run: str, loop: str) -> ShardLanes:
    """Reads the log from where the loop was opened: not in the event loop."""
    head = read.find(run)
    record = read.state_of(head).looped.get(loop)
    if record is None:
        raise NotFound(f"run {head.run} has no loop {loop[:200]!r}")
    found = _Shards(loop, record.step)
    first = after = max(0, record.opened_seq - 1)
    while not found.done and after - first < EVENTS_READ:
        rows = read.store.read(head.run, after, ROWS_AT_ONCE)
        for row in rows:
            for event in events_of(head.run, row):
                found.see(row.at, event)
            after = row.first_seq + row.count - 1
        if len(rows) < ROWS_AT_ONCE:
            break
    lanes = list(found.lanes.values())
    return ShardLanes(lanes, found.dropped or (not found.done and after - first >= EVENTS_READ))


class _Shards:
    """Goes through the events of a run and hears what became of the shards of one loop."""

    def __init__(self, loop: str, step: str) -> None:
        self._loop = loop
        self._step = step
        self._token = int(loop.removeprefix("l")) if loop.removeprefix("l").isdecimal() else 0
        self.lanes: dict[str, Lane] = {}  # by job
        self.dropped = False
        self.done = False  # there is nothing more to hear

    def see(self, at: int, event: e.Event) -> None:
        match event:
            case e.ShardScheduled() if event.token == self._token:
                self._scheduled(at, event)
            case e.ShardClosed() if event.loop == self._loop:
                self._closed(at, event)
            case e.LoopSettled() if event.loop == self._loop:
                self.done = True
            case e.JobStarted() if (lane := self.lanes.get(event.job)) is not None:
                lane.attempts, lane.status = event.attempt, "running"
                lane.begin("running", at, f"attempt {event.attempt} on {event.worker}")
            case e.JobReported() if (lane := self.lanes.get(event.job)) is not None:
                lane.close(at, good=event.answer.status == "ok")
            case e.JobRetrying() if (lane := self.lanes.get(event.job)) is not None:
                lane.begin("retry", at, f"before attempt {event.attempt}")
            case e.JobLost() if (lane := self.lanes.get(event.job)) is not None:
                lane.close(at, event.reason, good=False)
            case e.JobDischarged() if (lane := self.lanes.get(event.job)) is not None:
                lane.close(at, event.reason)
                lane.end, lane.status = at, "put back" if event.how == "put_back" else "stopped"
            case _:
                pass

    def _scheduled(self, at: int, event: e.ShardScheduled) -> None:
        if len(self.lanes) >= SHARDS_SHOWN:
            self.dropped = True
            return
        lane = Lane(event.job, self._step, _label(event.shard), at, status="queued")
        lane.begin("queued", at)
        self.lanes[event.job] = lane

    def _closed(self, at: int, event: e.ShardClosed) -> None:
        lane = self.lanes.get(event.job)
        if lane is not None and not lane.end:
            failed = event.fault is not None
            lane.close(at, event.fault.message if event.fault is not None else "", good=not failed)
            lane.end, lane.status = at, "failed" if failed else "done"


def _label(shard: Shard) -> str:
    if shard.only:
        return f"{len(shard.only):,} items again"
    if shard.count == 1:
        return f"item {shard.first:,}"
    return f"items {shard.first:,} to {shard.first + shard.count - 1:,}"

"""What the log says about the shards of a loop, from the place where it matters.

A shard that is sent out for the first time begins where the one before it ended. The events that
send them out are therefore in the order of the items, and the one that sent out a given item is
found by bisection: a page far into a loop costs what the first one does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from anabranch.errors import DamagedRun
from anabranch.kernel import events as e
from anabranch.kernel.state import LoopRecord
from anabranch.kernel.tracker import ItemFailure, Shard
from anabranch.kernel.values import Answer
from anabranch.runtime.live_run import load_state
from anabranch.store.damage import events_of
from anabranch.store.ports import Store

Carried = Mapping[str, Any]  # what a loop of a redriven run took over

ROWS_AT_ONCE = 64  # of the log
GLANCE_ROWS = 2
NEAR_EVENTS = 64  # so close to the place it is not worth looking for it any further


class Begin(NamedTuple):
    """Where to begin to read: after this event. What it took over stands before that."""

    after: int
    carried: Carried | None = None


def seek(store: Store, run: str, record: LoopRecord, loop: str, index: int) -> Begin:
    """From here on the log has everything about the item and those that come after it."""
    low, high = record.opened_seq - 1, record.scheduled_seq
    if low < 0 or high - low <= NEAR_EVENTS:
        return Begin(max(low, 0))
    opened = _opening(store, run, loop, low)
    carried = opened.carried if opened is not None else None
    if opened is None or (carried is not None and index < carried["next_index"]):
        return Begin(low)  # what a redriven run has left goes out first, in any order
    token = int(loop.removeprefix("l"))
    new_from = 0 if carried is None else int(carried["next_index"])
    while high - low > NEAR_EVENTS:
        middle = (low + high) // 2
        found = _next_new_shard(store, run, token, middle, high, new_from)
        if found is None or found[1].first > index:
            high = middle
        elif found[0] > low:
            low = found[0]
        else:
            break  # one row holds all that is left
    return Begin(low, carried if low >= record.opened_seq else None)


def _opening(store: Store, run: str, loop: str, after: int) -> e.LoopOpened | None:
    for row in store.read(run, after, 1):
        for event in events_of(run, row):
            if isinstance(event, e.LoopOpened) and event.loop == loop:
                return event
    return None


def _next_new_shard(
    store: Store, run: str, token: int, after: int, until: int, new_from: int
) -> tuple[int, Shard] | None:
    """The next shard whose items had not been out before, and the event before its row."""
    while after < until:
        for row in store.read(run, after, GLANCE_ROWS):
            for event in events_of(run, row):
                if isinstance(event, e.ShardScheduled) and event.token == token:
                    shard = event.shard
                    if not (shard.tries or shard.only) and shard.first >= new_from:
                        return row.first_seq - 1, shard
            after = row.first_seq + row.count - 1
    return None


def indexes_of(shard: Shard) -> Sequence[int]:
    return shard.only or range(shard.first, shard.first + shard.count)


class Scan:
    """Goes through the events of a run and hears what became of the items of one loop."""

    def __init__(self, loop: str) -> None:
        self._loop = loop
        self._token = int(loop.removeprefix("l"))
        self._shards: dict[str, Shard] = {}  # at work
        self._answers: dict[str, Answer] = {}
        self._losses: Counter[str] = Counter()
        self.losses = 0  # of the shard that is closed: how often its worker was lost
        self.done = False  # there is nothing more to hear

    def see(self, event: e.Event) -> None:
        match event:
            case e.LoopOpened() if event.loop == self._loop and event.carried is not None:
                self.carried(event.carried)
            case e.ShardScheduled() if event.token == self._token:
                self._shards[event.job] = event.shard
            case e.JobReported() if event.job in self._shards:
                self._answers[event.job] = event.answer
            case e.JobLost() if event.counted and event.job in self._shards:
                self._losses[event.job] += 1
            case e.ShardClosed() if event.loop == self._loop:
                shard = self._shards.pop(event.job, None)
                self.losses = self._losses.pop(event.job, 0) + (shard.lost if shard else 0)
                answer = self._answers.pop(event.job, None)
                if shard is not None and not event.whole:  # then all of it goes out once more
                    self.closed(shard, answer, event)
            case e.LoopSettled() if event.loop == self._loop:
                self.done = True
            case _:
                pass

    def carried(self, carried: Carried) -> None:
        """What a redriven run took over."""

    def closed(self, shard: Shard, answer: Answer | None, event: e.ShardClosed) -> None:
        raise NotImplementedError


def go_through(store: Store, run: str, scan: Scan, after: int = 0) -> None:
    """Let the scan hear the events after that one, until it has heard enough."""
    while not scan.done:
        rows = store.read(run, after, ROWS_AT_ONCE)
        for row in rows:
            for event in events_of(run, row):
                scan.see(event)
            after = row.first_seq + row.count - 1
        if len(rows) < ROWS_AT_ONCE:
            return


def failures_in(shard: Shard, answer: Answer | None, event: e.ShardClosed) -> Iterator[ItemFailure]:
    """The items that ended in failure; those that go out once more did not."""
    if event.fault is None and answer is not None and answer.shard is not None:
        again = frozenset(event.again)
        yield from (failure for failure in answer.shard.failed if failure.index not in again)
        return
    fault = event.fault
    kind, message = ("lost", "the shard was lost") if fault is None else (fault.kind, fault.message)
    for index in indexes_of(shard):
        yield ItemFailure(index, "", kind, message, False)


# -- whose it is -----------------------------------------------------------------------------


def taken_over(carried: Carried, indexes: Sequence[int]) -> list[int]:
    """Which of these items, which rise, were taken over."""
    if not indexes:
        return []
    known, begin, end = set(indexes), indexes[0], indexes[-1] + 1
    spans = (range(max(start, begin), min(stop, end)) for start, stop in carried["done"])
    return [index for span in spans for index in span if index in known]


class Origins:
    """The runs that did the items of a loop. A redriven run knows what it took over from its
    origin, and not what that had itself taken over, so the line of origins is followed; each log
    is looked into once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._opened: dict[str, Carried | None] = {}

    def of(self, carried: Carried, indexes: Sequence[int]) -> dict[int, str]:
        """For each of these items, which were taken over, the run that did it; where the log of
        a run of the line is gone, that run."""
        found: dict[int, str] = {}
        at: Carried | None = carried
        while indexes and at is not None and at.get("loop"):
            loop = at["loop"]
            found |= dict.fromkeys(indexes, loop.rpartition("/")[0])
            at = self._carried(loop)
            indexes = taken_over(at, indexes) if at is not None else ()
        return found

    def _carried(self, name: str) -> Carried | None:
        """What a loop had itself taken over, if anything."""
        if name not in self._opened:
            run, _, loop = name.rpartition("/")
            scan = _Opening(loop)
            try:
                go_through(self._store, run, scan, _before(self._store, run, loop))
            except DamagedRun:
                scan.found = None
            self._opened[name] = scan.found
        return self._opened[name]


def _before(store: Store, run: str, loop: str) -> int:
    """The event after which the loop was opened."""
    record = load_state(*store.read_many([run])[run], run).looped.get(loop)
    return 0 if record is None else max(record.opened_seq - 1, 0)


class _Opening(Scan):
    """Hears with what a loop was opened."""

    def __init__(self, loop: str) -> None:
        super().__init__(loop)
        self.found: Carried | None = None

    def see(self, event: e.Event) -> None:
        if isinstance(event, e.LoopOpened) and event.loop == self._loop:
            self.found, self.done = event.carried, True

"""The tracker: how far a loop is.

A loop over a collection never becomes one token, job or row per item. Its items are cut into
*shards*, each a job of its own, inside a window; the tracker keeps counts, the ranges that are
finished and the first failures. Memory follows the window, the log follows the shards.

    open ── every item finished ──▶ complete │ partial │ failed      (see `verdict`)

Indexable collections (lists, ranges) are cut here by arithmetic. Others are cut by a worker that
knows how to read them; what it found arrives as `ready` shards.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from anabranch.literals import Reducer

FAILURES_KEPT = 100
SHARD_MAX = 4096  # items in a shard of automatic size: more would only take memory
SIDE_BY_SIDE = 8  # items in a shard, also where they take longer than its time, in wide windows
SIDE_BY_SIDE_MS = 1000  # as long as such a shard takes no longer than this
UNKNOWN = -1

LoopStatus = Literal["open", "complete", "partial", "failed"]


class Shard(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Items `first … first + count - 1`, or only some of them on a second try."""

    number: int
    first: int
    count: int
    cursor: Any = None  # where to read, for collections that have no index
    only: tuple[int, ...] = ()  # indexes inside; empty means all
    tries: int = 0  # how often these items have been tried before
    lost: int = 0  # how often they were out, in larger shards, with a worker that was lost

    @property
    def size(self) -> int:
        return len(self.only) or self.count


class ItemFailure(msgspec.Struct, frozen=True, array_like=True, gc=False):
    index: int
    key: str
    kind: str
    message: str
    retryable: bool = True


class TaskRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One execution of a task: what `task.started` and `task.processed` are shown from."""

    label: str
    attempt: int = 1
    error: str = ""  # the kind of its error; "" where it ended well
    round: int = 1  # of a task that a jump came back to


class ShardReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The outcomes of a shard's items; their results travel beside it."""

    succeeded: int
    failed: tuple[ItemFailure, ...] = ()
    milliseconds: int = 0
    shared: dict[str, Any] = {}  # reduced over the shard's items
    unbegun: tuple[int, ...] = ()  # items that were left alone once another had failed
    tasks: tuple[str, ...] = ()  # what an item goes through, each task once and well,
    ways: dict[str, tuple[TaskRun, ...]] = {}  # and what those did that went another way, by index
    #: The keys of the items in order; none: they are the indexes. None: nobody has kept them.
    keys: tuple[str, ...] | None = None


class HeldWrites(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What items of an earlier run wrote that stand behind one that is done again."""

    first: int  # the item they begin with
    patches: tuple[tuple[str, Any, Reducer], ...]  # of the context
    shared: dict[str, Any] = {}


class Tracker(msgspec.Struct, gc=False):
    id: str
    token: int
    mode: Literal["local", "fanout"]
    source: Any  # the collection's descriptor
    size: int  # items in all; UNKNOWN until the end was read
    shard_size: int  # items in the next shard
    automatic: bool  # the size follows the measured time of an item
    window: int
    opened_at: int
    side_by_side: bool = False  # items of one shard do not wait for each other
    next_index: int = 0
    next_shard: int = 0
    cursor: Any = None
    cutting: bool = False  # a worker is reading ahead
    exhausted: bool = False  # every item is in some shard
    stopped: str = ""  # why no further shard is begun
    ready: list[Shard] = []
    again: list[Shard] = []  # items that may be tried once more or were not begun, in order
    in_flight: dict[str, Shard] = {}
    given_up: list[Shard] = []  # begun or found, and then not wanted any more
    done: list[tuple[int, int]] = []  # finished items as disjoint ranges, in order
    succeeded: int = 0
    failed: int = 0
    retries: int = 0
    shards_done: int = 0
    busy_milliseconds: int = 0
    failures: list[ItemFailure] = []
    shared: dict[str, Any] = {}
    keep_results: bool = True
    reducers: dict[str, Reducer] = {}
    parts: list[tuple[int, Any]] = []  # (first index, results or their ref), local loops only
    status: LoopStatus = "open"
    reason: str = ""
    queue_ttl: int = 0  # milliseconds that a shard may wait for a worker; 0 is for ever
    begun: int = 0  # shards whose items had not been out before
    out_when_tuned: int = 0  # a window that was narrowed waits until so many are back
    held: list[HeldWrites] = []  # written once the items before them are done, in order
    cut_attempt: int = 0  # the last attempt at reading ahead that gave something


def loop_id(token: int) -> str:
    """Fresh for every activation, because every activation is a token of its own."""
    return f"l{token}"


def loop_name(run: str, loop: str) -> str:
    """The id of a loop outside its run: fresh for every activation, the same for ever."""
    return f"{run}/{loop}"


def loop_ref(run: str, loop: str) -> str:
    """Where the results of its items are."""
    return f"anabranch:run:{run}/loop/{loop}"


def shard_name(loop: str, shard: Shard) -> str:
    """The id of a shard, by the name of its loop: the same however often its items go out."""
    return f"{loop}/{shard.first}+{shard.count}"


def first_item(shard: Shard) -> int:
    return shard.only[0] if shard.only else shard.first


def held_before(tracker: Tracker, item: int | None) -> list[HeldWrites]:
    """What is held back and due before this item is begun; before the loop ends, everything."""
    return [one for one in tracker.held if item is None or one.first < item]


def ranges_of(shard: Shard) -> list[tuple[int, int]]:
    """Its items as ranges."""
    if shard.only:
        return [(index, index + 1) for index in shard.only]
    return [(shard.first, shard.first + shard.count)]


def halves_of(shard: Shard, lost: int) -> tuple[Shard, Shard]:
    """One of them has the item that ended the worker, if an item did."""
    middle = shard.size // 2
    if shard.only or shard.cursor is not None:  # found by reading on from where the shard begins
        items = shard.only or tuple(range(shard.first, shard.first + shard.count))
        only = items[:middle], items[middle:]
        spans = [(shard.first, shard.count)] * 2
    else:
        only = (), ()
        spans = [(shard.first, middle), (shard.first + middle, shard.count - middle)]
    first, second = (
        Shard(0, *span, shard.cursor, items, shard.tries, lost)
        for span, items in zip(spans, only, strict=True)
    )
    return first, second


# -- cutting ---------------------------------------------------------------------------------


def next_shard(tracker: Tracker) -> Shard | None:
    """The next shard to begin; None when there is none (yet)."""
    if tracker.again:
        return tracker.again[0]
    if tracker.stopped:
        return None
    if tracker.ready:
        return tracker.ready[0]
    if tracker.size == UNKNOWN or tracker.next_index >= tracker.size:
        return None
    count = min(tracker.shard_size, tracker.size - tracker.next_index)
    return Shard(tracker.next_shard, tracker.next_index, count)


def wants_cut(tracker: Tracker) -> bool:
    """A worker should read ahead: the collection has no index and little is ready."""
    idle = not (tracker.cutting or tracker.exhausted or tracker.stopped)
    return idle and tracker.size == UNKNOWN and len(tracker.ready) < tracker.window


def size_after(tracker: Tracker, items: int, milliseconds: int) -> int:
    """The size of shards to come, so that one takes about as long as it should."""
    if not tracker.automatic:
        return tracker.shard_size
    target = 250.0 if tracker.mode == "fanout" or tracker.side_by_side else 20.0
    item = max(milliseconds, 0.02) / max(items, 1)
    wanted = int(target / item)
    if tracker.side_by_side and milliseconds <= SIDE_BY_SIDE_MS:
        # They wait together: a shard of some of them takes about as long as one. There are always
        # as many shards out as items may be at work, so it takes a wide window to fill them.
        wanted = max(wanted, min(SIDE_BY_SIDE, tracker.window // SIDE_BY_SIDE))
    # A small shard says little about large ones: what it allows grows by eight at most, however
    # many of its size come back at once.
    limit = max(tracker.shard_size, items * 8)
    return max(1, min(wanted, limit, SHARD_MAX))


# -- finishing -------------------------------------------------------------------------------


def add_range(ranges: list[tuple[int, int]], start: int, stop: int) -> None:
    """Add `start … stop - 1` to disjoint, ordered ranges; touching ones become one."""
    at = bisect_left(ranges, (start, start))
    if at and ranges[at - 1][1] >= start:
        at -= 1
        start = ranges[at][0]
    end = at
    while end < len(ranges) and ranges[end][0] <= stop:
        stop = max(stop, ranges[end][1])
        end += 1
    ranges[at:end] = [(start, stop)]


def finished(tracker: Tracker) -> int:
    return tracker.succeeded + tracker.failed


def tolerated(tracker: Tracker, count: int, percent: float) -> int:
    """How many items may fail before it matters; a percentage counts against what is known."""
    known = tracker.size if tracker.size != UNKNOWN else max(tracker.next_index, finished(tracker))
    return max(count, int(known * percent / 100))


def too_many_failed(tracker: Tracker, count: int, percent: float) -> bool:
    """For certain: a percentage of a collection is not known before its end was read."""
    if percent and tracker.size == UNKNOWN and not tracker.exhausted:
        return False
    return tracker.failed > tolerated(tracker, count, percent)


def over(tracker: Tracker) -> bool:
    """Nothing of it is out, and nothing more will be begun."""
    if tracker.in_flight or tracker.again or tracker.cutting:
        return False
    if tracker.stopped:
        return True
    return tracker.exhausted and not tracker.ready


def verdict(tracker: Tracker, allow_partial: bool, allowed: int) -> LoopStatus:
    """What a loop that is over came to."""
    if tracker.failed == 0 and not tracker.stopped:
        return "complete"
    if allow_partial:
        return "partial"
    if tracker.failed <= allowed and not tracker.stopped:
        return "partial" if tracker.failed else "complete"
    return "failed"


def progress(tracker: Tracker, now: int) -> dict[str, Any]:
    """For people: done, failed, in flight, rate, and the time it will take."""
    seconds = max(0.001, (now - tracker.opened_at) / 1000)
    ended = finished(tracker)
    rate = ended / seconds
    left = tracker.size - ended if tracker.size != UNKNOWN else None
    return {
        "total": tracker.size if tracker.size != UNKNOWN else None,
        "succeeded": tracker.succeeded,
        "failed": tracker.failed,
        "in_flight": sum(shard.size for shard in tracker.in_flight.values()),
        "shards_in_flight": len(tracker.in_flight),
        "retries": tracker.retries,
        "per_second": round(rate, 1),
        "seconds_left": round(left / rate, 1) if left is not None and rate > 0 else None,
    }


def fan_in(tracker: Tracker, run: str) -> dict[str, Any]:
    """What arcs see as `fanin`."""
    return {
        "status": tracker.status,
        "total": tracker.size if tracker.size != UNKNOWN else tracker.next_index,
        "done": tracker.succeeded,
        "succeeded": tracker.succeeded,
        "failed": tracker.failed,
        "retries": tracker.retries,
        "loop_id": loop_name(run, tracker.id),
        "refs": loop_ref(run, tracker.id),
        **({"shared": tracker.shared} if tracker.shared else {}),
    }


def in_order(parts: Sequence[tuple[int, Any]], until: int = 0) -> list[Any]:
    """The results of the parts, each at its item's place; None where an item has none."""
    values: dict[int, Any] = {}
    for first, part in parts:
        if isinstance(part, dict):  # items tried again: index → result
            values.update({int(index): value for index, value in part.items()})
        else:
            values.update({first + offset: value for offset, value in enumerate(part)})
    end = max(until, max(values, default=-1) + 1)
    return [values.get(index) for index in range(end)]

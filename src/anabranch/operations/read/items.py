"""The items of one loop, page by page, from its tracker and the log.

A loop keeps no row per item. What became of one stands in the report of its shard. Shards go out in
the order of their items, so the place in the log where a page begins is found by bisection, and the
log is read from there until everything on the page is known. Nothing but the page is kept in
memory. Items that are out or still to come are in the tracker.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Any

import msgspec

from anabranch.errors import AnabranchError, InputError, NotFound
from anabranch.kernel import events as e
from anabranch.kernel.state import LoopRecord, State
from anabranch.kernel.tracker import UNKNOWN, ItemFailure, Shard, Tracker, loop_name, shard_name
from anabranch.kernel.values import Answer
from anabranch.literals import ItemState
from anabranch.operations.read.shard_log import (
    Origins,
    Scan,
    failures_in,
    go_through,
    indexes_of,
    seek,
    taken_over,
)
from anabranch.runtime.values.payloads import resolve
from anabranch.store.ports import Store
from anabranch.work.values.payloads import is_ref

PAGE_MAX = 10_000

Range = tuple[int, int]


class ItemFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which items, by rising index. `error` is the kind of failure."""

    state: ItemState | None = None
    error: str | None = None
    after: int = -1
    limit: int = 50


class LoopItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item as surfaces show it."""

    index: int
    state: ItemState
    attempts: int = 0
    key: str | None = None  # of one that failed; `iter_key` of all whose shard has told
    error: Mapping[str, Any] | None = None
    result: Any = None
    origin: str | None = None  # the run that did it, where a redriven one took it over
    # What its tasks see as `iter.*` and `args.*`. Which shard it is in is known when that goes out.
    iter_index: int | None = None
    iter_key: str | None = None
    loop_id: str | None = None
    shard_id: str | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    loop: str
    step: str
    status: str
    total: int | None
    succeeded: int
    failed: int
    items: list[LoopItem]
    more_after: int | None  # ask for the next page with this
    failures: Mapping[str, int] | None  # kind → items; only where failures were asked for


def page_of(store: Store, state: State, name: str, wanted: ItemFilter) -> Page:
    """One page of the items of a loop, which is named by its step or its id."""
    if not 1 <= wanted.limit <= PAGE_MAX:
        raise InputError(f"a page has 1 to {PAGE_MAX:,} items, not {wanted.limit:,}")
    if wanted.error is not None and wanted.state not in (None, "failed"):
        raise InputError(f"an item that is {wanted.state} has no error: filter by failed ones")
    loop = find_loop(state, name)
    record, tracker = state.looped[loop], state.loops.get(loop)
    failures: Mapping[str, int] | None = None
    found: list[LoopItem]
    if wanted.state == "running" or (wanted.state == "pending" and not _needs_log(record, tracker)):
        found = _unfinished(state, tracker, wanted)
    elif wanted.state == "failed" or wanted.error is not None:
        scan = _Failures(loop, wanted, _failed(record, tracker))
        go_through(store, state.run, scan)
        found, failures = scan.items(), dict(scan.kinds.most_common())
    else:
        found = _in_order(store, state, record, tracker, loop, wanted)
    page = [_named(item, loop_name(state.run, loop)) for item in found[: wanted.limit]]
    return Page(
        loop=loop,
        step=record.step,
        status=record.status,
        total=_total(record, tracker),
        succeeded=tracker.succeeded if tracker is not None else record.succeeded,
        failed=_failed(record, tracker),
        items=page,
        more_after=page[-1].index if len(found) > wanted.limit else None,
        failures=failures,
    )


def _needs_log(record: LoopRecord, tracker: Tracker | None) -> bool:
    """Which items of a loop that was ended before them have no outcome, only the log can say."""
    return tracker is None and record.succeeded + record.failed < record.total


def _named(item: LoopItem, loop: str) -> LoopItem:
    """With the name of its loop, and its shard's, which is kept without that so far."""
    shard = f"{loop}/{item.shard_id}" if item.shard_id is not None else None
    return msgspec.structs.replace(item, iter_index=item.index, loop_id=loop, shard_id=shard)


def find_loop(state: State, name: str) -> str:
    """The id of a loop; of several at one step the last."""
    if name in state.looped:
        return name
    of_step = [loop for loop, record in state.looped.items() if record.step == name]
    if of_step:
        return of_step[-1]
    known = dict.fromkeys(record.step for record in state.looped.values())
    there = f"there are loops at {', '.join(known)}" if known else "it has no loop yet"
    raise NotFound(f"run {state.run} has no loop at step {name!r}; {there}")


def _total(record: LoopRecord, tracker: Tracker | None) -> int | None:
    total = record.total if tracker is None else tracker.size
    return None if total == UNKNOWN else total


def _failed(record: LoopRecord, tracker: Tracker | None) -> int:
    return record.failed if tracker is None else tracker.failed


# -- what is not finished --------------------------------------------------------------------


def _unfinished(state: State, tracker: Tracker | None, wanted: ItemFilter) -> list[LoopItem]:
    """Running or pending ones, one more than the page has; the log has nothing about them."""
    if tracker is None:
        return []
    out = dict(_out(state, tracker))
    if wanted.state == "running":
        picked = nsmallest(wanted.limit + 1, (index for index in out if index > wanted.after))
        return [_running(index, *out[index]) for index in picked]
    end = tracker.size if tracker.size != UNKNOWN else tracker.next_index
    found: list[LoopItem] = []
    for start, stop in _gaps(tracker.done, wanted.after + 1, end):
        for index in range(start, stop):
            if index not in out:
                found.append(LoopItem(index=index, state="pending"))
                if len(found) > wanted.limit:
                    return found
    return found


def _running(index: int, shard: Shard, losses: int) -> LoopItem:
    attempts = shard.tries + losses + 1
    return LoopItem(index=index, state="running", attempts=attempts, shard_id=_place(shard))


def _place(shard: Shard) -> str:
    """The end of the name of a shard, behind that of its loop."""
    return shard_name("", shard)[1:]


def _out(state: State, tracker: Tracker) -> Iterator[tuple[int, tuple[Shard, int]]]:
    """The items of shards at work, and how often their workers were lost."""
    for job_id, shard in tracker.in_flight.items():
        job = state.jobs.get(job_id)
        if job is not None and job.phase != "scheduled":
            yield from ((index, (shard, job.losses)) for index in indexes_of(shard))


def _gaps(done: Sequence[Range], start: int, stop: int) -> Iterator[Range]:
    """What of `start … stop - 1` is in none of the ranges."""
    at = start
    for begin, end in done[max(0, bisect_right(done, (start, start)) - 1) :]:
        if begin >= stop:
            break
        if at < begin:
            yield at, begin
        at = max(at, end)
    if at < stop:
        yield at, stop


# -- what is finished ------------------------------------------------------------------------


def _failed_item(failure: ItemFailure, shard: Shard, losses: int) -> LoopItem:
    return LoopItem(
        index=failure.index,
        state="failed",
        attempts=shard.tries + losses + 1,
        key=failure.key or None,
        iter_key=failure.key or None,
        shard_id=_place(shard),
        error={
            "kind": failure.kind,
            "message": failure.message,
            "retryable": failure.retryable,
        },
    )


class _Failures(Scan):
    """All failures are counted by kind; the first ones of the page are kept."""

    def __init__(self, loop: str, wanted: ItemFilter, total: int) -> None:
        super().__init__(loop)
        self._wanted = wanted
        self._left = total
        self._kept: list[LoopItem] = []
        self.kinds: Counter[str] = Counter()
        self.done = total == 0

    def closed(self, shard: Shard, answer: Answer | None, event: e.ShardClosed) -> None:
        for failure in failures_in(shard, answer, event):
            self._left -= 1
            self.kinds[failure.kind] += 1
            fits = self._wanted.error is None or failure.kind == self._wanted.error
            if fits and failure.index > self._wanted.after:
                self._kept.append(_failed_item(failure, shard, self.losses))
        if len(self._kept) > 4 * self._wanted.limit + 1000:
            self._kept = self.items()
        self.done = self.done or self._left <= 0

    def items(self) -> list[LoopItem]:
        return nsmallest(self._wanted.limit + 1, self._kept, key=lambda item: item.index)


class _Window(Scan):
    """What became of the items in one range; done when all that have finished are known."""

    def __init__(self, loop: str, start: int, stop: int, expected: int, origins: Origins) -> None:
        super().__init__(loop)
        self._start, self._stop = start, stop
        self._expected = expected
        self._origins = origins
        self.found: dict[int, tuple[LoopItem, Any, int]] = {}  # item, results it is in, where
        self.done = expected <= 0

    def carried(self, carried: Mapping[str, Any]) -> None:
        indexes = taken_over(carried, range(self._start, self._stop))
        origins = self._origins.of(carried, indexes)
        for index in indexes:
            item = LoopItem(index=index, state="succeeded", origin=origins.get(index))
            self.found[index] = item, None, 0
        for first, part in sorted(carried["parts"], key=lambda part: int(part[0])):
            for index, (item, _, _) in self.found.items():
                if _covers(part, first, index):
                    self.found[index] = item, part, first
        self._look()

    def closed(self, shard: Shard, answer: Answer | None, event: e.ShardClosed) -> None:
        if shard.first >= self._stop or shard.first + shard.count <= self._start:
            return
        failed = {failure.index: failure for failure in failures_in(shard, answer, event)}
        again = frozenset(event.again)
        if answer is not None and answer.shard is not None:
            again = again.union(answer.shard.unbegun)
        results = answer.result if answer is not None else None
        keys = _keys(shard, answer)
        for index in indexes_of(shard):
            if not self._start <= index < self._stop or index in again:
                continue
            if index in failed:
                self.found[index] = _failed_item(failed[index], shard, self.losses), None, 0
            else:
                item = LoopItem(
                    index=index,
                    state="succeeded",
                    attempts=shard.tries + self.losses + 1,
                    iter_key=keys.get(index),
                    shard_id=_place(shard),
                )
                self.found[index] = item, results, shard.first
        self._look()

    def _look(self) -> None:
        self.done = self.done or len(self.found) >= self._expected


def _keys(shard: Shard, answer: Answer | None) -> Mapping[int, str]:
    """The keys of its items, as far as its report has them."""
    report = answer.shard if answer is not None else None
    if report is None or report.keys is None:
        return {}
    indexes = indexes_of(shard)
    return dict(zip(indexes, report.keys or map(str, indexes), strict=False))


def _covers(part: Any, first: int, index: int) -> bool:
    """Whether an item is in these results; of a payload only the beginning is known."""
    if is_ref(part):
        return index >= first
    if isinstance(part, Mapping):
        return str(index) in part
    return first <= index < first + len(part)


def _in_order(
    store: Store,
    state: State,
    record: LoopRecord,
    tracker: Tracker | None,
    loop: str,
    wanted: ItemFilter,
) -> list[LoopItem]:
    """Items of any state, or only those that succeeded, one more than the page has."""
    if tracker is not None:
        end = tracker.size if tracker.size != UNKNOWN else tracker.next_index
        finished: Sequence[Range] = tracker.done
    else:
        end = record.total
        finished = [(0, end)] if record.succeeded + record.failed >= end else []
    out = dict(_out(state, tracker)) if tracker is not None else {}
    fetch, origins = _remembering(store.payload), Origins(store)
    page: list[LoopItem] = []
    start, width = wanted.after + 1, wanted.limit + 1
    while start < end and len(page) <= wanted.limit:
        stop = min(start + width, end)
        unfinished = sum(b - a for a, b in _gaps(finished, start, stop))
        unsure = tracker is None and not finished  # it was ended: only the whole log can tell
        expected = stop - start - (0 if unsure else unfinished)
        scan = _Window(loop, start, stop, expected, origins)
        begin = seek(store, state.run, record, loop, start)
        if begin.carried is not None:
            scan.carried(begin.carried)
        go_through(store, state.run, scan, begin.after)
        for index in range(start, stop):
            item = _whole(scan, index, out, fetch)
            if wanted.state is None or item.state == wanted.state:
                page.append(item)
        start, width = stop, width * 4
    return page[: wanted.limit + 1]


def _whole(
    scan: _Window,
    index: int,
    out: Mapping[int, tuple[Shard, int]],
    fetch: Callable[[str], bytes | None],
) -> LoopItem:
    """The item with its result."""
    if index not in scan.found:
        if index in out:
            return _running(index, *out[index])
        return LoopItem(index=index, state="pending")
    item, results, first = scan.found[index]
    if results is None:
        return item
    return msgspec.structs.replace(item, result=_result(results, index, first, fetch))


def _result(results: Any, index: int, first: int, fetch: Callable[[str], bytes | None]) -> Any:
    if is_ref(results):
        try:
            results = resolve(results, fetch)
        except AnabranchError as gone:
            return {"_gone": gone.message}
    if isinstance(results, Mapping):
        return results.get(str(index))
    return results[index - first] if index - first < len(results) else None


def _remembering(fetch: Callable[[str], bytes | None]) -> Callable[[str], bytes | None]:
    """The items of a page mostly lie in one payload."""
    known: dict[str, bytes | None] = {}

    def remembered(sha256: str) -> bytes | None:
        if sha256 not in known:
            known.clear()
            known[sha256] = fetch(sha256)
        return known[sha256]

    return remembered

"""The part of `evolve` that is about loops; the table in `kernel.evolve` knows these functions."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from anabranch.kernel import events as e
from anabranch.kernel.reducers import fold_all
from anabranch.kernel.state import Job, LoopRecord, State
from anabranch.kernel.tracker import (
    FAILURES_KEPT,
    UNKNOWN,
    HeldWrites,
    ItemFailure,
    Shard,
    ShardReport,
    Tracker,
    add_range,
    fan_in,
    first_item,
    halves_of,
    held_before,
    in_order,
    size_after,
)
from anabranch.kernel.values import Answer, ContextPatch

MANIFEST = "_manifest"  # in a loop's result: where its results are, when they are too large


def loop_opened(state: State, event: e.LoopOpened, at: int) -> None:
    token = state.tokens[event.token]
    tracker = Tracker(
        id=event.loop,
        token=event.token,
        mode=event.mode,
        source=event.source,
        size=event.size,
        shard_size=event.shard_size,
        automatic=event.automatic,
        window=event.window,
        opened_at=at,
        exhausted=event.size == 0,
        keep_results=event.keep_results,
        reducers=dict(event.reducers),
        queue_ttl=event.queue_ttl,
        side_by_side=event.side_by_side,
    )
    token.loop = event.loop
    state.loops |= {event.loop: tracker}
    record = LoopRecord(token.step, event.mode, opened_seq=state.seq + 1)
    state.looped |= {event.loop: record}
    if event.carried is not None:
        _carry(tracker, event.carried)
        note_stars(state, token.step, event.carried.get("redacted", 0))
    if event.key:
        state.reuse[event.key].pop(0)
        if not state.reuse[event.key]:
            del state.reuse[event.key]


def note_stars(state: State, step: str, places: int) -> None:
    """What was recorded of this step has stars in so many places."""
    if places:
        state.redacted |= {step: state.redacted.get(step, 0) + places}


def _carry(tracker: Tracker, carried: Mapping[str, Any]) -> None:
    """Go on where the origin of a redriven run was: only what failed or was never begun is left."""
    tracker.size = carried["size"]
    tracker.next_index = carried["next_index"]
    tracker.cursor = carried["cursor"]
    tracker.exhausted = carried["exhausted"]
    tracker.succeeded = carried["succeeded"]
    fold_all(tracker.shared, carried["shared"], tracker.reducers)
    tracker.parts = [(first, part) for first, part in carried["parts"]]
    tracker.again = sorted(msgspec.convert(carried["again"], list[Shard]), key=first_item)
    tracker.held = msgspec.convert(carried.get("held", ()), list[HeldWrites])
    if carried["source"] is not None:
        tracker.source = carried["source"]
    for start, stop in carried["done"]:
        add_range(tracker.done, start, stop)


def loop_cut(state: State, event: e.LoopCut, at: int) -> None:
    tracker = state.loops[event.loop]
    tracker.cutting = False
    if event.failed:  # a redrive goes on from where it was
        return
    tracker.ready.extend(event.shards)
    tracker.cursor = event.cursor
    tracker.next_index += sum(shard.count for shard in event.shards)
    if event.source is not None:
        tracker.source = event.source
    if event.size != UNKNOWN:  # it turned out to have an index
        tracker.size = event.size
        tracker.exhausted = tracker.next_index >= event.size
    elif event.end:
        tracker.exhausted = True


def shard_begun(tracker: Tracker, job: str, shard: Shard) -> None:
    """Take the shard from where it waited."""
    if tracker.held:
        _take_held(tracker, first_item(shard))
    tracker.in_flight[job] = shard
    tracker.next_shard = shard.number + 1
    for at, waiting in enumerate(tracker.again):  # older logs had them in another order
        if (waiting.first, waiting.only) == (shard.first, shard.only):
            del tracker.again[at]
            return
    tracker.begun += 1
    if tracker.ready:
        del tracker.ready[0]
    else:
        tracker.next_index = shard.first + shard.count
        tracker.exhausted = tracker.next_index >= tracker.size


def _take_held(tracker: Tracker, until: int | None = None) -> None:
    """Those that stand before the item, or all; their patches have come as an event before."""
    due = held_before(tracker, until)
    for one in due:
        fold_all(tracker.shared, one.shared, tracker.reducers)
    del tracker.held[: len(due)]


# -- how long a shard waits for a worker -----------------------------------------------------


def queue_time_runs(state: State, job: Job, at: int) -> None:
    """From here on it waits for a worker. A paused run waits for somebody, not for workers."""
    tracker = state.loops.get(f"l{job.token}")
    if tracker is not None and tracker.queue_ttl and job.slot >= 0 and not state.paused:
        state.timers.set(f"queue:{job.id}", at + tracker.queue_ttl)


def queue_times_stop(state: State) -> None:
    for key in [key for key in state.timers.due if key.startswith("queue:")]:
        state.timers.drop(key)


def queue_times_begin_anew(state: State, at: int) -> None:
    if any(tracker.queue_ttl for tracker in state.loops.values()):
        for job in state.jobs.values():
            if job.phase == "scheduled":
                queue_time_runs(state, job, at)


# -- what comes back -------------------------------------------------------------------------


def job_given_up(tracker: Tracker, job: str) -> None:
    """A job of the loop was stopped: its items are not finished, and nobody works on them."""
    shard = tracker.in_flight.pop(job, None)
    if shard is None:
        tracker.cutting = False
    else:
        tracker.given_up.append(shard)


def shard_put_back(tracker: Tracker, job: str) -> None:
    """The window has become too narrow for a shard that no worker has begun."""
    shard = tracker.in_flight.pop(job)
    _put_back(tracker, shard, shard.only)


def shard_closed(state: State, event: e.ShardClosed, answer: Answer | None) -> None:
    tracker = state.loops[event.loop]
    shard = tracker.in_flight.pop(event.job)
    tracker.shards_done += 1
    if event.lost:
        for half in halves_of(shard, event.lost):
            insort(tracker.again, half, key=first_item)
        return
    if event.whole:
        _once_more(tracker, shard, shard.only)
        return
    if event.fault is not None or answer is None or answer.shard is None:
        _all_failed(tracker, shard, event)
        return
    report = answer.shard
    tracker.succeeded += report.succeeded
    tracker.busy_milliseconds += report.milliseconds
    if tracker.automatic:
        begun = shard.size - len(report.unbegun)
        tracker.shard_size = size_after(tracker, begun, report.milliseconds)
    if report.failed or report.unbegun or event.again or shard.only:
        _some_ended_well(tracker, shard, report, event.again)
    else:
        add_range(tracker.done, shard.first, shard.first + shard.count)
    fold_all(tracker.shared, report.shared, tracker.reducers)
    # The results of a fan-out stay in the log: a state that grew with its items would be snapshot
    # again and again.
    if tracker.keep_results and tracker.mode == "local" and answer.result is not None:
        tracker.parts.append((shard.first, answer.result))


def _some_ended_well(
    tracker: Tracker, shard: Shard, report: ShardReport, once_more: Sequence[int]
) -> None:
    """Not all items of the shard did, or not all of them were out."""
    again = set(once_more)
    final = [failure for failure in report.failed if failure.index not in again]
    tracker.failed += len(final)
    tracker.failures.extend(final[: max(0, FAILURES_KEPT - len(tracker.failures))])
    if again:
        _once_more(tracker, shard, tuple(once_more))
    if report.unbegun:
        _put_back(tracker, shard, report.unbegun)
    _mark_done(tracker, shard, again.union(report.unbegun))


def _once_more(tracker: Tracker, shard: Shard, only: tuple[int, ...]) -> None:
    tracker.retries += len(only) or shard.count
    left = Shard(0, shard.first, shard.count, shard.cursor, only, shard.tries + 1)
    insort(tracker.again, left, key=first_item)


def _put_back(tracker: Tracker, shard: Shard, only: tuple[int, ...]) -> None:
    """Items that nobody tried: going out later is no retry."""
    left = msgspec.structs.replace(shard, number=0, only=only)
    if tracker.stopped:
        tracker.given_up.append(left)
    else:
        insort(tracker.again, left, key=first_item)


def _all_failed(tracker: Tracker, shard: Shard, event: e.ShardClosed) -> None:
    tracker.failed += shard.size
    kind, message = ("lost", "the shard was lost")
    if event.fault is not None:
        kind, message = event.fault.kind, event.fault.message
    if len(tracker.failures) < FAILURES_KEPT:
        tracker.failures.append(ItemFailure(shard.first, "", kind, message))
    _mark_done(tracker, shard, set())


def _mark_done(tracker: Tracker, shard: Shard, open_ones: set[int]) -> None:
    if not shard.only and not open_ones:
        add_range(tracker.done, shard.first, shard.first + shard.count)
        return
    for index in shard.only or range(shard.first, shard.first + shard.count):
        if index not in open_ones:
            add_range(tracker.done, index, index + 1)


def loop_stopped(state: State, event: e.LoopStopped, at: int) -> None:
    tracker = state.loops[event.loop]
    tracker.stopped = event.reason
    tracker.given_up += [*tracker.again, *tracker.ready]
    tracker.again.clear()
    tracker.ready.clear()


def loop_tuned(state: State, event: e.LoopTuned, at: int) -> None:
    tracker = state.loops[event.loop]
    tracker.window = event.window
    tracker.out_when_tuned = len(tracker.in_flight)


def loop_gone(state: State, loop: str) -> None:
    """Its token is over. A loop that was ended before it settled leaves how far it got."""
    tracker = state.loops.pop(loop)
    if tracker.status == "open":
        _note(state, tracker, "stopped")


def _note(state: State, tracker: Tracker, status: str) -> None:
    record = state.looped[tracker.id]
    record.status = status
    record.total = tracker.size if tracker.size != UNKNOWN else tracker.next_index
    record.succeeded = tracker.succeeded
    record.failed = tracker.failed
    record.retries = tracker.retries
    record.shards = tracker.shards_done


def loop_settled(state: State, event: e.LoopSettled, at: int) -> None:
    tracker = state.loops[event.loop]
    _take_held(tracker)
    tracker.status = event.status
    tracker.reason = event.reason
    _note(state, tracker, event.status)
    token = state.tokens[tracker.token]
    token.fanin = fan_in(tracker, state.run)
    token.answer = Answer(
        status="ok" if event.status != "failed" else "error",
        outcome="ok" if event.status != "failed" else "error",
        result=result_of_loop(tracker, token.fanin),
        patches=tuple(_patches(tracker)) if event.status != "failed" else (),
    )


def _patches(tracker: Tracker) -> Iterator[ContextPatch]:
    """What the items shared, as writes to the context: what they appended, one by one."""
    for key, value in tracker.shared.items():
        reducer = tracker.reducers.get(key, "set")
        values = value if reducer == "append" else [value]
        yield from (ContextPatch(key, each, reducer) for each in values)


def result_of_loop(tracker: Tracker, fanin: dict[str, Any]) -> dict[str, Any]:
    """A local loop gives its results in order, a fan-out what its fan-in came to."""
    stats = {
        "total": fanin["total"],
        "success": tracker.succeeded,
        "failed": tracker.failed,
    }
    if tracker.mode == "fanout" or not tracker.keep_results:
        return {**fanin, "stats": stats}
    if any(isinstance(part, dict) and "_ref" in part for _, part in tracker.parts):
        found = {**manifest(tracker), "loop_id": fanin["loop_id"]}
        return {MANIFEST: found, "stats": stats}
    ended = tracker.done[-1][1] if tracker.done else 0
    return {"results": in_order(tracker.parts, ended), "stats": stats}


def manifest(tracker: Tracker) -> dict[str, Any]:
    """Where the results are, part by part, when they are too large to travel."""
    parts = sorted(tracker.parts, key=lambda part: part[0])
    return {
        "kind": "manifest",
        "strategy": "append",
        "parts": [{"first": first, "part": part} for first, part in parts],
        "total_parts": len(parts),
        "items": tracker.done[-1][1] if tracker.done else 0,
    }

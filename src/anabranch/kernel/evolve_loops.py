"""The part of `evolve` that is about loops; the table in `kernel.evolve` knows these functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.kernel import events as e
from anabranch.kernel.reducers import reduce_into
from anabranch.kernel.state import LoopRecord, State
from anabranch.kernel.tracker import (
    FAILURES_KEPT,
    UNKNOWN,
    ItemFailure,
    Shard,
    Tracker,
    add_range,
    fan_in,
    in_order,
    size_after,
)
from anabranch.kernel.values import Answer, ContextPatch


def loop_opened(state: State, event: e.LoopOpened, at: int) -> None:
    token = state.tokens[event.token]
    tracker = state.loops[event.loop] = Tracker(
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
    )
    token.loop = event.loop
    state.looped[event.loop] = LoopRecord(token.step, event.mode)
    if event.carried is not None:
        _carry(tracker, event.carried)
    if event.key:
        state.reuse[event.key].pop(0)
        if not state.reuse[event.key]:
            del state.reuse[event.key]


def _carry(tracker: Tracker, carried: Mapping[str, Any]) -> None:
    """Go on where the origin of a redriven run was: only what failed or was never begun is left."""
    tracker.size = carried["size"]
    tracker.next_index = carried["next_index"]
    tracker.cursor = carried["cursor"]
    tracker.exhausted = carried["exhausted"]
    tracker.succeeded = carried["succeeded"]
    tracker.shared = dict(carried["shared"])
    tracker.parts = [(first, part) for first, part in carried["parts"]]
    tracker.again = msgspec.convert(carried["again"], list[Shard])
    if carried["source"] is not None:
        tracker.source = carried["source"]
    for start, stop in carried["done"]:
        add_range(tracker.done, start, stop)


def loop_cut(state: State, event: e.LoopCut, at: int) -> None:
    tracker = state.loops[event.loop]
    tracker.cutting = False
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
    tracker.in_flight[job] = shard
    tracker.next_shard = shard.number + 1
    if shard.tries:
        del tracker.again[0]
    elif tracker.ready:
        del tracker.ready[0]
    else:
        tracker.next_index = shard.first + shard.count
        tracker.exhausted = tracker.next_index >= tracker.size


def job_given_up(tracker: Tracker, job: str) -> None:
    """A job of the loop was stopped: its items are not finished, and nobody works on them."""
    shard = tracker.in_flight.pop(job, None)
    if shard is None:
        tracker.cutting = False
    else:
        tracker.given_up.append(shard)


def shard_closed(state: State, event: e.ShardClosed, answer: Answer | None) -> None:
    tracker = state.loops[event.loop]
    shard = tracker.in_flight.pop(event.job)
    tracker.shards_done += 1
    if event.fault is not None or answer is None or answer.shard is None:
        _all_failed(tracker, shard, event)
        return
    report = answer.shard
    again = set(event.again)
    final = [failure for failure in report.failed if failure.index not in again]
    tracker.succeeded += report.succeeded
    tracker.failed += len(final)
    tracker.failures.extend(final[: max(0, FAILURES_KEPT - len(tracker.failures))])
    tracker.busy_milliseconds += report.milliseconds
    tracker.shard_size = size_after(tracker, shard, report.milliseconds)
    if again:
        tracker.retries += len(again)
        tracker.again.append(
            Shard(0, shard.first, shard.count, shard.cursor, tuple(event.again), shard.tries + 1)
        )
    _mark_done(tracker, shard, again)
    for key, value in report.shared.items():
        patch = ContextPatch(key, value, tracker.reducers.get(key, "set"))
        reduce_into(tracker.shared, patch)
    if tracker.keep_results and answer.result is not None:
        tracker.parts.append((shard.first, answer.result))


def _all_failed(tracker: Tracker, shard: Shard, event: e.ShardClosed) -> None:
    tracker.failed += shard.size
    kind, message = ("lost", "the shard was lost")
    if event.fault is not None:
        kind, message = event.fault.kind, event.fault.message
    if len(tracker.failures) < FAILURES_KEPT:
        tracker.failures.append(ItemFailure(shard.first, "", kind, message))
    _mark_done(tracker, shard, set())


def _mark_done(tracker: Tracker, shard: Shard, again: set[int]) -> None:
    if not shard.only and not again:
        add_range(tracker.done, shard.first, shard.first + shard.count)
        return
    for index in shard.only or range(shard.first, shard.first + shard.count):
        if index not in again:
            add_range(tracker.done, index, index + 1)


def loop_stopped(state: State, event: e.LoopStopped, at: int) -> None:
    tracker = state.loops[event.loop]
    tracker.stopped = event.reason
    tracker.given_up += [*tracker.again, *tracker.ready]
    tracker.again.clear()
    tracker.ready.clear()


def loop_settled(state: State, event: e.LoopSettled, at: int) -> None:
    tracker = state.loops[event.loop]
    tracker.status = event.status
    tracker.reason = event.reason
    record = state.looped[event.loop]
    record.status = event.status
    record.total = tracker.size if tracker.size != UNKNOWN else tracker.next_index
    record.succeeded = tracker.succeeded
    record.failed = tracker.failed
    record.retries = tracker.retries
    record.shards = tracker.shards_done
    token = state.tokens[tracker.token]
    token.fanin = fan_in(tracker, state.run)
    token.answer = Answer(
        status="ok" if event.status != "failed" else "error",
        outcome="ok" if event.status != "failed" else "error",
        result=result_of_loop(tracker, token.fanin),
        patches=tuple(
            ContextPatch(key, value, tracker.reducers.get(key, "set"))
            for key, value in tracker.shared.items()
        ),
    )


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
        return {"_manifest": manifest(tracker), "stats": stats}
    return {"results": in_order(tracker.parts), "stats": stats}


def manifest(tracker: Tracker) -> dict[str, Any]:
    """Where the results are, part by part, when they are too large to travel."""
    parts = sorted(tracker.parts, key=lambda part: part[0])
    return {
        "kind": "manifest",
        "strategy": "append",
        "parts": [{"first": first, "part": part} for first, part in parts],
        "total_parts": len(parts),
    }

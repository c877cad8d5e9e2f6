"""What workers say of loops over whole numbers: reports of shards, and what a reader found."""

from __future__ import annotations

from random import Random
from typing import Any

from anabranch.kernel.tracker import ItemFailure, Shard, ShardReport, Tracker
from anabranch.kernel.values import Answer, succeeded


def loop_answer(dice: Random, tracker: Tracker, job: str, fail: float) -> Answer:
    """An answer for this job of the loop; `fail` is the share of items that fail."""
    if job.endswith(".cut"):
        return cut(dice, tracker.next_index, tracker.source["items"])
    shard = tracker.in_flight.get(job)
    if shard is None:  # told to stop long ago
        return succeeded(None)
    items = items_of(shard)
    return report(shard, {item for item in items if dice.random() < fail}, dice.randint(0, 300))


def items_of(shard: Shard) -> list[int]:
    return list(shard.only or range(shard.first, shard.first + shard.count))


def cut(dice: Random, first: int, total: int) -> Answer:
    """The next few shards of a collection of that many items."""
    shards: list[Any] = []
    while first < total and len(shards) < 3:
        count = min(dice.randint(1, 7), total - first)
        shards.append([first, count, {"at": first}])
        first += count
    return succeeded({"shards": shards, "cursor": first, "end": first >= total})


def report(shard: Shard, bad: set[int], milliseconds: int = 0, *, final: bool = False) -> Answer:
    """Every item gives itself; those of `bad` fail, for good where that is `final`."""
    items = items_of(shard)
    good = [item for item in items if item not in bad]
    failures = tuple(
        ItemFailure(item, str(item), "boom", "it failed", not final) for item in sorted(bad)
    )
    shared: dict[str, Any] = {"total": sum(good), "list": good} if good else {}
    by_index: Any = {str(item): item for item in good}
    whole: Any = [None if item in bad else item for item in items]
    return Answer(
        status="ok",
        outcome="ok",
        result=by_index if shard.only else whole,
        shard=ShardReport(len(good), failures, milliseconds, shared),
    )

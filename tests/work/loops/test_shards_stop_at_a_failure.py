"""Where the first failure ends a loop, a shard leaves the items after it alone and says so."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from anabranch.kernel.tracker import Shard, ShardReport
from anabranch.kernel.values import Answer, failed, succeeded
from anabranch.net.program import Iteration, Program
from anabranch.work.loops.shards import Shards
from anabranch.work.pipeline.pipeline import Services
from anabranch.work.port import Performer, Task
from work.pipeline.pipelines import shard_task, spec

from ..support import run


class Numbers:
    async def items(self, _source: Any, shard: Shard, **_more: Any) -> list[tuple[int, str, Any]]:
        indexes = shard.only or range(shard.first, shard.first + shard.count)
        return [(index, "", index) for index in indexes]


class Fails:
    """Fails at some items; the others wait a moment, as work that reaches outside does."""

    def __init__(self, *bad: int, retryable: bool = True) -> None:
        self._bad, self._retryable = bad, retryable
        self.seen: list[int] = []

    async def perform(self, task: Task) -> Answer:
        number = task.inputs["value"]
        self.seen.append(number)
        if number in self._bad:
            return failed("boom", "it failed", retryable=self._retryable)
        await asyncio.sleep(0)
        return succeeded(number * 10)


class FailsNow(Fails):
    """The same without waiting, which lets a shard take its short way."""

    def perform_now(self, task: Task) -> Answer:
        number = task.inputs["value"]
        self.seen.append(number)
        if number in self._bad:
            return failed("boom", "it failed", retryable=self._retryable)
        return succeeded(number * 10)


def cross(work: Performer, shard: Shard, **how: Any) -> tuple[Any, ShardReport]:
    program = Program((spec("work", value="{{ local.iter.n }}"),))
    at_once = how.pop("at_once", 1)
    iteration = Iteration(program, "n", **{"stops": True, "parallel": at_once > 1, **how})
    task = msgspec.structs.replace(shard_task(iteration, shard), inputs={"at_once": at_once})
    answer = run(Shards(Services(performers={"work": work}), Numbers()).perform(task))
    assert isinstance(answer, Answer)
    assert answer.shard is not None
    return answer.result, answer.shard


@pytest.mark.parametrize("kind", [Fails, FailsNow])
def test_items_after_the_first_failure_are_not_begun(kind: type[Fails]) -> None:
    work = kind(12)
    results, report = cross(work, Shard(0, 10, 5))
    assert work.seen == [10, 11, 12]
    assert (report.succeeded, [f.index for f in report.failed]) == (2, [12])
    assert report.unbegun == (13, 14)
    assert results == [100, 110, None]


@pytest.mark.parametrize("kind", [Fails, FailsNow])
def test_without_that_every_item_is_tried(kind: type[Fails]) -> None:
    work = kind(11)
    results, report = cross(work, Shard(0, 10, 4), stops=False)
    assert work.seen == [10, 11, 12, 13]
    assert (report.succeeded, report.unbegun) == (3, ())
    assert results == [100, None, 120, 130]


def test_a_failure_that_may_be_tried_again_stops_nothing() -> None:
    work = Fails(11)
    _, report = cross(work, Shard(0, 10, 4), retries=2)
    assert work.seen == [10, 11, 12, 13]
    assert report.unbegun == ()


@pytest.mark.parametrize(("tries", "retryable"), [(2, True), (0, False)])
def test_a_failure_for_good_stops_although_there_are_retries(tries: int, retryable: bool) -> None:
    work = Fails(11, retryable=retryable)
    _, report = cross(work, Shard(0, 10, 4, tries=tries), retries=2)
    assert work.seen == [10, 11]
    assert report.unbegun == (12, 13)


def test_items_picked_from_a_shard_stop_too_and_give_results_by_index() -> None:
    work = Fails(5)
    results, report = cross(work, Shard(0, 0, 9, only=(1, 5, 7, 8)))
    assert work.seen == [1, 5]
    assert report.unbegun == (7, 8)
    assert results == {"1": 10}


def test_several_at_once_end_what_is_under_way_and_begin_nothing_more() -> None:
    work = Fails(1)
    results, report = cross(work, Shard(0, 0, 20), at_once=4)
    begun = len(work.seen)
    assert 1 < begun <= 5
    assert report.unbegun == tuple(range(begun, 20))
    assert report.succeeded == begun - 1
    assert results == [None if n == 1 else n * 10 for n in range(begun)]

"""Items that a shard did not begin go out later, which is no retry, or wait for a redrive."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.expressions.port import Constant
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.redrive import reusable
from anabranch.kernel.state import Job
from anabranch.kernel.tracker import ItemFailure, Shard, ShardReport
from anabranch.kernel.values import Answer
from anabranch.net.net import Loop

from .test_loops import LOOP, Worker, looping


class Stopping(Worker):
    """Stops a shard at the first item that fails; `bad` ones fail, each as often as it says."""

    bad: dict[int, int]

    def _shard(self, shard: Shard) -> Answer:
        items = list(shard.only or range(shard.first, shard.first + shard.count))
        at = next((n for n, item in enumerate(items) if self.bad.get(item, 0)), len(items))
        good, rest = items[:at], items[at + 1 :]
        self.tried += items[: at + 1]
        failures: tuple[ItemFailure, ...] = ()
        if at < len(items):
            self.bad[items[at]] -= 1
            failures = (ItemFailure(items[at], "", "boom", "it failed"),)
        kept: Any = {str(n): n for n in good} if shard.only else good
        report = ShardReport(len(good), failures, 1, {"sum": sum(good)}, tuple(rest))
        return Answer(status="ok", outcome="ok", result=kept, shard=report)


def stopping(bad: dict[int, int], total: int = 9, **loop: Any) -> Stopping:
    net = looping(Loop(Constant(list(range(total))), reducers={"sum": "sum"}, **loop))
    worker = Stopping(net, 1)
    worker.bad = bad
    return worker


def test_they_go_out_once_more_without_counting_as_retries() -> None:
    worker = stopping({2: 1, 4: 1}, shard_size=9, item_retries=1, fail_fast=False)
    state = worker.run()
    record = state.looped[LOOP]
    assert (record.status, record.succeeded, record.retries) == ("complete", 9, 2)
    assert sorted(worker.tried) == [0, 1, 2, 2, 3, 4, 4, 5, 6, 7, 8]
    assert state.results["each"]["results"] == list(range(9))
    assert state.ctx["sum"] == sum(range(9))


def test_a_loop_that_fails_fast_ends_with_them_unfinished_and_a_redrive_does_them() -> None:
    worker = stopping({2: 1}, shard_size=9)
    state = worker.run()
    record = state.looped[LOOP]
    assert (record.status, record.succeeded, record.failed) == ("failed", 2, 1)
    assert worker.tried == [0, 1, 2]
    assert state.results["each"]["results"] == [0, 1, None]
    again = Worker(worker.net, 1)
    state = again.run(reusable(worker.net, worker.history))
    assert sorted(again.tried) == [2, 3, 4, 5, 6, 7, 8]
    assert (state.status, state.ctx["sum"]) == ("completed", sum(range(9)))
    assert state.results["each"]["results"] == list(range(9))


def test_a_loop_that_was_told_to_stop_keeps_them_for_a_redrive() -> None:
    worker = stopping({2: 9}, shard_size=5, fail_fast=False, allow_partial=True)
    worker.tell(s.Start(run="r"))
    worker._move(_only_job(worker))
    worker.tell(s.TuneLoop(LOOP, stop=True))
    worker._move(_only_job(worker))
    record = worker.state.looped[LOOP]
    assert (record.status, record.succeeded, record.failed) == ("partial", 2, 1)
    while not worker.state.finished:
        worker._move(_only_job(worker))
    again = Worker(worker.net, 1)
    again.run(reusable(worker.net, worker.history))
    assert sorted(again.tried) == [2, 3, 4, 5, 6, 7, 8]


def _only_job(worker: Worker) -> Job:
    (job,) = worker.state.jobs.values()
    return job


@pytest.mark.parametrize(
    "report",
    [
        ShardReport(1, (), 0, {}, (0, 1, 2)),
        ShardReport(1, (ItemFailure(1, "", "boom", "no"),), 0, {}, (1,)),
        ShardReport(1, (), 0, {}, (1, 9)),
        ShardReport(1, (), 0, {}, (2, 2)),
        ShardReport(0, (), 0, {}, (0, 1, 2)),
    ],
    ids=["too many", "failed and unbegun", "of another shard", "twice", "nothing begun"],
)
def test_a_report_that_does_not_add_up_fails_the_shard(report: ShardReport) -> None:
    net = looping(Loop(Constant([0, 1, 2]), shard_size=3))
    worker = Worker(net, 1)
    worker.tell(s.Start(run="r"))
    worker._move(_only_job(worker))
    job = _only_job(worker)
    answer = Answer(status="ok", outcome="ok", result=[0], shard=report)
    worker.tell(s.JobReport(job.id, job.attempt, answer))
    (closed,) = [event for _, event in worker.history if isinstance(event, e.ShardClosed)]
    assert closed.fault is not None
    assert closed.fault.code == "SHARD_REPORT"
    assert worker.state.looped[LOOP].failed == 3

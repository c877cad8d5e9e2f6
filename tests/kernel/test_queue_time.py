"""`queue_ttl_s`: a shard that waits too long for a worker fails its items, or goes out again."""

from __future__ import annotations

from typing import Any

from anabranch.expressions.port import Constant
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.explain import explain
from anabranch.kernel.redrive import reusable
from anabranch.kernel.timing import next_wake
from anabranch.net.net import Loop, Net, Step, Work

from .driver import Run
from .loop_reports import report

TTL = 1_000


def looping(**fields: Any) -> Net:
    loop = Loop(
        Constant(fields.pop("over", [0, 1, 2, 3])),
        mode="fanout",
        window=Constant(2),
        shard_size=2,
        fail_fast=False,
        queue_ttl_ms=TTL,
        **fields,
    )
    each = Step("each", work=Work("loop.shard"), loop=loop)
    return Net("loop", "test", "f", {"each": each}, "each")


def begin(**fields: Any) -> Run:
    return Run(looping(**fields))


def closed(run: Run) -> list[tuple[str, bool]]:
    faults = [(event.fault, event.whole) for event in run.of_kind(e.ShardClosed)]
    return [(fault.kind if fault is not None else "", whole) for fault, whole in faults]


def test_a_shard_nobody_takes_in_time_fails_its_items_and_says_why() -> None:
    run = begin(allow_partial=True)
    run.send(s.JobStart("1.0", 1, "w"))
    assert next_wake(run.state) == run.at + TTL
    run.at += TTL
    run.send(s.Tick())
    tracker = run.state.loops["l1"]
    assert (tracker.failed, tracker.succeeded) == (2, 0)
    assert tracker.failures[0].kind == "queue_ttl"
    assert "no worker took the shard within 1 s" in tracker.failures[0].message
    run.send(s.JobReport("1.0", 1, report(tracker.in_flight["1.0"], set())))
    assert run.state.looped["l1"].status == "partial"
    assert (run.state.looped["l1"].succeeded, run.state.looped["l1"].failed) == (2, 2)


def test_it_goes_out_again_as_it_was_while_tries_are_left() -> None:
    run = begin(item_retries=1, over=[0, 1])
    run.at += TTL
    run.send(s.Tick())
    assert closed(run) == [("queue_ttl", True)]
    (shard,) = run.state.loops["l1"].in_flight.values()
    assert (shard.first, shard.count, shard.only, shard.tries) == (0, 2, (), 1)
    assert run.state.loops["l1"].retries == 2
    run.at += TTL
    run.send(s.Tick())
    assert closed(run) == [("queue_ttl", True), ("queue_ttl", False)]
    assert run.state.status == "failed"
    assert run.state.problem is not None
    assert "queue_ttl" in run.state.problem.message


def test_the_time_ends_when_a_worker_has_it_and_begins_again_when_it_is_lost() -> None:
    run = begin(over=[0, 1])
    run.at += TTL - 1
    run.send(s.JobStart("1.0", 1, "w"))
    assert next_wake(run.state) is None
    run.at += 10 * TTL
    run.send(s.JobLose("1.0", 1))
    assert next_wake(run.state) == run.at + TTL


def test_a_paused_run_does_not_wait_for_workers() -> None:
    run = begin(over=[0, 1])
    run.at += TTL - 1
    run.send(s.Pause("kim"))
    assert next_wake(run.state) is None
    run.at += 100 * TTL
    run.send(s.Tick())
    assert closed(run) == []
    run.send(s.Resume("kim"))
    assert next_wake(run.state) == run.at + TTL
    run.at += TTL
    run.send(s.Tick())
    assert closed(run) == [("queue_ttl", False)]


def test_a_shard_that_becomes_ready_while_the_run_is_paused_waits_from_its_resumption_on() -> None:
    run = begin(over=[0, 1, 2, 3, 4, 5])
    for job in ("1.0", "1.1"):
        run.send(s.JobStart(job, 1, "w"))
    run.send(s.Pause("kim"))
    shard = run.state.loops["l1"].in_flight["1.0"]
    run.send(s.JobReport("1.0", 1, report(shard, set())))
    assert run.state.jobs["1.2"].phase == "scheduled"
    run.at += 10 * TTL
    run.send(s.Resume("kim"))
    assert closed(run) == [("", False)]
    assert run.state.timers.due == {"queue:1.2": run.at + TTL}


def test_fail_fast_stops_the_loop_at_a_shard_that_waited_too_long() -> None:
    loop = Loop(
        Constant(list(range(20))),
        window=Constant(3),
        shard_size=2,
        queue_ttl_ms=TTL,
        item_retries=0,
    )
    each = Step("each", work=Work("loop.shard"), loop=loop)
    run = Run(Net("loop", "test", "f", {"each": each}, "each"))
    run.at += TTL
    run.send(s.Tick())
    assert run.state.status == "failed"
    assert len(run.of_kind(e.ShardScheduled)) == 3


def test_a_reader_is_not_a_shard_and_may_wait() -> None:
    run = begin(over={"items": 4})
    assert [job.id for job in run.state.jobs.values()] == ["1.cut"]
    assert next_wake(run.state) is None


def test_explain_says_until_when_a_shard_waits() -> None:
    run = begin(over=[0, 1])
    (job,) = [one for one in explain(run.net, run.state) if one.what == "job"]
    assert job.until == run.at + TTL
    assert "queue_ttl_s" in job.waits_for
    run.send(s.Pause("kim"))
    (job,) = [one for one in explain(run.net, run.state) if one.what == "job"]
    assert job.until is None
    assert "the run to be resumed" in job.waits_for


def test_a_redrive_tries_the_shards_that_waited_too_long() -> None:
    run = begin(over=[0, 1, 2, 3])
    run.send(s.JobStart("1.0", 1, "w"))
    run.send(s.JobReport("1.0", 1, report(run.state.loops["l1"].in_flight["1.0"], set())))
    run.at += TTL
    run.send(s.Tick())
    assert run.state.status == "failed"
    again = Run(run.net, begin=False)
    again.send(s.Start(run="r2", reuse=reusable(run.net, run.history)))
    (shard,) = again.state.loops["l1"].in_flight.values()
    assert (shard.first, shard.count, shard.tries) == (2, 2, 0)

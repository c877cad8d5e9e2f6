"""A job that parks with a memory goes on from there when what it waited for has come."""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import Answer, failed, succeeded
from anabranch.net.net import Patch, Retry, Work

from .driver import Run
from .nets import net, retrying, step

MEMORY = {"at": 3}


def parked(work: Work | None = None, **more: Any) -> Run:
    run = Run(net(step("a", work=work or Work("test"))))
    run.begin("a")
    run.send(s.JobPark("1.0", 1, "child-7", memory=MEMORY, **more))
    return run


def test_the_answer_from_outside_is_not_that_of_the_job() -> None:
    run = parked()
    events = run.send(s.JobReport("1.0", 1, succeeded("heard")))
    assert events == [e.JobContinued("1.0", 2, succeeded("heard"))]
    job = run.job("a")
    assert (job.phase, job.attempt, job.memory, job.ticket) == ("scheduled", 2, MEMORY, "")
    assert job.heard == succeeded("heard")
    assert run.status == "running"
    run.done("a", "own")
    assert (run.status, run.result) == ("completed", "own")


def test_an_answer_that_comes_twice_is_stale() -> None:
    run = parked()
    run.send(s.JobReport("1.0", 1, succeeded(1)))
    run.refuses(s.JobReport("1.0", 1, succeeded(1)), "stale_attempt")
    run.begin("a")
    run.refuses(s.JobReport("1.0", 1, succeeded(1)), "stale_attempt")


def test_an_error_from_outside_costs_no_attempt_of_the_retry_policy() -> None:
    run = parked(Work("test", retry=Retry(attempts=2, delay_ms=0)))
    run.send(s.JobReport("1.0", 1, failed("child", "no")))
    assert (run.job("a").failures, run.job("a").phase) == (0, "scheduled")


def test_it_may_park_again_and_remembers_the_later_place() -> None:
    run = parked()
    run.send(s.JobReport("1.0", 1, succeeded(1)))
    run.begin("a")
    run.send(s.JobPark("1.0", 2, "child-8", memory={"at": 9}))
    job = run.job("a")
    assert (job.phase, job.ticket, job.memory, job.heard) == ("parked", "child-8", {"at": 9}, None)


def test_a_lost_execution_goes_on_from_the_same_place() -> None:
    run = parked()
    run.send(s.JobReport("1.0", 1, succeeded(1)))
    run.begin("a")
    run.send(s.JobLose("1.0", 2))
    job = run.job("a")
    assert (job.attempt, job.memory, job.heard) == (3, MEMORY, succeeded(1))


def test_a_retry_begins_at_the_beginning() -> None:
    run = parked(retrying(2))
    run.send(s.JobReport("1.0", 1, succeeded(1)))
    run.fails("a")
    job = run.job("a")
    assert (job.attempt, job.memory, job.heard) == (3, None, None)


def test_the_time_of_a_wait_is_not_the_time_of_the_job() -> None:
    run = parked(limit_ms=2_000)
    (event,) = run.tick(run.at + 2_000)
    assert isinstance(event, e.JobContinued)
    assert event.ticket == "child-7", "whoever was asked is told that nobody waits any more"
    assert event.answer.fault is not None
    assert event.answer.fault.kind == "timeout"
    assert event.answer.fault.message == "no answer from child-7 within 2 s"
    run.done("a", "without it")
    assert run.result == "without it"


def test_the_time_of_the_job_holds_while_it_waits() -> None:
    run = parked(Work("test", timeout_ms=300), limit_ms=2_000)
    run.tick(run.at + 300)
    assert run.status == "failed"
    assert run.next_wake() is None


def test_in_a_paused_run_the_wait_ends_in_time_and_no_work_begins() -> None:
    run = parked(limit_ms=2_000)
    run.send(s.Pause("me"))
    run.tick(run.at + 2_000)
    assert run.job("a").phase == "scheduled"
    run.refuses(s.JobStart("1.0", 2), "paused")
    run.send(s.Resume("me"))
    run.done("a", "done")
    assert run.status == "completed"


def test_cancelled_while_it_waits_it_leaves_nothing() -> None:
    run = parked(limit_ms=2_000)
    run.send(s.Cancel("me"))
    assert run.status == "cancelled"
    assert run.state.timers.due == {}


# -- values of a step run --------------------------------------------------------------------


class Asked:
    """An expression that looks up a path of names."""

    def __init__(self, *path: str) -> None:
        self._path = path
        self.text = ".".join(path)

    def evaluate(self, names: Any) -> Any:
        for name in self._path:
            names = names[name]
        return names


def test_values_of_the_step_run_are_seen_by_what_follows_it_and_recorded_nowhere() -> None:
    first = step(
        "a",
        locals=(
            Patch("twice", Asked("event", "locals", "n")),
            Patch("more", Asked("event", "locals", "twice")),
        ),
        patches=(Patch("kept", Asked("event", "locals", "more")),),
    )
    run = Run(net(first))
    run.answer("a", succeeded_with(n=4))
    assert run.state.ctx == {"kept": 4}
    assert "twice" not in str(run.state.results)


def succeeded_with(**values: Any) -> Answer:
    return msgspec.structs.replace(succeeded("x"), locals=values)

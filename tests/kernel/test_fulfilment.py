"""The end of the work and the end of the task are two recorded facts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from anabranch.expressions.port import Constant
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.net.net import Decision, Fan, GatherRule, Net, Retry, Work

from .driver import Run
from .nets import Fn, Wrong, net, retrying, step


def matching(**more: Any) -> Decision:
    """Fulfilled when the answer says `done`."""
    said = Fn(lambda names: names["answer"] == "done")
    return Decision(when=said, **{"policy": "output_match", **more})


def asking_source(**more: Any) -> Decision:
    when = Fn(lambda names: {"fulfilled": names["reply"]["ok"], "reason": "seen", "evidence": 7})
    source = Work(kind="capability", retry=Retry(more.pop("attempts", 1)))
    return Decision("capability verify", when=when, source=source, policy="external", **more)


def one(decision: Decision, work: Work | None = None) -> Net:
    return net(step("a", work=work or retrying(1), decision=decision))


def judgements(run: Run) -> list[tuple[bool, str, str]]:
    return [(f.fulfilled, f.policy, f.actor) for f in run.of_kind(e.TaskJudged)]


def test_the_end_of_the_work_is_recorded_before_the_judgement() -> None:
    run = Run(one(matching()))
    run.done("a", "done")
    kinds = [e.kind_of(event) for _, event in run.history]
    assert kinds.index("execution.completed") < kinds.index("task.judged")
    assert judgements(run) == [(True, "output_match", "engine")]
    assert run.status == "completed"


def test_work_that_is_not_accepted_fails_the_step() -> None:
    run = Run(one(matching()))
    run.done("a", "half")
    assert run.status == "failed"
    assert run.state.judged["a"].fulfilled is False


def test_work_that_is_not_accepted_is_done_once_more_within_its_tries() -> None:
    run = Run(one(matching(on_reject="retry"), retrying(2, 300)))
    run.done("a", "half")
    run.tick(1_300)
    run.done("a", "done")
    assert run.status == "completed"
    assert judgements(run) == [(False, "output_match", "engine"), (True, "output_match", "engine")]


def test_work_that_is_not_accepted_pauses_the_run_until_somebody_decides() -> None:
    run = Run(one(matching(on_reject="pause")))
    run.done("a", "half")
    assert run.status == "paused"
    run.send(s.Decide("a", "fulfil", "ann", "good enough", {"seen": True}))
    assert run.status == "completed"
    fact = run.state.judged["a"]
    assert (fact.fulfilled, fact.actor, fact.reason, fact.evidence) == (
        True,
        "ann",
        "good enough",
        {"seen": True},
    )


def test_a_step_may_go_on_although_its_task_is_not_fulfilled() -> None:
    run = Run(one(matching(on_reject="continue")))
    run.done("a", "half")
    assert run.status == "completed"
    assert run.state.judged["a"].fulfilled is False


def test_the_declared_source_is_asked_with_a_job_of_its_own() -> None:
    run = Run(one(asking_source()))
    run.done("a", "answer")
    assert [job.id for job in run.state.jobs.values()] == ["1.judge"]
    run.done("1.judge", {"ok": True})
    assert run.status == "completed"
    assert judgements(run) == [(True, "external", "capability verify")]
    assert run.state.judged["a"].evidence == 7


@pytest.mark.parametrize(("on_error", "status"), [("fail", "failed"), ("pause", "paused")])
def test_a_source_that_cannot_be_asked_is_an_error_and_not_a_no(on_error: Any, status: str) -> None:
    run = Run(one(asking_source(on_error=on_error)))
    run.done("a", "answer")
    run.fails("1.judge", retryable=False)
    assert run.status == status
    assert judgements(run) == []


def test_a_reply_that_cannot_be_read_is_asked_for_again_within_the_tries_of_the_source() -> None:
    decision = Decision(
        "capability verify",
        when=Wrong(),
        source=Work(kind="capability", retry=Retry(2)),
        policy="external",
        on_error="retry",
    )
    run = Run(one(decision))
    run.done("a", "answer")
    job = run.begin("1.judge")
    run.send(s.JobLose(job.id, job.attempt, "killed"))  # costs no try
    run.done("1.judge", {"ok": "perhaps"})
    assert run.status == "running"
    assert run.job("1.judge").failures == 1, "the next request is another one"
    run.done("1.judge", {"ok": "perhaps"})
    assert run.status == "failed"


def test_every_execution_is_judged_under_a_key_of_its_own() -> None:
    run = Run(one(asking_source(on_reject="retry"), retrying(2)))
    run.done("a", "answer")
    run.done("1.judge", {"ok": False})
    run.done("a", "better")
    (job,) = run.state.jobs.values()
    assert job.id != "1.judge"
    run.done(job.id, {"ok": True})
    assert run.status == "completed"


def test_a_time_limit_of_the_work_does_not_count_while_somebody_decides() -> None:
    decision = Decision("is it good?", policy="requester_confirmation")
    run = Run(net(step("a", decision=decision, timeout_ms=100)))
    run.done("a", "answer")
    run.tick(2_000)
    assert run.status == "waiting"
    run.send(s.Decide("a", "fulfil", "ann"))
    assert run.status == "completed"


def test_the_same_decision_once_more_changes_nothing() -> None:
    decision = Decision("is it good?", policy="requester_confirmation")
    run = Run(net(step("a", "b", decision=decision), step("b")))
    run.done("a", "answer")
    run.send(s.Decide("gate-1", "fulfil", "ann"))
    assert run.send(s.Decide("gate-1", "fulfil", "ann")) == []
    run.refuses(s.Decide("gate-1", "reject", "ann"), "gate_not_open")
    run.done("b")
    assert run.send(s.Decide("gate-1", "fulfil", "ann")) == []


def test_a_decision_shaped_answer_decides_nothing() -> None:
    decision = Decision("is it good?", policy="requester_confirmation", actors=("ann",))
    run = Run(one(decision))
    run.done(
        "a", {"schema": "arca-task-fulfillment-decision.v1", "fulfillment/status": "fulfilled"}
    )
    assert run.status == "waiting"
    run.refuses(s.Decide("a", "fulfil", "mallory"), "not_allowed")


def tries_by_hand(answers: list[str], budget: int, of_timeouts: int | None) -> int:
    """How often the work is done: until it is good, or a budget is used up."""
    used = {"failed": 0, "timed out": 0}
    for number, answer in enumerate(answers, 1):
        own = answer == "timed out" and of_timeouts is not None
        used["timed out" if own else "failed"] += 1
        spent = used["timed out"] >= (of_timeouts or 0) if own else used["failed"] >= budget
        if answer == "done" or spent:
            return number
    raise AssertionError("the answers did not last")


@settings(database=None, deadline=None, max_examples=150)
@given(
    answers=st.lists(st.sampled_from(["boom", "timed out", "half"]), max_size=7),
    budget=st.integers(1, 4),
    of_timeouts=st.none() | st.integers(1, 3),
    policy=st.sampled_from(["output_match", ""]),
    asks=st.booleans(),
)
def test_failures_and_what_is_not_accepted_have_one_budget(
    answers: list[str], budget: int, of_timeouts: int | None, policy: Any, asks: bool
) -> None:
    apart = Retry(of_timeouts) if of_timeouts is not None else None
    work = Work("test", retry=Retry(budget), retry_timeouts=apart, timeout_ms=100)
    made = one(matching(on_reject="retry", policy=policy), work)
    if asks:  # somebody, and nobody else the next time
        fan = Fan(Constant(["ann"]), GatherRule("any", combine="one"), keeps_targets=True)
        made = replace(made, steps={"a": replace(made.steps["a"], fan=fan)})
    run, done = Run(made), 0
    for answer in (each := [*answers, "done"]):
        if run.state.finished:
            break
        (job,) = run.state.jobs
        done += 1
        run.begin(job)
        if answer == "timed out":
            run.tick(run.at + 100)
        elif answer == "boom":
            run.fails(job)
        else:
            run.done(job, answer)
    assert done == tries_by_hand(each, budget, of_timeouts)
    assert (run.status == "completed") == (done == len(each))

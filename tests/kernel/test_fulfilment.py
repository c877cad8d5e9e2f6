"""The end of the work and the end of the task are two recorded facts."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.net.net import Decision, Net, Retry, Work

from .driver import Run
from .nets import Fn, Wrong, net, retrying, step


def matching(**more: Any) -> Decision:
    """Fulfilled when the answer says `done`."""
    said = Fn(lambda names: names["answer"] == "done")
    return Decision(policy="output_match", when=said, **more)


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

"""A fan that comes to nothing begins anew; failures and time limits do what the step says."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.explain import explain
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.values import failed
from anabranch.net.net import Barrier, Fan, GatherRule, Net, Retry, RunPolicy, Step, Work

from .driver import Run
from .nets import WORK, Fn, fan_net, inclusive, net, router, step

UNREACHABLE = failed("unreachable", "no route", retryable=False)


def asked_again(attempts: int, delay_ms: int = 0, **more: Any) -> Net:
    return fan_net(["x", "y"], "any", rounds=Retry(attempts, delay_ms), **more)


def test_everybody_is_asked_again_after_the_delay_when_a_round_came_to_nothing() -> None:
    run = Run(asked_again(2, 500))
    run.fails("1.0", retryable=False)
    run.fails("1.1", retryable=False)
    assert run.token("ask").phase == "sleeping"
    run.tick(1_500)
    assert sorted(run.state.jobs) == ["1r1.0", "1r1.1"]
    run.done("1r1.1", "late but welcome")
    assert run.state.joins["f1"].verdict == "impossible"
    assert (run.status, run.result) == ("completed", {"responses": ["late but welcome"]})


def test_after_the_last_round_the_step_fails_with_the_reason_of_that_round() -> None:
    run = Run(asked_again(2, exclude_lost=True))
    for prefix in ("1.", "1r1."):
        for slot in "01":
            run.answer(f"{prefix}{slot}", UNREACHABLE)
    assert run.status == "failed"
    assert run.state.problem is not None
    assert run.state.problem.code == "no_reachable_targets"


@pytest.mark.parametrize(("slots", "code"), [([], "no_targets"), (["x"], "no_usable_response")])
def test_a_fan_that_came_to_nothing_says_why_by_a_code(slots: list[str], code: str) -> None:
    run = Run(fan_net(slots, "any", usable=Fn(lambda names: names["outcome"] != "negative")))
    if slots:
        run.done("1.0", {"status": "no"}, outcome="negative")
    assert run.state.problem is not None
    assert run.state.problem.code == code


def test_a_time_limit_is_for_one_round() -> None:
    run = Run(asked_again(2, timeout_ms=100))
    run.begin("1.0")
    run.tick(1_100)
    assert run.state.tokens[1].round == 1
    run.discharge("1.0")
    run.tick(1_150)
    assert run.status == "running"
    run.tick(1_200)
    assert run.status == "step_timeout"


def test_a_late_answer_of_an_earlier_round_is_recorded_and_never_used() -> None:
    run = Run(asked_again(2, timeout_ms=100))
    job = run.begin("1.0")
    run.tick(1_100)
    run.send(s.JobReport(job.id, job.attempt, failed("boom", "too late")))
    run.done("1r1.1", "in time")
    assert run.result == {"responses": ["in time"]}


def test_a_window_is_for_the_round_that_is_on() -> None:
    run = Run(asked_again(2, timeout_ms=100, window=1))
    run.begin("1.0")
    run.tick(1_100)  # its job is told to stop, and takes its time
    assert run.state.jobs["1.0"].phase == "cancelling"
    assert "1r1.0" in run.state.jobs
    run.discharge("1.0")
    assert "1r1.1" not in run.state.jobs
    run.done("1r1.0", "in time")
    assert run.result == {"responses": ["in time"]}


def test_cancelling_a_run_between_two_rounds_ends_it() -> None:
    run = Run(asked_again(2, 500))
    run.fails("1.0", retryable=False)
    run.fails("1.1", retryable=False)
    run.send(s.Cancel("me"))
    assert run.status == "cancelled"


# -- whom to ask is found out by a job -----------------------------------------------------------


def finding(**more: Any) -> Net:
    rule = GatherRule(mode="all")
    found = Fn(lambda names: names["found"]["items"])
    fan = Fan(found, rule, targets=Work(kind="find"), **more)
    return net(step("ask", fan=fan))


def test_the_targets_are_those_that_the_job_found() -> None:
    run = Run(finding())
    assert [job.id for job in run.state.jobs.values()] == ["1.cut"]
    run.done("1.cut", {"items": ["p", "q"]})
    assert run.state.gathers["f1"].labels == ["p", "q"]
    run.done("1.0", 1)
    run.done("1.1", 2)
    assert run.result == {"responses": [1, 2]}


def test_every_round_looks_for_targets_anew() -> None:
    run = Run(finding(rounds=Retry(2)))
    run.done("1.cut", {"items": []})
    run.done("1r1.cut", {"items": ["p"]})
    run.done("1r1.0", 1)
    assert run.result == {"responses": [1]}


def test_a_search_that_fails_fails_the_step() -> None:
    run = Run(finding())
    run.fails("1.cut", "directory", retryable=False)
    assert run.status == "failed"


def test_a_search_that_takes_too_long_is_a_failure_and_no_timeout_of_the_step() -> None:
    found = Fn(lambda names: names["found"]["items"])
    work = Work(kind="test", retry_timeouts=Retry())
    search = Work(kind="find", timeout_ms=50)
    run = Run(net(step("ask", work=work, fan=Fan(found, GatherRule(), targets=search))))
    run.begin("1.cut")
    run.tick(1_050)
    assert run.status == "failed"
    assert run.state.problem is not None
    assert run.state.problem.kind == "targets"


def choosing(attempts: int, **more: Any) -> Net:
    """A fan over the one that a search finds, who is then kept."""
    found = Fn(lambda names: names["found"]["items"][:1])
    fan = Fan(found, GatherRule(mode="any"), targets=Work(kind="find"), rounds=Retry(attempts),
              keeps_targets=True)  # fmt: skip
    return net(step("ask", fan=fan, **more))


def test_a_search_that_found_nobody_is_made_again_where_the_target_is_to_be_kept() -> None:
    run = Run(choosing(2))
    run.done("1.cut", {"items": []})
    run.done("1r1.cut", {"items": ["p"]})
    run.done("1r1.0", "yes")
    assert run.status == "completed"


def test_the_one_who_was_chosen_and_failed_is_not_asked_in_another_round() -> None:
    run = Run(choosing(3))
    run.done("1.cut", {"items": ["p"]})
    run.fails("1.0", retryable=False)
    assert run.status == "failed"


def test_a_fan_whose_work_cannot_be_put_together_says_so_and_is_not_begun_anew() -> None:
    run = Run(asked_again(3, exclude_lost=True))
    run.answer("1.0", failed("expression", "no such name", retryable=False))
    run.answer("1.1", failed("expression", "no such name", retryable=False))
    assert run.status == "failed"
    assert run.state.problem is not None
    assert run.state.problem.message == "no such name"


# -- what a failure comes to ---------------------------------------------------------------------


def two(on_failure: Any, **more: Any) -> Net:
    """`a`, whose failure does what it says, before `c`; `b` beside them."""
    after = (inclusive("c", outcome="ok"), inclusive("c", outcome="skipped"))
    return net(
        router("start", "a", "b"),
        Step("a", WORK, branches=after, on_failure=on_failure, **more),
        step("b"),
        step("c"),
    )


def test_a_failure_that_skips_lets_what_follows_run() -> None:
    run = Run(two("skip"))
    run.fails("a")
    run.done("b")
    run.done("c")
    assert run.status == "completed"
    assert run.state.steps["a"].statuses == ["skipped"]


def test_a_failure_that_aborts_ends_everything_at_once() -> None:
    run = Run(two("abort_run"))
    run.begin("b")
    run.fails("a")
    run.discharge("3.0")
    assert run.status == "failed"
    assert "c" not in run.state.steps


def test_a_failure_that_pauses_is_tried_again_when_somebody_says_so() -> None:
    run = Run(two("pause"))
    run.fails("a")
    assert run.status == "paused"
    run.send(s.Decide("a", "fulfil", "ann"))
    run.done("b")
    run.done("a")
    run.done("c")
    assert run.status == "completed"


def test_a_failure_that_pauses_is_given_up_when_somebody_says_so() -> None:
    run = Run(two("pause"))
    run.done("b")
    run.fails("a")
    run.send(s.Decide("a", "reject", "ann", "not worth it"))
    assert run.status == "failed"
    assert run.state.problem is not None
    assert run.state.problem.message == "given up by ann: not worth it"


def test_attempts_that_take_too_long_have_a_budget_of_their_own() -> None:
    work = Work(kind="test", timeout_ms=100, retry=Retry(2), retry_timeouts=Retry(3, 10))
    run = Run(net(step("a", work=work)))
    run.begin("a")
    run.tick(1_100)  # the first timeout
    run.tick(1_110)
    run.fails("a")  # the first failure
    run.begin("a")
    run.tick(1_210)  # the second timeout
    run.tick(1_230)
    run.begin("a")
    run.tick(1_330)  # the third
    assert run.status == "step_timeout"


def test_a_step_that_took_too_long_is_skipped_when_it_says_so() -> None:
    work = Work(kind="test", timeout_ms=100, retry_timeouts=Retry())
    after = (inclusive("c", outcome="ok"), inclusive("c", outcome="skipped"))
    run = Run(net(Step("a", work, branches=after, on_timeout="skip"), step("c")))
    run.begin("a")
    run.tick(1_100)
    run.done("c")
    assert run.status == "completed"


# -- room ------------------------------------------------------------------------------------


def crowd(room: int) -> Net:
    after = {"a": "d", "b": "d", "c": ""}
    steps = [step(name, *([to] if to else [])) for name, to in after.items()]
    last = Step("d", WORK, barrier=Barrier("all"))
    return net(router("start", "c", "a", "b"), *steps, last, policy=RunPolicy(parallel_max=room))


def test_no_more_steps_run_at_once_than_there_is_room_for() -> None:
    run = Run(crowd(2))
    assert len(run.state.jobs) == 2
    assert run.state.phases["queued"] == 1
    assert any(
        "room: 2 steps at once" in waiting.waits_for for waiting in explain(run.net, run.state)
    )


def test_those_who_wait_for_room_go_in_the_order_of_the_definition() -> None:
    run = Run(crowd(1))
    order = []
    while not run.state.finished:
        (job,) = run.state.jobs.values()
        order.append(job.step)
        run.done(job.step)
    assert order == ["a", "b", "c", "d"]


def test_a_step_that_was_ready_first_does_not_go_before_an_earlier_one_of_the_definition() -> None:
    policy = RunPolicy(parallel_max=1)
    run = Run(net(router("start", "a", "b"), step("a", "c"), step("b"), step("c"), policy=policy))
    run.done("a")  # makes way for `c`, while `b` has been waiting
    assert [job.step for job in run.state.jobs.values()] == ["b"]


def test_nobody_is_queued_where_everybody_fits() -> None:
    run = Run(crowd(3))
    assert len(run.state.jobs) == 3
    assert not run.of_kind(e.TokenQueued)


def test_waiting_for_room_is_recorded_and_survives_a_restart() -> None:
    run = Run(crowd(1))
    assert len(run.of_kind(e.TokenQueued)) == 3


def test_the_clock_of_a_step_stops_while_somebody_decides_about_its_failure() -> None:
    run = Run(fan_net(["x"], "any", on_failure="pause", timeout_ms=100))
    run.fails("1.0", retryable=False)
    run.tick(5_000)
    assert status_of(run.state) == "paused"

"""An operator at one step: `retry` ends the wait before a try, `skip` ends a step run."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import LawBroken
from anabranch.expressions.port import Constant
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.laws import Witness
from anabranch.kernel.redrive import plan_redrive
from anabranch.kernel.values import Answer, aborted
from anabranch.net.net import (
    Arc,
    Branch,
    Decision,
    Fan,
    GatherRule,
    Join,
    Loop,
    Net,
    Retry,
    Slot,
    Work,
)

from .driver import Run, kinds
from .nets import Fn, arcs, exclusive, fan_net, inclusive, net, router, step

PATIENT = Work("test", retry=Retry(attempts=3, delay_ms=60_000))


def named(ending: str) -> Fn:
    return Fn(lambda names: names["event"]["ending"] == ending, f"ending == {ending}")


def failed_once() -> Run:
    run = Run(net(step("a", "b", work=PATIENT), step("b")))
    run.fails("a")
    assert run.job("a").phase == "backoff"
    return run


# -- retry -------------------------------------------------------------------------------------


def test_a_retry_now_begins_the_next_attempt_at_once_and_says_who_asked() -> None:
    run = failed_once()
    events = run.send(s.RetryNow("a", actor="ann", reason="it is mended"))
    assert events == [
        e.TokenRetriedNow(1, "ann", "it is mended"),
        e.JobScheduled("1.0", 1, -1, 2),
    ]
    run.done("a", 1)
    run.done("b", 2)
    assert (run.status, run.next_wake()) == ("completed", None)


def test_a_retry_now_costs_a_try_like_any_other() -> None:
    run = failed_once()
    for _ in range(2):
        run.send(s.RetryNow("a"))
        run.fails("a")
    assert run.statuses("a") == ["failed"]


def test_a_whole_step_that_is_tried_again_later_is_tried_now() -> None:
    run = Run(fan_net(["p"], "all", rounds=Retry(attempts=2, delay_ms=60_000)))
    run.fails("ask")
    assert run.token("ask").phase == "sleeping"
    assert kinds(run.send(s.RetryNow("ask", actor="ann")))[:2] == [
        "token.retried_now",
        "token.woken",
    ]
    run.done("ask", 1)
    assert run.statuses("ask") == ["done"]


def test_where_nothing_waits_for_a_retry_the_refusal_says_what_it_does_instead() -> None:
    run = Run(
        net(step("a", "b", "q", work=PATIENT), step("b"), step("q", work=None, decision=Decision()))
    )
    assert "at work" not in run.refuses(s.RetryNow("a"), "not_retrying").message
    run.begin("a")
    assert "it is at work" in run.refuses(s.RetryNow("a"), "not_retrying").message
    assert "none of its runs" in run.refuses(s.RetryNow("b"), "not_retrying").message
    assert "did you mean" in run.refuses(s.RetryNow("aa"), "unknown_step").message
    assert run.refuses(s.RetryNow("a", token=9), "unknown_token")
    run.done("a")
    assert "a decision" in run.refuses(s.RetryNow("q"), "not_retrying").message


def test_a_paused_run_retries_nothing_before_it_is_resumed() -> None:
    run = failed_once()
    run.send(s.Pause())
    run.refuses(s.RetryNow("a"), "paused")
    run.send(s.Resume())
    run.send(s.RetryNow("a"))
    assert run.job("a").phase == "scheduled"


def test_a_run_that_is_over_is_not_retried() -> None:
    run = Run(net(step("a")))
    run.fails("a")
    run.refuses(s.RetryNow("a"), "run_finished")
    run.refuses(s.Skip("a"), "run_finished")


# -- skip --------------------------------------------------------------------------------------


def test_a_skipped_step_stops_its_work_and_follows_the_ways_of_a_skipped_one() -> None:
    branch = exclusive(Arc("good", named("done")), Arc("round", named("skipped")))
    run = Run(net(step("a", branch), step("good"), step("round")))
    run.begin("a")
    events = run.send(s.Skip("a", actor="ann", reason="not today"))
    assert kinds(events)[:2] == ["job.cancelling", "token.skipped"]
    assert run.statuses("a") == ["skipped"]
    assert (run.statuses("good"), run.statuses("round")) == ([], ["ready"])
    run.done("round")
    assert run.status == "running"  # the work is told to stop, and has not said that it has
    run.discharge("1.0")
    assert (run.status, run.state.counts.problems, run.state.counts.tolerated) == (
        "completed",
        0,
        0,
    )


def test_a_step_skipped_with_a_result_counts_as_done_with_that_result() -> None:
    branch = exclusive(Arc("good", named("done")), Arc("round", named("skipped")))
    run = Run(net(step("a", branch, work=PATIENT), step("good"), step("round")))
    run.fails("a")
    run.send(s.Skip("a", actor="ann", answered=True, result={"price": 3}))
    assert (run.statuses("a"), run.state.results["a"]) == (["done"], {"price": 3})
    run.done("good")
    assert run.status == "completed"


def test_a_null_can_be_the_result_of_a_skipped_step() -> None:
    run = Run(net(step("a", "b"), step("b")))
    run.send(s.Skip("a", answered=True, result=None))
    assert run.statuses("a") == ["done"]


def test_what_the_work_of_a_skipped_step_says_later_has_no_effect() -> None:
    run = Run(net(step("a", "b"), step("b")))
    run.begin("a")
    run.send(s.Skip("a"))
    run.done("a", "too late")
    assert run.state.results.get("a") is None
    run.done("b")
    assert run.status == "completed"


@pytest.mark.parametrize(
    "phase", ["scheduled", "running", "parked", "backoff", "deciding", "paused"]
)
def test_a_step_is_skipped_wherever_it_stands(phase: str) -> None:
    decision = Decision() if phase == "deciding" else None
    run = Run(net(step("a", "b", work=PATIENT, decision=decision), step("b")))
    match phase:
        case "running":
            run.begin("a")
        case "parked":
            run.park("a")
        case "backoff":
            run.fails("a")
        case "deciding":
            run.done("a")
        case "paused":
            run.send(s.Pause())
    run.send(s.Skip("a"))
    assert (run.statuses("a"), run.statuses("b")) == (["skipped"], ["ready"])


def test_a_gate_that_asks_whether_to_try_again_is_closed_by_a_skip() -> None:
    run = Run(net(step("a", "b", on_failure="pause"), step("b")))
    run.fails("a")
    assert run.status == "paused" or run.state.gates
    run.send(s.Skip("a", actor="ann"))
    assert not run.state.paused
    run.done("b")
    assert run.status == "completed"


def test_a_fan_is_skipped_with_everybody_it_asked() -> None:
    run = Run(fan_net(["p", "q"], "all"))
    run.begin("ask")
    run.send(s.Skip("ask", answered=True, result=["nobody"]))
    for job in list(run.state.jobs):
        run.discharge(job)
    assert run.state.results["ask"] == ["nobody"]


def test_who_waits_at_a_join_is_not_skipped_but_those_it_waits_for_are() -> None:
    join = Join("j", GatherRule("all", combine="merge"), (Slot("g"), Slot("h")))
    run = Run(
        net(
            router("f", Branch(None, "inclusive", arcs("g", "h"), join)),
            step("g"),
            step("h"),
            step("j"),
        )
    )
    assert "skip the steps" in run.refuses(s.Skip("j"), "joining").message
    run.send(s.Skip("g", answered=True, result={"g": 1}))
    run.done("h", {"h": 2})
    assert run.statuses("j") == ["ready"]


def test_a_rule_alone_says_whether_its_step_is_valid() -> None:
    rule = Work("rule", error_aborts=True)
    run = Run(net(step("a", inclusive("b", outcome="valid"), work=rule), step("b")))
    run.refuses(s.Skip("a"), "decided_by_rule")


def test_of_several_runs_of_a_step_one_has_to_be_named() -> None:
    run = Run(net(router("a", "b", "c"), router("b", "d"), router("c", "d"), step("d")))
    refused = run.refuses(s.Skip("d"), "ambiguous")
    first, second = (token.id for token in run.state.tokens.values())
    assert f"{first}, {second}" in refused.message
    run.send(s.Skip("d", token=second))
    assert run.statuses("d") == ["ready", "skipped"]


def test_a_step_that_is_over_or_has_not_begun_is_not_skipped() -> None:
    run = Run(net(step("a", "b", "c"), step("b"), step("c")))
    assert "has not begun" in run.refuses(s.Skip("b"), "nothing_to_skip").message
    run.done("a")
    assert "it was done" in run.refuses(s.Skip("a"), "nothing_to_skip").message


def test_a_run_that_ends_is_left_to_end() -> None:
    run = Run(net(step("a")))
    run.begin("a")
    run.send(s.Cancel())
    run.refuses(s.Skip("a"), "ending")
    run.refuses(s.RetryNow("a"), "ending")


# -- a redrive from a step -----------------------------------------------------------------------


def completed() -> tuple[Net, Run]:
    made = net(step("a", "b"), step("b", "c"), step("c"))
    run = Run(made)
    for name in "abc":
        run.done(name, name)
    return made, run


def test_a_redrive_from_a_step_runs_it_and_what_follows_and_reuses_what_was_before() -> None:
    made, run = completed()
    plan = plan_redrive(made, run.history, "b")
    assert [(fate.step, fate.cause.how) for fate in plan.again if fate.cause] == [
        ("b", "asked"),
        ("c", "arc"),
    ]
    again = Run(made, reuse=plan.reuse, origin="run")
    assert (again.statuses("a"), again.statuses("b")) == (["done"], ["ready"])


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"loop": Loop(Constant([1, 2, 3]), shard_size=1)},
        {"loop": Loop(Constant([1, 2, 3]), mode="fanout", shard_size=1)},
        {"fan": Fan(Constant(["x", "y"]), GatherRule("any"))},
    ],
    ids=["plain", "loop", "fan-out loop", "participants"],
)
def test_a_skip_with_a_result_is_reused_and_one_without_is_done_again(more: Any) -> None:
    made = net(step("a", "b", **more), step("b", "c"), step("c"))
    run = Run(made)
    run.send(s.Skip("a", answered=True, result=1))
    run.send(s.Skip("b"))
    run.done("c")
    plan = plan_redrive(made, run.history)
    assert [fate.step for fate in plan.again][:1] == ["b"]
    assert [fate.step for fate in plan.reused] == ["a"]
    again = Run(made, reuse=plan.reuse, origin="run")
    assert (again.state.results["a"], again.statuses("a")) == (1, ["done"])
    assert [job.step for job in again.state.jobs.values()] == ["b"]


# -- what a run says of itself -----------------------------------------------------------------


def test_a_no_by_an_error_an_abort_in_a_join_and_a_skipped_failure_are_counted() -> None:
    join = Join("j", GatherRule("any", combine="merge"), (Slot("g"), Slot("h")))
    rule = Work("rule", error_aborts=True)
    run = Run(
        net(
            router("f", Branch(None, "inclusive", arcs("g", "h", "k"), join)),
            step("g", work=rule), step("h", work=rule), step("k", on_failure="skip"), step("j"),
        )
    )  # fmt: skip
    run.answer("g", aborted("rule", "it broke"))
    run.fails("k")
    assert run.state.counts.tolerated == 2
    run.answer("h", Answer(status="ok", outcome="invalid", result={}, by_error="amount is missing"))
    tally = run.state.steps["h"]
    assert (tally.outcome, tally.by_error) == ("invalid", "amount is missing")
    assert (run.state.counts.tolerated, run.state.counts.problems) == (3, 0)


def test_an_outcome_is_that_of_the_last_run_of_its_step() -> None:
    run = Run(net(step("a", exclusive("a", outcome="invalid"))))
    run.invalid("a")
    assert run.state.steps["a"].outcome == "invalid"
    run.done("a")
    assert run.state.steps["a"].outcome == ""


# -- laws ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "events",
    [
        [e.TokenRetriedNow(1, "ann")],
        [e.TokenSkipped(1, "ann"), e.TokenSkipped(1, "ann")],
        [e.TokenSkipped(1, "ann"), e.JobStarted("1.0", 1, "w")],
        [e.TokenSkipped(1, "ann"), e.TokenFinished(1, "aborted")],
    ],
)
def test_the_laws_notice_what_no_operator_can_have_done(events: list[e.Event]) -> None:
    witness = Witness()
    for event in events[:-1]:
        witness.see(event)
    with pytest.raises(LawBroken):
        witness.see(events[-1])

"""Quiescence: when a run is complete, as what, and what its final step is told."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.ids import run_number
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.quiescence import stands_still
from anabranch.kernel.summary import child_answer, summarise
from anabranch.kernel.values import aborted
from anabranch.net.net import Admission, AdmitRule, Arc, Decision, Net, Patch, RunPolicy

from .driver import Run
from .nets import const, ctx, exclusive, forks, inclusive, net, retrying, router, step


def fork(policy: RunPolicy | None = None, **more: Any) -> Net:
    """Two branches at once: a with an error route to h, and b without."""
    routes = [exclusive("h", outcome="error")]
    return net(router("r", "a", "b"), step("a", *routes), step("b"), router("h"),
               policy=policy, **more)  # fmt: skip


# -- seed 004, section 6.1 -------------------------------------------------------------------------


def test_6_1_a_run_ends_when_no_token_can_run_and_nobody_works() -> None:
    run = Run(fork())
    run.done("a")
    assert run.status == "running"
    run.done("b")
    assert run.status == "completed"
    assert run.kinds()[-1] == "run.finished"


def test_6_1_retries_in_progress_keep_it_open() -> None:
    run = Run(net(step("a", work=retrying(2, 100))))
    run.fails("a")
    assert run.status == "running"
    run.tick(run.at + 100)
    run.done("a")
    assert run.status == "completed"


def test_6_1_open_gathers_keep_it_open() -> None:
    """A join target waits for a producer that stands at a gate: waiting, not complete."""
    gate = Admission((AdmitRule(ctx("open"), True),))
    branch = forks(["g"], "j", froms=["g:any"], outcome=None)
    run = Run(net(router("a", branch), step("g", admission=gate), step("j")))
    assert run.status == "waiting"
    run.patch(open=True)
    run.done("g")
    run.done("j")
    assert run.status == "completed"


def test_tokens_at_closed_gates_keep_it_waiting() -> None:
    gate = Admission((AdmitRule(ctx("open"), True),))
    run = Run(net(router("r", "a", "b"), step("a", admission=gate), step("b")))
    assert run.status == "running"
    run.done("b")
    assert run.status == "waiting"
    assert stands_still(run.state)


def test_a_sleeping_token_is_running_not_waiting() -> None:
    run = Run(net(step("a", "b"), step("b")))
    run.done("a", wait_ms=10)
    assert run.status == "running"


def test_a_run_that_only_waits_for_outside_is_waiting() -> None:
    run = Run(net(router("r", "a", "b"), step("a"), step("b", work=None, decision=Decision())))
    run.park("a")
    assert run.status == "waiting"


# -- the completion rule, seed 004 section 6.2 -----------------------------------------------------


@pytest.mark.parametrize(
    ("on_failure", "fails", "status"),
    [
        ("fail", "", "completed"),
        ("fail", "a", "failed"),
        ("fail", "b", "failed"),
        ("handled", "a", "completed"),
        ("handled", "b", "failed"),
        ("handled", "ab", "failed"),
        ("partial", "a", "partial"),
        ("partial", "b", "partial"),
    ],
)
def test_6_2_what_a_failure_means_for_the_run(on_failure: Any, fails: str, status: str) -> None:
    run = Run(fork(RunPolicy(on_failure=on_failure)))
    for name in "ab":
        (run.fails if name in fails else run.done)(name)
    assert run.status == status
    assert (run.state.problem is None) == (status == "completed")


def test_the_problem_is_the_failure_that_no_route_followed() -> None:
    run = Run(fork(RunPolicy(on_failure="handled")))
    run.fails("a", "first")
    run.fails("b", "second")
    assert run.state.problem is not None
    assert run.state.problem.kind == "second"


def test_the_problem_is_never_a_killed_or_skipped_step() -> None:
    branch = forks(["g", "h"], "j", wait="kill", froms=["g:any", "h:any"], outcome=None)
    slow = step("s", "x", timeout_ms=100, on_timeout="skip")
    run = Run(net(router("a", "b", "s"), router("b", branch), step("g"), step("h"),
                  step("j"), slow, step("x")))  # fmt: skip
    run.done("g")  # kills h
    run.tick(run.at + 100)  # skips s
    run.done("x")
    run.fails("j", "real")
    assert run.status == "failed"
    assert run.state.problem is not None
    assert run.state.problem.kind == "real"
    assert [step_name for step_name, _ in run.state.faults] == ["j"]


@pytest.mark.parametrize(("own", "status"), [(True, "step_timeout"), (False, "failed")])
@pytest.mark.parametrize("on_failure", ["fail", "handled"])
def test_a_step_that_timed_out_gives_the_run_its_own_status(
    on_failure: Any, own: bool, status: str
) -> None:
    policy = RunPolicy(on_failure=on_failure, timeouts_have_own_status=own)
    run = Run(net(step("a", timeout_ms=100), policy=policy))
    run.tick(run.at + 100)
    assert run.status == status


def test_a_mixture_of_timeouts_and_failures_is_failed() -> None:
    run = Run(net(router("r", "a", "b"), step("a", timeout_ms=100), step("b")))
    run.tick(run.at + 100)
    run.fails("b")
    assert run.status == "failed"


def test_a_handled_timeout_beside_an_unhandled_failure_is_failed() -> None:
    policy = RunPolicy(on_failure="handled")
    run = Run(net(router("r", "a", "b"), step("a", "c", timeout_ms=100), step("b"), router("c"),
                  policy=policy))  # fmt: skip
    run.tick(run.at + 100)
    run.fails("b")
    assert run.status == "failed"


def test_aborted_step_runs_do_not_fail_the_run() -> None:
    run = Run(net(step("a")))
    run.answer("a", aborted("rule", "no"))
    assert run.status == "completed"
    assert run.state.counts.aborted == 1


# -- fail fast -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "status"),
    [
        (RunPolicy(fail_fast=True), "failed"),
        (RunPolicy(fail_fast=True, on_failure="partial"), "partial"),
        (RunPolicy(fail_fast=True, on_failure="handled"), "failed"),
    ],
)
def test_fail_fast_ends_the_run_with_the_first_failure_that_counts(
    policy: RunPolicy, status: str
) -> None:
    run = Run(fork(policy))
    run.begin("a")
    run.fails("b")
    assert run.state.ending == status
    assert run.state.jobs["2.0"].phase == "cancelling"
    run.discharge("2.0")
    assert run.status == status
    assert run.state.problem is not None
    assert run.state.problem.kind == "boom"


def test_fail_fast_leaves_a_handled_failure_alone() -> None:
    run = Run(fork(RunPolicy(fail_fast=True, on_failure="handled")))
    run.fails("a")
    assert run.state.ending == ""
    run.done("b")
    assert run.status == "completed"


def test_fail_fast_keeps_the_status_of_a_timeout() -> None:
    run = Run(net(router("r", "a", "b"), step("a", timeout_ms=100), step("b"),
                  policy=RunPolicy(fail_fast=True)))  # fmt: skip
    run.tick(run.at + 100)
    assert run.status == "step_timeout"


def test_fail_fast_creates_nothing_that_would_follow_the_failed_step() -> None:
    arc = Arc("b", patches=(Patch("gone_on", const(True)),))
    run = Run(net(step("a", inclusive(arc)), step("b"), policy=RunPolicy(fail_fast=True)))
    run.fails("a")
    assert run.statuses("b") == []
    assert run.state.ctx == {}
    assert run.status == "failed"


# -- cancelling ----------------------------------------------------------------------------------


def test_a_cancelled_run_ends_what_waits_and_stops_what_runs() -> None:
    run = Run(fork(final="h"))
    run.begin("a")
    run.send(s.Cancel("me", "enough"))
    assert run.statuses("b") == ["aborted"]
    assert run.status == "running"
    run.done("a", "too late")
    assert run.status == "cancelled"
    assert run.statuses("a") == ["aborted"], "a running step finishes, and ends aborted"
    assert run.statuses("h") == [], "neither its routes nor the final step run"
    assert run.state.problem is not None
    assert run.state.problem.message == "enough"


# -- the final step, seed 004 section 7 ----------------------------------------------------------


def final(**policy: Any) -> Net:
    return net(router("r", "a", "b"), step("a"), step("b"), step("end", "a"), final="end",
               policy=RunPolicy(**policy))  # fmt: skip


def test_7_1_the_final_step_runs_once_after_everything_else() -> None:
    run = Run(final())
    run.done("a")
    assert run.statuses("end") == []
    run.done("b")
    run.done("end", "summary")
    assert run.status == "completed"
    assert run.result == "summary"
    assert run.statuses("end") == ["done"]
    assert len(run.statuses("a")) == 1, "its own arcs are not followed"


def test_7_2_the_final_step_gets_counts_references_and_failures() -> None:
    run = Run(final())
    run.done("a", {"big": "result"})
    run.fails("b")
    args = run.token("end").args
    assert (args["execution_id"], args["run_id"]) == (run_number("run"), "run")
    assert args["counts"] == {"steps": 3, "step_runs": 3, "branches": 2, "failed": 1, "aborted": 0}
    assert args["results"] == {
        "r": "anabranch:run:run/step/r",
        "a": "anabranch:run:run/step/a",
    }
    assert args["failures"] == [{"step": "b", "kind": "boom", "message": "b went wrong"}]
    assert args["steps"]["b"] == {"runs": 1, "status": "failed"}
    assert "big" not in str(args)


def test_7_1_a_token_that_reaches_the_final_step_by_an_arc_is_joined_into_it() -> None:
    given = {"a": {"from": "a"}, "b": {"from": "b", "execution_id": "mine"}}
    run = Run(
        net(
            router("r", "a", "b", "c"),
            *(step(name, exclusive(Arc("end", args=const(args)))) for name, args in given.items()),
            step("c", "d"),
            step("d"),
            step("end"),
            final="end",
        )
    )
    run.done("a")
    run.fails("b")
    assert run.statuses("end") == [], "not before everything is over"
    run.done("c")
    run.done("d")
    args = run.token("end").args
    assert (args["from"], args["execution_id"]) == ("b", "mine"), "what somebody named goes before"
    assert args["counts"]["branches"] == 3
    run.done("end", "once")
    assert (run.result, run.statuses("end")) == ("once", ["done"])


def test_7_1_a_run_that_begins_with_its_final_step_runs_it_once() -> None:
    run = Run(net(step("end", "a"), step("a"), final="end"))
    run.done("end", 1)
    assert (run.status, run.result, run.statuses("end")) == ("completed", 1, ["done"])
    assert run.statuses("a") == []


@pytest.mark.parametrize(("policy", "status"), [("fail", "failed"), ("partial", "partial")])
@pytest.mark.parametrize("fail_fast", [True, False])
def test_7_3_a_final_step_that_fails(policy: str, status: str, fail_fast: bool) -> None:
    run = Run(final(on_final_failure=policy, fail_fast=fail_fast))
    run.done("a")
    run.done("b")
    run.fails("end", "last")
    assert run.status == status
    assert run.state.problem is not None
    assert run.state.problem.kind == "last"


def test_7_3_the_problem_of_a_failed_final_step_is_its_own() -> None:
    run = Run(final(on_failure="partial"))
    run.fails("a", "earlier")
    run.done("b")
    run.fails("end", "last")
    assert run.state.problem is not None
    assert run.state.problem.kind == "last"


def test_a_final_step_that_is_turned_away_says_so() -> None:
    gate = Admission((AdmitRule(ctx("open"), True),), "discard")
    run = Run(net(router("a"), step("end", admission=gate), final="end"))
    assert run.status == "failed"
    assert run.state.problem is not None
    assert run.state.problem.message == "the final step was discarded"


def test_a_deadline_during_the_final_step() -> None:
    run = Run(final(deadline_ms=1_000))
    run.done("a")
    run.done("b")
    run.tick(run.at + 1_000)
    assert run.status == "deadline_exceeded"


# -- the result ----------------------------------------------------------------------------------


def test_the_result_of_one_branch_end_is_the_result_of_the_run() -> None:
    run = Run(net(step("a", "b"), step("b")))
    run.done("a", 1)
    run.done("b", 2)
    assert run.result == 2


def test_the_result_of_several_branch_ends_is_a_map() -> None:
    run = Run(fork())
    run.done("a", 1)
    run.done("b", 2)
    assert run.result == {"a": 1, "b": 2}


def test_the_summary_of_a_run_is_what_the_command_line_prints() -> None:
    run = Run(net(step("a", exclusive(Arc("b"))), step("b"), step("never")))
    run.done("a", 1)
    run.fails("b")
    assert summarise(run.net, run.state) == {
        "run": "run", "name": "test", "dialect": "test", "status": "failed", "result": None,
        "steps": {
            "a": {"runs": 1, "status": "done", "statuses": ["done"], "result": 1, "state": "done"},
            "b": {"runs": 1, "status": "failed", "statuses": ["failed"], "result": None,
                  "state": "failed"},
        },
        "joins": [],
        "problem": {"code": "boom", "message": "b went wrong"},
        "problems": 1,
        "tolerated": 0,
        "handled": 0,
        "failures": [{"step": "b", "kind": "boom", "code": "boom", "message": "b went wrong"}],
    }  # fmt: skip


def test_a_finished_child_answers_for_itself() -> None:
    good, bad = Run(net(step("a"))), Run(net(step("a")))
    good.done("a", 7)
    bad.fails("a")
    assert child_answer(good.state).result == {"run": "run", "status": "completed", "result": 7}
    fault = child_answer(bad.state).fault
    assert fault is not None
    assert fault.message == "child run run ended failed: a went wrong"


# -- steps that lead back to themselves ------------------------------------------------------------


def test_a_circle_without_any_work_ends_the_run_instead_of_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.kernel.tokens.TOKENS_PER_TURN_MAX", 50)
    run = Run(net(router("a", "b"), router("b", "a")))
    assert run.status == "failed"
    assert run.state.problem is not None
    assert "no work in between" in run.state.problem.message
    assert len(run.of_kind(e.TokenCreated)) < 60


def test_a_crowd_that_wakes_at_once_is_no_circle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.kernel.tokens.TOKENS_PER_TURN_MAX", 20)
    crowd = [step("a", *["b"] * 18), router("b", "c"), router("c", "d"), router("d")]
    run = Run(net(*crowd))
    run.done("a", wait_ms=100)
    run.tick(run.at + 100)
    assert run.statuses("d") == ["done"] * 18
    assert run.status == "completed"

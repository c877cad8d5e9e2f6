"""Gates: admission, decisions, pause and resume."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from anabranch.expressions.port import Expression
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import ContextPatch
from anabranch.net.net import Admission, AdmitRule, Decision, Net, Retry, RunPolicy, Work

from .driver import Run
from .nets import Fn, Wrong, const, ctx, fan_net, net, router, step


def admits(*rules: tuple[Expression | None, bool], on_deny: Any = "pending") -> Admission:
    return Admission(tuple(AdmitRule(guard, allow) for guard, allow in rules), on_deny)


def gated(on_deny: str = "pending", policy: RunPolicy | None = None) -> Net:
    """`a` is admitted once the context says open; `b` follows."""
    gate = admits((ctx("open"), True), (None, False), on_deny=on_deny)
    return net(step("a", "b", admission=gate), step("b"), policy=policy)


def asking(on_reject: str = "fail", work: Work | None = None, **more: Any) -> Net:
    decision = Decision("ship it?", on_reject=on_reject, **more)  # type: ignore[arg-type]
    return net(step("a", "b", work=work, decision=decision), router("b"))


def decide(
    run: Run, verdict: Literal["fulfil", "reject"], actor: str = "alice", gate: str = "a"
) -> list[e.Event]:
    return run.send(s.Decide(gate, verdict, actor, "because", {"seen": True}))


# -- admission -----------------------------------------------------------------------------------


def test_without_a_gate_everybody_is_admitted() -> None:
    assert Run(net(step("a"))).token("a").phase == "ready"


def test_a_denied_token_waits_and_the_run_with_it() -> None:
    run = Run(gated())
    assert run.token("a").phase == "held"
    assert run.status == "waiting"
    assert run.state.jobs == {}


def test_every_context_patch_asks_again() -> None:
    run = Run(gated())
    run.patch(other=1)
    run.patch(open=False)
    assert run.token("a").phase == "held"
    run.patch(open=True)
    assert run.token("a").phase == "ready"
    assert run.of_kind(e.TokenAdmitted)[0].by == "context"


def test_the_patch_of_another_step_opens_the_gate_in_the_same_turn() -> None:
    gate = admits((ctx("open"), True), (None, False))
    run = Run(net(router("r", "a", "b"), step("a", admission=gate), step("b")))
    run.done("b", patches=(ContextPatch("open", 1),))
    assert run.token("a").phase == "ready"


def test_the_first_rule_that_matches_decides() -> None:
    rules = [(const(False), True), (const(True), False), (const(True), True)]
    assert Run(net(step("a", admission=admits(*rules)))).token("a").phase == "held"


def test_no_rule_that_matches_is_a_denial() -> None:
    gate = admits((const(False), True))
    assert Run(net(step("a", admission=gate))).token("a").phase == "held"


def test_denied_tokens_are_discarded_by_policy() -> None:
    run = Run(gated("discard"))
    assert run.statuses("a") == ["discarded"]
    assert run.statuses("b") == []
    assert run.status == "completed"


def test_denied_steps_are_skipped_by_policy_and_routed_on() -> None:
    run = Run(gated("skip"))
    assert run.statuses("a") == ["skipped"]
    assert run.token("b").phase == "ready"


def test_a_rule_that_cannot_be_evaluated_fails_the_step() -> None:
    run = Run(net(step("a", admission=admits((Wrong("ctx.x"), True)))))
    assert run.status == "failed"
    assert run.state.problem is not None
    assert run.state.problem.message == "admission of step a: ctx.x: division by zero"


def test_a_rule_that_breaks_later_leaves_the_token_where_it_is() -> None:
    rule = Fn(lambda names: Wrong().evaluate(names) if names["ctx"] else False)
    run = Run(net(step("a", admission=admits((rule, True)))))
    run.patch(x=1)
    assert run.token("a").phase == "held"


def test_a_person_can_admit_or_turn_away() -> None:
    run = Run(gated())
    decide(run, "fulfil")
    assert run.token("a").phase == "ready"
    assert run.of_kind(e.TokenAdmitted)[0].by == "alice"
    other = Run(gated())
    decide(other, "reject", gate="gate-1")
    assert other.statuses("a") == ["discarded"]
    assert other.status == "completed"


def test_two_tokens_at_one_gate_must_be_named() -> None:
    gate = admits((None, False))
    run = Run(net(router("r", "a", "a"), step("a", admission=gate)))
    assert "gate-2, gate-3" in run.refuses(s.Decide("a", "fulfil"), "ambiguous").message
    decide(run, "fulfil", gate="gate-3")
    assert [token.phase for token in run.state.tokens.values()] == ["held", "ready"]


def test_a_token_that_sleeps_was_admitted_before_and_is_not_asked_again() -> None:
    gate = admits((ctx("open"), True), (None, False))
    run = Run(net(step("a", "b"), step("b", admission=gate)))
    run.patch(open=True)
    run.done("a", wait_ms=100)
    run.patch(open=False)
    run.tick(run.at + 100)
    assert run.token("b").phase == "ready"


def test_tokens_left_at_closed_gates_are_discarded_where_the_run_says_so() -> None:
    run = Run(gated(policy=RunPolicy(held="discard")))
    assert run.statuses("a") == ["discarded"]
    assert run.status == "completed"


def test_nothing_is_discarded_while_something_moves() -> None:
    gate = admits((ctx("open"), True), (None, False))
    held = RunPolicy(held="discard")
    run = Run(net(router("r", "a", "b"), step("a", admission=gate), step("b"), policy=held))
    assert run.token("a").phase == "held"
    run.done("b", patches=(ContextPatch("open", True),))
    assert run.token("a").phase == "ready"


# -- decisions -----------------------------------------------------------------------------------


def test_a_decision_without_work_asks_and_its_verdict_is_the_result() -> None:
    run = Run(asking())
    assert run.token("a").phase == "deciding"
    assert run.status == "waiting"
    decide(run, "fulfil")
    assert run.status == "completed"
    assert run.state.results["a"] == {
        "decision": "fulfilled", "actor": "alice", "reason": "because", "evidence": {"seen": True},
    }  # fmt: skip


def test_a_decision_after_work_keeps_the_result_of_the_work() -> None:
    run = Run(asking(work=Work("test")))
    run.done("a", {"n": 1})
    assert run.statuses("a") == ["deciding"]
    decide(run, "fulfil")
    assert run.state.results["a"] == {"n": 1}


def test_work_that_failed_asks_nobody() -> None:
    run = Run(asking(work=Work("test")))
    run.fails("a")
    assert run.state.gates == {}
    assert run.status == "failed"


def test_rejected_means_failed() -> None:
    run = Run(asking())
    decide(run, "reject")
    assert run.status == "failed"
    assert run.state.problem is not None
    assert run.state.problem.message == "rejected by alice: because"


def test_rejected_work_is_done_again() -> None:
    run = Run(asking("retry", work=Work("test")))
    run.done("a", "draft")
    decide(run, "reject")
    assert run.job("a").attempt == 2
    assert run.token("a").answer is None, "the rejected answer is gone"
    run.done("a", "better")
    decide(run, "fulfil")
    assert run.state.results["a"] == "better"


def test_a_rejection_can_pause_the_run_and_be_taken_back() -> None:
    run = Run(asking("pause"))
    decide(run, "reject")
    assert run.status == "paused"
    assert "gate-1" in run.state.gates
    run.send(s.Resume("bob"))
    decide(run, "fulfil", "bob")
    assert run.status == "completed"
    assert run.state.results["a"]["decision"] == "fulfilled"


def test_a_rejected_fan_out_asks_everybody_again() -> None:
    run = Run(fan_net(["x", "y"], "any", decision=Decision(on_reject="retry"), losers="drain"))
    run.begin("1.0")
    run.done("1.1", "answer")
    assert run.token("ask").phase == "deciding"
    decide(run, "reject", gate="ask")
    run.done("1.0", "late")
    run.done("1r1.0", "better")
    decide(run, "fulfil", gate="ask")
    assert (run.status, run.result) == ("completed", {"responses": ["better"]})


def test_only_those_named_may_decide() -> None:
    run = Run(asking(actors=("alice", "bob")))
    refusal = run.refuses(s.Decide("a", "fulfil", "mallory"), "not_allowed")
    assert refusal.message == "gate gate-1 may be decided by alice, bob, not by mallory"
    run.refuses(s.Decide("a", "fulfil"), "not_allowed")
    decide(run, "fulfil", "bob")
    assert run.status == "completed"


@pytest.mark.parametrize("second", ["fulfil", "reject"])
def test_of_two_decisions_racing_the_second_is_refused(second: Literal["fulfil", "reject"]) -> None:
    run = Run(net(router("r", "a", "c"), *asking().steps.values(), step("c")))
    decide(run, "fulfil")
    run.refuses(s.Decide("gate-2", second, "bob"), "gate_not_open")
    assert run.of_kind(e.GateDecided)[0].actor == "alice"


def test_a_decision_on_a_gate_that_is_not_open_names_those_that_are() -> None:
    run = Run(asking())
    assert "open: gate-1 (a)" in run.refuses(s.Decide("b", "fulfil"), "gate_not_open").message
    run.refuses(s.Decide("a", "perhaps"), "verdict")  # type: ignore[arg-type]


def test_two_gates_at_one_step_must_be_named() -> None:
    run = Run(net(router("r", "a", "a"), *asking().steps.values()))
    run.refuses(s.Decide("a", "fulfil"), "ambiguous")
    decide(run, "fulfil", gate="gate-3")
    decide(run, "reject", gate="a")
    assert run.statuses("a") == ["failed", "done"]


def test_a_gate_nobody_answers_in_time_closes() -> None:
    decision = Decision("ship it?")
    run = Run(net(step("a", work=None, decision=decision, timeout_ms=1_000, on_timeout="skip")))
    run.tick(run.at + 1_000)
    assert run.state.gates == {}
    assert run.statuses("a") == ["skipped"]
    assert run.of_kind(e.GateDecided)[0].actor == "engine"


def test_cancelling_closes_open_gates() -> None:
    run = Run(asking())
    run.send(s.Cancel("me"))
    assert run.status == "cancelled"


def test_cancelling_a_decision_whose_losers_still_drain() -> None:
    run = Run(fan_net(["x", "y"], "any", decision=Decision(), losers="drain"))
    run.begin("1.0")
    run.done("1.1", "answer")
    run.send(s.Cancel("me"))
    assert run.statuses("ask") == ["aborted"]
    run.discharge("1.0")
    assert run.status == "cancelled"


# -- decisions that rules make ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "status"), [(True, "completed"), (False, "failed"), (None, "waiting"), (1, "waiting")]
)
def test_a_rule_decides_when_it_gives_true_or_false(said: Any, status: str) -> None:
    assert Run(asking(when=const(said))).status == status


def test_a_rule_sees_the_answer_of_the_work() -> None:
    rule = Fn(lambda names: names["answer"]["ok"])
    run = Run(asking(work=Work("test"), when=rule))
    run.done("a", {"ok": True})
    assert run.status == "completed"


def test_a_rule_that_rejects_tries_again_within_the_limits_of_the_work() -> None:
    work = Work("test", retry=Retry(2, 100))
    run = Run(asking("retry", work=work, when=const(False)))
    run.done("a", 1)
    assert run.next_wake() == run.at + 100
    run.tick(run.at + 100)
    run.done("a", 2)
    assert run.status == "failed"
    assert run.state.problem is not None
    assert run.state.problem.message == "rejected by the rule of step a"


def test_a_rule_that_rejects_can_pause_the_run_for_a_person() -> None:
    run = Run(asking("pause", work=Work("test"), when=const(False)))
    run.done("a", 1)
    assert run.status == "paused"
    assert list(run.state.gates) == ["gate-1"]


def test_a_rule_that_cannot_be_evaluated_fails_the_step_and_loses_nothing() -> None:
    run = Run(asking(work=Work("test"), when=Wrong("answer.x")))
    run.done("a", {"n": 1})
    assert run.status == "failed"
    assert run.state.problem is not None
    assert run.state.problem.message == "the decision of step a: answer.x: division by zero"


# -- pause and resume ------------------------------------------------------------------------------


def test_a_paused_run_records_what_comes_and_starts_nothing() -> None:
    run = Run(net(step("a", "b"), step("b")))
    run.begin("a")
    run.send(s.Pause("me", "night"))
    run.refuses(s.Pause("me"), "already_paused")
    assert run.status == "paused"
    run.done("a")
    assert run.job("b").phase == "scheduled"
    run.refuses(s.JobStart("2.0", 1), "paused")
    run.send(s.Resume("me"))
    run.refuses(s.Resume("me"), "not_paused")
    run.done("b")
    assert run.status == "completed"


def test_a_paused_run_can_be_cancelled_and_an_ending_one_cannot_be_paused() -> None:
    run = Run(net(router("r", "a"), step("a")))
    run.begin("a")
    run.send(s.Pause("me"))
    run.send(s.Cancel("me"))
    run.refuses(s.Pause("me"), "ending")
    run.refuses(s.Cancel("me"), "ending")
    run.discharge("2.0")
    assert run.status == "cancelled"

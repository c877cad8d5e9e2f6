"""Joins beyond the letter of the seed: loops, nested kills, wake times, depth, other rules."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.laws import check_rest
from anabranch.kernel.step import step as kernel_step
from anabranch.kernel.values import ContextPatch, succeeded
from anabranch.net.net import (
    Admission,
    AdmitRule,
    Arc,
    Branch,
    Decision,
    GatherRule,
    Join,
    Net,
    Slot,
)

from .driver import Run
from .nets import arcs, ctx, forks, net, orchestration, router, step


def joined(rule: GatherRule, *nodes: str) -> Net:
    """A fork to these steps, gathered at `j` by that rule."""
    join = Join("j", rule, tuple(Slot(node) for node in nodes))
    branch = Branch(None, "inclusive", arcs(*nodes), join)
    return net(router("a", branch), *(step(node) for node in dict.fromkeys(nodes)), step("j"))


# -- loops ---------------------------------------------------------------------------------------


def test_back_loops_keep_a_join_open() -> None:
    """A polling producer: invalid sends it round again, valid delivers."""
    run = Run(
        orchestration(
            A1=forks(["G1"], "J1", froms=["G1:valid"]),
            G1=forks(["G1"], outcome="invalid"),
            J1=None,
        )
    )
    run.valid("A1")
    for _ in range(3):
        run.invalid("G1")
        assert run.verdict("J1")[0] == "open"
    run.valid("G1")
    assert run.verdict("J1") == ("closed", ["G1"], 0)


def test_a_process_that_loops_back_is_a_new_one_and_may_deliver_again() -> None:
    run = Run(
        orchestration(
            A1=forks(["G1"], "J1", mode="all", froms=["G1:any", "G1:any"]),
            G1=forks(["G1"]),
            J1=None,
        )
    )
    run.valid("A1")
    run.valid("G1", n=1)
    run.valid("G1", n=2)
    assert run.verdict("J1")[0] == "closed"
    assert run.token("J1").payload == {"n": 2}


def test_a_join_in_a_loop_is_a_new_join_every_time() -> None:
    run = Run(
        orchestration(
            A1=forks(["G1", "H1"], "J1", wait="kill", froms=["G1:valid", "H1:valid"]),
            G1=None,
            H1=None,
            J1=forks(["A1"]),
        )
    )
    for turn in range(3):
        run.valid("A1")
        run.valid("G1" if turn % 2 else "H1")
        run.valid("J1")
    records = [(r.verdict, r.selected) for r in run.state.joins.values()]
    assert records == [("closed", ["H1"]), ("closed", ["G1"]), ("closed", ["H1"])]
    assert set(run.state.scopes) == {0}, "closed and empty scopes leave no trace"


# -- kills ---------------------------------------------------------------------------------------


def nested() -> Net:
    """B1 opens a join of its own inside the group of J1; X1 is the quick way out."""
    return orchestration(
        A1=forks(["B1", "X1"], "J1", wait="kill", froms=["X1:valid", "K1:valid"]),
        B1=forks(["C1", "D1"], "K1", mode="all", froms=["C1:valid", "D1:valid"]),
        C1=None,
        D1=None,
        K1=None,
        X1=None,
        J1=None,
    )


def test_killing_a_waiting_join_target_kills_its_group_too() -> None:
    run = Run(nested())
    run.valid("A1")
    run.valid("B1")
    running = run.begin("C1")
    run.valid("X1")
    assert run.statuses("K1") == ["aborted"]
    assert run.statuses("D1") == ["aborted"]
    assert run.token("C1").doomed
    assert run.verdict("K1")[0] == "impossible"
    run.discharge(running.id)
    run.valid("J1")
    assert run.status == "completed"


def test_a_killed_group_takes_held_sleeping_and_asking_members_with_it() -> None:
    gate = Admission((AdmitRule(ctx("open"), True),))
    join = Join("j", GatherRule("any", combine="merge", losers="kill"), (Slot("g"),))
    branch = Branch(None, "inclusive", arcs("g", "h", "d", "w"), join)
    run = Run(
        net(
            router("a", branch), step("g"), step("h", admission=gate),
            step("d", work=None, decision=Decision()), step("w", "z"), step("z"), step("j"),
        )
    )  # fmt: skip
    run.done("w", wait_ms=10_000)
    run.done("g")
    assert run.statuses("h") == ["aborted"]
    assert run.statuses("d") == ["aborted"]
    assert run.statuses("z") == ["aborted"]
    assert run.next_wake() is None
    run.refuses(s.Decide("d", "fulfil"), "gate_not_open")


def test_a_killed_running_producer_leaves_no_trace_in_the_context() -> None:
    run = Run(joined(GatherRule("any", combine="merge", losers="kill"), "g", "h"))
    run.begin("h")
    run.done("g")
    run.done("h", {"n": 1}, patches=(ContextPatch("seen", True),))
    assert run.state.ctx == {}
    assert "h" not in run.state.results
    assert run.statuses("h") == ["done"]


@pytest.mark.parametrize("wait", ["kill", "drain"])
def test_a_drained_or_killed_group_ends_before_the_run_does(wait: Literal["kill", "drain"]) -> None:
    run = Run(joined(GatherRule("any", combine="merge", losers=wait), "g", "h"))
    run.begin("h")
    run.done("g")
    run.done("j")
    assert run.status == "running"
    run.done("h")
    assert run.status == "completed"
    assert run.verdict("j")[2] == 1


def test_a_killed_producer_is_killed_once() -> None:
    run = Run(joined(GatherRule("any", combine="merge", losers="kill"), "g", "h"))
    run.begin("h")
    run.done("g")
    run.send(s.Cancel("me"))
    assert len(run.of_kind(e.TokenDoomed)) == 1
    assert run.token("h").reason == "the join at j no longer needs it"
    run.done("h")
    assert run.statuses("h") == ["aborted"], "a run that is cancelled leaves nothing done late"
    assert run.status == "cancelled"


def deep() -> Net:
    """Every level opens a join inside the group of the one above; `quick` closes the first."""
    up = Join("up", GatherRule("any", combine="merge"), (Slot("up"),))
    again = Branch("down", "inclusive", arcs("dig"), up)
    join = Join("j", GatherRule("any", combine="merge", losers="kill"), (Slot("quick"),))
    start = Branch(None, "inclusive", arcs("dig", "quick"), join)
    return net(router("a", start), step("dig", again), step("quick"), step("up"), step("j"))


def test_scopes_nest_without_a_limit_and_a_kill_reaches_the_bottom() -> None:
    levels = 1_500
    run = Run(deep(), begin=False)

    def tell(stimulus: s.Stimulus) -> None:
        kernel_step(run.net, run.state, stimulus, 0)

    tell(s.Start(run="run"))
    quick = run.job("quick").id
    for _ in range(levels):
        job = run.job("dig").id
        tell(s.JobStart(job, 1))
        tell(s.JobReport(job, 1, succeeded(outcome="down")))
    assert len(run.state.scopes) == levels + 2
    tell(s.JobStart(quick, 1))
    tell(s.JobReport(quick, 1, succeeded()))
    assert list(run.state.scopes) == [0]
    assert [token.step for token in run.state.tokens.values()] == ["j"]
    check_rest(run.state)


# -- wake times ----------------------------------------------------------------------------------


def test_a_wait_holds_the_children_and_the_join_target() -> None:
    run = Run(orchestration(A1=forks(["G1"], "J1", froms=["G1:any"]), G1=None, J1=None))
    run.done("A1", {}, outcome="valid", wait_ms=500)
    assert run.statuses("A1") == ["done"]
    assert run.token("G1").phase == "sleeping"
    assert run.token("J1").phase == "joining"
    run.send(s.Wake(step="G1"))
    run.valid("G1")
    assert run.token("J1").phase == "sleeping", "closed, and its own wake time is still ahead"
    run.tick(run.at + 500)
    assert run.token("J1").phase == "ready"


def test_an_open_join_is_never_woken() -> None:
    run = Run(orchestration(A1=forks(["G1"], "J1", froms=["G1:any"]), G1=None, J1=None))
    run.done("A1", {}, outcome="valid", wait_ms=500)
    run.refuses(s.Wake(step="J1"), "not_sleeping")
    run.tick(run.at + 500)
    assert run.token("J1").phase == "joining"


def test_the_wait_of_a_leaf_has_no_effect() -> None:
    run = Run(orchestration(A1=None))
    run.done("A1", {}, outcome="valid", wait_ms=500)
    assert run.status == "completed"


# -- odd declarations ------------------------------------------------------------------------------


def test_the_same_step_twice_in_spawns_is_two_processes() -> None:
    run = Run(orchestration(A1=forks(["G1", "G1"]), G1=None))
    run.valid("A1")
    assert len(run.statuses("G1")) == 2


def test_a_join_target_that_is_also_spawned_is_a_plain_process_there() -> None:
    run = Run(
        orchestration(A1=forks(["J1", "G1"], "J1", mode="any", froms=["G1:any"]), G1=None, J1=None)
    )
    run.valid("A1")
    assert [token.phase for token in run.state.tokens.values()] == ["joining", "ready", "ready"]


def test_offers_beyond_the_slots_are_dropped_while_the_join_is_open() -> None:
    run = Run(
        orchestration(
            A1=forks(["G1", "G1", "H1"], "J1", mode="all", froms=["G1:any", "H1:any"]),
            G1=None, H1=None, J1=None,
        )
    )  # fmt: skip
    run.valid("A1")
    run.valid("G1", n=1)
    run.valid("G1", n=2)
    run.valid("H1")
    assert run.verdict("J1") == ("closed", ["G1", "H1"], 0)
    assert run.token("J1").payload == {"n": 1}


def test_a_failed_step_offers_nothing() -> None:
    run = Run(joined(GatherRule("any", combine="merge"), "g", "h"))
    run.fails("g")
    assert run.gather("j").filled == {}
    run.done("h")
    assert run.verdict("j") == ("closed", ["h"], 0)


def test_an_exclusive_branch_with_a_join_spawns_its_first_match_only() -> None:
    join = Join("j", GatherRule("any", combine="merge"), (Slot("g"), Slot("h")))
    branch = Branch(None, "exclusive", (Arc("g"), Arc("h")), join)
    run = Run(net(router("a", branch), step("g"), step("h"), step("j")))
    assert run.statuses("g") == ["ready"]
    assert run.statuses("h") == []


# -- other rules than the seed's -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "delivered", "payload"),
    [
        (GatherRule("any", combine="one"), ["h"], {"h": 1}),
        (GatherRule("all", combine="list"), ["h", "g"], {"responses": [{"g": 1}, {"h": 1}]}),
        (GatherRule("all", select="arrival", combine="list"), ["h", "g"],
         {"responses": [{"h": 1}, {"g": 1}]}),
        (GatherRule("all", combine="counts"), ["g", "h"],
         {"total": 2, "succeeded": 2, "failed": 0}),
        (GatherRule("best_of", select="arrival", combine="one"), ["h", "g"], {"h": 1}),
    ],
)  # fmt: skip
def test_joins_take_every_rule(rule: GatherRule, delivered: list[str], payload: Any) -> None:
    run = Run(joined(rule, "g", "h"))
    for node in delivered:
        assert run.verdict("j")[0] == "open"
        run.done(node, {node: 1})
    assert run.token("j").payload == payload


def test_a_join_that_tolerates_gaps_closes_when_nobody_else_can_come() -> None:
    run = Run(joined(GatherRule("all", tolerate=1, combine="merge"), "g", "h"))
    run.done("g", {"g": 1})
    assert run.verdict("j")[0] == "open"
    run.fails("h")
    assert run.verdict("j") == ("closed", ["g"], 0)


def test_a_join_that_tolerates_everything_closes_with_nothing() -> None:
    run = Run(joined(GatherRule("all", tolerate=2, combine="one"), "g", "h"))
    run.fails("g")
    run.fails("h")
    assert run.verdict("j") == ("closed", [], 0)
    assert run.token("j").payload == {}


def test_an_impossible_join_is_recorded_with_its_reason() -> None:
    run = Run(joined(GatherRule("quorum", k=2, combine="merge"), "g", "h"))
    run.fails("g")
    settled = run.of_kind(e.GatherSettled)[0]
    assert settled.reason == "0 delivered, 1 possible, 2 needed"
    fault = run.of_kind(e.TokenFinished)[-1].fault
    assert fault.message.startswith("the join at j cannot close: 0 delivered")


def test_the_target_may_have_a_gate_of_its_own() -> None:
    gate = Admission((AdmitRule(ctx("open"), True),))
    join = Join("j", GatherRule("any", combine="merge"), (Slot("g"),))
    start = Branch(None, "inclusive", arcs("g"), join)
    run = Run(net(router("a", start), step("g"), step("j", admission=gate)))
    run.done("g")
    assert run.token("j").phase == "held"
    run.patch(open=True)
    assert run.token("j").phase == "ready"


def test_work_of_the_target_may_be_retried_without_the_join() -> None:
    run = Run(joined(GatherRule("any", combine="merge"), "g"))
    run.done("g", {"n": 1})
    run.begin("j")
    run.send(s.JobLose(run.job("j").id, 1))
    assert run.token("j").payload == {"n": 1}
    run.done("j")
    assert run.status == "completed"

"""Barriers: a step that runs once for all the tokens that can still reach it."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import aborted
from anabranch.net.net import (
    Admission,
    AdmitRule,
    Arc,
    Barrier,
    Branch,
    Decision,
    GatherRule,
    Join,
    Net,
    RunPolicy,
    Slot,
    Step,
)

from .driver import Run
from .nets import arcs, const, ctx, exclusive, inclusive, net, router, step


def meeting(name: str, *next_steps: str | Branch, need: Any = "reached", **more: Any) -> Step:
    return step(name, *next_steps, barrier=Barrier(need), **more)


def diamond(need: str = "reached", policy: RunPolicy | None = None) -> Net:
    """a forks to b and c, which meet at d."""
    return net(router("a", "b", "c"), step("b", "d"), step("c", "d"), meeting("d", need=need),
               policy=policy)  # fmt: skip


def test_it_runs_once_for_all_who_come() -> None:
    run = Run(diamond())
    run.done("b")
    assert run.token("d").phase == "joining"
    run.done("c")
    assert run.token("d").phase == "ready"
    run.done("d")
    assert run.statuses("d") == ["done"]
    assert run.status == "completed"


def test_without_a_barrier_it_runs_once_per_token() -> None:
    run = Run(net(router("a", "b", "c"), step("b", "d"), step("c", "d"), step("d")))
    run.done("b")
    run.done("c")
    assert len(run.statuses("d")) == 2


def test_the_arguments_of_all_arrivals_are_merged_in_document_order() -> None:
    first, second = const({"x": 1, "who": "b"}), const({"y": 2, "who": "c"})
    run = Run(
        net(
            router("a", "b", "c"),
            step("b", exclusive(Arc("d", None, first))),
            step("c", exclusive(Arc("d", None, second))),
            meeting("d"),
        )
    )
    run.done("c")
    run.done("b")
    assert run.token("d").args == {"x": 1, "y": 2, "who": "c"}
    assert run.verdict("d") == ("closed", ["b", "c"], 0)


def test_branches_that_were_not_taken_do_not_count() -> None:
    branch = inclusive("b", Arc("c", const(False)))
    run = Run(net(router("a", branch), step("b", "d"), step("c", "d"), meeting("d")))
    run.done("b")
    assert run.token("d").phase == "ready"


def test_branches_that_end_elsewhere_do_not_count() -> None:
    run = Run(diamond(policy=RunPolicy(on_failure="handled")))
    run.done("b")
    assert run.token("d").phase == "joining"
    run.answer("c", aborted("rule", "no"))
    assert run.token("d").phase == "ready", "known as soon as the other one has ended"


def test_a_token_that_can_no_longer_reach_it_is_not_waited_for() -> None:
    branches = [exclusive("d", outcome="ok"), exclusive("x", outcome="alt")]
    run = Run(
        net(router("a", "b", "c"), step("b", "d"), step("c", *branches), meeting("d"), step("x"))
    )
    run.done("b")
    run.done("c", outcome="alt")
    assert run.token("d").phase == "ready"
    assert run.token("x").phase == "ready"


def test_a_token_far_upstream_is_waited_for() -> None:
    run = Run(
        net(router("a", "b", "u"), step("u", "v"), step("v", "d"), step("b", "d"), meeting("d"))
    )
    run.done("b")
    run.done("u")
    assert run.token("d").phase == "joining"
    run.done("v")
    assert run.token("d").phase == "ready"


def test_back_edges_do_not_count() -> None:
    """d leads back to itself by way of b: it does not wait for its own future."""
    run = Run(net(router("a", "b"), step("b", "d"), meeting("d", exclusive("b", outcome="again"))))
    for _ in range(3):
        run.done("b")
        assert run.token("d").phase == "ready"
        run.done("d", outcome="again")
    run.done("b")
    run.done("d")
    assert run.statuses("d") == ["done"] * 4
    assert run.status == "completed"


def test_tokens_that_sleep_or_stand_at_a_gate_are_waited_for() -> None:
    gate = Admission((AdmitRule(ctx("open"), True),))
    run = Run(
        net(router("a", "b", "c"), step("b", "d"), step("c", "d", admission=gate), meeting("d"))
    )
    run.done("b")
    assert run.status == "waiting"
    run.patch(open=True)
    run.done("c")
    assert run.token("d").phase == "ready"


def test_several_tokens_from_one_predecessor_all_arrive() -> None:
    run = Run(net(router("a", "b", "b", "b"), step("b", "d"), meeting("d")))
    for _ in range(3):
        assert "d" not in run.state.steps or run.token("d").phase == "joining"
        run.done("b")
    assert run.token("d").phase == "ready"
    assert run.verdict("d")[1] == ["b", "b", "b"]


def test_two_arcs_of_one_step_to_the_barrier_arrive_twice_and_run_it_once() -> None:
    branch = inclusive(Arc("d", None, const({"x": 1})), Arc("d", None, const({"y": 2})))
    run = Run(net(step("a", branch), meeting("d")))
    run.done("a")
    assert run.token("d").args == {"x": 1, "y": 2}


def test_somebody_who_could_be_led_there_later_is_waited_for() -> None:
    run = Run(
        net(
            router("a", "b", "x"),
            step("b", "d"),
            meeting("d"),
            step("x", exclusive("b", outcome="again")),
        )
    )
    run.done("b")
    assert run.token("d").phase == "joining", "x can still lead there"
    run.done("x", outcome="again")
    run.done("b")
    run.done("d")
    assert run.statuses("d") == ["done"]


def test_it_does_not_run_before_the_last_of_the_wake_times_it_was_given() -> None:
    run = Run(diamond())
    run.done("b", wait_ms=100)
    run.done("c", wait_ms=900)
    assert run.token("d").phase == "sleeping"
    assert run.next_wake() == run.at + 900


# -- need = all ----------------------------------------------------------------------------------


def test_where_all_are_needed_a_missing_predecessor_skips_the_step() -> None:
    run = Run(diamond("all"))
    run.done("b")
    run.answer("c", aborted("rule", "no"))
    assert run.statuses("d") == ["skipped"]
    assert run.verdict("d")[0] == "impossible"
    assert run.of_kind(e.TokenFinished)[-1].fault.message == "nothing came from c"
    assert run.status == "completed"


def test_where_all_are_needed_and_come_it_runs() -> None:
    run = Run(diamond("all"))
    run.done("b")
    run.done("c")
    assert run.token("d").phase == "ready"


# -- scopes --------------------------------------------------------------------------------------


def test_a_barrier_belongs_to_its_scope() -> None:
    """Two groups with the same steps meet separately."""
    join = Join("j", GatherRule("any", combine="merge"), (Slot("d"),))
    group = Branch(None, "inclusive", arcs("b", "c"), join)
    run = Run(
        net(router("a", "f", "f"), router("f", group), step("b", "d"), step("c", "d"),
            meeting("d"), step("j"))
    )  # fmt: skip
    run.done("b", nth=0)
    run.done("c", nth=1)
    assert [token.phase for token in run.state.tokens.values() if token.step == "d"] == [
        "joining", "joining",
    ]  # fmt: skip
    run.done("c", nth=0)
    run.done("b", nth=0)
    assert run.statuses("d") == ["ready", "ready"]


def test_a_spawn_of_a_join_arrives_at_the_barrier_of_the_fresh_scope() -> None:
    join = Join("j", GatherRule("any", combine="merge"), (Slot("d"),))
    group = Branch(None, "inclusive", arcs("b", "d"), join)
    run = Run(net(router("a", group), step("b", "d"), meeting("d"), step("j")))
    assert run.token("d").phase == "joining"
    run.done("b")
    run.done("d")
    assert run.statuses("d") == ["done"]
    run.done("j")
    assert run.status == "completed"


def test_a_barrier_waits_for_the_target_of_a_nested_join() -> None:
    join = Join("j", GatherRule("any", combine="merge"), (Slot("g"),))
    group = Branch(None, "inclusive", arcs("g"), join)
    run = Run(
        net(router("a", "b", "n"), router("n", group), step("g"), step("j", "d"), step("b", "d"),
            meeting("d"))
    )  # fmt: skip
    run.done("b")
    run.done("g")
    assert run.token("d").phase == "joining"
    run.done("j")
    assert run.token("d").phase == "ready"


def test_a_killed_scope_takes_its_barriers_with_it() -> None:
    join = Join("j", GatherRule("any", combine="merge", losers="kill"), (Slot("q"),))
    group = Branch(None, "inclusive", arcs("b", "c", "q"), join)
    run = Run(
        net(router("a", group), step("b", "d"), step("c", "d"), step("q"), meeting("d"), step("j"))
    )
    run.done("b")
    run.done("q")
    assert run.statuses("d") == ["aborted"]
    run.done("j")
    assert run.status == "completed"


# -- barriers that wait for one another ------------------------------------------------------------


def circle() -> list[Step]:
    """d leads to e and e to d; b arrives at d, c at e."""
    return [
        step("b", "d"),
        step("c", "e"),
        meeting("d", exclusive("e", outcome="on")),
        meeting("e", exclusive("d", outcome="on")),
    ]


def test_barriers_that_wait_for_one_another_resolve_oldest_first() -> None:
    run = Run(net(router("a", "b", "c"), *circle()))
    run.done("b")
    assert run.token("d").phase == "joining", "c may come by way of e"
    run.done("c")
    assert [run.token(name).phase for name in "de"] == ["ready", "joining"]
    run.done("d", outcome="on")
    run.done("e")
    assert run.statuses("d") == ["done"]
    assert run.statuses("e") == ["done"]
    assert run.status == "completed"


@pytest.mark.parametrize("kind", ["held", "deciding", "working"])
def test_they_resolve_even_while_something_else_waits(kind: str) -> None:
    other: dict[str, Any] = {
        "held": step("x", admission=Admission((AdmitRule(ctx("open"), True),))),
        "deciding": step("x", work=None, decision=Decision()),
        "working": step("x"),
    }
    run = Run(net(router("a", "b", "c", "x"), *circle(), other[kind]))
    run.done("b")
    run.done("c")
    assert run.token("d").phase == "ready"


def test_a_barrier_below_the_circle_waits_until_the_circle_is_through() -> None:
    """f is older than both and must not give way: the circle can still reach it."""
    steps = [
        step("b", "d"),
        step("c", "e"),
        step("x", "f"),
        meeting("d", exclusive("e", outcome="on"), exclusive("f")),
        meeting("e", exclusive("d", outcome="on"), exclusive("f")),
        meeting("f"),
    ]
    run = Run(net(router("a", "b", "c", "x"), *steps))
    run.done("x")
    run.done("c")
    run.done("b")
    assert run.token("e").phase == "ready"
    assert run.token("f").phase == "joining"
    run.done("e")
    run.done("d")
    run.done("f")
    assert run.statuses("f") == ["done"]


def test_a_chain_of_barriers_is_no_circle() -> None:
    run = Run(
        net(router("a", "b", "c"), step("b", "d"), step("c", "e"), meeting("d", "e"), meeting("e"))
    )
    run.done("c")
    run.done("b")
    assert run.token("d").phase == "ready"
    assert run.token("e").phase == "joining"
    run.done("d")
    assert run.token("e").phase == "ready"


def test_cancelling_ends_barriers() -> None:
    run = Run(diamond())
    run.done("b")
    run.send(s.Cancel("me"))
    assert run.status == "cancelled"
    assert run.statuses("d") == ["aborted"]

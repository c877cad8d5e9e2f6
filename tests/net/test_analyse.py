"""What can be told from a net alone."""

from __future__ import annotations

import time
from typing import Any

import pytest

from anabranch.net.analyse import analyse, join_slots_reachable
from anabranch.net.net import Admission, AdmitRule, Barrier, Decision, GatherRule, Net, Work
from anabranch.net.problems import CODES, Problem

from .support import joining, net, step


def found(built: Net) -> dict[str, list[str]]:
    """Code → the messages."""
    result: dict[str, list[str]] = {}
    for problem in analyse(built):
        assert problem.code in CODES
        result.setdefault(problem.code, []).append(problem.message)
    return result


def only(built: Net, code: str) -> Problem:
    (problem,) = [each for each in analyse(built) if each.code == code]
    return problem


def test_a_plain_net_has_nothing_to_report() -> None:
    assert analyse(net(step("a", "b if x", "c"), step("b", "c"), step("c"))) == []


# -- reaching --------------------------------------------------------------------------------


def test_steps_no_route_leads_to() -> None:
    built = net(step("a", "b"), step("b"), step("lost", "lost2"), step("lost2", line=7))
    assert len(found(built)["unreachable-step"]) == 2
    assert [str(p.position) for p in analyse(built)] == ["<text>:1:1", "f:7:1"]


def test_the_entry_decides_what_is_reached() -> None:
    built = net(step("a", "b"), step("b"), entry="b")
    assert "'a'" in found(built)["unreachable-step"][0]


def test_the_final_step_needs_no_route() -> None:
    assert found(net(step("a"), step("end"), final="end")) == {}


def test_arcs_to_the_final_step_are_noted_and_beginning_with_it_is_warned_of() -> None:
    routed = net(step("a", "end"), step("end"), final="end")
    assert "runs once for all of them" in found(routed)["final-step-routed"][0]
    assert [problem.severity for problem in analyse(routed)] == ["note"]
    assert "the entry step" in found(net(step("a"), final="a"))["final-step-routed"][0]


def test_arcs_of_the_final_step_are_never_followed() -> None:
    built = net(step("a"), step("end", "a"), final="end")
    assert list(found(built)) == ["final-step-routes"]


# -- forks that meet -------------------------------------------------------------------------


def test_a_step_that_several_tokens_of_a_fork_reach() -> None:
    built = net(
        step("a", "all", "b", "c", line=3),
        step("b", "d"),
        step("c", "d"),
        step("d", "e", line=9),
        step("e"),
    )
    problem = only(built, "several-tokens")
    assert str(problem.position) == "f:9:1"
    assert "fork at 'a' (line 3) can reach the step 'd'" in problem.message
    assert "join: all" in problem.hint
    assert problem.severity == "warning"


def test_only_the_first_meeting_is_reported() -> None:
    chain = [step(f"d{n}", f"d{n + 1}") for n in range(5)]
    built = net(step("a", "all", "b", "c"), step("b", "d0"), step("c", "d0"), *chain, step("d5"))
    assert len(found(built)["several-tokens"]) == 1


def test_a_shortcut_also_meets() -> None:
    built = net(step("a", "all", "b", "c"), step("b", "c"), step("c"))
    assert "'c'" in found(built)["several-tokens"][0]


def test_exclusive_routers_do_not_fork() -> None:
    built = net(step("a", "b if x", "c"), step("b", "d"), step("c", "d"), step("d"))
    assert "several-tokens" not in found(built)


def test_a_barrier_is_the_answer() -> None:
    joined = step("d", barrier=Barrier())
    built = net(step("a", "all", "b", "c"), step("b", "d"), step("c", "d"), joined)
    assert analyse(built) == []


def test_coming_back_to_the_fork_is_no_meeting() -> None:
    built = net(step("a", "all", "b if x", "c"), step("b", "a if y"), step("c"))
    assert "several-tokens" not in found(built)


def test_several_forks_are_counted() -> None:
    built = net(
        step("a", "all", "f", "g"),
        step("f", "all", "x", "y"),
        step("g", "x"),
        step("x"),
        step("y", "x"),
    )
    assert "and 1 more" in found(built)["several-tokens"][0]


# -- arcs and cycles -------------------------------------------------------------------------


def test_arcs_behind_one_that_is_always_taken() -> None:
    built = net(step("a", "b if x", "c", "d", "b"), step("b"), step("c"), step("d"))
    to_d, to_b = found(built)["dead-arc"]
    assert "the arc to 'd' never is" in to_d
    assert "the arc to 'b' never is" in to_b
    assert "dead-arc" not in found(net(step("a", "all", "b", "c"), step("b"), step("c")))


def test_cycles_nothing_leads_out_of() -> None:
    built = net(step("a", "b"), step("b", "c"), step("c", "b"))
    assert "'b' → 'c'" in found(built)["endless-cycle"][0]
    assert "endless-cycle" in found(net(step("a", "a")))
    # The way out stands behind an arc that is always taken.
    assert "endless-cycle" in found(net(step("a", "a", "b"), step("b")))


@pytest.mark.parametrize(
    "way_out",
    [
        step("c", "b if x"),
        step("c", "b if x", "d"),
        step("c", "all", "b", "d"),
        step("c", "d if y", "b"),
    ],
)
def test_cycles_with_a_way_out_that_do_nothing(way_out: object) -> None:
    built = net(step("a", "b"), step("b", "c"), way_out, step("d"))  # type: ignore[arg-type]
    codes = found(built)
    assert "endless-cycle" not in codes
    assert only(built, "idle-cycle").severity == "note"


@pytest.mark.parametrize(
    "worker",
    [
        {"work": Work("python")},
        {"work": None, "decision": Decision("ok?")},
        {"admission": Admission((AdmitRule(None, True),))},
    ],
)
def test_cycles_in_which_something_works_or_waits_are_fine(worker: dict[str, Any]) -> None:
    assert found(net(step("a", "b"), step("b", "a if x", **worker))) == {}


# -- joins -----------------------------------------------------------------------------------

ALL = GatherRule(mode="all")
ANY = GatherRule(mode="any")


def two_of(slots: int = 2) -> GatherRule:
    return GatherRule(mode="quorum", k=slots)


def test_every_slot_inside_the_scope_can_be_filled() -> None:
    built = net(
        joining("a", "b c", "j", "b d", ALL), step("b"), step("c", "d"), step("d"), step("j")
    )
    (reach,) = join_slots_reachable(built)
    assert [slot.node for slot in reach.fillable] == ["b", "d"]
    assert reach.possible
    assert analyse(built) == []


def test_a_producer_inside_a_nested_join_cannot_deliver_outside() -> None:
    built = net(
        joining("a", "b x", "j", "b c", ALL),
        joining("b", "c", "k", "c", ALL),
        step("x"),
        step("c"),
        step("k"),
        step("j"),
    )
    reach = next(each for each in join_slots_reachable(built) if each.step == "a")
    assert [slot.node for slot in reach.lost] == ["c"]
    problem = only(built, "join-impossible")
    assert problem.severity == "error"
    assert "'j' can never close: 'c'" in problem.message
    assert "spawn 'c' from 'a'" in problem.hint


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (ALL, "join-impossible"),
        (two_of(3), "join-impossible"),
        (two_of(2), "slot-unreachable"),
        (ANY, "slot-unreachable"),
        (GatherRule(mode="all", tolerate=1), "slot-unreachable"),
        (GatherRule(mode="all", tolerate_percent=34), "slot-unreachable"),
        (GatherRule(mode="all", exclude_lost=True), "slot-unreachable"),
        (GatherRule(mode="best_of"), "slot-unreachable"),
    ],
)
def test_a_missing_slot_matters_by_the_rule(rule: GatherRule, code: str) -> None:
    built = net(
        joining("a", "b c", "j", "b c lost", rule), step("b"), step("c"), step("j"), step("lost")
    )
    assert code in found(built)


def test_a_join_nobody_can_fill_is_impossible_even_if_it_needs_none() -> None:
    tolerant = GatherRule(mode="all", tolerate=5)
    built = net(joining("a", "b", "j", "x", tolerant), step("b"), step("j"), step("x"))
    assert "join-impossible" in found(built)


# -- size ------------------------------------------------------------------------------------


def test_large_nets_are_analysed_quickly() -> None:
    chain = [step(f"s{n}", f"s{n + 1}") for n in range(4999)]
    wide = [step("s4999", "all", *[f"w{n}" for n in range(300)])]
    leaves = [step(f"w{n}", "end") for n in range(300)]
    built = net(*chain, *wide, *leaves, step("end"))
    began = time.thread_time()
    assert list(found(built)) == ["several-tokens"]
    assert time.thread_time() - began < 3

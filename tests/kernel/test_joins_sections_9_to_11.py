"""Seed 003, sections 9 to 11: impossible joins, kill and drain, the order of things."""

from __future__ import annotations

from typing import Literal

import pytest

from anabranch.kernel import events as e
from anabranch.kernel.values import aborted
from anabranch.net.net import Net

from .driver import Run
from .nets import example_6_1, example_7_4, forks, orchestration

# -- 9: impossible joins -------------------------------------------------------------------------


def both(wait: Literal["kill", "drain"] = "drain") -> Net:
    return orchestration(
        A1=forks(["G1", "H1"], "J1", mode="all", wait=wait, froms=["G1:valid", "H1:valid"]),
        G1=None, H1=None, J1=forks(["Z1"]), Z1=None,
    )  # fmt: skip


def test_9_a_producer_that_ends_with_the_wrong_outcome_ends_the_join() -> None:
    run = Run(both())
    run.valid("A1")
    run.invalid("G1")
    assert run.verdict("J1") == ("impossible", [], 0)
    assert run.statuses("J1") == ["aborted"]
    run.valid("H1")
    assert run.status == "completed"
    assert run.statuses("Z1") == []


def test_9_a_producer_aborted_by_a_hard_error_counts_as_gone() -> None:
    run = Run(both())
    run.valid("A1")
    run.answer("G1", aborted("schema", "bad"))
    assert run.verdict("J1")[0] == "impossible"


def test_9_a_producer_that_can_no_longer_reach_its_node_ends_the_join() -> None:
    net = orchestration(
        A1=forks(["B1"], "J1", froms=["C1:any"]),
        B1=[forks(["C1"], outcome="valid"), forks(["D1"], outcome="invalid")],
        C1=None, D1=None, J1=None,
    )  # fmt: skip
    run = Run(net)
    run.valid("A1")
    run.invalid("B1")
    assert run.verdict("J1")[0] == "impossible"
    assert run.token("D1").phase == "ready", "the group itself goes on"


def test_9_spawns_below_a_nested_join_cannot_deliver_to_the_outer_one() -> None:
    net = orchestration(
        A1=forks(["B1"], "J1", froms=["C1:any"]),
        B1=forks(["C1"], "K1", froms=["C1:any"]),
        C1=None, K1=None, J1=None,
    )  # fmt: skip
    run = Run(net)
    run.valid("A1")
    run.valid("B1")
    assert run.verdict("J1")[0] == "impossible", "known as soon as the nested join takes C1 away"
    run.valid("C1")
    assert run.verdict("K1")[0] == "closed"


def test_9_the_target_of_a_nested_join_can_deliver_to_the_outer_one() -> None:
    net = orchestration(
        A1=forks(["B1"], "J1", froms=["K1:any"]),
        B1=forks(["C1"], "K1", froms=["C1:any"]),
        C1=None, K1=None, J1=None,
    )  # fmt: skip
    run = Run(net)
    run.valid("A1")
    run.valid("B1")
    run.valid("C1")
    run.valid("K1")
    assert run.verdict("J1") == ("closed", ["K1"], 0)


def test_9_impossible_cascades_outwards() -> None:
    net = orchestration(
        A1=forks(["B1"], "J1", froms=["K1:any"]),
        B1=forks(["C1"], "K1", froms=["L1:any"]),
        C1=forks(["D1"], "L1", froms=["D1:valid"]),
        D1=None, L1=None, K1=None, J1=None,
    )  # fmt: skip
    run = Run(net)
    run.valid("A1")
    run.valid("B1")
    run.valid("C1")
    events = run.invalid("D1")
    settled = [event.gather for event in events if isinstance(event, e.GatherSettled)]
    assert [run.state.joins[gather].target for gather in settled] == ["L1", "K1", "J1"]
    assert run.status == "completed"


def test_9_a_join_without_spawns_is_impossible_at_opening() -> None:
    run = Run(orchestration(A1=forks([], "J1", froms=["G1:any"]), G1=None, J1=None))
    run.valid("A1")
    assert run.verdict("J1")[0] == "impossible"
    assert run.status == "completed"


# -- 10 and 11: kill and drain ---------------------------------------------------------------------


def test_10_1_drain_lets_the_others_finish_and_go_on() -> None:
    net = orchestration(
        A1=forks(["G1", "H1"], "J1", mode="any", wait="drain", froms=["G1:valid"]),
        G1=None, H1=forks(["I1"]), I1=None, J1=None,
    )  # fmt: skip
    run = Run(net)
    run.valid("A1")
    run.valid("G1")
    run.valid("J1")
    assert run.status == "running"
    run.valid("H1")
    run.valid("I1")
    assert run.status == "completed"


def test_10_2_kill_aborts_waiting_producers_at_once() -> None:
    run = Run(example_6_1())
    run.valid("A1")
    run.valid("G1")
    events = run.valid("H1")
    finished = [event for event in events if isinstance(event, e.TokenFinished)]
    assert [(event.ending, event.end) for event in finished] == [
        ("done", "leaf"),
        ("aborted", "killed"),
    ]
    assert [job.step for job in run.state.jobs.values()] == ["J1"]


def test_10_2_kill_tells_running_producers_to_stop_and_ignores_what_they_do() -> None:
    net = orchestration(
        A1=forks(["G1", "H1"], "J1", mode="any", wait="kill", froms=["G1:valid", "H1:valid"]),
        G1=None, H1=forks(["Y1"]), Y1=None, J1=None,
    )  # fmt: skip
    run = Run(net)
    run.valid("A1")
    running = run.begin("H1")
    run.valid("G1")
    assert run.state.jobs[running.id].phase == "cancelling"
    run.valid("H1", winner="H")
    assert run.statuses("H1") == ["done"]
    assert run.statuses("Y1") == [], "a killed producer spawns nothing"
    assert run.verdict("J1") == ("closed", ["G1"], 1)


def test_10_2_a_running_producer_that_really_stops_ends_aborted() -> None:
    run = Run(example_7_4())
    run.valid("A1")
    running = run.begin("H1")
    run.valid("G1")
    run.discharge(running.id)
    assert run.statuses("H1") == ["aborted"]


def test_10_2_children_of_the_closing_producer_exist_for_a_moment_and_end_unrun() -> None:
    net = orchestration(
        A1=forks(["G1"], "J1", mode="any", wait="kill", froms=["G1:valid"]),
        G1=forks(["H1"]), H1=None, J1=None,
    )  # fmt: skip
    run = Run(net)
    run.valid("A1")
    run.valid("G1")
    assert run.statuses("H1") == ["aborted"]
    assert run.verdict("J1")[0] == "closed"


@pytest.mark.parametrize(("wait", "left"), [("kill", "aborted"), ("drain", "ready")])
def test_10_an_impossible_join_kills_its_group_only_under_kill(
    wait: Literal["kill", "drain"], left: str
) -> None:
    run = Run(both(wait))
    run.valid("A1")
    run.invalid("G1")
    assert run.statuses("H1") == [left]


def test_11_the_target_is_created_before_the_spawns() -> None:
    run = Run(example_6_1())
    run.valid("A1")
    created = [event.step for event in run.of_kind(e.TokenCreated)]
    assert created == ["A1", "J1", "G1", "H1", "I1"]


def test_11_the_order_inside_one_commit() -> None:
    """Branch actions, then done, then delivery, closing and release, then the kills."""
    net = orchestration(
        A1=forks(["G1", "H1"], "J1", mode="any", wait="kill", froms=["G1:valid"]),
        G1=forks(["K1"]), H1=None, K1=None, J1=None,
    )  # fmt: skip
    run = Run(net)
    run.valid("A1")
    run.begin("G1")
    events = run.valid("G1")
    assert [e.kind_of(event) for event in events][:6] == [
        "job.reported", "token.created", "token.finished", "gather.delivered", "gather.settled",
        "token.released",
    ]  # fmt: skip

"""The joins of seed 003, section by section."""

from __future__ import annotations

from typing import Literal

import pytest

from anabranch.kernel import events as e
from anabranch.kernel.values import aborted
from anabranch.net.net import Net

from .driver import Run
from .nets import forks, orchestration


def example_6_1() -> Net:
    """A1 spawns G1, H1, I1 and joins 2 of 3 at J1."""
    return orchestration(
        A1=forks(
            ["G1", "H1", "I1"], "J1", mode="kofn", k=2, wait="kill",
            froms=["G1:valid", "H1:valid", "I1:any"],
        ),
        G1=None, H1=None, I1=None, J1=None,
    )  # fmt: skip


def example_7_4() -> Net:
    return orchestration(
        A1=forks(["G1", "H1"], "J1", mode="any", wait="kill", froms=["G1:valid", "H1:valid"]),
        G1=None,
        H1=None,
        J1=forks(["P1", "Q1"], "J2", mode="all", wait="kill", froms=["P1:valid", "Q1:valid"]),
        P1=None,
        Q1=None,
        J2=forks(["Z1"]),
        Z1=None,
    )


# -- 6 and 7: declaration, scopes ----------------------------------------------------------------


def test_6_1_two_of_three_close_the_join() -> None:
    run = Run(example_6_1())
    run.valid("A1")
    run.valid("G1")
    assert run.token("J1").phase == "joining"
    run.invalid("I1")
    assert run.verdict("J1") == ("closed", ["G1", "I1"], 0)
    assert run.statuses("H1") == ["aborted"]


@pytest.mark.parametrize("outcome", ["valid", "invalid"])
def test_6_3_when_any_takes_both_outcomes(outcome: str) -> None:
    run = Run(orchestration(A1=forks(["G1"], "J1", froms=["G1:any"]), G1=None, J1=None))
    run.valid("A1")
    run.done("G1", {}, outcome=outcome)
    assert run.verdict("J1")[0] == "closed"


def test_6_3_an_outcome_that_does_not_match_does_not_contribute() -> None:
    run = Run(example_6_1())
    run.valid("A1")
    run.invalid("G1")
    assert run.gather("J1").filled == {}
    assert run.verdict("J1")[0] == "open"


def test_7_2_a_join_accepts_only_its_own_group() -> None:
    """Two executions of the same branch have two groups, and neither feeds the other."""
    run = Run(
        orchestration(
            S1=forks(["A1", "A1"]),
            A1=forks(["G1", "H1"], "J1", mode="all", froms=["G1:valid", "H1:valid"]),
            G1=None, H1=None, J1=None,
        )
    )  # fmt: skip
    run.valid("S1")
    run.valid("A1")
    run.valid("A1")
    run.valid("G1", nth=0)
    run.valid("H1", nth=1)
    assert [record.verdict for record in run.state.joins.values()] == ["open", "open"]
    run.valid("H1", nth=0)
    assert [record.verdict for record in run.state.joins.values()] == ["closed", "open"]


def test_7_3_the_target_stays_in_the_parents_scope() -> None:
    run = Run(example_7_4())
    run.valid("A1")
    target, producer = run.token("J1"), run.token("G1")
    assert target.scope == 0
    assert producer.scope == target.id


def test_7_4_nested_joins_walk_through() -> None:
    run = Run(example_7_4())
    run.valid("A1")
    run.begin("H1")
    run.valid("G1", g=1)
    assert run.verdict("J1") == ("closed", ["G1"], 0)
    assert run.token("H1").doomed, "a running loser is told to stop and not waited for"
    run.valid("J1")
    assert run.token("P1").scope == run.token("Q1").scope == run.token("J2").id
    run.valid("H1", h=1)  # the killed one finishes all the same
    assert run.verdict("J1") == ("closed", ["G1"], 1)
    run.valid("P1", p=1)
    assert run.verdict("J2")[0] == "open"
    run.valid("Q1", q=1)
    assert run.token("J2").payload == {"g": 1, "p": 1, "q": 1}
    run.valid("J2")
    run.valid("Z1")
    assert run.status == "completed"
    assert run.statuses("H1") == ["done"]
    assert "H1" not in run.state.results, "nothing of it is visible"


def test_7_4_pitfall_producers_spawned_earlier_make_the_join_impossible_at_once() -> None:
    run = Run(
        orchestration(
            A1=forks(["G1", "H1"], "J1", mode="any", wait="drain", froms=["G1:valid", "H1:valid"]),
            G1=forks(["P1"]),
            H1=forks(["Q1"]),
            P1=None,
            Q1=None,
            J1=forks([], "J2", mode="all", froms=["P1:valid", "Q1:valid"]),
            J2=forks(["Z1"]),
            Z1=None,
        )
    )
    run.valid("A1")
    run.valid("G1")
    run.valid("H1")
    assert run.token("P1").scope == run.token("Q1").scope, "they inherit the first group"
    run.valid("J1")
    assert run.verdict("J2") == ("impossible", [], 0)
    assert run.statuses("J2") == ["aborted"]
    run.valid("P1")
    run.valid("Q1")
    assert run.statuses("Z1") == []
    assert run.status == "completed"


# -- 8: delivery and selection -------------------------------------------------------------------


def test_8_1_a_producer_may_lie_deeper_than_the_spawns() -> None:
    run = Run(
        orchestration(
            A1=forks(["B1"], "J1", froms=["C1:valid"]), B1=forks(["C1"]), C1=None, J1=None
        )
    )
    run.valid("A1")
    run.valid("B1")
    assert run.verdict("J1")[0] == "open"
    run.valid("C1")
    assert run.verdict("J1")[0] == "closed"


def test_8_2_the_target_receives_a_snapshot_of_the_producers_payload() -> None:
    run = Run(
        orchestration(A1=forks(["G1"], "J1", froms=["G1:any"]), G1=None, J1=None), input={"i": 0}
    )
    run.valid("A1", a=1)
    run.valid("G1", a=2, g=3)
    assert run.token("J1").payload == {"i": 0, "a": 2, "g": 3}


def test_8_2_a_producer_delivers_at_most_once() -> None:
    """Two entries for one node need two processes."""
    run = Run(
        orchestration(
            A1=forks(["G1", "G1"], "J1", mode="all", froms=["G1:any", "G1:any"]), G1=None, J1=None
        )
    )
    run.valid("A1")
    run.valid("G1")
    assert len(run.gather("J1").filled) == 1
    run.valid("G1")
    assert run.verdict("J1") == ("closed", ["G1", "G1"], 0)


def test_8_3_selection_follows_the_from_list_not_the_arrival() -> None:
    run = Run(example_6_1())
    run.valid("A1")
    run.valid("I1", who="I", i=1)
    run.valid("G1", who="G", g=1)
    assert run.verdict("J1")[1] == ["G1", "I1"]
    assert run.token("J1").payload == {"who": "I", "g": 1, "i": 1}


def test_8_3_named_outcomes_are_filled_before_any() -> None:
    net = orchestration(
        A1=forks(["G1", "G1"], "J1", mode="all", froms=["G1:any", "G1:valid"]), G1=None, J1=None
    )
    run = Run(net)
    run.valid("A1")
    run.valid("G1", n=1)
    assert list(run.gather("J1").filled) == [1]
    run.invalid("G1", n=2)
    assert run.token("J1").payload["n"] == 1, "merged in from order: the any entry first"


def test_8_4_later_entries_overwrite_earlier_ones() -> None:
    net = orchestration(
        A1=forks(["G1", "H1"], "J1", mode="all", froms=["G1:any", "H1:any"]),
        G1=None, H1=None, J1=None,
    )  # fmt: skip
    run = Run(net)
    run.valid("A1")
    run.valid("H1", key="H", h=1)
    run.valid("G1", key="G", g=1)
    assert run.token("J1").payload == {"g": 1, "key": "H", "h": 1}


def test_8_4_only_selected_producers_and_the_hidden_keys_reach_the_target() -> None:
    net = orchestration(A1=forks(["G1"], "J1", froms=["G1:any"]), G1=None, J1=None)
    run = Run(net, input={"secret": 1, "__wake": "list"})
    run.valid("A1", secret=2)
    assert run.token("J1").payload == {"__wake": "list"}
    run.valid("G1", g=1, __own=1)
    assert run.token("J1").payload == {"__wake": "list", "secret": 2, "g": 1}


def test_8_5_after_closing_further_deliveries_are_ignored_and_counted() -> None:
    net = orchestration(
        A1=forks(["G1", "H1"], "J1", mode="any", wait="drain", froms=["G1:valid", "H1:valid"]),
        G1=None, H1=None, J1=None,
    )  # fmt: skip
    run = Run(net)
    run.valid("A1")
    run.valid("G1", winner="G")
    run.valid("H1", winner="H")
    assert run.verdict("J1") == ("closed", ["G1"], 1)
    assert run.token("J1").payload["winner"] == "G"


def test_8_5_an_outcome_the_join_never_wanted_is_not_a_late_delivery() -> None:
    net = orchestration(
        A1=forks(["G1", "H1"], "J1", mode="any", wait="drain", froms=["G1:valid", "H1:valid"]),
        G1=None, H1=None, J1=None,
    )  # fmt: skip
    run = Run(net)
    run.valid("A1")
    run.valid("G1")
    run.invalid("H1")
    assert run.verdict("J1") == ("closed", ["G1"], 0)


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

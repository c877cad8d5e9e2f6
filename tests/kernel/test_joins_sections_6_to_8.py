"""Seed 003, sections 6 to 8: declaring joins, scopes, delivery, selection and merging."""

from __future__ import annotations

import pytest

from .driver import Run
from .nets import example_6_1, example_7_4, forks, orchestration

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

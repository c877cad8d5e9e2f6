"""Every example and walk-through of the orchestration standard, played; named by its section."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.testing import Played, after, hard_error, invalid, play, valid

from .orchestrations import (
    SECTION_4,
    SECTION_6_1,
    SECTION_7_4,
    SECTION_13,
    join,
    orchestration,
    step,
    then,
)


def groups(played: Played) -> dict[str, tuple[int, int]]:
    """For each step its last process: the group it is in, and the one it takes from (0 is none)."""
    found = {}
    targets = {event["token"] for event in played.events_of("gather.opened")}
    for event in played.events_of("token.created"):
        token = event["token"]
        found[event["step"]] = (event["scope"], token if token in targets else 0)
    return found


def ends(played: Played) -> dict[str, list[str]]:
    return {name: list(one["statuses"]) for name, one in played.steps.items()}


# -- 2 to 5 ----------------------------------------------------------------------------------


def test_4_the_example_runs_the_valid_way() -> None:
    played = play(SECTION_4, start="A1", script={"A1": valid(), "G1": valid()})
    assert ends(played) == {"A1": ["done"], "G1": ["done"]}
    assert played.status == "completed"


def test_4_the_example_takes_the_invalid_branch() -> None:
    script = {"A1": valid(), "G1": invalid(), "E1": valid(), "Z1": valid()}
    played = play(SECTION_4, start="A1", script=script)
    assert ends(played) == {"A1": ["done"], "G1": ["done"], "E1": ["done"], "Z1": ["done"]}
    assert played.session == {
        "result": "done",
        "processes": {"waiting": 0, "running": 0, "done": 4, "aborted": 0},
    }


def test_4_2_a_step_without_branches_is_a_leaf_for_both_outcomes() -> None:
    for outcome in (valid(), invalid()):
        played = play(orchestration(A1=step()), script={"A1": outcome})
        assert ends(played) == {"A1": ["done"]}


def test_5_processes_run_in_parallel_and_wait_for_their_wake_time() -> None:
    document = orchestration(A1=step(then("B1", "C1")), B1=step(), C1=step())
    script = {"A1": valid(wait=60), "B1": after(30, valid()), "C1": after(30, valid())}
    played = play(document, script=script)
    assert played.seconds == 90, "both sleep one minute and work half a minute, at the same time"


def test_5_one_worker_takes_them_one_by_one() -> None:
    document = orchestration(A1=step(then("B1", "C1")), B1=step(), C1=step())
    script = {"A1": valid(), "B1": after(30, valid()), "C1": after(30, valid())}
    assert play(document, script=script, concurrency=1).seconds == 60


# -- 6 ---------------------------------------------------------------------------------------


def test_6_1_two_of_three_close_the_join_and_kill_the_rest() -> None:
    script = {
        "A1": valid(),
        "G1": after(1, valid({"g": 1})),
        "H1": after(9, valid({"h": 1})),
        "I1": after(2, invalid({"i": 1})),
        "J1": lambda task: valid({"got": sorted(task.inputs["payload"])}),
    }
    played = play(SECTION_6_1, script=script)
    assert played.joins == [
        {"target": "J1", "verdict": "closed", "selected": ["G1", "I1"], "late": 1}
    ]
    assert played.step("J1").result == {"got": ["g", "i"]}
    assert ends(played)["H1"] == ["done"], "a running producer finishes; it is only ignored"


def test_6_1_a_waiting_producer_is_aborted() -> None:
    script = {name: valid() for name in ("A1", "G1", "H1", "I1", "J1")}
    played = play(SECTION_6_1, script=script, concurrency=1)
    assert played.joins[0]["selected"] == ["G1", "H1"]
    assert ends(played)["I1"] == ["aborted"], "one worker had not come to it yet"
    assert played.session is not None
    assert played.session["result"] == "finished_with_aborts"


@pytest.mark.parametrize("spelling", [{"kofn": 2}, {"k": 2}])
def test_6_2_the_builders_spelling_of_kofn_means_the_same(spelling: dict[str, int]) -> None:
    document = orchestration(
        A1=step(then("G1", "H1", "I1", join=join("J1", spelling, "G1", "H1", "I1"))),
        G1=step(), H1=step(), I1=step(), J1=step(),
    )  # fmt: skip
    script = {"A1": valid(), "G1": valid(), "H1": invalid(), "I1": valid(), "J1": valid()}
    assert play(document, script=script).joins[0]["selected"] == ["G1", "I1"]


@pytest.mark.parametrize("outcome", [valid(), invalid()])
def test_6_3_when_any_accepts_both_outcomes(outcome: Any) -> None:
    document = orchestration(
        A1=step(then("G1", join=join("J1", "all", "G1:any"))), G1=step(), J1=step()
    )
    played = play(document, script={"A1": valid(), "G1": outcome, "J1": valid()})
    assert played.joins[0]["verdict"] == "closed"


def test_6_3_an_outcome_that_does_not_match_does_not_contribute() -> None:
    document = orchestration(
        A1=step(then("G1", "H1", join=join("J1", "any", "G1:invalid", "H1:valid"))),
        G1=step(), H1=step(), J1=step(),
    )  # fmt: skip
    script = {"A1": valid(), "G1": valid(), "H1": after(1, valid()), "J1": valid()}
    assert play(document, script=script).joins[0]["selected"] == ["H1"]


def test_6_a_join_may_stand_on_the_invalid_branch() -> None:
    document = orchestration(
        A1=step(None, then("G1", join=join("J1", "any", "G1"))), G1=step(), J1=step()
    )
    played = play(document, script={"A1": invalid(), "G1": valid(), "J1": valid()})
    assert ends(played)["J1"] == ["done"]


# -- 7 ---------------------------------------------------------------------------------------


def test_7_4_the_walk_through_of_nested_joins() -> None:
    script = {
        "A1": valid({"a": 1}),
        "G1": after(1, valid({"g": 1})),
        "H1": after(5, valid({"h": 1})),
        "J1": valid({"j": 1}),
        "P1": after(1, valid({"p": 1})),
        "Q1": after(2, valid({"q": 1})),
        "J2": lambda task: valid({"got": sorted(task.inputs["payload"])}),
        "Z1": valid(),
    }
    played = play(SECTION_7_4, script=script)
    where = groups(played)
    first, second = where["J1"][1], where["J2"][1]
    assert where["A1"] == where["Z1"] == (0, 0)
    assert where["G1"] == where["H1"] == (first, 0), "the producers of J1 are in its group"
    assert where["J1"] == (0, first), "the target stays in the scope of its parent"
    assert where["P1"] == where["Q1"] == (second, 0)
    assert where["J2"] == (0, second)
    assert played.joins == [
        {"target": "J1", "verdict": "closed", "selected": ["G1"], "late": 1},
        {"target": "J2", "verdict": "closed", "selected": ["P1", "Q1"], "late": 0},
    ]
    assert played.step("J2").result == {"got": ["a", "g", "j", "p", "q"]}
    assert ends(played)["H1"] == ["done"], "killed while it ran: it finished, and was ignored"
    assert ends(played)["Z1"] == ["done"]


def test_7_4_j2_is_released_only_after_both() -> None:
    script = {name: valid() for name in ("A1", "G1", "H1", "J1", "P1", "J2", "Z1")}
    played = play(SECTION_7_4, script={**script, "Q1": after(7, valid())})
    assert played.seconds == 7
    played = play(SECTION_7_4, script={**script, "Q1": invalid()})
    assert ends(played)["J2"] == ["aborted"]
    assert played.step("Z1").runs == 0


def test_7_4_the_pitfall_producers_spawned_earlier_never_deliver() -> None:
    document = orchestration(
        A1=step(then("G1", "H1", join=join("J1", "any", "G1", "H1"))),
        G1=step(then("P1")),
        H1=step(then("Q1")),
        P1=step(),
        Q1=step(),
        J1=step(then(join=join("J2", "all", "P1", "Q1"))),
        J2=step(then("Z1")),
        Z1=step(),
    )
    played = play(document, script={name: valid() for name in ("A1", "G1", "H1", "P1", "Q1", "J1")})
    assert played.joins[1]["verdict"] == "impossible"
    assert ends(played)["J2"] == ["aborted"]
    assert played.status == "completed"


def test_7_2_every_execution_of_a_branch_opens_a_fresh_group() -> None:
    document = orchestration(
        S1=step(then("A1", "A1")),
        A1=step(then("G1", "H1", join=join("J1", "all", "G1", "H1"))),
        G1=step(), H1=step(), J1=step(),
    )  # fmt: skip
    played = play(document, script={name: valid() for name in ("S1", "A1", "G1", "H1", "J1")})
    assert [one["verdict"] for one in played.joins] == ["closed", "closed"]
    assert ends(played)["J1"] == ["done", "done"]


# -- 8 ---------------------------------------------------------------------------------------


def test_8_2_a_process_delivers_at_most_once() -> None:
    document = orchestration(
        A1=step(then("G1", join=join("J1", "all", "G1:valid", "G1:any"))), G1=step(), J1=step()
    )
    played = play(document, script={"A1": valid(), "G1": valid()})
    assert played.joins[0]["verdict"] == "impossible", "two entries need two processes"


def test_8_2_what_is_delivered_is_the_payload_at_that_moment() -> None:
    document = orchestration(
        A1=step(then("G1", join=join("J1", "any", "G1"))), G1=step(then("X1")), X1=step(), J1=step()
    )
    script = {
        "A1": valid({"n": 1}),
        "G1": valid({"n": 2}),
        "X1": valid({"n": 3}),
        "J1": lambda task: valid(dict(task.inputs["payload"])),
    }
    assert play(document, {"n": 0}, script=script).step("J1").result == {"n": 2}


def test_8_3_and_8_4_selection_and_merge_follow_the_from_list_not_the_arrival() -> None:
    document = orchestration(
        A1=step(then("G1", "H1", join=join("J1", "all", "H1", "G1"))), G1=step(), H1=step(),
        J1=step(),
    )  # fmt: skip
    for g_after, h_after in ((1, 2), (2, 1)):
        script = {
            "A1": valid(),
            "G1": after(g_after, valid({"by": "G1", "g": 1})),
            "H1": after(h_after, valid({"by": "H1", "h": 1})),
            "J1": lambda task: valid(dict(task.inputs["payload"])),
        }
        played = play(document, script=script)
        assert played.joins[0]["selected"] == ["H1", "G1"]
        assert played.step("J1").result == {"by": "G1", "h": 1, "g": 1}


def test_8_5_what_comes_after_the_close_changes_nothing() -> None:
    document = orchestration(
        A1=step(then("G1", "H1", join=join("J1", "any", "G1", "H1"))), G1=step(), H1=step(),
        J1=step(),
    )  # fmt: skip
    script = {
        "A1": valid(),
        "G1": valid({"g": 1}),
        "H1": after(5, valid({"h": 1})),
        "J1": after(10, lambda task: valid(dict(task.inputs["payload"]))),
    }
    played = play(document, script=script)
    assert played.step("J1").result == {"g": 1}
    assert played.joins[0]["late"] == 1


# -- 9 ---------------------------------------------------------------------------------------


def _two_producers(mode: str = "all", wait: str = "drain") -> dict[str, Any]:
    return orchestration(
        A1=step(then("G1", "H1", join=join("J1", mode, "G1", "H1", wait=wait))),
        G1=step(), H1=step(), J1=step(then("Z1"), then("Z1")), Z1=step(),
    )  # fmt: skip


def test_9_a_wrong_outcome_of_a_needed_producer_ends_the_join_at_once() -> None:
    script = {"A1": valid(), "G1": invalid(), "H1": after(50, valid())}
    played = play(_two_producers(), script=script)
    settled = played.events_of("gather.settled")[0]
    assert (settled["verdict"], settled.at) == ("impossible", 0.0), "nobody waits for H1"
    assert ends(played)["J1"] == ["aborted"]
    assert played.step("Z1").runs == 0, "an aborted target runs no branch, not even onInvalid"


def test_9_a_producer_that_ends_in_a_hard_error_is_gone() -> None:
    played = play(_two_producers(), script={"A1": valid(), "G1": hard_error(), "H1": valid()})
    assert played.joins[0]["verdict"] == "impossible"
    assert ends(played)["G1"] == ["aborted"]
    assert played.status == "completed", "the session goes on to its end"


def test_9_a_back_loop_keeps_the_join_open() -> None:
    document = orchestration(
        A1=step(then("G1", join=join("J1", "any", "G1"))),
        G1=step(None, then("W1")),
        W1=step(then("G1")),
        J1=step(),
    )
    script = {"A1": valid(), "G1": [invalid(), invalid(), valid()], "W1": valid(), "J1": valid()}
    played = play(document, script=script)
    assert ends(played) == {
        "A1": ["done"],
        "G1": ["done"] * 3,
        "W1": ["done"] * 2,
        "J1": ["done"],
    }


def test_9_a_dead_join_inside_ends_the_join_outside() -> None:
    document = orchestration(
        A1=step(then("B1", join=join("J1", "all", "J2"))),
        B1=step(then("C1", join=join("J2", "all", "C1"))),
        C1=step(), J2=step(), J1=step(),
    )  # fmt: skip
    played = play(document, script={"A1": valid(), "B1": valid(), "C1": invalid()})
    assert [one["verdict"] for one in played.joins] == ["impossible", "impossible"]


# -- 10 --------------------------------------------------------------------------------------


def test_10_1_drain_lets_the_others_finish_and_go_on() -> None:
    document = orchestration(
        A1=step(then("G1", "H1", join=join("J1", "any", "G1", "H1", wait="drain"))),
        G1=step(), H1=step(then("K1")), K1=step(), J1=step(),
    )  # fmt: skip
    script = {"A1": valid(), "G1": valid(), "H1": after(9, valid()), "K1": valid(), "J1": valid()}
    played = play(document, script=script)
    assert ends(played)["K1"] == ["done"]
    assert played.session is not None
    assert played.session["result"] == "done"


def test_10_2_kill_aborts_what_waits_and_ignores_what_runs() -> None:
    document = orchestration(
        A1=step(then("G1", "H1", "I1", join=join("J1", "any", "G1", "H1", "I1", wait="kill"))),
        G1=step(), H1=step(then("K1")), I1=step(), K1=step(), J1=step(),
    )  # fmt: skip
    script = {
        "A1": valid(),
        "G1": after(2, valid()),
        "H1": after(5, valid({"late": True})),
        "I1": valid(),
        "J1": lambda task: valid(dict(task.inputs["payload"])),
    }
    played = play(document, script=script, concurrency=2)
    assert ends(played)["I1"] == ["aborted"], "it had no worker yet"
    assert ends(played)["H1"] == ["done"], "it ran"
    assert played.step("K1").runs == 0, "and created nothing any more"
    assert played.step("J1").result == {}


def test_10_2_children_that_sleep_are_aborted_too() -> None:
    document = orchestration(
        A1=step(then("G1", "H1", join=join("J1", "any", "G1", "S1", wait="kill"))),
        G1=step(), H1=step(then("S1")), S1=step(), J1=step(),
    )  # fmt: skip
    script = {
        "A1": valid(), "G1": after(5, valid()), "H1": valid(wait=3600), "S1": valid(), "J1": valid()
    }  # fmt: skip
    played = play(document, script=script)
    assert ends(played)["S1"] == ["aborted"]
    assert played.seconds == 5


# -- 11 to 13 --------------------------------------------------------------------------------


def test_11_the_life_of_a_join_is_recorded_in_order() -> None:
    script = {"A1": valid(), "G1": valid(), "H1": valid(), "J1": valid(), "Z1": valid()}
    played = play(_two_producers(), script=script)
    gather = [event.kind for event in played.events if event.kind.startswith("gather.")]
    assert gather == ["gather.opened", "gather.delivered", "gather.delivered", "gather.settled"]
    created = [event["step"] for event in played.events_of("token.created")]
    assert created == ["A1", "J1", "G1", "H1", "Z1"], "the target comes before the spawns"


@pytest.mark.parametrize(("fast", "slow"), [("G1", "H1"), ("H1", "G1")])
def test_13_the_first_valid_one_releases_the_join(fast: str, slow: str) -> None:
    script = {"A1": valid(), fast: after(1, valid()), slow: after(2, valid()), "J1": valid()}
    played = play(SECTION_13, script={**script, "Z1": valid()})
    assert played.joins == [{"target": "J1", "verdict": "closed", "selected": [fast], "late": 1}]
    assert ends(played)["Z1"] == ["done"]


def test_13_with_one_worker_the_still_waiting_one_is_aborted() -> None:
    script = {name: valid() for name in ("A1", "G1", "H1", "J1", "Z1")}
    played = play(SECTION_13, script=script, concurrency=1)
    assert ends(played)["H1"] == ["aborted"]
    assert ends(played)["Z1"] == ["done"]

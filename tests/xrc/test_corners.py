"""The corners of the join rules, one by one, each played by the oracle and by the kernel."""

from __future__ import annotations

from typing import Any

from . import oracle
from .agree import Pair, replayed
from .oracle import Action

RULE = "0x" + "00" * 19 + "01"


def both(structure: dict[str, Any], *actions: Action, **payload: Any) -> oracle.Session:
    """Play it in the oracle and the kernel; the first step is the start."""
    document = {
        "id": "corner",
        "structure": {name: {"rule": RULE, **step} for name, step in structure.items()},
    }
    pair = Pair(document, next(iter(structure)), list(actions), payload)
    assert replayed(pair) == ""
    return oracle.play(document, pair.start, pair.actions, payload)


def ran(pid: int, outcome: str = "valid", wait: int = 0, **result: Any) -> list[Action]:
    return [("start", pid), ("finish", pid, outcome, result, wait)]


def on(outcome: str, spawns: list[str], target: str = "", **join: Any) -> dict[str, Any]:
    branch: dict[str, Any] = {"spawns": spawns}
    if target:
        entries = join.pop("froms")
        froms = [dict(zip(("node", "when"), entry.split(":"), strict=True)) for entry in entries]
        branch["join"] = {"joinid": target, "from": froms, **join}
    return {f"on{outcome.title()}": branch}


def states(session: oracle.Session) -> dict[str, str]:
    return {oracle.name(process): process.state for process in session.processes}


# -- kills ---------------------------------------------------------------------------------------


def test_children_the_closing_producer_just_made_in_a_kill_group_end_unrun() -> None:
    session = both(
        {
            "A": on("valid", ["G"], "J", froms=["G:valid"], waitonjoin="kill"),
            "G": on("valid", ["X"]),
            "X": {},
            "J": {},
        },
        *ran(1),
        *ran(3),
        *ran(2),
    )
    assert states(session) == {"A#1": "done", "J#2": "done", "G#3": "done", "X#4": "aborted"}


def test_a_killed_producer_that_still_runs_ends_done_makes_nothing_and_comes_late() -> None:
    session = both(
        {
            "A": on("valid", ["G", "H"], "J", froms=["G:valid", "H:valid"], waitonjoin="kill"),
            "G": {},
            "H": on("valid", ["X"]),
            "X": {},
            "J": {},
        },
        *ran(1),
        ("start", 4),
        *ran(3),
        ("finish", 4, "valid", {"h": 1}, 0),
        *ran(2),
    )
    assert states(session) == {"A#1": "done", "J#2": "done", "G#3": "done", "H#4": "done"}
    join = session.processes[1].join
    assert join is not None
    assert (join.selected, join.late) == ([3], [4])


def test_a_killed_producer_that_hits_a_hard_error_is_aborted() -> None:
    session = both(
        {
            "A": on("valid", ["G", "H"], "J", froms=["G:valid", "H:valid"], waitonjoin="kill"),
            "G": {},
            "H": {},
            "J": {},
        },
        *ran(1),
        ("start", 4),
        *ran(3),
        ("error", 4),
        *ran(2),
    )
    assert states(session)["H#4"] == "aborted"
    assert session.verdict() == "finished_with_aborts"


def test_a_killed_producer_cannot_cancel_the_session_any_more() -> None:
    session = both(
        {
            "A": on("valid", ["G", "H"], "J", froms=["G:valid", "H:valid"], waitonjoin="kill"),
            "G": {},
            "H": {},
            "J": {},
        },
        *ran(1),
        ("start", 4),
        *ran(3),
        ("cancel", 4),
        *ran(2),
    )
    assert states(session)["J#2"] == "done"
    assert not session.killed


def test_a_kill_goes_down_through_open_targets_whatever_they_would_do_themselves() -> None:
    session = both(
        {
            "A": on("valid", ["B", "X"], "J", froms=["X:valid"], waitonjoin="kill"),
            "B": on("valid", ["C"], "K", froms=["L:valid"], waitonjoin="drain"),
            "C": on("valid", ["D"], "L", froms=["D:valid"], waitonjoin="drain"),
            "D": {},
            "X": {},
            "J": {},
            "K": {},
            "L": {},
        },
        *ran(1),
        *ran(3),
        *ran(6),
        ("start", 8),
        *ran(4),
        ("finish", 8, "valid", {}, 0),
        *ran(2),
    )
    assert states(session) == {
        "A#1": "done", "J#2": "done", "B#3": "done", "X#4": "done", "K#5": "aborted",
        "C#6": "done", "L#7": "aborted", "D#8": "done",
    }  # fmt: skip


def test_a_closed_target_that_is_killed_leaves_those_who_drain_alone() -> None:
    """K has what it needs and waits to run; the kill from outside ends K, not K's drained E."""
    session = both(
        {
            "A": on("valid", ["B", "X"], "J", froms=["X:valid"], waitonjoin="kill"),
            "B": on("valid", ["D", "E"], "K", froms=["D:valid"], waitonjoin="drain"),
            "D": {},
            "E": {},
            "X": {},
            "J": {},
            "K": {},
        },
        *ran(1),
        *ran(3),
        *ran(6),
        *ran(4),
        *ran(7),
        *ran(2),
    )
    assert states(session)["K#5"] == "aborted"
    assert states(session)["E#7"] == "done"


# -- impossible ----------------------------------------------------------------------------------


def test_joins_that_become_impossible_at_once_end_from_the_inside_out() -> None:
    """B's own join drains and ends first, so its producer lives on when J's group is killed."""
    session = both(
        {
            "A": on("valid", ["B"], "J", froms=["B:invalid"], waitonjoin="kill"),
            "B": on("valid", ["X"], "K", froms=["A:valid"], waitonjoin="drain"),
            "X": {},
            "J": {},
            "K": {},
        },
        *ran(1),
        *ran(3),
        *ran(5),
    )
    assert states(session) == {
        "A#1": "done", "J#2": "aborted", "B#3": "done", "K#4": "aborted", "X#5": "done",
    }  # fmt: skip


def test_a_delivery_that_leaves_its_join_impossible_waits_for_the_joins_inside_it() -> None:
    """B fills one entry of J, nobody can fill the other, and B's own join is impossible too."""
    session = both(
        {
            "A": on("valid", ["B"], "J", froms=["B:any", "Y:any"], mode="all", waitonjoin="kill"),
            "B": on("invalid", ["Y"])
            | on("valid", ["X"], "K", froms=["A:valid"], waitonjoin="drain"),
            "X": {},
            "Y": {},
            "J": {},
            "K": {},
        },
        *ran(1),
        *ran(3),
        *ran(5),
    )
    assert states(session) == {
        "A#1": "done", "J#2": "aborted", "B#3": "done", "K#4": "aborted", "X#5": "done",
    }  # fmt: skip


def test_an_impossible_join_with_kill_kills_and_with_drain_does_not() -> None:
    for policy, ending in (("kill", "aborted"), ("drain", "waiting")):
        session = both(
            {
                "A": on("valid", ["G", "H"], "J", froms=["G:valid"], waitonjoin=policy),
                "G": {},
                "H": {},
                "J": {},
            },
            *ran(1),
            *ran(3, "invalid"),
        )
        assert states(session)["J#2"] == "aborted"
        assert states(session)["H#4"] == ending


def test_a_join_without_spawns_is_impossible_when_it_opens() -> None:
    session = both({"A": on("valid", [], "J", froms=["A:any"]), "J": {}}, *ran(1))
    assert states(session) == {"A#1": "done", "J#2": "aborted"}


def test_an_impossible_join_cascades_through_every_join_outside_it() -> None:
    session = both(
        {
            "A": on("valid", ["B"], "J", froms=["K:valid"], waitonjoin="kill"),
            "B": on("valid", ["C"], "K", froms=["L:valid"], waitonjoin="kill"),
            "C": on("valid", ["D"], "L", froms=["D:valid"], waitonjoin="kill"),
            "D": {},
            "J": {},
            "K": {},
            "L": {},
        },
        *ran(1),
        *ran(3),
        *ran(5),
        ("start", 7),
        ("error", 7),
    )
    ended = states(session)
    assert [ended[name] for name in ("J#2", "K#4", "L#6", "D#7")] == ["aborted"] * 4


# -- payloads and time ---------------------------------------------------------------------------


def test_hidden_keys_of_the_target_come_from_whoever_declared_the_join() -> None:
    session = both(
        {
            "A": on("valid", ["G", "H"], "J", froms=["G:valid", "H:valid"], mode="all"),
            "G": {},
            "H": {},
            "J": {},
        },
        *ran(1, own=1),
        *ran(4, __s="h", h=1, both="h"),
        *ran(3, __s="g", g=1, both="g"),
        __s="start",
        given=True,
    )
    merged = {"given": True, "own": 1, "g": 1, "h": 1, "both": "h", "__s": "start"}
    assert session.processes[1].payload == merged


def test_the_declaring_process_hands_the_target_nothing_but_hidden_keys() -> None:
    session = both(
        {"A": on("valid", ["G"], "J", froms=["G:any"]), "G": {}, "J": {}},
        *ran(1, left="behind"),
        __s="kept",
        p=1,
    )
    assert session.processes[1].payload == {"__s": "kept"}


def test_a_target_that_closes_before_its_wake_time_waits_for_it_and_a_wake_ends_the_wait() -> None:
    structure = {"A": on("valid", ["G"], "J", froms=["G:any"]), "G": {}, "J": {}}
    early = (*ran(1, wait=100), ("wake", 3, {"w": 1, "_no": 1}), *ran(3), ("start", 2))
    assert states(both(structure, *early))["J#2"] == "waiting"
    woken = both(structure, *early, ("wake", "J", {"x": 1}), *ran(2))
    assert states(woken)["J#2"] == "done"
    assert woken.processes[1].payload == {"w": 1, "x": 1}
    due = both(structure, *early, ("tick", 100), *ran(2))
    assert states(due)["J#2"] == "done"


def test_neither_time_nor_a_wake_opens_a_join() -> None:
    structure = {"A": on("valid", ["G"], "J", froms=["G:any"]), "G": {}, "J": {}}
    session = both(structure, *ran(1), ("wake", "J", {"x": 1}), ("tick", 1000), ("start", 2))
    assert states(session) == {"A#1": "done", "J#2": "waiting", "G#3": "waiting"}
    assert session.processes[1].payload == {}


def test_duplicate_entries_need_as_many_processes_and_the_picky_one_is_served_first() -> None:
    session = both(
        {
            "A": on("valid", ["G", "G"], "J", froms=["G:any", "G:valid"], mode="all"),
            "G": {},
            "J": {},
        },
        *ran(1),
        *ran(3, "valid", first=1, n=3),
        *ran(4, "invalid", second=1, n=4),
    )
    join = session.processes[1].join
    assert join is not None
    assert join.selected == [4, 3], "the valid one took the entry that asks for it"
    assert session.processes[1].payload["n"] == 3


def test_killing_the_session_ends_waiting_processes_now_and_running_ones_when_they_end() -> None:
    session = both(
        {"A": on("valid", ["G", "H"], "J", froms=["G:any"]), "G": {}, "H": {}, "J": {}},
        *ran(1),
        ("start", 3),
        ("kill",),
        ("finish", 3, "valid", {}, 0),
    )
    assert states(session) == {
        "A#1": "done", "J#2": "aborted", "G#3": "aborted", "H#4": "aborted",
    }  # fmt: skip
    assert session.verdict() == "killed"

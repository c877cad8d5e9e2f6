"""What the analysis knows about joins: what can be filled at once, why not, and how to mend it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from anabranch.dialects.registry import compile_source
from anabranch.net.analyse import analyse, join_slots_reachable
from anabranch.net.analyse_joins import JoinReach
from anabranch.net.net import Arc, Branch, GatherRule, Join, Net, Slot, Step, Work
from anabranch.net.problems import Position, Problem

from .support import net

RULE = Work("rule", outcomes=("valid", "invalid"))


def step(name: str, writes: str = "", **branches: str | Branch) -> Step:
    """`valid="b c"` spawns; a whole branch is given as it is."""
    made = tuple(
        given if isinstance(given, Branch) else spawning(given, outcome)
        for outcome, given in branches.items()
    )
    return Step(name, RULE, branches=made, writes=frozenset(writes.split()))


def spawning(spawns: str, outcome: str = "valid", join: Join | None = None) -> Branch:
    arcs = tuple(Arc(name) for name in spawns.split())
    return Branch(outcome, "inclusive", arcs, join, carry_payload=True)


def joining(spawns: str, target: str, needs: int, slots: str, outcome: str = "valid") -> Branch:
    wanted = tuple(Slot(*slot.split(":")) for slot in slots.split())
    rule = GatherRule(mode="quorum", k=needs, combine="merge")
    return spawning(spawns, outcome, Join(target, rule, wanted, Position(3, 7, "f")))


def reach(built: Net, step_name: str = "a") -> JoinReach:
    (found,) = [each for each in join_slots_reachable(built) if each.step == step_name]
    return found


def only(built: Net, code: str) -> Problem:
    (problem,) = [each for each in analyse(built) if each.code == code]
    return problem


def codes(built: Net) -> set[str]:
    return {problem.code for problem in analyse(built)}


# -- what can be filled at once --------------------------------------------------------------------


def test_producers_on_two_outcomes_of_one_step_never_come_together() -> None:
    steps = step("b", valid="x", invalid="y"), step("x"), step("y"), step("j")
    both = net(step("a", valid=joining("b", "j", 2, "x y")), *steps)
    assert (reach(both).most, reach(both).possible, reach(both).lost) == (1, False, ())
    assert (
        "at most 1 can be filled in one run, and 2 are needed"
        in only(both, "join-impossible").message
    )
    assert reach(net(step("a", valid=joining("b", "j", 1, "x y")), *steps)).possible
    assert reach(net(step("a", valid=joining("b b", "j", 2, "x y")), *steps)).possible


def test_an_entry_named_twice_needs_two_processes() -> None:
    once = net(step("a", valid=joining("g", "j", 2, "g g")), step("g"), step("j"))
    assert not reach(once).possible
    twice = net(step("a", valid=joining("g g", "j", 2, "g g")), step("g"), step("j"))
    assert reach(twice).possible
    looping = net(step("a", valid=joining("g", "j", 2, "g g")), step("g", valid="g"), step("j"))
    assert reach(looping).possible, "it loops back and delivers once more"


def test_one_process_cannot_be_valid_and_invalid() -> None:
    built = net(step("a", valid=joining("g", "j", 2, "g:valid g:invalid")), step("g"), step("j"))
    assert not reach(built).possible
    again = net(
        step("a", valid=joining("g", "j", 2, "g:valid g:invalid")),
        step("g", invalid="g"),
        step("j"),
    )
    assert reach(again).possible, "invalid first, and valid in the next round"


def test_an_outcome_the_work_never_has_fills_nothing() -> None:
    built = net(step("a", valid=joining("g", "j", 1, "g:maybe")), step("g"), step("j"))
    assert "'g' never ends maybe" in only(built, "join-impossible").message


def test_a_nested_join_hands_its_target_on_only_if_it_can_close_itself() -> None:
    def built(spawns: str) -> Net:
        return net(
            step("a", valid=joining("b", "j", 1, "k")),
            step("b", valid=joining(spawns, "k", 1, "c")),
            step("c"),
            step("d"),
            step("k"),
            step("j"),
        )

    assert reach(built("c")).possible
    assert not reach(built("d"), "b").possible
    assert not reach(built("d")).possible


def test_the_target_of_a_nested_join_is_a_producer_like_any_other() -> None:
    built = net(
        step("a", valid=joining("b x", "j", 1, "k x")),
        step("b", valid=joining("c", "k", 1, "c")),
        *(step(name) for name in "cxkj"),
    )
    assert reach(built).lost == ()
    assert codes(built) == set()


def test_a_step_that_repeats_itself_on_one_outcome_is_no_endless_cycle() -> None:
    assert "endless-cycle" not in codes(net(step("a", invalid="a")))
    assert "endless-cycle" in codes(net(step("a", valid="a", invalid="a")))


def test_a_join_that_needs_itself_to_close_first_never_does() -> None:
    built = net(step("a", valid=joining("a", "j", 1, "j")), step("j"))
    assert not reach(built).possible


# -- what is said ----------------------------------------------------------------------------------


def test_a_join_over_producers_of_another_scope_says_where_they_would_have_to_be_spawned() -> None:
    """The pitfall of the language: P1 and Q1 are spawned before the join that names them."""
    text = json.dumps(PITFALL, indent=1)
    line = {words: n for n, words in enumerate(text.splitlines(), 1)}
    compiled = compile_source(text, file="nested.json")
    (problem,) = [each for each in compiled.problems if each.code == "join-impossible"]
    assert "'J2' can never close" in problem.message
    assert "'P1' cannot be reached inside the scope that 'J1' opens" in problem.message
    g1 = line['  "G1": {']
    made = f"it is spawned by 'G1' (line {g1})"
    assert f"{made}, which puts it in the scope of the join at 'J1'" in problem.message
    assert problem.hint.startswith("spawn 'P1' and 'Q1' from 'J1' itself: in the valid branch")
    at = line['   "onValid": {'] + 2  # the last one: the branch of J1 that declares the join
    assert (problem.position.file, problem.position.line) == ("nested.json", at)


def entry(node: str) -> dict[str, str]:
    return {"node": node, "when": "valid"}


PITFALL: dict[str, Any] = {
    "id": "nested_join_example",
    "structure": {
        "A1": {
            "rule": "0x" + "0" * 40,
            "onValid": {
                "spawns": ["G1", "H1"],
                "join": {
                    "joinid": "J1",
                    "mode": "any",
                    "waitonjoin": "kill",
                    "from": [entry("G1"), entry("H1")],
                },
            },
        },
        "G1": {"rule": "0x" + "0" * 40, "onValid": {"spawns": ["P1"]}},
        "H1": {"rule": "0x" + "0" * 40, "onValid": {"spawns": ["Q1"]}},
        "J1": {
            "rule": "0x" + "0" * 40,
            "onValid": {
                "spawns": [],
                "join": {
                    "joinid": "J2",
                    "mode": "all",
                    "waitonjoin": "kill",
                    "from": [entry("P1"), entry("Q1")],
                },
            },
        },
        "P1": {"rule": "0x" + "0" * 40},
        "Q1": {"rule": "0x" + "0" * 40},
        "J2": {"rule": "0x" + "0" * 40},
    },
}


def test_a_join_that_hangs_on_an_earlier_outcome_says_which() -> None:
    built = net(
        step("a", valid=joining("b c", "j", 2, "x:valid c")),
        step("b", invalid="x"),
        step("c"),
        step("x"),
        step("j"),
    )
    problem = only(built, "join-needs-outcome")
    assert problem.severity == "note"
    assert "the join at 'j' closes only if 'b' ends invalid" in problem.message
    assert "'x'" not in problem.message, "what the slots ask for themselves is not repeated"
    either = net(
        step("a", valid=joining("b c", "j", 1, "x:valid c")),
        step("b", invalid="x"),
        step("c"),
        step("x"),
        step("j"),
    )
    assert codes(either) == set()


def test_keys_that_several_merged_producers_write_are_noted() -> None:
    def built(needs: int) -> Net:
        return net(
            step("a", valid=joining("g h", "j", needs, "g i")),
            step("g", writes="price source"),
            step("h", writes="price", valid="i"),
            step("i", writes="rest"),
            step("j"),
        )

    problem = only(built(2), "merge-overlap")
    assert (problem.severity, problem.position.line) == ("note", 3)
    assert "'price' ('g' and 'i')" in problem.message
    assert "'source'" not in problem.message
    assert "merge-overlap" not in codes(built(1)), "one producer overwrites nothing"


def test_what_both_producers_have_from_the_same_step_is_no_overlap() -> None:
    built = net(
        step("a", valid=joining("b", "j", 2, "g h")),
        step("b", writes="shared", valid="g h"),
        step("g"),
        step("h"),
        step("j"),
    )
    assert "merge-overlap" not in codes(built)


# -- size ------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_the_largest_orchestration_is_analysed_in_bounded_time() -> None:
    """128 steps that all spawn and join 32 others, on both outcomes."""
    names = [f"s{n}" for n in range(128)]
    steps = []
    for n, name in enumerate(names):
        near = " ".join(names[(n * 7 + m * 5) % 128] for m in range(32))
        steps.append(
            step(
                name,
                valid=joining(near, names[n - 1], 20, near.replace(" ", ":valid ") + ":valid"),
                invalid=near,
            )
        )
    began = time.thread_time()
    assert not any(problem.severity == "error" for problem in analyse(net(*steps)))
    assert time.thread_time() - began < 20

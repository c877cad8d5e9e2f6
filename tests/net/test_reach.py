"""Reachability: along all edges, and along those that keep the scope."""

from __future__ import annotations

from random import Random

import pytest

from anabranch.net.net import Arc, Branch, GatherRule, Join, Net, Slot, Step
from anabranch.net.reach import (
    Reachability,
    all_edges,
    predecessors,
    reachability,
    scope_edges,
    successors,
)
from seeds import seeds


def branch(*targets: str, join: str = "", outcome: str | None = None) -> Branch:
    joined = Join(join, GatherRule(), (Slot("x"),)) if join else None
    return Branch(outcome, "inclusive", tuple(Arc(target) for target in targets), joined)


def net(**steps: list[Branch]) -> Net:
    made = {name: Step(name, branches=tuple(branches)) for name, branches in steps.items()}
    return Net("test", "test", "0" * 64, made, next(iter(made)))


def line() -> Net:
    return net(a=[branch("b")], b=[branch("c")], c=[])


def test_a_step_reaches_itself_and_everything_after_it() -> None:
    reach = Reachability(line())
    assert reach.anywhere == {"a": {"a", "b", "c"}, "b": {"b", "c"}, "c": {"c"}}


def test_cycles_reach_all_their_steps() -> None:
    reach = Reachability(net(a=[branch("b")], b=[branch("a", outcome="again"), branch("c")], c=[]))
    assert reach.anywhere["b"] == {"a", "b", "c"}


def test_every_branch_counts_whatever_its_outcome() -> None:
    step = net(a=[branch("b", outcome="ok"), branch("c", outcome="error")], b=[], c=[])
    assert Reachability(step).anywhere["a"] == {"a", "b", "c"}


def test_a_join_keeps_its_target_in_the_scope_and_takes_its_spawns_out() -> None:
    joining = net(a=[branch("g", "h", join="j")], g=[], h=[], j=[branch("z")], z=[])
    reach = Reachability(joining)
    assert reach.anywhere["a"] == {"a", "g", "h", "j", "z"}
    assert reach.in_scope["a"] == {"a", "j", "z"}


def test_a_spawn_without_a_join_stays_in_the_scope() -> None:
    mixed = net(a=[branch("g", join="j", outcome="ok"), branch("h")], g=[], h=[], j=[])
    assert Reachability(mixed).in_scope["a"] == {"a", "j", "h"}


def test_scopes_nest() -> None:
    nested = net(
        a=[branch("b", join="j")], b=[branch("c", join="k")], c=[branch("d")], d=[], k=[], j=[]
    )
    reach = Reachability(nested).in_scope
    assert reach["b"] == {"b", "k"}
    assert reach["c"] == {"c", "d"}


def test_an_arc_to_nowhere_leads_nowhere() -> None:
    reach = Reachability(net(a=[branch("ghost", "b")], b=[]))
    assert reach.anywhere["a"] == {"a", "b"}
    assert predecessors(net(a=[branch("ghost")])) == {"a": []}


def test_successors_come_in_document_order_and_once() -> None:
    step = net(a=[branch("c", "b", "c", join="j"), branch("b", "d")]).steps["a"]
    assert successors(step) == ["c", "b", "j", "d"]
    assert successors(step, scope_edges) == ["j", "b", "d"]
    assert list(all_edges(step.branches[0])) == ["c", "b", "c", "j"]


def test_predecessors_come_in_document_order_and_once() -> None:
    diamond = net(a=[branch("c", "b")], b=[branch("d", "d")], c=[branch("d")], d=[])
    assert predecessors(diamond) == {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


def test_a_net_is_looked_at_once() -> None:
    one, same_again = line(), line()
    assert reachability(one) is reachability(one)
    assert reachability(one) is not reachability(same_again)


def random_net(seed: int) -> Net:
    random = Random(seed)
    names = [f"s{number}" for number in range(random.randint(1, 8))]
    steps = {}
    for name in names:
        branches = [
            branch(
                *random.choices(names, k=random.randint(0, 2)),
                join=random.choice(["", random.choice(names)]),
            )
            for _ in range(random.randint(0, 2))
        ]
        steps[name] = branches
    return net(**steps)


def walks(of: Net, start: str, *, scoped: bool) -> set[str]:
    """Everything a walker can stand on after any number of moves, found by walking."""
    found = {start}
    for _ in of.steps:
        for name in list(found):
            for taken in of.steps[name].branches:
                if taken.join is not None:
                    found.add(taken.join.target)
                if taken.join is None or not scoped:
                    found |= {arc.target for arc in taken.arcs}
    return found


@pytest.mark.parametrize("seed", seeds(60))
def test_random_graphs_agree_with_walking(seed: int) -> None:
    made = random_net(seed)
    reach = Reachability(made)
    for name in made.steps:
        assert reach.anywhere[name] == walks(made, name, scoped=False)
        assert reach.in_scope[name] == walks(made, name, scoped=True)

"""Forks that meet are found as before, and a large net is checked in nearly linear work."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from anabranch.dialects.registry import compile_source
from anabranch.net import forks as subject
from anabranch.net.analyse import _following, analyse
from anabranch.net.draw import dot, mermaid, svg
from anabranch.net.net import Branch, Net
from anabranch.net.reach import positions, predecessors

from .support import net, step

# -- the plain way, one walk per arc, as the answer to compare with ----------------------------


def plain_meetings(given: Net) -> dict[str, list[str]]:
    following, before = _following(given), predecessors(given)
    found: dict[str, list[str]] = {}
    for one in given.steps.values():
        for branch in one.branches:
            for name in _met(one.name, branch, following, before):
                found.setdefault(name, []).append(one.name)
    return found


def _met(
    fork: str, branch: Branch, following: Mapping[str, Any], before: Mapping[str, list[str]]
) -> Iterator[str]:
    if branch.mode != "inclusive" or len(branch.arcs) < 2:
        return
    counts: dict[str, int] = {}
    for arc in branch.arcs:
        seen = {arc.target} - {fork}
        frontier = list(seen)
        while frontier:
            for target in following[frontier.pop()]:
                if target not in seen and target != fork:
                    seen.add(target)
                    frontier.append(target)
        for name in seen:
            counts[name] = counts.get(name, 0) + 1
    shared = {name for name, count in counts.items() if count > 1}
    yield from (name for name in shared if not shared.issuperset(before[name]))


def drawn_by_lot(lot: random.Random) -> Net:
    count = lot.randint(2, 12)
    names = [f"s{n}" for n in range(count)]
    forward = lot.random() < 0.6  # mostly downwards, with a way back now and then
    steps = []
    for place, name in enumerate(names):
        below = names[place + 1 :] if forward and lot.random() < 0.9 else names
        targets = [lot.choice(below) for _ in range(lot.randint(0, 3))] if below else []
        kind = ["all"] if lot.random() < 0.6 else []
        steps.append(step(name, *kind, *targets, line=place + 1) if targets else step(name))
    return net(*steps)


@pytest.mark.parametrize("seed", range(40))
def test_forks_that_meet_are_those_of_one_walk_per_arc(seed: int) -> None:
    lot = random.Random(seed)
    for _ in range(100):
        given = drawn_by_lot(lot)
        found = subject.meetings(given, _following(given))
        assert {
            name: [fork.name for fork in steps] for name, steps in found.forks.items()
        } == plain_meetings(given)
        assert found.partly == 0


# -- families of nets ------------------------------------------------------------------------


def ladder(n: int) -> dict[str, list[str]]:
    arcs = {}
    for i in range(n):
        arcs[f"f{i}"] = ["all", f"a{i}", f"b{i}"]
        arcs[f"a{i}"] = arcs[f"b{i}"] = [f"f{i + 1}"]
    return {**arcs, f"f{n}": []}


def braid(n: int) -> dict[str, list[str]]:
    """A ladder whose sides never come together."""
    arcs: dict[str, list[str]] = {}
    for i in range(n):
        arcs[f"f{i}"] = ["all", f"f{i + 1}", f"x{i}"]
        arcs[f"x{i}"] = [f"x{i + 1}"]
    return {**arcs, f"f{n}": [], f"x{n}": []}


def ring(n: int) -> dict[str, list[str]]:
    arcs = ladder(n)
    arcs[f"f{n}"] = ["f0"]
    return arcs


def star(n: int) -> dict[str, list[str]]:
    arcs = {"hub": ["all", *(f"s{i}" for i in range(n))]}
    return arcs | {f"s{i}": ["end"] for i in range(n)} | {"end": []}


def two_rows(n: int) -> dict[str, list[str]]:
    side = max(int(n**0.5), 2)
    arcs = {"hub": ["all", *(f"a{i}" for i in range(side))]}
    for i in range(side):
        arcs[f"a{i}"] = ["all", *(f"b{j}" for j in range(side))]
    return arcs | {f"b{j}": [] for j in range(side)}


def chain(n: int) -> dict[str, list[str]]:
    return {f"s{i}": [f"s{i + 1}"] for i in range(n)} | {f"s{n}": []}


def pairs(n: int) -> dict[str, list[str]]:
    """Many small cycles."""
    arcs: dict[str, list[str]] = {}
    for i in range(n):
        arcs[f"a{i}"] = [f"b{i}", f"a{i + 1} if x"]
        arcs[f"b{i}"] = [f"a{i}"]
    return {**arcs, f"a{n}": []}


def long_ways(n: int) -> dict[str, list[str]]:
    """Each step leads to the next one, to the last one and back to the first one."""
    arcs = {f"s{i}": [f"s{i + 1} if x", f"s{n} if y", "s0 if z"] for i in range(n)}
    return arcs | {f"s{n}": []}


def nested(n: int) -> dict[str, list[str]]:
    """Forks inside forks: out all the way, then back all the way."""
    arcs: dict[str, list[str]] = {}
    for i in range(n):
        arcs[f"f{i}"] = ["all", f"f{i + 1}", f"j{i}"]
        arcs[f"j{i + 1}"] = [f"j{i}"]
    return {**arcs, f"f{n}": [f"j{n}"], "j0": []}


FAMILIES: dict[str, Callable[[int], dict[str, list[str]]]] = {
    make.__name__: make
    for make in (ladder, braid, ring, star, two_rows, chain, pairs, long_ways, nested)
}


def built(arcs: dict[str, list[str]]) -> Net:
    return net(*(step(name, *targets, line=1) for name, targets in arcs.items()))


class Lines:
    """Counts the lines of our code that run: the work, without a clock."""

    def __init__(self) -> None:
        self.count = 0

    def _local(self, _frame: Any, event: str, _arg: Any) -> Any:
        self.count += event == "line"
        return self._local

    def _called(self, frame: Any, _event: str, _arg: Any) -> Any:
        return self._local if "anabranch" in frame.f_code.co_filename else None

    def of(self, work: Callable[[], Any]) -> int:
        self.count = 0
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            work()
        finally:
            sys.settrace(before)
        return self.count


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_twice_the_net_is_about_twice_the_analysis(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With a small allowance, so that it is used up by nets that a test can afford.
    monkeypatch.setattr(subject, "NEAR", 20)
    monkeypatch.setattr(subject.meetings, "__kwdefaults__", {"work": 0})
    small, large = (built(FAMILIES[family](n)) for n in (400, 800))
    lines = Lines()
    assert lines.of(lambda: analyse(large)) < 2.3 * lines.of(lambda: analyse(small))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_large_net_is_looked_at_within_the_budget(family: str) -> None:
    given = built(FAMILIES[family](1_000))
    arcs = sum(map(len, _following(given).values()))
    found = subject.meetings(given, _following(given))
    most = subject.WORK + (subject.WORK_PER_ARC + subject.NEAR) * arcs
    assert found.followed <= most


@pytest.mark.parametrize("family", ["ladder", "star", "two_rows", "chain", "pairs", "long_ways"])
def test_what_has_narrow_steps_is_exact_at_any_size(family: str) -> None:
    given = built(FAMILIES[family](4_000))
    found = subject.meetings(given, _following(given), work=0)
    assert found.partly == 0


def test_a_net_that_is_too_large_says_how_much_was_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subject, "NEAR", 20)
    monkeypatch.setattr(subject.meetings, "__kwdefaults__", {"work": 0})
    (note,) = [p for p in analyse(built(braid(400))) if p.code == "forks-partly-examined"]
    assert note.severity == "note"
    assert "of its inclusive forks only the steps near by" in note.message


@pytest.mark.parametrize("draw", [mermaid, dot, svg])
@pytest.mark.parametrize("family", ["ladder", "star", "chain", "pairs"])
def test_twice_the_net_is_about_twice_the_drawing(draw: Callable[[Net], str], family: str) -> None:
    small, large = (built(FAMILIES[family](n)) for n in (50, 100))
    lines = Lines()
    assert lines.of(lambda: draw(large)) < 2.4 * lines.of(lambda: draw(small))


def test_the_order_of_steps_needs_no_walk_through_the_net() -> None:
    small, large = (built(chain(n)) for n in (300, 600))
    lines = Lines()
    assert lines.of(lambda: positions(large)) < 2.3 * lines.of(lambda: positions(small))


def playbook(arcs: dict[str, list[str]]) -> str:
    import json

    steps = []
    for name, targets in arcs.items():
        inclusive = targets[:1] == ["all"]
        ways = []
        for target in targets[inclusive:]:
            to, _, when = target.partition(" if ")
            ways.append({"step": to, **({"when": f"{{{{ ctx.{when} }}}}"} if when else {})})
        mode = "inclusive" if inclusive else "exclusive"
        follow = {"next": {"spec": {"mode": mode}, "arcs": ways}} if ways else {}
        steps.append({"step": name, "tool": {"kind": "noop"}, **follow})
    return json.dumps(
        {
            "apiVersion": "noetl.io/v10",
            "kind": "Playbook",
            "metadata": {"name": "large"},
            "workflow": steps,
        }
    )


@pytest.mark.parametrize("family", ["ladder", "star", "chain", "pairs"])
def test_twice_the_playbook_is_about_twice_the_check(family: str) -> None:
    small, large = (playbook(FAMILIES[family](n)) for n in (60, 120))
    lines = Lines()
    compile_source(small)
    assert lines.of(lambda: compile_source(large)) < 2.3 * lines.of(lambda: compile_source(small))

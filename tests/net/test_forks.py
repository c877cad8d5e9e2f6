"""Forks that meet are found as before, and a large net is checked in nearly linear work."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from anabranch.dialects.registry import compile_source
from anabranch.net import forks as subject
from anabranch.net.analyse import analyse
from anabranch.net.draw import dot, mermaid, svg
from anabranch.net.net import Branch, Net
from anabranch.net.reach import following_of, positions, predecessors
from seeds import seeds

from .families import FAMILIES, braid, built, chain, playbook
from .support import net, step

pytestmark = pytest.mark.slow

# -- the plain way, one walk per arc, as the answer to compare with ----------------------------


def plain_meetings(given: Net) -> dict[str, list[str]]:
    following, before = following_of(given), predecessors(given)
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


@pytest.mark.parametrize("seed", seeds(40))
def test_forks_that_meet_are_those_of_one_walk_per_arc(seed: int) -> None:
    lot = random.Random(seed)
    for _ in range(100):
        given = drawn_by_lot(lot)
        found = subject.meetings(given, following_of(given))
        assert {
            name: [fork.name for fork in steps] for name, steps in found.forks.items()
        } == plain_meetings(given)
        assert found.partly == 0


# -- how much work it is ------------------------------------------------------------------------


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
    small, large = (built(FAMILIES[family](n)) for n in (150, 300))
    lines = Lines()
    assert lines.of(lambda: analyse(large)) < 2.3 * lines.of(lambda: analyse(small))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_large_net_is_looked_at_within_the_budget(family: str) -> None:
    given = built(FAMILIES[family](1_000))
    arcs = sum(map(len, following_of(given).values()))
    found = subject.meetings(given, following_of(given), work=50_000)
    most = 50_000 + (subject.WORK_PER_ARC + subject.NEAR) * arcs
    assert found.followed <= most


@pytest.mark.parametrize("family", ["ladder", "star", "two_rows", "chain", "pairs", "long_ways"])
def test_what_has_narrow_steps_is_exact_at_any_size(family: str) -> None:
    given = built(FAMILIES[family](4_000))
    found = subject.meetings(given, following_of(given), work=0)
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


@pytest.mark.soak
@pytest.mark.parametrize("family", ["ladder", "star", "chain", "pairs"])
def test_twice_the_playbook_is_about_twice_the_check(family: str) -> None:
    small, large = (playbook(FAMILIES[family](n)) for n in (60, 120))
    lines = Lines()
    compile_source(small)
    assert lines.of(lambda: compile_source(large)) < 2.3 * lines.of(lambda: compile_source(small))

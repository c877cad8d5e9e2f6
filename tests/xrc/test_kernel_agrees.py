"""The kernel and the oracle agree on every process, every selection and every merge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Any

import pytest

from anabranch.net.net import Step
from anabranch.net.offers import slots_needed
from seeds import part, seeds

from . import oracle
from .agree import Pair, replayed, walked
from .documents import document, some_slow
from .lower import LEFT, TOLD, compiled, lower
from .shrink import report, shrink

pytestmark = pytest.mark.slow

SHARDS = 20
PAIRS = 20_000
SCHEDULES = 5
"""How many schedules each orchestration is played with."""


def differences(chosen: range) -> Iterator[Pair]:
    for seed in chosen:
        rng = Random(seed)
        orchestration, start = document(rng)
        net = compiled(orchestration, rng.choice((TOLD, LEFT)))
        for _ in range(SCHEDULES):
            pair, difference = walked(orchestration, net, start, rng)
            if difference:
                yield pair
                break


@pytest.mark.parametrize("shard", some_slow(SHARDS))
def test_oracle_and_kernel_agree_after_every_action(shard: int) -> None:
    pair = next(differences(part(shard, SHARDS, PAIRS // SCHEDULES)), None)
    if pair is not None:
        small = shrink(pair, lambda one: bool(replayed(one)))
        pytest.fail(report(small))


def test_the_dialect_reads_every_spelling_as_meant() -> None:
    """Branches, spawns and joins of the compiled net are those of the lowering by hand."""
    for seed in seeds(1_000):
        orchestration, start = document(Random(f"spelling {seed}"))
        by_hand, by_dialect = lower(orchestration, start), compiled(orchestration)
        assert list(by_hand.steps) == list(by_dialect.steps)
        for name, step in by_hand.steps.items():
            assert shape(step) == shape(by_dialect.steps[name]), f"seed {seed}, {name}"


def shape(step: Step) -> list[Any]:
    """What follows a step, whatever the place it was written at and the word that was used."""
    return [
        (
            branch.outcome,
            branch.mode,
            [arc.target for arc in branch.arcs],
            branch.carry_payload,
            join and (join.target, join.slots, slots_needed(join.rule, len(join.slots))),
            join and (join.rule.losers, join.rule.combine, join.rule.select),
        )
        for branch in step.branches
        if (join := branch.join) or branch.arcs
    ]


# -- the comparison would notice -----------------------------------------------------------------


def _changed(name: str, replacement: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(oracle.Session, name, replacement)


def _kill_spares_nested(self: oracle.Session, group: int) -> None:
    self.killed_groups.add(group)
    for process in self.processes:
        if process.group == group and process.state == "waiting":
            self._abort_process(process, "killed")


def _no_target(self: oracle.Session, parent: oracle.Process, outcome: str, wait: int) -> None:
    branch = self.structure[parent.step].get("onValid" if outcome == "valid" else "onInvalid", {})
    group = parent.group if "join" not in branch else len(self.processes) + 1
    for step in branch.get("spawns", []):
        self._create(step, group, dict(parent.payload), self.now + wait)


def _no_spawn_gate(self: oracle.Session, group: int) -> None:
    for process in self.processes:
        if process.group == group and process.state == "waiting":
            was_open = oracle.is_open(process)
            self._abort_process(process, "killed")
            if was_open:
                self._kill_group(process.pid)


def _impossible_spares(self: oracle.Session) -> None:
    while hopeless := [p for p in self.processes if oracle.is_open(p) and not self.can_close(p)]:
        self._abort_process(hopeless[-1], "impossible")


def _anywhere(structure: dict[str, Any], step: str) -> set[str]:
    """Plain reachability, which does not stop at nested joins."""
    seen, todo = set[str](), [step]
    while todo:
        here = todo.pop()
        if here not in seen:
            seen.add(here)
            for side in ("onValid", "onInvalid"):
                branch = structure[here].get(side, {})
                todo += branch.get("spawns", [])
                todo += [branch["join"]["joinid"]] if "join" in branch else []
    return seen


def _first_come(join: oracle.Join) -> dict[int, Any]:
    """Offers take the first entry that fits, picky or not."""
    filled: dict[int, Any] = {}
    for offer in join.offers:
        for at, entry in enumerate(join.entries):
            if at not in filled and oracle.fits(entry, offer[1], offer[2]):
                filled[at] = offer
                break
    return filled


WRONG: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "killing a waiting target spares its group": _changed("_kill_group", _kill_spares_nested),
    "killed processes that still run may spawn": _changed("_kill_group", _no_spawn_gate),
    "an impossible join does not kill": _changed("_settle", _impossible_spares),
    "impossible joins stay open": _changed("_settle", lambda _: None),
    "no join target is made": _changed("_branch", _no_target),
    "a producer may be reached through a nested group": lambda patch: patch.setattr(
        oracle, "reachable_within_group", _anywhere
    ),
    "entries that take any outcome are filled first": lambda patch: patch.setattr(
        oracle, "fill", _first_come
    ),
    "any is all": lambda patch: patch.setattr(
        oracle, "needed", lambda declared: len(declared["from"])
    ),
}


@pytest.mark.parametrize("rule", WRONG)
def test_a_rule_read_differently_is_noticed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wrong reading leads to a difference within a few thousand pairs, and to a small one."""
    WRONG[rule](monkeypatch)
    pairs = list(islice(differences(range(4_000)), 3))
    assert len(pairs) == 3
    shortest = min(pairs, key=lambda pair: len(pair.actions))  # which is soonest made small
    small = shrink(shortest, lambda one: bool(replayed(one)))
    assert len(small.actions) <= 16, report(small)
    assert "-- the kernel --" in report(small)

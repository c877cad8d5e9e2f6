"""Random orchestrations: nested and looping, sensible and not, in every spelling the language has.

Two kinds are mixed. A *woven* document is what a careful author writes: forks and joins inside one
another, up to five deep. A *wild* one has branches that lead anywhere. Either is then bent a
little: a way back, a producer named twice, a target that is also spawned.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

Document = dict[str, Any]

RULE = "0x" + "00" * 19 + "01"
NESTING_MAX = 5
STEPS_MAX = 40


def some_slow(shards: int) -> list[Any]:
    """The numbers of the shards; all but the first two belong to the slow tests."""
    return [pytest.param(n, marks=pytest.mark.slow if n > 1 else ()) for n in range(shards)]


def document(rng: Random) -> tuple[Document, str]:
    """An orchestration and the step to start at."""
    structure = _woven(rng) if rng.random() < 0.5 else _wild(rng)
    for _ in range(rng.choice((0, 0, 1, 2))):
        rng.choice(_BENDS)(rng, structure)
    start = next(iter(structure)) if rng.random() < 0.9 else rng.choice(list(structure))
    return {"id": "random", "structure": structure}, start


# -- joins, in all spellings -------------------------------------------------------------------


def _join(rng: Random, target: str, nodes: list[str], needs: int | None = None) -> dict[str, Any]:
    join: dict[str, Any] = {"joinid": target}
    k = needs or rng.randint(1, len(nodes))
    join |= rng.choice(_spellings(k, len(nodes)))
    if rng.random() < 0.9:
        join["waitonjoin"] = rng.choice(("kill", "kill", "drain"))
    join["from"] = [_entry(rng, node) for node in nodes]
    return join


def _spellings(k: int, entries: int) -> list[dict[str, Any]]:
    """The ways to say that `k` of so many are needed."""
    ways: list[dict[str, Any]] = [
        {"mode": "kofn", "k": k},
        {"mode": {"kofn": k}},
        {"mode": {"k": k}},
    ]
    if k == 1:
        ways += [{"mode": "any"}, {}]
    if k == entries:
        ways += [{"mode": "all"}] * 2
    return ways


def _entry(rng: Random, node: str) -> dict[str, Any]:
    when = rng.choice(("valid", "valid", "valid", "invalid", "any", "both", "", None))
    return {"node": node} if when is None else {"node": node, "when": when}


# -- woven -------------------------------------------------------------------------------------


def _woven(rng: Random) -> dict[str, Any]:
    structure: dict[str, Any] = {}
    _block(rng, structure, "S", rng.choice((1, 2, 2, 3, 4, NESTING_MAX)))
    return structure


def _block(rng: Random, structure: dict[str, Any], name: str, depth: int) -> list[str]:
    """Write the step `name` and what follows it; returns the steps its group can deliver from."""
    step: dict[str, Any] = structure.setdefault(name, {"rule": RULE})
    if depth == 0 or len(structure) > STEPS_MAX // 2:
        if rng.random() < 0.25:  # a chain: the producer lies one step deeper
            structure.setdefault(f"{name}n", {"rule": RULE})
            step[rng.choice(("onValid", "onInvalid"))] = {"spawns": [f"{name}n"]}
            return [name, f"{name}n"]
        return [name]
    spawns = [f"{name}{letter}" for letter in "abcd"[: rng.choice((1, 2, 2, 3, 4))]]
    target = f"{name}J"
    structure.setdefault(target, {"rule": RULE})
    inner = [
        _block(rng, structure, spawn, rng.choice((0, depth - 1, rng.randint(0, depth - 1))))
        for spawn in spawns
    ]
    nodes = [rng.choice(steps) for steps in inner]
    step["onValid"] = {"spawns": spawns, "join": _join(rng, target, nodes)}
    if rng.random() < 0.2:
        step["onInvalid"] = _other_branch(rng, structure, target, nodes)
    if rng.random() < 0.3:
        structure[target]["onValid"] = {"spawns": [name if rng.random() < 0.5 else spawns[0]]}
    return [name, target, target]


def _other_branch(
    rng: Random, structure: dict[str, Any], target: str, nodes: list[str]
) -> dict[str, Any]:
    spawns = rng.sample(nodes, rng.randint(1, len(nodes)))
    if rng.random() < 0.3:
        return {"spawns": spawns}
    other = target if rng.random() < 0.5 else rng.choice(list(structure))
    return {"spawns": spawns, "join": _join(rng, other, nodes)}


# -- wild --------------------------------------------------------------------------------------


def _wild(rng: Random) -> dict[str, Any]:
    names = [f"W{n}" for n in range(rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 8)))]
    structure: dict[str, Any] = {name: {"rule": RULE} for name in names}
    for name in names:
        for side in ("onValid", "onInvalid"):
            if rng.random() < (0.8 if side == "onValid" else 0.5):
                structure[name][side] = _wild_branch(rng, names)
    return structure


def _wild_branch(rng: Random, names: list[str]) -> dict[str, Any]:
    branch: dict[str, Any] = {}
    spawns = rng.choices(names, k=rng.choice((0, 1, 1, 2, 2, 3)))
    if spawns or rng.random() < 0.5:
        branch["spawns"] = spawns
    if rng.random() < 0.45:
        likely = (spawns * 3 + names) if spawns else names
        nodes = rng.choices(likely, k=rng.choice((1, 2, 2, 3)))
        branch["join"] = _join(rng, rng.choice(names), nodes)
    return branch


# -- bends -------------------------------------------------------------------------------------


def _branches(structure: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        step[side]
        for step in structure.values()
        for side in ("onValid", "onInvalid")
        if side in step
    ]


def _back_edge(rng: Random, structure: dict[str, Any]) -> None:
    names = list(structure)
    step = structure[rng.choice(names)]
    side = rng.choice(("onValid", "onInvalid"))
    step.setdefault(side, {}).setdefault("spawns", []).append(rng.choice(names))


def _self_spawn(rng: Random, structure: dict[str, Any]) -> None:
    name = rng.choice(list(structure))
    structure[name].setdefault("onInvalid", {"spawns": [name]})


def _twice(rng: Random, structure: dict[str, Any]) -> None:
    """The same step spawned twice, the same producer named twice."""
    for branch in _branches(structure):
        if branch.get("spawns") and rng.random() < 0.5:
            branch["spawns"] = [*branch["spawns"], branch["spawns"][0]]
        if "join" in branch and rng.random() < 0.7:
            entries = branch["join"]["from"]
            entries.insert(rng.randint(0, len(entries)), _entry(rng, entries[0]["node"]))


def _target_also_spawned(rng: Random, structure: dict[str, Any]) -> None:
    for branch in _branches(structure):
        if "join" in branch and rng.random() < 0.5:
            branch.setdefault("spawns", []).append(branch["join"]["joinid"])


def _no_spawns(rng: Random, structure: dict[str, Any]) -> None:
    for branch in _branches(structure):
        if "join" in branch and rng.random() < 0.3:
            branch["spawns"] = []


_BENDS = (_back_edge, _self_spawn, _twice, _target_also_spawned, _no_spawns)

"""Make a failing pair small enough to read: leave out whatever does not mend it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from . import oracle
from .agree import Pair, replayed
from .kernel_run import KernelRun
from .lower import compiled

SIDES = ("onValid", "onInvalid")


def shrink(pair: Pair, fails: Callable[[Pair], bool]) -> Pair:
    """The smallest pair found that still fails; every smaller neighbour of it does not."""
    while True:
        smaller = next((one for one in _smaller(pair) if fails(one)), None)
        if smaller is None:
            return pair
        pair = smaller


def _smaller(pair: Pair) -> Iterator[Pair]:
    count = len(pair.actions)
    for size in (count // 2, count // 4, 1):
        for at in range(0, count, size or 1):
            yield replace(pair, actions=pair.actions[:at] + pair.actions[at + (size or 1) :])
    if pair.payload:
        yield replace(pair, payload={})
    for document in _smaller_documents(pair.document, pair.start):
        yield replace(pair, document=document)
    for at, action in enumerate(pair.actions):
        for plainer in _plainer(action):
            yield replace(pair, actions=[*pair.actions[:at], plainer, *pair.actions[at + 1 :]])


def _plainer(action: oracle.Action) -> Iterator[oracle.Action]:
    if action[0] == "finish":
        _, pid, outcome, result, wait = action
        if wait:
            yield ("finish", pid, outcome, result, 0)
        for key in result:
            kept = {name: value for name, value in result.items() if name != key}
            yield ("finish", pid, outcome, kept, wait)


def _smaller_documents(document: dict[str, Any], start: str) -> Iterator[dict[str, Any]]:
    structure = document["structure"]
    for name, step in structure.items():
        if name != start and not _named(structure, name):
            yield _with(document, {key: one for key, one in structure.items() if key != name})
        for side in SIDES:
            for branch in _smaller_branches(step[side]) if side in step else ():
                changed = {**step, side: branch} if branch else _without(step, side)
                yield _with(document, {**structure, name: changed})


def _smaller_branches(branch: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {}
    for key in branch:
        yield _without(branch, key)
    spawns = branch.get("spawns", [])
    for at in range(len(spawns)):
        yield {**branch, "spawns": spawns[:at] + spawns[at + 1 :]}
    join = branch.get("join")
    if join is not None and oracle.needed(join) < len(join["from"]):
        for at in range(len(join["from"])):
            entries = join["from"][:at] + join["from"][at + 1 :]
            yield {**branch, "join": {**join, "from": entries}}


def _without(mapping: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}


def _with(document: dict[str, Any], structure: dict[str, Any]) -> dict[str, Any]:
    return {**document, "structure": structure}


def _named(structure: dict[str, Any], name: str) -> bool:
    """Whether some branch speaks of this step."""
    for step in structure.values():
        for side in SIDES:
            branch = step.get(side, {})
            join = branch.get("join", {"joinid": "", "from": []})
            if name in (*branch.get("spawns", []), join["joinid"]):
                return True
            if any(entry["node"] == name for entry in join["from"]):
                return True
    return False


def report(pair: Pair, kind: type[KernelRun] = KernelRun) -> str:
    """The case and both traces, for a reader who has nothing else."""
    difference = replayed(pair, kind)
    session = oracle.play(pair.document, pair.start, pair.actions, pair.payload)
    kernel = kind(compiled(pair.document), pair.start, pair.payload)
    for action in pair.actions:
        kernel.act(action)
    lines = [
        difference,
        f"start at {pair.start} with {pair.payload}",
        json.dumps(pair.document["structure"], indent=1),
        *(f"  {action}" for action in pair.actions),
        "-- the oracle --",
        *session.log,
        "-- the kernel --",
        *(f"{at}: {event}" for at, events in kernel.rows for event in events),
    ]
    return "\n".join(lines)

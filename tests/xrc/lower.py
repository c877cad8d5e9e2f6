"""A document as a net: by the dialect, and once more by hand as a second opinion on it."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from anabranch.dialects.nodes import Fields
from anabranch.dialects.source import read_source
from anabranch.dialects.xrc729.compile import compile_orchestration
from anabranch.net.net import Arc, Branch, GatherRule, Join, Net, RunPolicy, Slot, Step, Work

_WHEN = {"valid": "valid", "invalid": "invalid"}

#: Work that is told to stop when its process is killed, and work that is left to end by itself.
TOLD = Work(kind="rule", error_aborts=True)
LEFT = Work(kind="rule", error_aborts=True, finishes_when_killed=True)


def compiled(document: dict[str, Any], work: Work = LEFT) -> Net:
    """The net the dialect makes; its rules are not evaluated here, so any work will do."""
    read = read_source(json.dumps(document))
    assert isinstance(read.root, Fields)
    net, problems = compile_orchestration(read, read.root)
    assert net is not None, problems
    return replace(net, steps={n: replace(step, work=work) for n, step in net.steps.items()})


def lower(document: dict[str, Any], start: str, work: Work = LEFT) -> Net:
    steps = {name: _step(name, step, work) for name, step in document["structure"].items()}
    policy = RunPolicy(on_failure="handled")
    return Net("random", "xrc729", "0" * 64, steps, start, policy=policy, carries_payload=True)


def _step(name: str, step: dict[str, Any], work: Work) -> Step:
    sides = (("valid", "onValid"), ("invalid", "onInvalid"))
    branches = tuple(_branch(outcome, step.get(side, {})) for outcome, side in sides)
    return Step(name, work, branches=branches)


def _branch(outcome: str, branch: dict[str, Any]) -> Branch:
    arcs = tuple(Arc(target) for target in branch.get("spawns", []))
    join = _join(branch["join"]) if "join" in branch else None
    return Branch(outcome, "inclusive", arcs, join, carry_payload=True)


def _join(declared: dict[str, Any]) -> Join:
    slots = tuple(
        Slot(entry["node"], _WHEN.get(entry.get("when"), "any")) for entry in declared["from"]
    )
    rule = GatherRule(
        mode="quorum",
        k=_needed(declared, len(slots)),
        combine="merge",
        losers=declared.get("waitonjoin", "drain"),
    )
    return Join(declared["joinid"], rule, slots)


def _needed(declared: dict[str, Any], slots: int) -> int:
    match declared.get("mode", "any"):
        case {"kofn": int() as k} | {"k": int() as k}:
            return k
        case "kofn":
            return int(declared["k"])
        case "all":
            return slots
    return 1

"""Families of nets that grow: ladders, stars, rings and others, as nets and as playbooks."""

from __future__ import annotations

import json
from collections.abc import Callable

from anabranch.net.net import Net

from .support import net, step


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


def playbook(arcs: dict[str, list[str]]) -> str:
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

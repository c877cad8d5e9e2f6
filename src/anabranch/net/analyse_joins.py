"""Joins that cannot close, slots nobody fills, outcomes a join hangs on, keys that overwrite.

The usual mistake is a producer that is spawned elsewhere: it belongs to another scope, so the join
never hears of it. Every message says where such a producer is spawned now and which branch would
have to spawn it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from anabranch.net.net import Join, Net, Slot
from anabranch.net.offers import Declared, Offers, Outlook
from anabranch.net.problems import Position, Problem
from anabranch.net.reach import reachability, successors

SCOPE_MAX = 40  # in larger scopes it is not asked which outcomes a join hangs on


class JoinReach(msgspec.Struct, frozen=True):
    """Which slots of a join can ever be filled from the spawns of its branch."""

    step: str
    outcome: str | None
    join: Join
    fillable: tuple[Slot, ...]
    lost: tuple[Slot, ...]
    most: int  # how many slots can be filled at once
    possible: bool


def join_slots_reachable(net: Net) -> list[JoinReach]:
    """For every join its slots, by whether a member of its scope can fill them."""
    return [_reach(outlook) for outlook in Offers(net).outlooks]


def _reach(outlook: Outlook) -> JoinReach:
    declared = outlook.declared
    marked = list(zip(declared.join.slots, outlook.fillable, strict=True))
    return JoinReach(
        declared.step,
        declared.branch.outcome,
        declared.join,
        tuple(slot for slot, fillable in marked if fillable),
        tuple(slot for slot, fillable in marked if not fillable),
        outlook.most,
        outlook.possible,
    )


def analyse_joins(net: Net) -> Iterator[Problem]:
    offers = Offers(net)
    for outlook in offers.outlooks:
        reach = _reach(outlook)
        if not outlook.possible:
            yield _impossible(net, offers, outlook, reach)
            continue
        if reach.lost:
            yield _slots_unreachable(net, offers, outlook, reach)
        if len(outlook.scope) <= SCOPE_MAX:
            yield from _hangs_on(net, offers, outlook)
        yield from _overlaps(net, outlook)


def _at(net: Net, declared: Declared) -> Position:
    return declared.join.position or net.steps[declared.step].position or Position(1, 1)


# -- joins that never close ------------------------------------------------------------------


def _impossible(net: Net, offers: Offers, outlook: Outlook, reach: JoinReach) -> Problem:
    declared = outlook.declared
    head = f"the join at {declared.join.target!r} can never close: "
    if not reach.lost:
        most = f"of its {len(reach.fillable)} slots at most {outlook.most} can be filled in one run"
        message = f"{head}{most}, and {outlook.needed} are needed"
        hint = "spawn as many producers as it needs, or lower what it needs"
        return Problem(_at(net, declared), "join-impossible", message, hint)
    if not declared.branch.arcs:
        head += "its branch spawns no step; "
    whys = "; ".join(_why_lost(net, offers, outlook, node) for node in _nodes(reach.lost))
    return Problem(_at(net, declared), "join-impossible", head + whys, _spawn_hint(net, reach))


def _slots_unreachable(net: Net, offers: Offers, outlook: Outlook, reach: JoinReach) -> Problem:
    whys = "; ".join(_why_lost(net, offers, outlook, node) for node in _nodes(reach.lost))
    names = ", ".join(repr(node) for node in _nodes(reach.lost))
    message = f"{names} can never deliver to the join at {reach.join.target!r}: {whys}"
    return Problem(
        _at(net, outlook.declared), "slot-unreachable", message, _spawn_hint(net, reach), "warning"
    )


def _nodes(slots: tuple[Slot, ...]) -> list[str]:
    return list(dict.fromkeys(slot.node for slot in slots))


def _why_lost(net: Net, offers: Offers, outlook: Outlook, node: str) -> str:
    """Why this producer never delivers, in words."""
    if node in outlook.scope:
        whens = [slot.when for slot in outlook.declared.join.slots if slot.node == node]
        return f"{node!r} never ends {' or '.join(dict.fromkeys(whens))}"
    home = f"the scope that {outlook.declared.step!r} opens"
    opener = next((o for o in offers.outlooks if node in o.scope and o is not outlook), None)
    makers = [_spawned_at(net, step) for step in _spawners(net, node)]
    if not makers:
        return f"{node!r} cannot be reached inside {home}: nothing spawns it"
    by = f"it is spawned by {', '.join(makers)}"
    if opener is not None:
        other = f"the scope of the join at {opener.declared.join.target!r}"
        return f"{node!r} cannot be reached inside {home}: {by}, which puts it in {other}"
    return f"{node!r} cannot be reached inside {home}: {by}, outside of it"


def _spawners(net: Net, node: str) -> list[str]:
    return [name for name, step in net.steps.items() if node in successors(step)]


def _spawned_at(net: Net, name: str) -> str:
    at = net.steps[name].position
    return f"{name!r} (line {at.line})" if at is not None else repr(name)


def _spawn_hint(net: Net, reach: JoinReach) -> str:
    nodes = _nodes(reach.lost) or _nodes(reach.join.slots)
    names = " and ".join(repr(node) for node in nodes)
    side = f"the {reach.outcome} branch of {reach.step!r}" if reach.outcome else repr(reach.step)
    at = reach.join.position or net.steps[reach.step].position
    where = f" (line {at.line})" if at is not None else ""
    return f"spawn {names} from {reach.step!r} itself: in {side}{where}, beside this join"


# -- joins that close on some outcomes only --------------------------------------------------


def _hangs_on(net: Net, offers: Offers, outlook: Outlook) -> Iterator[Problem]:
    needs = offers.outcomes_it_needs(outlook)
    if needs:
        words = " and ".join(f"{step!r} ends {outcome or 'otherwise'}" for step, outcome in needs)
        message = f"the join at {outlook.declared.join.target!r} closes only if {words}"
        hint = "make sure that it may end aborted when that does not happen"
        yield Problem(_at(net, outlook.declared), "join-needs-outcome", message, hint, "note")


# -- keys that overwrite ---------------------------------------------------------------------


def _overlaps(net: Net, outlook: Outlook) -> Iterator[Problem]:
    """Keys that several of the merged producers write: the later one in the list wins."""
    join = outlook.declared.join
    if join.rule.combine != "merge" or outlook.needed < 2:
        return
    writers: dict[str, list[str]] = {}
    for slot in join.slots:
        for key in sorted(_written_for(net, outlook, slot.node)):
            writers.setdefault(key, []).append(slot.node)
    clashes = {key: nodes for key, nodes in writers.items() if len(nodes) > 1}
    if clashes:
        words = ", ".join(
            f"{key!r} ({' and '.join(repr(n) for n in dict.fromkeys(nodes))})"
            for key, nodes in clashes.items()
        )
        message = f"producers of the join at {join.target!r} write the same keys: {words}"
        hint = "give them names of their own, unless the later one is meant to win"
        yield Problem(_at(net, outlook.declared), "merge-overlap", message, hint, "note")


def _written_for(net: Net, outlook: Outlook, node: str) -> set[str]:
    """What reaches the join through this producer and through no other one."""
    if node not in net.steps:
        return set()
    in_scope = reachability(net).in_scope
    others = {slot.node for slot in outlook.declared.join.slots} - {node}
    keys = set(net.steps[node].writes)
    for name in outlook.scope:
        shared = any(other in in_scope[name] for other in others)
        if node in in_scope[name] and not shared:
            keys |= net.steps[name].writes
    return keys

"""Which steps can still be reached from where, worked out when it is asked.

Two relations matter. Along *all* edges: where can control go at all (unreachable steps, barriers).
Along *scope-preserving* edges: where can control go without leaving its scope. A branch without a
join hands its scope on to its spawns; a branch with a join keeps only its target in the scope, for
the spawns belong to the fresh scope below it. Only this second relation can fill a join's slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

from anabranch.net.net import Branch, Net, Step

Reach = Mapping[str, frozenset[str]]
KEPT_MAX = 512  # steps of a net whose reach is kept


def all_edges(branch: Branch) -> Iterable[str]:
    for arc in branch.arcs:
        yield arc.target
    if branch.join is not None:
        yield branch.join.target


def scope_edges(branch: Branch) -> Iterable[str]:
    if branch.join is not None:
        yield branch.join.target
        return
    for arc in branch.arcs:
        yield arc.target


def successors(step: Step, edges: Callable[[Branch], Iterable[str]] = all_edges) -> list[str]:
    """Direct successors in document order, each once."""
    return list(dict.fromkeys(target for branch in step.branches for target in edges(branch)))


def following_of(
    net: Net, edges: Callable[[Branch], Iterable[str]] = all_edges
) -> dict[str, list[str]]:
    """For every step its direct successors, as far as they exist."""
    return {
        name: [target for target in successors(step, edges) if target in net.steps]
        for name, step in net.steps.items()
    }


def predecessors(net: Net) -> dict[str, list[str]]:
    """For every step the steps with an edge to it, in document order."""
    found: dict[str, list[str]] = {name: [] for name in net.steps}
    for step in net.steps.values():
        for target in successors(step):
            if target in found:
                found[target].append(step.name)
    return found


def reached_from(start: str, following: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """Every step control can come to, itself among them."""
    seen = {start}
    frontier = [start]
    while frontier:
        for target in following[frontier.pop()]:
            if target not in seen:
                seen.add(target)
                frontier.append(target)
    return frozenset(seen)


class _Closure(Mapping[str, frozenset[str]]):
    """What each step reaches, worked out when somebody asks. Of a large net only the last answers
    are kept: all of them together are the square of its steps."""

    def __init__(self, net: Net, edges: Callable[[Branch], Iterable[str]]) -> None:
        self._following = following_of(net, edges)
        self._kept: dict[str, frozenset[str]] = {}

    def __getitem__(self, name: str) -> frozenset[str]:
        kept = self._kept
        found = kept.get(name)
        if found is None:
            found = reached_from(name, self._following)
            if len(kept) >= KEPT_MAX:
                kept.pop(next(iter(kept)), None)
            kept[name] = found
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._following)

    def __len__(self) -> int:
        return len(self._following)

    def __contains__(self, name: object) -> bool:
        return name in self._following


class Reachability:
    """The relations of one net. A step always reaches itself."""

    def __init__(self, net: Net) -> None:
        self.anywhere: Reach = _Closure(net, all_edges)
        self.in_scope: Reach = _Closure(net, scope_edges)
        self.positions = {name: index for index, name in enumerate(net.steps)}


def positions(net: Net) -> Mapping[str, int]:
    """Where each step stands in the order of the net."""
    return reachability(net).positions


class Held:
    """Nets hold mappings and are not hashable; one object stands for one net here."""

    __slots__ = ("net",)

    def __init__(self, net: Net) -> None:
        self.net = net

    def __hash__(self) -> int:
        return id(self.net)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and other.net is self.net


@lru_cache(maxsize=512)
def _computed(held: Held) -> Reachability:
    return Reachability(held.net)


def reachability(net: Net) -> Reachability:
    """The relations of this net, computed at the first call."""
    return _computed(Held(net))

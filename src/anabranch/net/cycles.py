"""The cycles of a graph: groups of steps that all reach one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Following = Mapping[str, Sequence[str]]


def rings(following: Following) -> list[set[str]]:
    """Every such group of two or more, and every step that leads to itself. Linear in the edges."""
    reversed_edges: dict[str, list[str]] = {name: [] for name in following}
    for name, targets in following.items():
        for target in targets:
            reversed_edges[target].append(name)
    found: list[set[str]] = []
    placed: set[str] = set()
    for name in reversed(finishing_order(following, following)):
        if name in placed:
            continue
        group = _reached(name, reversed_edges, placed)
        placed |= group
        if len(group) > 1 or name in following[name]:
            found.append(group)
    return found


def finishing_order(following: Following, roots: Iterable[str]) -> list[str]:
    """The steps by when a depth-first walk from these roots leaves them."""
    order: list[str] = []
    seen: set[str] = set()
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        path = [(root, iter(following[root]))]
        while path:
            name, targets = path[-1]
            unseen = next((target for target in targets if target not in seen), None)
            if unseen is None:
                order.append(name)
                path.pop()
            else:
                seen.add(unseen)
                path.append((unseen, iter(following[unseen])))
    return order


def _reached(start: str, edges: Following, without: set[str]) -> set[str]:
    group = {start}
    frontier = [start]
    while frontier:
        for target in edges[frontier.pop()]:
            if target not in group and target not in without:
                group.add(target)
                frontier.append(target)
    return group

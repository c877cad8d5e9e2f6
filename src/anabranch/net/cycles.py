"""The cycles of a graph: groups of steps that all reach one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Following = Mapping[str, Sequence[str]]


def rings(following: Following) -> list[set[str]]:
    """Every such group of two or more, and every step that leads to itself. Linear in the edges."""
    return [
        set(group)
        for group in components(following)
        if len(group) > 1 or group[0] in following[group[0]]
    ]


def components(following: Following) -> list[list[str]]:
    """All steps in groups of those that reach one another, each before the groups it leads to."""
    reversed_edges: dict[str, list[str]] = {name: [] for name in following}
    for name, targets in following.items():
        for target in targets:
            reversed_edges[target].append(name)
    found: list[list[str]] = []
    placed: set[str] = set()
    for name in reversed(finishing_order(following, following)):
        if name not in placed:
            found.append(_reached(name, reversed_edges, placed))
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


def _reached(start: str, edges: Following, placed: set[str]) -> list[str]:
    """Whoever is not placed yet, and places them."""
    placed.add(start)
    group = [start]
    for name in group:
        for target in edges[name]:
            if target not in placed:
                placed.add(target)
                group.append(target)
    return group

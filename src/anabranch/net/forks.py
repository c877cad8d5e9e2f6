"""Where the tokens of an inclusive fork meet, found without walking the whole net for each fork.

Every fork is looked at once, whatever the number of its arcs: a step is marked with the arc that
leads to it, or with `MANY`. The walk ends at the next *narrow* step, one that every route beyond it
goes through: whether the tokens have met there decides about all that follows. So a ladder or a
chain of diamonds takes as long as it has arcs.

A net without narrow steps could still take forks times arcs. Therefore the work has a budget, and
what is left of the forks is looked at near by only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from anabranch.cancel import poll
from anabranch.net.cycles import Following, components
from anabranch.net.net import Branch, Net, Step
from anabranch.net.reach import predecessors

MANY: Final = -1
WORK: Final = 1_000_000  # arcs followed for all forks together, and for each arc of the net …
WORK_PER_ARC: Final = 16  # … so many more
NEAR: Final = 200  # arcs followed for a fork when that is used up


class Meetings(msgspec.Struct, frozen=True):
    """For each step where ways first meet the forks they come from."""

    forks: Mapping[str, list[Step]]
    partly: int  # how many forks were looked at near by only
    followed: int  # arcs, for those who count


def meetings(net: Net, following: Following, *, work: int = WORK) -> Meetings:
    found: dict[str, list[Step]] = {}
    forks = [
        (step, branch)
        for step in net.steps.values()
        for branch in step.branches
        if branch.mode == "inclusive" and len(branch.arcs) > 1
    ]
    if not forks:
        return Meetings(found, 0, 0)
    walk = _Walk(net, following, work)
    if not walk.can_meet(net):
        return Meetings(found, 0, 0)
    for step, branch in forks:
        for name in walk.met(step.name, branch):
            found.setdefault(name, []).append(step)
    return Meetings(found, walk.partly, walk.followed)


class _Walk:
    def __init__(self, net: Net, following: Following, work: int) -> None:
        self._following = following
        self._before = predecessors(net)
        self._narrow = _next_narrow(following)
        self._work = work + WORK_PER_ARC * sum(map(len, following.values()))
        self.followed = 0
        self.partly = 0

    def can_meet(self, net: Net) -> bool:
        """Whether anything would be worth telling: where ways come together, something must not
        wait for all of them."""
        return any(
            step.barrier is None and len(self._before[name]) > 1 for name, step in net.steps.items()
        ) or any(_leads_twice(branch) for step in net.steps.values() for branch in step.branches)

    def met(self, fork: str, branch: Branch) -> list[str]:
        """The steps at which more than one arc of the branch first arrives."""
        poll()
        marks = self._marks(fork, branch)
        return [
            name
            for name, mark in marks.items()
            if mark == MANY and any(marks.get(one) != MANY for one in self._before[name])
        ]

    def _marks(self, fork: str, branch: Branch) -> dict[str, int]:
        marks: dict[str, int] = {}
        waiting: deque[str] = deque()
        stop = self._narrow.get(fork)
        most = self._work if self.followed < self._work else self.followed + NEAR

        def arrive(name: str, arc: int) -> None:
            # Coming back to the fork starts it anew; that is a cycle, not a meeting.
            known = marks.get(name)
            if name != fork and known != arc and known != MANY:
                marks[name] = arc if known is None else MANY
                waiting.append(name)

        for index, arc in enumerate(branch.arcs):
            arrive(arc.target, index)
        while waiting:
            name = waiting.popleft()
            if name == stop:
                continue
            if self.followed >= most:
                self.partly += 1
                break
            targets = self._following[name]
            self.followed += len(targets) + 1
            for target in targets:
                arrive(target, marks[name])
        return marks


def _leads_twice(branch: Branch) -> bool:
    """Two of its arcs lead to one step."""
    return len({arc.target for arc in branch.arcs}) < len(branch.arcs)


def _next_narrow(following: Following) -> dict[str, str]:
    """For each step the next one that every route from before it to behind it goes through."""
    groups = components(following)  # each group before those it leads to
    place = {name: index for index, group in enumerate(groups) for name in group}
    over = [0] * (len(groups) + 1)  # where arcs begin and end to pass over a group

    def pass_over(first: int, last: int) -> None:
        if first < last:
            over[first] += 1
            over[last] -= 1

    led_to: set[int] = set()
    for name, targets in following.items():
        for target in targets:
            if place[name] != place[target]:
                led_to.add(place[target])
                pass_over(place[name] + 1, place[target])
    for index in range(len(groups)):
        if index not in led_to:  # something begins here that comes from nowhere
            pass_over(0, index)
    return _nearest(groups, over)


def _nearest(groups: list[list[str]], over: list[int]) -> dict[str, str]:
    passing, narrow = 0, []
    for index, group in enumerate(groups):
        passing += over[index]
        narrow.append(group[0] if len(group) == 1 and not passing else None)
    found: dict[str, str] = {}
    nearest: str | None = None
    for index in range(len(groups) - 1, -1, -1):
        if nearest is not None:
            found.update(dict.fromkeys(groups[index], nearest))
        nearest = narrow[index] or nearest
    return found

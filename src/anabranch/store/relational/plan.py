"""In which order the rows of a log are copied, so that every webhook can go on where it was.

A webhook has a number for each partition of the source: what it has seen. In the target it has one
for each partition of that. Where a partition of the target takes rows from one partition of the
source alone, in their order, it is the number of the last row that the webhook had seen. Where it
takes rows from several, what all webhooks have seen must come first, then what all but one have
seen, and so on: the webhooks stand in a row by how much they have seen, and each gets a cut behind
everything that it and those before it have seen. Mostly a cut is exactly what the webhook has seen.
Where it is more, because two webhooks are ahead of each other in different partitions, the rest is
looked at by the copy itself (`unseen`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

import msgspec

Numbers: TypeAlias = dict[int, int]  # partition → number


class Range(msgspec.Struct, frozen=True):
    """Copy the rows of this partition of the source with numbers above `after`, up to `upto`."""

    partition: int
    after: int
    upto: int


class Cursors(msgspec.Struct, frozen=True):
    """In these partitions of the target, the webhook has seen what is there now."""

    hook: str
    partitions: Collection[int]


Step: TypeAlias = Range | Cursors


def plan(
    cursors: Mapping[str, Numbers], ends: Numbers, *, partitions: int, keeps: bool
) -> list[Step]:
    """`partitions` are those of the target; it `keeps` rows in the partition that they are in."""
    steps: list[Step] = []
    for group in _groups(ends, keeps):
        fed = group if keeps else range(partitions)
        before = dict.fromkeys(group, 0)
        for hook, cut in _cuts(cursors, ends, group):
            steps += [Range(each, before[each], cut[each]) for each in group]
            steps.append(Cursors(hook, list(fed)))
            before = cut
        steps += [Range(each, before[each], ends[each]) for each in group]
    return [step for step in steps if isinstance(step, Cursors) or step.after < step.upto]


def unseen(cursors: Mapping[str, Numbers], ends: Numbers, *, keeps: bool) -> dict[str, list[Range]]:
    """Of each webhook the rows before its cut that it has not seen."""
    found: dict[str, list[Range]] = {}
    for group in _groups(ends, keeps):
        for hook, cut in _cuts(cursors, ends, group):
            seen = cursors[hook]
            rest = [Range(each, seen.get(each, 0), cut[each]) for each in group]
            found.setdefault(hook, []).extend(one for one in rest if one.after < one.upto)
    return {hook: ranges for hook, ranges in found.items() if ranges}


def _groups(ends: Numbers, keeps: bool) -> list[Sequence[int]]:
    """Partitions of the source whose rows meet in a partition of the target."""
    return [[each] for each in sorted(ends)] if keeps else [sorted(ends)]


def _cuts(
    cursors: Mapping[str, Numbers], ends: Numbers, group: Sequence[int]
) -> list[tuple[str, Numbers]]:
    def seen(hook: str) -> tuple[int, str]:
        return sum(cursors[hook].get(each, 0) for each in group), hook

    cut, found = dict.fromkeys(group, 0), []
    for hook in sorted(cursors, key=seen):
        looked = {each: min(cursors[hook].get(each, 0), ends[each]) for each in group}
        cut = {each: max(cut[each], looked[each]) for each in group}
        found.append((hook, cut))
    return found

"""Checkpoints: how far a shard is, with all it takes to go on from there.

A worker that vanishes takes what it did of a shard with it, except for what it said in time. Items
that a checkpoint has are not done again; those after it are, under the same keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from anabranch.kernel.tracker import ItemFailure, TaskRun
from anabranch.kernel.values import ContextPatch


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the items of a shard came to that are over."""

    over: list[tuple[int, int]]  # their indexes, as ranges
    succeeded: int
    failed: tuple[ItemFailure, ...] = ()
    shared: dict[str, Any] = {}
    patches: tuple[ContextPatch, ...] = ()
    results: Any = None  # as in the answer of the shard; None where none are kept
    stopped: bool = False  # an item failed, and that ends the loop
    ways: dict[str, tuple[TaskRun, ...]] = {}  # as in the report of the shard

    @property
    def indexes(self) -> set[int]:
        return {index for first, stop in self.over for index in range(first, stop)}


def ranges(indexes: Iterable[int]) -> list[tuple[int, int]]:
    """Whole numbers as disjoint ranges, in order."""
    found: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if found and found[-1][1] == index:
            found[-1] = (found[-1][0], index + 1)
        else:
            found.append((index, index + 1))
    return found


def read(progress: Any, first: int, count: int) -> Checkpoint | None:
    """The checkpoint in what somebody said of a shard; None where there is none that fits it."""
    said = progress.get("checkpoint") if isinstance(progress, Mapping) else None
    if said is None:
        return None
    try:
        found = msgspec.convert(said, Checkpoint)
    except msgspec.ValidationError:
        return None
    inside = all(first <= begin < stop <= first + count for begin, stop in found.over)
    whole = sum(stop - begin for begin, stop in found.over) == found.succeeded + len(found.failed)
    return found if inside and whole else None

"""What the items of a loop wrote, kept so that a redrive can write it again in the order of items.

Of very many writes few are kept: one for each key and reducer. Where items go in order, an item
that failed divides them: what those behind it wrote counts after what it writes when it is done
again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from anabranch.kernel.reducers import fold, fold_all
from anabranch.kernel.tracker import HeldWrites
from anabranch.kernel.values import ContextPatch
from anabranch.literals import Reducer

FROM_THE_START = -1  # before every item


class _Part(msgspec.Struct, gc=False):
    """What was written from this item on, up to one that failed."""

    first: int
    ctx: dict[tuple[str, Reducer], dict[str, Any]] = {}
    shared: dict[str, Any] = {}

    def written(self) -> tuple[tuple[str, Any, Reducer], ...]:
        made: list[tuple[str, Any, Reducer]] = []
        for (key, reducer), into in self.ctx.items():
            values = into[key] if reducer == "append" else [into[key]]
            made += [(key, value, reducer) for value in values]
        return tuple(made)


class LoopWrites:
    """Of one loop."""

    def __init__(self, reducers: Mapping[str, Reducer], *, ordered: bool) -> None:
        self._reducers = reducers
        self._ordered = ordered
        self._parts: list[_Part] = []  # by their first items
        self._open: _Part | None = None  # the one that the next item belongs to

    def carry(self, carried: Mapping[str, Any]) -> None:
        """What the origin of this run had carried over from its own."""
        written = msgspec.convert(carried.get("patches", ()), tuple[ContextPatch, ...])
        self.take(FROM_THE_START, written, carried["shared"])
        for held in msgspec.convert(carried.get("held", ()), list[HeldWrites]):
            self._open = None
            self.take(held.first, [ContextPatch(*one) for one in held.patches], held.shared)
        self._open = None

    def take(
        self,
        first: int,
        patches: Iterable[ContextPatch],
        shared: Mapping[str, Any],
        *,
        failed: bool = False,
    ) -> None:
        """Of a shard that begins with this item, and whose last item may have failed."""
        part = self._part(first if self._ordered else FROM_THE_START)
        for patch in patches:
            into = part.ctx.setdefault((patch.key, patch.reducer), {})
            value = [patch.value] if patch.reducer == "append" else patch.value
            fold(into, patch.key, value, patch.reducer)
        fold_all(part.shared, shared, self._reducers)
        self._open = None if failed else part

    def _part(self, first: int) -> _Part:
        at = bisect_right(self._parts, first, key=lambda part: part.first)
        before = self._parts[at - 1] if at else None
        if before is not None and (before is self._open or before.first == first):
            return before
        made = _Part(first)
        self._parts.insert(at, made)
        return made

    def to_carry(self, again: int | None) -> dict[str, Any]:
        """What a redriven loop begins with, and what it holds back: that behind the first item that
        is done again, if there is one."""
        at = len(self._parts)
        if again is not None:
            at = bisect_right(self._parts, again, key=lambda part: part.first)
        before, behind = self._parts[:at], self._parts[at:]
        shared: dict[str, Any] = {}
        for part in before:
            fold_all(shared, part.shared, self._reducers)
        held = [HeldWrites(part.first, part.written(), part.shared) for part in behind]
        return {
            "patches": [one for part in before for one in part.written()],
            "shared": shared,
            **({"held": msgspec.to_builtins(held)} if held else {}),
        }

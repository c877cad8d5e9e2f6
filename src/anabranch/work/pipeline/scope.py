"""What a pipeline writes: visible inside at once, and travelling with its answer.

ctx      the context of the run, with the writes made here on top
iter     the item, or the step run where there is no loop
shared   for the loop around: reduced over all its items
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import msgspec

from anabranch.kernel.reducers import check_patch, reduce_into
from anabranch.kernel.values import ContextPatch
from anabranch.net.program import Write
from anabranch.work.evaluations import evaluate_with
from anabranch.work.pipeline.held_bytes import HeldBytes

#: What templates see at this moment; made anew for every write, because one may read another.
NamesNow = Callable[[], Mapping[str, Any]]


class PipelineScope:
    def __init__(
        self,
        context: Mapping[str, Any],
        iteration: Mapping[str, Any] | None,
        held: HeldBytes | None = None,
    ) -> None:
        self._context = context  # large, perhaps: not copied
        self._written: dict[str, Any] = {}
        self.iter: dict[str, Any] = dict(iteration or {})
        self.patches: list[ContextPatch] = []
        self.shared: list[ContextPatch] = []
        self._held = held or HeldBytes()

    @property
    def ctx(self) -> Mapping[str, Any]:
        if not self._written:
            return self._context
        return ChainMap(self._written, cast(dict[str, Any], self._context))

    def patch(self, patch: ContextPatch) -> None:
        """Write to the context; refuses what does not fit."""
        if patch.key in self._context and patch.key not in self._written:
            self._written[patch.key] = self._context[patch.key]
        check_patch(self._written, patch)
        reduce_into(self._written, patch)
        self.patches.append(patch)

    def take(self, patches: Iterable[ContextPatch], shared: Iterable[ContextPatch] = ()) -> None:
        for patch in patches:
            self.patch(patch)
        self.shared.extend(shared)

    async def write(
        self,
        names: NamesNow,
        ctx: tuple[Write, ...] = (),
        iteration: tuple[Write, ...] = (),
        shared: tuple[Write, ...] = (),
    ) -> None:
        for write in ctx:
            patch = await _patch(write, names)
            self._held.add(patch.value)
            self.patch(patch)
        for write in iteration:
            patch = await _patch(write, names)
            check_patch(self.iter, patch)
            self._hold_in_iter(patch)
            reduce_into(self.iter, patch)
        for write in shared:
            patch = await _patch(write, names)
            self._held.add(patch.value)
            self.shared.append(patch)

    def _hold_in_iter(self, patch: ContextPatch) -> None:
        if patch.reducer == "set":
            self._held.put(patch.key, patch.value)
        else:
            self._held.add(patch.value)

    # -- remembering -------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        return {
            "iter": self.iter,
            "patches": msgspec.to_builtins(self.patches),
            "shared": msgspec.to_builtins(self.shared),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """As it was, over the context as it is now; refuses writes that no longer fit."""
        self.iter = dict(saved["iter"])
        self.take(
            msgspec.convert(saved["patches"], list[ContextPatch]),
            msgspec.convert(saved["shared"], list[ContextPatch]),
        )


async def _patch(write: Write, names: NamesNow) -> ContextPatch:
    value = await evaluate_with(names(), write.value.evaluate)
    return ContextPatch(write.key, value, write.reducer)

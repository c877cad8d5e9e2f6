"""The results of another loop as a collection: `{results_of: ref}`."""

from __future__ import annotations

from typing import Any

from anabranch.errors import InputError, NotFound
from anabranch.work.loops.collections.port import (
    KIND,
    CollectionError,
    Descriptor,
    Indexed,
    Shard,
)
from anabranch.work.loops.results import Loops, is_loop


class ResultsOf(Indexed):
    def __init__(self, loops: Loops | None) -> None:
        self._loops = loops

    async def describe(self, value: Any) -> Descriptor:
        ref = value["results_of"]
        if not is_loop(ref):
            raise InputError(f"results_of takes the `refs` of a loop, not {ref!r:.60}")
        try:
            size = await self._reader().size(ref)
        except NotFound as gone:
            raise CollectionError(gone.message) from None
        return {KIND: "results_of", "ref": ref, "size": size}

    async def _read(self, descriptor: Descriptor, shard: Shard) -> list[tuple[str, Any]]:
        stop = shard.first + shard.count
        found = await self._reader().results(descriptor["ref"], shard.first, stop)
        return [(str(at), item) for at, item in enumerate(found, start=shard.first)]

    def _reader(self) -> Loops:
        if self._loops is None:
            raise InputError("this worker has no way to the log, where the results of a loop are")
        return self._loops

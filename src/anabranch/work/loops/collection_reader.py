"""Reading the collection of a loop for the jobs of that loop.

The kernel knows a loop's source as it came out of its template: a list, a mapping that names a
file, a query and so on, or the descriptor that was made of it. `items` reads the items of a shard;
`ahead` is the work of the job that cuts: it describes the source the first time, and then goes on
from the cursor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.kernel.tracker import Shard
from anabranch.work.loops.collections.all import Collections, is_described
from anabranch.work.loops.collections.port import Item

_NO_KEYS: Mapping[str, Any] = {}


class CollectionReader:
    def __init__(self, collections: Collections) -> None:
        self._collections = collections

    async def items(
        self, source: Any, shard: Shard, *, keyring: Mapping[str, Any] = _NO_KEYS
    ) -> list[Item]:
        """The items of the shard; only some of them where it says so."""
        if isinstance(source, list | tuple):
            part = source[shard.first : shard.first + shard.count]
            found = [Item(n, str(n), item) for n, item in enumerate(part, start=shard.first)]
        else:
            descriptor = await self._collections.describe(source)
            found = await self._collections.items(
                descriptor, shard.first, shard.count, shard.cursor, keyring=keyring
            )
        wanted = frozenset(shard.only)
        return [item for item in found if item.number in wanted] if wanted else found

    async def ahead(
        self,
        source: Any,
        cursor: Any,
        count: int,
        shards: int,
        *,
        keyring: Mapping[str, Any] = _NO_KEYS,
        run: str = "",
    ) -> dict[str, Any]:
        """The next shards: `{shards: [[first, count, cursor]…], cursor, end}`, at the first call
        also `source`, the descriptor to record, and `size` where it is known at once."""
        described = is_described(source)
        descriptor = await self._collections.describe(source, run)
        cuts = await self._collections.cut(descriptor, cursor, count, shards, keyring=keyring)
        found: dict[str, Any] = {
            "shards": [[shard.first, shard.count, shard.cursor] for shard in cuts.shards],
            "cursor": cuts.next_cursor,
            "end": cuts.end,
        }
        if not described:
            found["source"] = descriptor
        size = self._collections.size(descriptor)
        return found if size is None else {**found, "size": size}

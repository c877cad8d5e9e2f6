"""Reading the collection of a loop for the jobs of that loop.

The kernel knows a loop's source as it came out of its template: a list, a mapping that names a
file, a query and so on, or the descriptor that was made of it. `items` reads the items of a shard;
`ahead` is the work of the job that cuts: it describes the source the first time, and then goes on
from the cursor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    ) -> Sequence[Item]:
        """The items of the shard; only some of them where it says so."""
        at_hand = self.at_hand(source, shard)
        if at_hand:
            return at_hand
        if isinstance(source, list | tuple):
            return []
        descriptor = await self._collections.describe(source)
        numbered = self._collections.numbered(descriptor, shard.first, shard.count)
        found = numbered or await self._collections.items(
            descriptor, shard.first, shard.count, shard.cursor, keyring=keyring
        )
        return _wanted(found, shard)

    def at_hand(self, source: Any, shard: Shard) -> Sequence[Item] | None:
        """The same where nothing has to be read for it, or None."""
        if isinstance(source, list | tuple):
            part = source[shard.first : shard.first + shard.count]
            items = [Item(n, str(n), item) for n, item in enumerate(part, start=shard.first)]
            return _wanted(items, shard)
        if not is_described(source):
            return None
        numbered = self._collections.numbered(source, shard.first, shard.count)
        return _wanted(numbered, shard) if numbered is not None else None

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


def _wanted(items: Sequence[Item], shard: Shard) -> Sequence[Item]:
    if not shard.only:
        return items
    wanted = frozenset(shard.only)
    return [item for item in items if item.number in wanted]

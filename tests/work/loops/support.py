"""What the tests of collections share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from anabranch.work.loops.collections.all import Collections
from anabranch.work.loops.collections.port import Cuts, Descriptor, Item, ShardRange
from anabranch.work.port import Performer
from anabranch.work.values.payloads import MemoryPayloads

from ..support import run

T = TypeVar("T")


def using(
    scenario: Callable[[Collections], Awaitable[T]],
    *,
    performers: Mapping[str, Performer] | None = None,
    **more: Any,
) -> T:
    async def guarded() -> T:
        payloads = more.pop("payloads", None) or MemoryPayloads()
        collections = Collections(payloads=payloads, performers=performers, **more)
        try:
            return await scenario(collections)
        finally:
            await collections.close()

    return run(guarded())


async def all_shards(
    collections: Collections, descriptor: Descriptor, count: int, shards: int, **more: Any
) -> list[ShardRange]:
    """Every shard, cut in several calls, as if each call were made by another process."""
    found: list[ShardRange] = []
    cursor = None
    while True:
        cuts = await collections.cut(descriptor, cursor, count, shards, **more)
        cuts = msgspec.json.decode(msgspec.json.encode(cuts), type=Cuts)
        assert len(cuts.shards) <= shards
        found += cuts.shards
        if cuts.end:
            assert cuts.next_cursor is None
            return found
        cursor = cuts.next_cursor
        assert cursor is not None


async def all_items(
    collections: Collections, value: Any, count: int = 3, shards: int = 2, **more: Any
) -> list[Item]:
    """Described, cut and read: numbers must be consecutive, and reading twice gives the same."""
    descriptor = await collections.describe(value)
    descriptor = msgspec.json.decode(msgspec.json.encode(descriptor))
    found: list[Item] = []
    for shard in await all_shards(collections, descriptor, count, shards, **more):
        assert shard.first == len(found)
        assert 1 <= shard.count <= count
        once = await collections.items(descriptor, shard.first, shard.count, shard.cursor, **more)
        again = await collections.items(descriptor, shard.first, shard.count, shard.cursor, **more)
        assert once == again
        assert len(once) == shard.count
        found += once
    assert [item.number for item in found] == list(range(len(found)))
    size = collections.size(descriptor)
    assert size is None or size == len(found)
    return found


def items_of(value: Any, count: int = 3, shards: int = 2, **more: Any) -> list[Any]:
    found = using(lambda collections: all_items(collections, value, count, shards), **more)
    return [item.item for item in found]

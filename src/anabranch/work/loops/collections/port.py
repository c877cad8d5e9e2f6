"""What a collection is to the rest of the engine.

A collection is described once, when its loop starts. The descriptor is a small JSON mapping that is
recorded; it says where the items are, never what a password is. From then on there are two ways:

    indexable     its size is known, and any range of items can be read by number
    walked        `cut` goes over the items once, cheaply, and leaves a cursor at every shard

Reading a shard again gives the same items, or an error that says that the collection changed.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, overload

import msgspec

from anabranch.errors import InputError
from anabranch.work.faults import out_of_files
from anabranch.work.file_policy import EVERYWHERE, FilePolicy
from anabranch.work.kinds.threads import Threads

#: The key that makes a mapping a descriptor; nobody's data has it.
KIND = "_collection"

Descriptor = Mapping[str, Any]
Cursor = Mapping[str, Any]
Keys = Callable[[int, Any], Any]  # number and item → what identifies it
Keyring = Mapping[str, Any]


class Item(NamedTuple):
    number: int  # the index, which the name of a method forbids to be called so
    key: str
    item: Any


class NumberedItems(Sequence[Item]):
    """The items of a range: made when they are looked at, for loops have many of them."""

    def __init__(self, first: int, values: range) -> None:
        self.first = first
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Item]:
        for number, value in enumerate(self.values, start=self.first):
            yield Item(number, str(number), value)

    @overload
    def __getitem__(self, at: int) -> Item: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Item]: ...

    def __getitem__(self, at: int | slice) -> Item | Sequence[Item]:
        if isinstance(at, slice):
            return list(self)[at]
        number = range(self.first, self.first + len(self.values))[at]
        return Item(number, str(number), self.values[at])


class ShardRange(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive items: what `items` needs to read them."""

    cursor: Cursor | None
    first: int
    count: int


class Cuts(msgspec.Struct, frozen=True):
    shards: list[ShardRange]
    next_cursor: Cursor | None  # where the next call goes on
    end: bool  # there is nothing after these


class CollectionError(InputError):
    """A collection that cannot be read as it was described; `retryable` if that may pass."""

    code = "collection"

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable or out_of_files(sys.exception())


class CollectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    inline_bytes: int = 16 * 1024  # a larger list is kept as payloads
    chunk_bytes: int = 256 * 1024  # of one of them, roughly
    line_bytes: int = 16 * 1024 * 1024  # of one line or record of a file
    shard_bytes: int = 64 * 1024 * 1024  # of the items of one shard, as they stand in a file
    files: FilePolicy = EVERYWHERE  # that loops may go over


class CollectionSource(Protocol):
    """One kind of collection. Every call may wait."""

    async def describe(self, value: Any) -> Descriptor: ...

    def size(self, descriptor: Descriptor) -> int | None: ...

    async def cut(
        self, descriptor: Descriptor, cursor: Cursor | None, count: int, shards: int, ring: Keyring
    ) -> Cuts: ...

    async def items(
        self, descriptor: Descriptor, shard: ShardRange, ring: Keyring
    ) -> list[tuple[str, Any]]:
        """Natural key and item, in order, exactly `shard.count` of them."""
        ...


class Indexed(ABC):
    """A collection that can be read by number: cutting it is arithmetic."""

    def size(self, descriptor: Descriptor) -> int:
        return int(descriptor["size"])

    async def items(
        self, descriptor: Descriptor, shard: ShardRange, _ring: Keyring
    ) -> list[tuple[str, Any]]:
        require_within(descriptor, self.size(descriptor), shard)
        return await self._read(descriptor, shard)

    @abstractmethod
    async def _read(self, descriptor: Descriptor, shard: ShardRange) -> list[tuple[str, Any]]:
        """Natural key and item; the shard lies within the collection."""

    async def cut(
        self, descriptor: Descriptor, cursor: Cursor | None, count: int, shards: int, _ring: Keyring
    ) -> Cuts:
        return _cut_by_number(self.size(descriptor), cursor, count, shards)


class Walked:
    """A collection whose end is known when it was reached."""

    def size(self, _descriptor: Descriptor) -> None:
        return None


class WalkedInThreads(Walked, ABC):
    """One that is walked and read with calls that block."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    async def cut(
        self, descriptor: Descriptor, cursor: Cursor | None, count: int, shards: int, _ring: Keyring
    ) -> Cuts:
        return await self._threads.run(partial(self._cut, descriptor, cursor, count, shards))

    async def items(
        self, descriptor: Descriptor, shard: ShardRange, _ring: Keyring
    ) -> list[tuple[str, Any]]:
        return await self._threads.run(partial(self._items, descriptor, shard))

    @abstractmethod
    def _cut(
        self, descriptor: Descriptor, cursor: Cursor | None, count: int, shards: int
    ) -> Cuts: ...

    @abstractmethod
    def _items(self, descriptor: Descriptor, shard: ShardRange) -> list[tuple[str, Any]]: ...


def _cut_by_number(size: int, cursor: Cursor | None, count: int, shards: int) -> Cuts:
    at = 0 if cursor is None else int(cursor["at"])
    made: list[ShardRange] = []
    while at < size and len(made) < shards:
        length = min(count, size - at)
        made.append(ShardRange(None, at, length))
        at += length
    end = at >= size
    return Cuts(made, None if end else {"at": at}, end)


def require_within(descriptor: Descriptor, size: int, shard: ShardRange) -> None:
    if shard.first < 0 or shard.first + shard.count > size:
        last = shard.first + shard.count
        what = descriptor[KIND]
        raise CollectionError(f"the {what} has {size:,} items, and none up to number {last:,}")


def changed(what: str, how: str) -> CollectionError:
    return CollectionError(f"{what} changed while the loop was running: {how}")

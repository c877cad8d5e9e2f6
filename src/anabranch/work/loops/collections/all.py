"""All kinds of collections behind four calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from anabranch.errors import InputError
from anabranch.work.kinds import inputs
from anabranch.work.kinds.threads import Threads
from anabranch.work.loops.collections.asking import look_up
from anabranch.work.loops.collections.claims import ClaimedItems
from anabranch.work.loops.collections.files import Csv, JsonLines
from anabranch.work.loops.collections.listing import Listings
from anabranch.work.loops.collections.pages import Pages
from anabranch.work.loops.collections.parquet import Parquet
from anabranch.work.loops.collections.plain import Lists, Ranges, ResultsOf
from anabranch.work.loops.collections.port import (
    KIND,
    CollectionError,
    CollectionLimits,
    CollectionSource,
    Cursor,
    Cuts,
    Descriptor,
    Item,
    Keyring,
    Keys,
    NumberedItems,
    ShardRange,
)
from anabranch.work.loops.collections.queries import Queries
from anabranch.work.loops.results import Loops
from anabranch.work.port import Performer
from anabranch.work.values.payloads import PayloadPort, is_ref, load, place_in

_NO_KEYS: Keyring = {}
#: `Item._make` at the speed of C: loops have many of them.
_item: Callable[[tuple[int, str, Any]], Item] = partial(tuple.__new__, Item)

#: What may stand beside the key that names the kind.
_OPTIONS: Mapping[str, frozenset[str]] = {
    "range": frozenset(),
    "jsonl": JsonLines.options,
    "csv": Csv.options,
    "parquet": Parquet.options,
    "listing": Listings.options,
    "sql": frozenset(),
    "pages": frozenset(),
    "claim": frozenset(),
    "results_of": frozenset(),
}


class Collections:
    """One per process. Nothing is opened before it is needed; `close` ends its threads."""

    def __init__(
        self,
        *,
        payloads: PayloadPort | None = None,
        performers: Mapping[str, Performer] | None = None,
        loops: Loops | None = None,
        limits: CollectionLimits | None = None,
        threads: int = 4,
    ) -> None:
        chosen = limits or CollectionLimits()
        work = performers or {}
        self._payloads = payloads
        self._threads = Threads(threads)
        self._lists = Lists(payloads, chosen)
        self._ranges = Ranges()
        self._sources: dict[str, CollectionSource] = {
            "list": self._lists,
            "range": self._ranges,
            "jsonl": JsonLines(self._threads, chosen),
            "csv": Csv(self._threads, chosen),
            "parquet": Parquet(self._threads, chosen),
            "listing": Listings(self._threads, chosen),
            "sql": Queries(work),
            "pages": Pages(work),
            "claim": ClaimedItems(work, payloads, chosen),
            "results_of": ResultsOf(loops),
        }

    async def close(self) -> None:
        await self._threads.close()

    async def describe(self, value: Any, run: str = "") -> Descriptor:
        """The descriptor of what a loop goes over, or an `InputError` that says what is wrong.

        What has to be stored for it is held for the run."""
        if is_described(value):
            described: Descriptor = value
            return described
        if is_ref(value):
            value = await load(self._payloads, str(place_in(value)))
        kind = _kind(value)
        if kind == "list":
            return await self._lists.describe(value, run)
        return await self._sources[kind].describe(value)

    def size(self, descriptor: Descriptor) -> int | None:
        """How many items there are; None when only walking over them can tell."""
        return self._source(descriptor).size(descriptor)

    async def cut(
        self,
        descriptor: Descriptor,
        cursor: Cursor | None,
        count: int,
        shards: int,
        *,
        keyring: Keyring = _NO_KEYS,
    ) -> Cuts:
        """Up to `shards` shards of `count` items, from where the last call ended."""
        if count < 1 or shards < 1:
            raise InputError("a shard has at least one item, and a cut at least one shard")
        await look_up(descriptor, keyring)
        return await self._source(descriptor).cut(descriptor, cursor, count, shards, keyring)

    async def items(
        self,
        descriptor: Descriptor,
        first: int,
        count: int,
        cursor: Cursor | None = None,
        *,
        keys: Keys | None = None,
        keyring: Keyring = _NO_KEYS,
    ) -> list[Item]:
        """The items of a shard. `keys(index, item)` gives each its key, otherwise its nature."""
        source = self._source(descriptor)
        if "auth" in descriptor:
            await look_up(descriptor, keyring)
        found = await source.items(descriptor, ShardRange(cursor, first, count), keyring)
        if keys is not None:
            found = [(_key(keys, n, item), item) for n, (_, item) in enumerate(found, start=first)]
        named = [key for key, _ in found]
        numbers = range(first, first + len(found))
        items = list(map(_item, zip(numbers, named, [item for _, item in found], strict=True)))
        if len(set(named)) < len(named):
            _say_which_are_the_same(items)
        return items

    def numbered(self, descriptor: Descriptor, first: int, count: int) -> NumberedItems | None:
        """The same for a range, without a look at each of them; None for any other."""
        if descriptor.get(KIND) != "range":
            return None
        return self._ranges.numbered(descriptor, ShardRange(None, first, count))

    def _source(self, descriptor: Descriptor) -> CollectionSource:
        source = self._sources.get(str(descriptor.get(KIND)))
        if source is None:
            raise InputError(f"there is no collection of kind {descriptor.get(KIND)!r:.40}")
        return source


def is_described(value: Any) -> bool:
    return isinstance(value, Mapping) and KIND in value


def _kind(value: Any) -> str:
    if isinstance(value, range):
        return "range"
    if isinstance(value, list | tuple):
        return "list"
    if isinstance(value, Mapping):
        return _kind_of_mapping(value)
    if value is None:
        raise InputError("the collection is null: is its name spelled right, and was it set?")
    what = f"the text '{value:.40}'" if isinstance(value, str) else repr(value)[:40]
    raise InputError(f"the collection is {what}: a loop goes over a list; put it in brackets?")


def _kind_of_mapping(value: Mapping[str, Any]) -> str:
    """A source is written `{jsonl: …}` and so on; any other mapping is data, pair by pair."""
    for kind, options in _OPTIONS.items():
        if kind in value and value.keys() <= options | {kind}:
            return kind
    return "list"


def _key(keys: Keys, index: int, item: Any) -> str:
    try:
        return inputs.scalar(keys(index, item), "iter_key")
    except InputError as error:
        raise CollectionError(f"item {index:,}: {error.message}") from None


def _say_which_are_the_same(items: list[Item]) -> None:
    seen: dict[str, int] = {}
    for item in items:
        if item.key in seen:
            raise CollectionError(
                f"item {seen[item.key]:,} and item {item.number:,} have the same iter_key "
                f"'{item.key:.80}'"
            )
        seen[item.key] = item.number

"""Lists, mappings, ranges, and the results of another loop.

A short list travels inside its descriptor. A longer one is kept as payloads of a few thousand items
each, so that reading a shard loads one or two of them and never the whole list.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from anabranch.errors import InputError, NotFound
from anabranch.work.loops.collections.port import (
    KIND,
    CollectionError,
    CollectionLimits,
    Descriptor,
    Indexed,
    NumberedItems,
    ShardRange,
    require_within,
)
from anabranch.work.loops.results import Loops, is_loop
from anabranch.work.secrets.redaction import brief
from anabranch.work.values.payloads import PayloadPort, encoded, load, place_of

_CHUNKS_INLINE = 32  # more of them get an index of their own
_CACHED = 8
_SCOPE = "execution"  # a run that goes on with the rest of a loop reads the same items


class Lists(Indexed):
    """`[…]`, and a mapping as a list of `{key, value}`."""

    def __init__(self, payloads: PayloadPort | None, limits: CollectionLimits) -> None:
        self._payloads = payloads
        self._limits = limits
        self._cache: OrderedDict[str, list[Any]] = OrderedDict()

    async def describe(self, value: Any, run: str = "") -> Descriptor:
        keyed = isinstance(value, Mapping)
        items = [{"key": str(k), "value": v} for k, v in value.items()] if keyed else list(value)
        size = _size(items)
        head: dict[str, Any] = {KIND: "list", "size": len(items)}
        if keyed:
            head["keyed"] = True
        if size <= self._limits.inline_bytes:
            return {**head, "items": items}
        return {**head, **await self._kept(items, size, run)}

    async def _read(self, descriptor: Descriptor, shard: ShardRange) -> list[tuple[str, Any]]:
        found = await self._slice(descriptor, shard.first, shard.first + shard.count)
        if descriptor.get("keyed"):
            return [(item["key"], item) for item in found]
        return [(str(shard.first + offset), item) for offset, item in enumerate(found)]

    async def _kept(self, items: list[Any], size: int, run: str) -> dict[str, Any]:
        if self._payloads is None:
            raise InputError("the list is too large to travel, and there is no payload store here")
        per_chunk = max(1, self._limits.chunk_bytes * len(items) // size)
        chunks = [
            await self._payloads.put(encoded(items[at : at + per_chunk]), run, _SCOPE)
            for at in range(0, len(items), per_chunk)
        ]
        if len(chunks) <= _CHUNKS_INLINE:
            return {"per_chunk": per_chunk, "chunks": chunks}
        index = await self._payloads.put(encoded(chunks), run, _SCOPE)
        return {"per_chunk": per_chunk, "index": index}

    async def _slice(self, descriptor: Descriptor, first: int, last: int) -> list[Any]:
        if "items" in descriptor:
            inline: list[Any] = descriptor["items"][first:last]
            return inline
        per_chunk = int(descriptor["per_chunk"])
        chunks = descriptor.get("chunks") or await self._load(descriptor["index"])
        found: list[Any] = []
        for number in range(first // per_chunk, (last - 1) // per_chunk + 1 if last > first else 0):
            begin = number * per_chunk
            chunk = await self._load(chunks[number])
            found += chunk[max(first - begin, 0) : last - begin]
        return found

    async def _load(self, sha256: str) -> list[Any]:
        known = self._cache.get(sha256)
        if known is None:
            known = self._cache[sha256] = await load(self._payloads, place_of(sha256))
            while len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(sha256)
        return known


def _size(items: list[Any]) -> int:
    try:
        return len(encoded(items))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the items of the collection are not JSON: {error}") from None


class Ranges(Indexed):
    """`{range: [start, stop, step]}`, `{range: {start, stop, step}}` or `{range: stop}`."""

    async def describe(self, value: Any) -> Descriptor:
        numbers = value if isinstance(value, range) else _range(value["range"])
        return {
            KIND: "range",
            "start": numbers.start,
            "stop": numbers.stop,
            "step": numbers.step,
        }

    def size(self, descriptor: Descriptor) -> int:
        # `len` fails beyond 64 bits; nobody waits for such a loop, but it can be described.
        numbers = _numbers(descriptor)
        return max(0, -((numbers.start - numbers.stop) // numbers.step))

    def numbered(self, descriptor: Descriptor, shard: ShardRange) -> NumberedItems:
        """The items of the shard with their natural keys."""
        first, count = shard.first, shard.count
        numbers = _numbers(descriptor)[first : first + count]
        if first < 0 or len(numbers) != count:
            require_within(descriptor, self.size(descriptor), shard)
        return NumberedItems(first, numbers)

    async def _read(self, descriptor: Descriptor, shard: ShardRange) -> list[tuple[str, Any]]:
        numbers = _numbers(descriptor)[shard.first : shard.first + shard.count]
        names = map(str, range(shard.first, shard.first + len(numbers)))
        return list(zip(names, numbers, strict=True))


class ResultsOf(Indexed):
    """The results of another loop: `{results_of: ref}`."""

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

    async def _read(self, descriptor: Descriptor, shard: ShardRange) -> list[tuple[str, Any]]:
        stop = shard.first + shard.count
        found = await self._reader().results(descriptor["ref"], shard.first, stop, None)
        return [(str(at), item) for at, item in enumerate(found, start=shard.first)]

    def _reader(self) -> Loops:
        if self._loops is None:
            raise InputError("this worker has no way to the log, where the results of a loop are")
        return self._loops


def _numbers(descriptor: Descriptor) -> range:
    return range(descriptor["start"], descriptor["stop"], descriptor["step"])


def _range(given: Any) -> range:
    if isinstance(given, Mapping):
        if unknown := sorted(given.keys() - {"start", "stop", "step"}):
            raise InputError(f"range: '{unknown[0]}' is not one of start, stop, step")
        parts = [given.get("start", 0), given.get("stop"), given.get("step", 1)]
    else:
        parts = list(given) if isinstance(given, list | tuple) else [given]
        if not 1 <= len(parts) <= 3:
            raise InputError("range takes [start, stop, step], [start, stop] or [stop]")
    for part in parts:
        if not isinstance(part, int) or isinstance(part, bool):
            raise InputError(f"range takes whole numbers, not {brief(part)}")
        if not -(2**63) <= part < 2**63:
            raise InputError("range takes whole numbers of 64 bits")
    if len(parts) == 3 and parts[2] == 0:
        raise InputError("the step of a range must not be zero")
    return range(*parts)

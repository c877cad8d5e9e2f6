"""Reading seed directories into the cache, before the node takes work and then again and again.

A seed is read as a whole (registrations, advertisements, revocations) or not at all: a passport
must not count while its revocation could not be read. What it sends is checked here, document by
document; what does not hold is left out and counted. All that one seed sends has a limit of bytes
and of items: a directory as large as the settings allow is below it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec

from anabranch.cancel import cancel_and_wait
from anabranch.clock import Clock
from anabranch.errors import AnabranchError, InputError, StoreError
from anabranch.market.node.directory.artifacts import (
    ADVERTISEMENT,
    CheckedBefore,
    kept_passport,
    require_published,
    url_of,
)
from anabranch.market.node.directory.passport_cache import (
    HERE,
    CachedPassport,
    PassportCache,
    SourceContent,
    changes,
)
from anabranch.market.node.directory.registry import NoRoomForStrangers, SeedDirectory
from anabranch.market.node.directory.settings import DirectorySettings
from anabranch.market.node.door import Door, portions
from anabranch.market.node.peers.http_transport import origin_of
from anabranch.market.node.ports import PeerTransport, PeerUnreachable
from anabranch.market.passports import PASSPORT, instant
from anabranch.work.values.served_json import JsonRefused, do_aside, read_json

logger = logging.getLogger("anabranch.node")

PAGES_MAX = 1000  # of one list; a directory that is full can be read
BYTES_MAX = 384 * 1024 * 1024  # of all pages of one reading
ALL_ITEMS_MAX = 500_000  # of all lists of one reading
REVOCATIONS_AT_ONCE = 50  # small documents, which are checked here; then others get their turn
#: Of one reading, and how long a node waits for those that take so long: then it goes on.
READING_SECONDS, PATIENCE_SECONDS = 600.0, 30.0
SOONEST_MS = 1000  # after a failure
SHORTEST_MS = 10_000  # between two readings that went well
NO_LIMIT = 2**62
IN_VAIN_MS = 2000
IN_VAIN_MAX = 10_000


class SeedState(msgspec.Struct):
    """How reading one seed goes."""

    url: str
    read_at: int | None = None
    error: str = ""
    failures: int = 0
    refused: int = 0  # documents of it that do not hold


class _Reading(msgspec.Struct):
    """One reading of one seed."""

    url: str
    content: SourceContent
    refused: int = 0
    size: int = 0
    items: int = 0

    def count(self, size: int, items: int) -> None:
        self.size += size
        self.items += items
        if self.size > BYTES_MAX or self.items > ALL_ITEMS_MAX:
            message = f"it sends more than {BYTES_MAX:,} bytes or {ALL_ITEMS_MAX:,} items"
            raise InputError(message, code="seed_size")


class DirectorySync:
    def __init__(
        self,
        clock: Clock,
        transport: PeerTransport,
        settings: DirectorySettings,
        registry: SeedDirectory,
        cache: PassportCache,
        seeds: Sequence[str],
    ) -> None:
        self._clock = clock
        self._transport = transport
        self._settings = settings
        self._registry = registry
        self._cache = cache
        self.seeds = [SeedState(url) for url in seeds]
        self._checked = CheckedBefore()
        self._door = Door()
        self._in_vain: dict[str, int] = {}  # nodes that no seed knows, and until when
        self._readings: dict[str, asyncio.Task[None]] = {}  # that are going on, by seed

    async def sync(self) -> None:
        """Read every seed once; one that cannot be read says so in its state. One that takes its
        time is read beside the others, and is not waited for much longer."""
        loop = asyncio.get_running_loop()
        for seed in self.seeds:
            if seed.url not in self._readings:
                reading = self._readings[seed.url] = loop.create_task(self._sync(seed))
                reading.add_done_callback(partial(self._read, seed.url))
        if readings := list(self._readings.values()):
            done, _ = await asyncio.wait(readings, timeout=PATIENCE_SECONDS)
            for reading in done:
                reading.result()

    def _read(self, url: str, _reading: asyncio.Task[None]) -> None:
        del self._readings[url]

    async def close(self) -> None:
        """Nothing is read any more."""
        await cancel_and_wait(*self._readings.values(), ignore=StoreError)

    async def locate(self, node_id: str) -> str:
        """Where a node is that the cache does not know: it may be new to a seed. Seeds that are
        asked in vain are not asked again for a while."""
        now = self._clock.now()
        if self._in_vain.get(node_id, 0) > now or not node_id.startswith("node:"):
            return ""
        for seed in self.seeds:
            try:
                path = f"/adv/{quote(node_id, safe=':')}"
                page, _ = await self._fetch(f"{seed.url.rstrip('/')}{path}")
                found = page["advertisement"]
                self._checked.require(found, ADVERTISEMENT)
                require_published(found, now)
            except (AnabranchError, LookupError, TypeError):
                continue
            if found["node/id"] == node_id and (url := url_of(found)):
                self._cache.add_advertisement(seed.url, node_id, found)
                return url
        if len(self._in_vain) >= IN_VAIN_MAX:
            self._in_vain.clear()
        self._in_vain[node_id] = now + IN_VAIN_MS
        return ""

    def without(self, node_id: str) -> list[str]:
        """Seeds that were read last time, and said nothing of this node."""
        return [
            seed.url
            for seed in self.seeds
            if seed.read_at is not None
            and not seed.error
            and node_id not in self._cache.sources[seed.url].advertisements
        ]

    def unread(self) -> str:
        """The seed that could not be read for so long that its word does not count, and why; ""
        where there is none."""
        now = self._clock.now()
        for seed in self.seeds:
            if not self._cache.is_fresh(seed.url, now):
                return f"the seed directory {origin_of(seed.url)} cannot be read: {seed.error}"
        return ""

    @property
    def delay_ms(self) -> int:
        """Until the next reading: as it is set, or half the shortest life of a passport that an
        issuer has signed whom this node trusts, as anyone can make others; soon where a seed could
        not be read."""
        lives = (
            (passport.expires_at - passport.issued_at) // 2
            for passport in self._cache.vouched()
            if passport.expires_at is not None
        )
        wanted = min(self._settings.sync_ms, max(SHORTEST_MS, min(lives, default=NO_LIMIT)))
        failures = max((seed.failures for seed in self.seeds), default=0)
        return min(wanted, SOONEST_MS << min(failures - 1, 20)) if failures else wanted

    async def _sync(self, seed: SeedState) -> None:
        now = self._clock.now()
        try:
            async with asyncio.timeout(READING_SECONDS):
                await self._pull(seed, now)
        except StoreError:
            raise
        except TimeoutError:
            seed.error = f"one reading of it takes longer than {READING_SECONDS:g} s"
            seed.failures += 1
        except AnabranchError as error:
            if seed.error != error.message:  # once, not with every reading
                where = origin_of(seed.url)
                logger.warning("the seed directory %s cannot be read: %s", where, error.message)
            seed.error, seed.failures = error.message, seed.failures + 1
        else:
            seed.read_at, seed.error, seed.failures = now, "", 0

    async def _pull(self, seed: SeedState, now: int) -> None:
        reading = _Reading(seed.url.rstrip("/"), SourceContent(read_at=now))
        for path, name in (("/adv", "since"), ("/cap", "cursor")):
            async for page in self._pages(reading, path, name):
                for part, weight in portions(page):
                    take = partial(self._take_all, reading, part, now)
                    await self._door.read(take, weight)
        # From the first one on: a seed that was set up anew counts from 1 again.
        async for page in self._pages(reading, "/revocations", "since"):
            for number, item in enumerate(page):
                if number % REVOCATIONS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                self._take_revocation(reading, seed.url, item)
        seed.refused = reading.refused
        await self._registry.durable()
        known = self._cache.sources.get(seed.url, SourceContent())
        before = SourceContent(dict(known.rows), dict(known.advertisements))
        changed = await do_aside(reading.size, changes, before, reading.content)
        self._cache.replace(seed.url, reading.content, changed)

    def _take_all(self, reading: _Reading, items: Sequence[Any], now: int) -> None:
        """Documents of strangers, looked at where they hold nobody up."""
        for item in items:
            try:
                self._take(reading.content, item, now)
            except (AnabranchError, LookupError, TypeError):
                reading.refused += 1

    def _take(self, content: SourceContent, item: Mapping[str, Any], now: int) -> None:
        if "passport" not in item:
            advertisement = item["advertisement"]
            self._checked.require(advertisement, ADVERTISEMENT)
            require_published(advertisement, now)
            content.advertisements[advertisement["node/id"]] = advertisement
            return
        self._checked.require(item["passport"], PASSPORT)
        row = _row(item)
        content.rows.setdefault(row.node_id, {})[row.capability_id] = row

    def _take_revocation(self, reading: _Reading, source: str, item: Any) -> None:
        """One of a stranger that has no room here counts for as long as the seed tells of it."""
        try:
            self._registry.revoke(item["artifact"], source)
        except NoRoomForStrangers:
            reading.content.revoked.add(item["artifact"])
        except AnabranchError as error:
            if error.code == "too-many-revocations":
                raise  # one that is not kept could let a passport count
            reading.refused += 1
        except (LookupError, TypeError):
            reading.refused += 1

    async def _pages(self, reading: _Reading, path: str, name: str) -> AsyncIterator[list[Any]]:
        """All items of a list, page by page, so that no more than one page waits."""
        at = ""
        for _ in range(PAGES_MAX):
            query = f"?{name}={quote(at)}" if at else ""
            page, size = await self._fetch(f"{reading.url}{path}{query}")
            found, after = page.get("items"), page.get("next")
            if not isinstance(found, list) or not isinstance(after, str | int | None):
                raise InputError(f"{path} is no list of a directory", code="seed_shape")
            reading.count(size, len(found))
            yield found
            if after is None or str(after) == at or not found:
                return
            at = str(after)
        raise InputError(f"{path} has more than {PAGES_MAX} pages", code="seed_shape")

    async def _fetch(self, url: str) -> tuple[dict[str, Any], int]:
        """What it answers, and how many bytes that is."""
        seconds = self._settings.fetch_ms / 1000
        status, body = await self._transport.call("GET", url, b"", seconds)
        if status != 200:
            raise PeerUnreachable(f"it answers with status {status}", code="seed_status")
        try:
            answer = await read_json(body)
        except JsonRefused as error:
            message = f"its answer is no JSON that is taken: {error}"
            raise InputError(message[:300], code="seed_shape") from None
        if not isinstance(answer, dict):
            raise InputError("its answer is no JSON object", code="seed_shape")
        return answer, len(body)


def _row(item: Mapping[str, Any]) -> CachedPassport:
    sequence, endorsement = item["sequence/no"], item.get("endorsement")
    if not isinstance(sequence, int) or not isinstance(endorsement, Mapping | None):
        raise InputError("a row of another shape")
    published = instant(item["published_at"], "published_at")
    return CachedPassport(kept_passport(item["passport"]), sequence, published, endorsement)


def cached_here(registry: SeedDirectory, node_id: str) -> dict[str, CachedPassport]:
    """What the directory of this node says of one node, for the cache."""
    return {
        capability: CachedPassport(
            registry.checked[node_id, capability], one.sequence, one.at, one.endorsement
        )
        for capability, one in registry.registrations.get(node_id, {}).items()
    }


def follow(registry: SeedDirectory, cache: PassportCache) -> None:
    """The cache has at once what the directory of this node takes."""

    def changed(node_id: str) -> None:
        advertisement = registry.advertisements.get(node_id)
        document = advertisement.advertisement if advertisement else None
        cache.update_here(node_id, cached_here(registry, node_id), document)

    for node_id in {*registry.advertisements, *registry.registrations}:
        changed(node_id)
    registry.listen(changed)
    cache.sources[HERE].read_at = 0

"""The directory: which participants hold a valid passport for a capability.

Steps look into a cache and never ask the network when they dispatch. The cache is read once before
the first run and then again every `sync_seconds` (or half the shortest life of a passport), beside
the work; a source that cannot be read leaves the last good copy in place, and expiry is looked at
anew with every question.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from anabranch.clock import Clock
from anabranch.errors import AnabranchError, InputError
from anabranch.expressions.pointer import MISSING, parse_path, same
from anabranch.market.identities import public_key
from anabranch.market.passports import (
    Issuers,
    Key,
    Passport,
    problem_of,
    read_passport,
    read_revocation,
)
from anabranch.market.sources import documents_in, fetch_source, load_source, rows_in
from anabranch.net.problems import did_you_mean
from anabranch.work.kinds.threads import Threads
from anabranch.work.participants.book import NO_BOOK, Book, Listing
from anabranch.work.participants.port import NotKnown, Participant, ParticipantQuery
from anabranch.work.participants.rotation import Rotation

logger = logging.getLogger(__name__)

SYNC_SECONDS = 60.0
LEAST_RECENTLY_ASKED = "least_recently_asked"
SOONEST_SECONDS = 1.0
_NO_DIRECTORY = "there is no directory of passports: add `directory: {passports: …}` to the book"


class Cache(msgspec.Struct):
    """What the last reading of the sources gave."""

    passports: dict[Key, Passport] = {}
    revoked: set[Key] = set()
    refused: list[str] = []  # what was there and does not count
    issuers: Issuers = msgspec.field(default_factory=Issuers)
    #: Where each node is reached: the URLs that can be asked, and those that cannot.
    endpoints: dict[Key, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    read_at: int | None = None


class PassportDirectory:
    def __init__(
        self, book: Book, clock: Clock, fetch: Callable[[str], bytes] | None = None
    ) -> None:
        self.book = book
        self._clock = clock
        self._fetch = fetch or fetch_source
        self._config = book.directory
        issuers = self._config.get("issuers") or ()
        self._allowed = frozenset(_identity(one, "participant") for one in issuers)
        self.cache = Cache()
        self._unread = ""  # why the sources could not be read
        self._thread: Threads | None = None
        self._syncing: asyncio.Task[None] | None = None
        self._opened = False
        self.rotation = Rotation()

    # -- asking ------------------------------------------------------------------------------

    def find(self, query: ParticipantQuery) -> list[str]:
        match query.resolve:
            case "static":
                found = list(dict.fromkeys(query.participants))
            case "capability":
                found = self._holders(query)
            case "task_type" | "service_type":
                found = self._offering(query.service_type or query.task_type, query)
            case "offer":
                found = [_provider(query.offer)]
            case other:
                raise InputError(f"targets cannot be resolved by {other!r}")
        if query.order == LEAST_RECENTLY_ASKED:
            return self.rotation.chosen(found, 1 if query.one else query.limit)
        if query.one:
            return self._cheapest(found)[:1]
        return found[: query.limit]

    def elsewhere(self, name: str) -> Participant | str:
        """Somebody by the endpoints of its rows in the directory, or why not, or ""."""
        now, cache = self._clock.now(), self.cache
        rows = [
            cache.endpoints.get(passport.key, ((), ()))
            for passport in cache.passports.values()
            if cache.issuers.operators.get(passport.node_id, passport.issuer) == name
            and not problem_of(passport, now, cache.revoked, cache.issuers)
        ]
        spoken = tuple(dict.fromkeys(url for urls, _ in rows for url in urls))
        if spoken:
            return self.book.at_endpoints(spoken)
        others = [url for _, urls in rows for url in urls]
        if others:
            scheme = others[0].partition(":")[0]
            return f"its endpoints in the directory are for {scheme!r:.20}, not for HTTP"
        return "the directory gives no endpoint of it" if rows else ""

    async def reconfigure(self, book: Book) -> None:
        """Take the directory of another book, once it has been read; raises where it cannot be."""
        other = PassportDirectory(book, self._clock, self._fetch)
        if other._config:
            thread = Threads(1, close_seconds=0.1)
            try:
                other.cache = await thread.run(lambda: other._read(self._clock.now()))
            finally:
                await thread.close()
        was_open = self._opened
        await self.close()
        self._config, self._allowed = other._config, other._allowed
        self.cache, self._unread = other.cache, ""
        if was_open:
            await self.open()

    def _holders(self, query: ParticipantQuery) -> list[str]:
        """Participants with a passport that counts now, in a fixed order, each once."""
        if self.cache.read_at is None:
            if self._config:
                raise NotKnown(self._unread or "the directory of passports has not been read yet")
            raise InputError(_NO_DIRECTORY if self.book.is_there else NO_BOOK)
        now, cache = self._clock.now(), self.cache
        holders = {
            cache.issuers.operators.get(passport.node_id, passport.issuer)
            for passport in cache.passports.values()
            if passport.capability_id == query.capability_id
            and not problem_of(passport, now, cache.revoked, cache.issuers)
            and self._fits(passport, query)
        }
        return sorted(holders)

    def why_nobody(self, query: ParticipantQuery) -> str:
        if query.resolve == "capability":
            return _nobody_holds(self.cache, query, self._clock.now())
        if not self.book.is_there:
            return NO_BOOK
        wanted = query.service_type or query.task_type
        known = {each for one in self.book.listings.values() for each in one.service_types}
        offering = sum(wanted in one.service_types for one in self.book.listings.values())
        if offering:
            return f"{offering} in the book offer {wanted!r}, and the filter fits none of them"
        none = f"no participant in the book offers {wanted!r}"
        return f"{none}; {did_you_mean(wanted, known)}".rstrip("; ")

    def _fits(self, passport: Passport, query: ParticipantQuery) -> bool:
        name = self.cache.issuers.operators.get(passport.node_id, passport.issuer)
        entry = {
            "node_id": passport.node_id,
            "capability_id": passport.capability_id,
            "scope": passport.scope,
        }
        return self._has(name, query, entry)

    def _has(self, name: str, query: ParticipantQuery, entry: Mapping[str, Any]) -> bool:
        """Keys of the filter against what is known; who lists no services may have any."""
        listing = self.book.listings.get(name, Listing(name))
        for key, wanted in (query.filter or {}).items():
            if key in ("service_type", "service/type"):
                if listing.service_types and wanted not in listing.service_types:
                    return False
            elif not _matches({**entry, **listing.labels}, key, wanted):
                return False
        return True

    def _offering(self, service_type: str, query: ParticipantQuery) -> list[str]:
        offering = [
            name
            for name, listing in self.book.listings.items()
            if service_type in listing.service_types and self._has(name, query, {})
        ]
        return self._cheapest(offering)

    def _cheapest(self, names: Sequence[str]) -> list[str]:
        """The lowest price first, then by name; who names no price comes last."""
        listings = self.book.listings

        def rank(name: str) -> tuple[bool, float, str]:
            price = listings[name].price if name in listings else None
            return price is None, price or 0.0, name

        return sorted(names, key=rank)

    # -- keeping the cache -------------------------------------------------------------------

    async def open(self) -> None:
        """Read once; from now on read again and again, beside the work."""
        self._opened = True
        if not self._config or self._syncing is not None:
            return
        self._thread = Threads(1, close_seconds=0.1)  # one that hangs keeps nobody from leaving
        await self._thread.run(self.sync)
        self._syncing = asyncio.get_running_loop().create_task(self._keep_synced(self._thread))

    async def close(self) -> None:
        self._opened = False
        if self._syncing is not None:
            self._syncing.cancel()
            await asyncio.wait([self._syncing])
            self._syncing = None
        if self._thread is not None:
            await self._thread.close()
            self._thread = None

    async def _keep_synced(self, thread: Threads) -> None:
        while True:
            await asyncio.sleep(self.sync_seconds)
            await thread.run(self.sync)

    @property
    def sync_seconds(self) -> float:
        """As the book says, but at most half the shortest life of a passport."""
        wanted = float(self._config.get("sync_seconds") or SYNC_SECONDS)
        lives = (
            (passport.expires_at - passport.issued_at) / 2000
            for passport in self.cache.passports.values()
            if passport.expires_at is not None
        )
        return min(wanted, max(SOONEST_SECONDS, min(lives, default=wanted)))

    def sync(self) -> None:
        """Read the sources anew. Blocks; never raises: whoever asks is told."""
        if not self._config:
            return
        try:
            before, self.cache = self.cache, self._read(self._clock.now())
            self._unread = ""
        except Exception as error:  # whatever is out there must not end the reading
            why = error.message if isinstance(error, AnabranchError) else _reason(error)
            before, told = self.cache, self._unread
            self._unread = f"the directory of passports cannot be read: {why}"
            if told != self._unread:  # once, not with every reading
                logger.warning("%s", self._unread)
        if self.cache.refused and self.cache.refused != before.refused:
            count, first = len(self.cache.refused), self.cache.refused[0]
            logger.warning("%d documents of the directory do not count, such as: %s", count, first)

    def read(self) -> None:
        """Read the sources once, and raise where they cannot be read."""
        self.cache = self._read(self._clock.now())

    def _read(self, now: int) -> Cache:
        cache = Cache(read_at=now)
        cache.issuers = Issuers(self._allowed, self._operators())
        of_id: dict[str, list[Passport]] = {}
        for document, *endpoints in rows_in(self._loaded("passports")):
            try:
                passport = read_passport(document)
            except InputError as error:
                cache.refused.append(error.message)
                continue
            if passport.key not in cache.passports or _newer(passport, cache):
                cache.passports[passport.key] = passport
                of_id.setdefault(passport.passport_id, []).append(passport)
                cache.endpoints[passport.key] = (endpoints[0], endpoints[1])
        for document in _revocations(self._loaded("revocations")):
            try:
                cache.revoked.update(read_revocation(document, of_id))
            except InputError as error:
                cache.refused.append(error.message)
        return cache

    def _operators(self) -> dict[str, str]:
        """Which participant runs a node, as the one who runs this engine says."""
        found = self._loaded("bindings")
        if found is not None and not isinstance(found, Mapping):
            raise InputError("`bindings` of the directory is a mapping of nodes to participants")
        return {
            _identity(node, "node"): _identity(who, "participant")
            for node, who in (found or {}).items()
        }

    def _loaded(self, part: str) -> Any:
        """The document at a path or a URL, or the value itself."""
        source = self._config.get(part)
        return load_source(self._fetch(source), source) if isinstance(source, str) else source


def _provider(offer: Mapping[str, Any] | None) -> str:
    named = offer.get("provider/participant-id") if offer is not None else None
    if not isinstance(named, str) or not named:
        raise InputError("what is ordered is no offer: it names no provider")
    return named


def _newer(passport: Passport, cache: Cache) -> bool:
    return passport.issued_at > cache.passports[passport.key].issued_at


def _revocations(value: Any) -> list[Any]:
    return [
        row.get("artifact", row) if isinstance(row, Mapping) else row
        for row in documents_in(value, "revocations")
    ]


def _identity(name: Any, role: str) -> str:
    if not isinstance(name, str) or not name.startswith(f"{role}:"):
        raise InputError(f"`directory` of the book: {str(name)[:80]!r} is no {role}:did:key:…")
    public_key(name)
    return name


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _matches(entry: Mapping[str, Any], key: str, wanted: Any) -> bool:
    found = parse_path(key).find(entry)
    return found is not MISSING and same(found, wanted)


def _nobody_holds(cache: Cache, query: ParticipantQuery, now: int) -> str:
    """Why: what was found, and what is wrong with it."""
    capability = query.capability_id
    found = [one for one in cache.passports.values() if one.capability_id == capability]
    refused = f"; {_count(cache.refused, 'document')} cannot be read" if cache.refused else ""
    if not cache.passports:
        return f"no passport was found in the directory{refused}"
    if not found:
        others = len(cache.passports)
        return f"no passport for {capability!r} was found, but {others} for others{refused}"
    problems = [problem_of(one, now, cache.revoked, cache.issuers) for one in found]
    valid = problems.count("")
    if valid:
        fitting = "passport" if valid == 1 else "passports"
        return (
            f"{valid} valid {fitting} for {capability!r}, and the filter {query.filter} fits none"
        )
    head = f"{_count(found, 'passport')} for {capability!r} found"
    expired = [one for one, why in zip(found, problems, strict=True) if why == "it has expired"]
    if len(expired) == len(found):
        return f"{head}, {'all ' if len(found) > 1 else ''}{_expired(expired)}"
    counted = Counter(_short(why) for why in problems)
    return f"{head}: {', '.join(f'{count} {why}' for why, count in counted.most_common())}"


def _count(things: Sequence[object], what: str) -> str:
    return f"{len(things)} {what}" if len(things) == 1 else f"{len(things)} {what}s"


def _expired(passports: Sequence[Passport]) -> str:
    days = sorted({_day(one.expires_at or 0) for one in passports})
    return f"expired on {days[0]}" if len(days) == 1 else f"expired, the last on {days[-1]}"


def _day(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).date().isoformat()


def _short(why: str) -> str:
    if why == "it has expired":
        return "expired"
    if "may not issue it" in why:
        return "by an issuer that is not allowed here (`issuers` of the directory)"
    return why.removeprefix("it is ")

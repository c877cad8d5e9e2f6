"""The address book: who is reached how, and what they offer.

    participants:
      "participant:did:key:z6Mk…":
        url: "https://one.example/ask"
        headers: {Authorization: "Bearer ${ONE_TOKEN}"}
        service_types: [text/summarise]
      local-summariser: {function: "my_module:summarise", service_types: [text/summarise], price: 3}
    capabilities:
      publication.verify: {url: "http://127.0.0.1:9100/verify"}
    directory:
      passports: passports.json        # see docs/solicit.md
      issuers: ["participant:did:key:z6Mk…"]

A book is read from a YAML or JSON file (`ANABRANCH_PARTICIPANTS`, `--participants`) or given as a
mapping of the same shape, in which a function may stand for itself. `${NAME}` is filled in from the
environment, and what comes from there is starred out of whatever the participant says.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch import files
from anabranch.dialects.nodes import Fields, plain
from anabranch.dialects.source import SourceLimits, read_source
from anabranch.errors import InputError
from anabranch.net.problems import Position, Problem, did_you_mean
from anabranch.work.network.addresses import read_policy
from anabranch.work.participants.entries import (
    BOOK_KEYS,
    ENTRY_KEYS,
    PUBLIC,
    Address,
    BookError,
    EntryReader,
    Keys,
    Listing,
    redactor_of,
)
from anabranch.work.participants.functions import FunctionParticipant, Rooms
from anabranch.work.participants.health import HealthOfParticipants
from anabranch.work.participants.limits import HttpLimits
from anabranch.work.participants.port import Participant
from anabranch.work.participants.signed import Check, Signatures, accept, signature_check
from anabranch.work.secrets.redaction import Redactor

if TYPE_CHECKING:
    from anabranch.work.participants.http import ParticipantClient

__all__ = ["Book", "BookError", "Listing", "read_book"]

NO_BOOK = (
    "there is no book of participants; give one with --participants FILE, with "
    "ANABRANCH_PARTICIPANTS or with Engine(participants=…)"
)
ADDRESSES = "directory.addresses"
ENDPOINTS_KEPT = 4096
BOOK_LIMITS = SourceLimits(bytes_max=16 * 1024 * 1024, values_max=1_000_000)


class Book:
    """Everybody that this engine can ask. Raises `BookError` with everything that is wrong."""

    def __init__(
        self,
        listed: Mapping[str, Any] | None = None,
        *,
        limits: HttpLimits | None = None,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        signatures: Signatures | None = None,
        sharing: Book | None = None,
    ) -> None:
        """`sharing` is the book that will `become` this one: both use its threads and client."""
        self._signatures = signatures
        self._at_endpoints: dict[tuple[str, ...], Participant] = {}
        self._endpoint_sessions: ParticipantClient | None = None
        #: Those of an earlier policy: whoever is being asked still uses them.
        self._retired: list[ParticipantClient] = []
        self.health = HealthOfParticipants()
        self._limits = limits or HttpLimits()
        self._sessions: ParticipantClient | None = (
            sharing._sessions if sharing is not None else None
        )
        own = Rooms(self._limits.reply_bytes)
        self._rooms: Rooms = own if sharing is None else sharing._rooms
        self._redactors: dict[frozenset[str], Redactor] = {}
        self.listings: dict[str, Listing] = {}
        reading = EntryReader(os.environ if environment is None else environment, folder)
        fields = reading.fields(listed, (), "the book of participants", BOOK_KEYS)
        self._participants = self._read(reading, fields, "participants")
        self._capabilities = self._read(reading, fields, "capabilities")
        self.directory = reading.directory(fields.get("directory"))
        if reading.wrong:
            raise BookError(reading.wrong)

    def participant(self, name: str) -> Participant | None:
        return self._participants.get(name)

    @property
    def is_there(self) -> bool:
        """Somebody has given one, or at least something of one."""
        return bool(self._participants or self._capabilities or self.directory or self.listings)

    def missing_participant(self, name: str) -> str:
        if not self.is_there:
            return f"{name} cannot be asked: {NO_BOOK}"
        hint = did_you_mean(name, self._participants)
        return f"{name} is not in the book of participants" + (f"; {hint}" if hint else "")

    def capability(self, name: str) -> Participant | None:
        return self._capabilities.get(name)

    def missing_capability(self, name: str) -> str:
        if not self.is_there:
            return f"capability {name!r} cannot be asked: {NO_BOOK}"
        hint = did_you_mean(name, self._capabilities) or "add it to `capabilities` of the book"
        return f"capability {name!r} is not in the book of participants; {hint}"

    async def close(self) -> None:
        """Close whatever is open; the next request opens it again."""
        retired, self._retired = self._retired, []
        for sessions in (*retired, self._sessions, self._endpoint_sessions):
            if sessions is not None:
                await sessions.close()
        await self._rooms.close()

    @property
    def names(self) -> list[str]:
        return list(self.listings)

    @property
    def capabilities(self) -> list[str]:
        return list(self._capabilities)

    def become(self, other: Book) -> None:
        """Say what the other book says, for requests that begin from now on.

        Those that are out have what they need; how everybody has answered stays known."""
        if self._endpoint_sessions is not None and not _same_addresses(self, other):
            self._retired.append(self._endpoint_sessions)
            self._endpoint_sessions = None
        self._at_endpoints = {}
        self._participants, self._capabilities = other._participants, other._capabilities
        self.listings, self.directory = other.listings, other.directory
        self._redactors, self._sessions = other._redactors, other._sessions

    def at_endpoints(self, urls: tuple[str, ...]) -> Participant:
        """Somebody that a directory knows the endpoints of, within what the book allows."""
        from anabranch.work.participants.http import (
            FirstReachable,
            HttpParticipant,
            ParticipantClient,
        )

        if self._endpoint_sessions is None:
            policy = read_policy(str(self.directory.get("addresses") or PUBLIC), ADDRESSES)
            self._endpoint_sessions = ParticipantClient(self._limits, policy)
        if urls not in self._at_endpoints:
            if len(self._at_endpoints) >= ENDPOINTS_KEPT:  # rows come and go
                self._at_endpoints.clear()
            nothing = redactor_of(())
            each = [HttpParticipant(url, self._endpoint_sessions, {}, nothing) for url in urls]
            self._at_endpoints[urls] = FirstReachable(each)
        return self._at_endpoints[urls]

    def _read(
        self, reading: EntryReader, fields: Mapping[str, Any], part: str
    ) -> dict[str, Participant]:
        found: dict[str, Participant] = {}
        for name, entry in reading.mapping(fields.get(part), (part,), f"`{part}`").items():
            keys = (part, name)
            given = {"function": entry} if callable(entry) else entry
            known = reading.fields(given, keys, f"participant {name!r}", ENTRY_KEYS)
            if part == "participants":
                self.listings[name] = reading.listing(name, known, keys)
            participant = self._reached(reading, name, known, keys)
            if participant is not None:
                found[name] = participant
        return found

    def _reached(
        self, reading: EntryReader, name: str, entry: Mapping[str, Any], keys: Keys
    ) -> Participant | None:
        if (entry.get("url") is None) == (entry.get("function") is None):
            reading.complain(keys, f"participant {name!r} needs either a `url` or a `function`")
            return None
        if entry.get("function") is not None:
            if entry.get("headers") is not None:
                message = f"participant {name!r}: `headers` are for a `url`, not for a function"
                reading.complain((*keys, "headers"), message)
            called = reading.function(name, entry["function"], (*keys, "function"))
            check = self._check(reading, name, entry, keys)
            return None if called is None else FunctionParticipant(name, called, self._rooms, check)
        address = reading.address(name, entry, keys)
        check = self._check(reading, name, entry, keys)
        if reading.wrong:
            return None  # it may not even be an address
        secrets = self._redactors.get(address.secrets)
        if secrets is None:
            secrets = self._redactors[address.secrets] = redactor_of(address.secrets)
        return self._by_http(address, secrets, check)

    def _check(
        self, reading: EntryReader, name: str, entry: Mapping[str, Any], keys: Keys
    ) -> Check:
        key = reading.key(name, entry.get("key"), (*keys, "key"), self._signatures)
        if not key or self._signatures is None:
            return accept
        return signature_check(name, key, self._signatures)

    def _by_http(self, address: Address, secrets: Redactor, check: Check) -> Participant:
        from anabranch.work.participants.http import HttpParticipant, ParticipantClient

        if self._sessions is None:
            self._sessions = ParticipantClient(self._limits)
        return HttpParticipant(address.url, self._sessions, address.headers, secrets, check)


def _same_addresses(one: Book, other: Book) -> bool:
    return bool(one.directory.get("addresses") == other.directory.get("addresses"))


def read_book(
    path: Path,
    *,
    limits: HttpLimits | None = None,
    environment: Mapping[str, str] | None = None,
    signatures: Signatures | None = None,
    sharing: Book | None = None,
) -> Book:
    """The book in a YAML or JSON file; paths and modules in it are looked for beside it."""
    data = files.read_limited(path, BOOK_LIMITS.bytes_max)
    document = read_source(data, file=str(path), limits=BOOK_LIMITS)
    if document.problems:
        raise InputError("\n".join(map(str, document.problems)), code="bad_book")
    if not isinstance(document.root, Fields):
        raise InputError(
            f"{path}: a book of participants is a mapping with `participants`", code="bad_book"
        )
    listed = plain(document.root)
    if isinstance(listed.get("directory"), Mapping):
        listed["directory"] = _relative(listed["directory"], path.parent)
    try:
        return Book(
            listed,
            limits=limits,
            environment=environment,
            folder=path.parent,
            signatures=signatures,
            sharing=sharing,
        )
    except BookError as error:
        placed = [(keys, _place(document.root, keys), said) for keys, said in error.wrong]
        raise BookError(
            ((keys, f"{place}: {said}") for keys, place, said in placed),
            [Problem(place, "bad-book", said) for _, place, said in placed],
        ) from None


def _place(root: Fields, keys: Keys) -> Position:
    """Where the innermost of these keys stands that is there."""
    place, node = root.position, root
    for key in keys:
        if key not in node:
            break
        place, inner = node.keys[key], node.get(key)
        if not isinstance(inner, Fields):
            break
        node = inner
    return place


def _relative(directory: Mapping[str, Any], base: Path) -> dict[str, Any]:
    files = ("passports", "revocations", "bindings")
    return {
        key: str(base / value)
        if key in files and isinstance(value, str) and "://" not in value
        else value
        for key, value in directory.items()
    }

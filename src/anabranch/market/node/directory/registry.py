"""The seed directory of this node: what other nodes say of themselves, with their signatures.

Writes are authorised by the signed documents alone. A registration or advertisement with a number
that is not higher than the last one is stale, as is one that was published before; what is
revoked is never taken again. Decisions are made at once and are durable when `durable` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anabranch.errors import InputError
from anabranch.market.node.directory.artifacts import (
    ADVERTISEMENT,
    CheckedBefore,
    CheckedPassport,
    digest_of_document,
    kept_passport,
    published_at,
    require_current,
    require_document,
    require_published,
)
from anabranch.market.node.directory.records import (
    ADVERTISEMENTS,
    REGISTRATIONS,
    REVOCATIONS,
    Advertisement,
    AdvertisementTaken,
    CapabilityRegistered,
    Registration,
    RegistrationEnded,
    Revocation,
    RevocationTaken,
    registration_of,
)
from anabranch.market.node.directory.revocations import Revocations
from anabranch.market.node.directory.settings import DirectorySettings
from anabranch.market.node.entities import Change, Entities
from anabranch.market.node.errors import NodeError
from anabranch.market.passports import PASSPORT, REVOCATION, Passport

CAPABILITIES_OF_A_NODE = 64
UNKNOWN_REVOCATIONS_OF_A_SIGNER = 64  # of passports that are not registered here
SEQUENCE_MAX = 2**53 - 1

#: Told the node whose documents have changed.
Listener = Callable[[str], None]


class SeedDirectory:
    """Everything that counts is in memory; `load` reads it from the state of the node."""

    def __init__(self, entities: Entities, settings: DirectorySettings) -> None:
        self._entities = entities
        self._settings = settings
        self.advertisements: dict[str, Advertisement] = {}
        self.registrations: dict[str, dict[str, Registration]] = {}  # node → capability
        self.checked: dict[tuple[str, str], CheckedPassport] = {}  # of each registration
        self.revocations: dict[str, Revocation] = {}  # by digest, in order of their numbers
        self.revoked = Revocations()
        self._documents = CheckedBefore()
        self._unknown: dict[str, int] = {}  # revocations of passports not seen here, by signer
        self._number = 0
        self._listeners: list[Listener] = []

    def load(self) -> None:
        for node, advertisement in self._entities.each_open(ADVERTISEMENTS):
            self.advertisements[node] = advertisement
        for _, registration in self._entities.each_open(REGISTRATIONS):
            self._index(registration)
        found = list(self._entities.each_open(REVOCATIONS))
        for digest, revocation in sorted(found, key=lambda one: one[1].number):
            self.revocations[digest] = revocation
            self.revoked.add(revocation.revocation)
        advertised = [one.number for one in self.advertisements.values()]
        revoked = [one.number for one in self.revocations.values()]
        self._number = max((*advertised, *revoked), default=0)

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def durable(self) -> None:
        await self._entities.durable()

    # -- advertisements ----------------------------------------------------------------------

    def put_advertisement(self, node_id: str, body: Any) -> bool:
        """Whether it is the first one of the node. Raises `NodeError`. An advertisement alone has
        the number that it was signed with, or else the instant at which it was published."""
        if isinstance(body, dict) and "advertisement/id" in body:
            self._documents.require(body, ADVERTISEMENT)
            body = {"advertisement": body, "sequence/no": _number_in(body)}
        advertisement, sequence = _advertisement_in(body)
        now = self._entities.clock.now()
        self._require_node(node_id, advertisement, sequence, now)
        known = self.advertisements.get(node_id)
        if known is not None:
            _require_newer(sequence, known.sequence)
            if published_at(advertisement) < published_at(known.advertisement):
                raise NodeError(409, "stale-advertisement", "a newer advertisement is known")
        elif len(self.advertisements) >= self._settings.nodes_max:
            raise NodeError(429, "too-many-nodes", f"{self._settings.nodes_max:,} nodes are known")
        with self._entities.change() as change:
            self._take_advertisement(change, node_id, advertisement, sequence)
        self._tell(node_id)
        return known is None

    def _require_node(
        self, node_id: str, advertisement: Mapping[str, Any], sequence: int, now: int
    ) -> None:
        """The node itself has signed this, and its time has come."""
        self._documents.require(advertisement, ADVERTISEMENT, "/advertisement")
        require_published(advertisement, now)
        if advertisement["node/id"] != node_id:
            raise NodeError(403, "node-mismatch", "the advertisement is that of another node")
        signed = advertisement.get("sequence/no", sequence)
        if signed != sequence:
            raise NodeError(403, "sequence-mismatch", f"the node signed the number {signed!r:.20}")

    def _take_advertisement(
        self, change: Change, node_id: str, advertisement: dict[str, Any], sequence: int
    ) -> None:
        self._number += 1
        event = AdvertisementTaken(
            advertisement=advertisement, sequence=sequence, number=self._number
        )
        self.advertisements[node_id] = change.add(ADVERTISEMENTS, node_id, event)

    # -- registrations -----------------------------------------------------------------------

    def put_capability(self, node_id: str, capability_id: str, body: Any) -> bool:
        """Whether it is the first registration of it. Raises `NodeError`."""
        advertisement, sequence = _advertisement_in(body)
        if not isinstance(body.get("endorsement"), dict | None):
            raise NodeError(400, "schema", "/endorsement: write an object, or leave it out")
        now = self._entities.clock.now()
        self._require_node(node_id, advertisement, sequence, now)
        self._documents.require(body.get("passport"), PASSPORT, "/passport")
        one = kept_passport(body["passport"])
        passport = one.passport
        if passport.node_id != node_id:
            raise NodeError(403, "node-mismatch", "the passport is for another node")
        if passport.capability_id != capability_id:
            raise NodeError(403, "capability-mismatch", "the passport is for another capability")
        require_current(passport, now)
        if self.revoked.covers(one):
            raise NodeError(403, "revoked", "the passport is revoked")
        thing = registration_of(node_id, capability_id)
        known = self._entities.get(REGISTRATIONS, thing)
        if known is not None:
            _require_newer(sequence, known.sequence)
            self._require_not_replaced(known, passport)
        self._require_room(node_id, capability_id)
        event = CapabilityRegistered(
            passport=body["passport"],
            sequence=sequence,
            expires_at=passport.expires_at,
            at=now,
            endorsement=body.get("endorsement"),
        )
        with self._entities.change() as change:
            self._index(change.add(REGISTRATIONS, thing, event))
            if self._is_news(node_id, advertisement, sequence):
                self._take_advertisement(change, node_id, advertisement, sequence)
        self._tell(node_id)
        return known is None

    def _require_not_replaced(self, known: Registration, passport: Passport) -> None:
        """One that its issuer has issued anew does not come back."""
        before = kept_passport(known.passport).passport
        if before.key == passport.key and passport.issued_at < before.issued_at:
            raise NodeError(409, "stale-passport", "this passport was issued anew since")

    def _require_room(self, node_id: str, capability_id: str) -> None:
        active = self.registrations.get(node_id, {})
        if capability_id not in active and len(active) >= CAPABILITIES_OF_A_NODE:
            raise NodeError(
                429,
                "too-many-capabilities",
                f"a node has at most {CAPABILITIES_OF_A_NODE} capabilities registered",
            )
        if (
            node_id not in self.advertisements
            and len(self.advertisements) >= self._settings.nodes_max
        ):
            raise NodeError(429, "too-many-nodes", f"{self._settings.nodes_max:,} nodes are known")

    def _is_news(self, node_id: str, advertisement: Mapping[str, Any], sequence: int) -> bool:
        known = self.advertisements.get(node_id)
        return known is None or (
            sequence > known.sequence
            and published_at(advertisement) >= published_at(known.advertisement)
        )

    def _index(self, registration: Registration) -> None:
        of_node = self.registrations.setdefault(registration.node_id, {})
        of_node[registration.capability_id] = registration
        key = registration.node_id, registration.capability_id
        self.checked[key] = kept_passport(registration.passport)

    def expire(self, thing: str) -> None:
        """The passport of a registration has expired."""
        known = self._entities.get(REGISTRATIONS, thing)
        if known is None or known.ended or known.expires_at is None:
            return
        if known.expires_at <= self._entities.clock.now():
            with self._entities.change() as change:
                self._end(change, known, "expired")
            self._tell(known.node_id)

    def _end(self, change: Change, known: Registration, reason: Any) -> None:
        thing = registration_of(known.node_id, known.capability_id)
        change.add(REGISTRATIONS, thing, RegistrationEnded(reason=reason))
        of_node = self.registrations[known.node_id]
        del of_node[known.capability_id]
        del self.checked[known.node_id, known.capability_id]
        if not of_node:
            del self.registrations[known.node_id]

    # -- revocations -------------------------------------------------------------------------

    def revoke(self, document: Any, source: str = "", *, own: bool = False) -> bool:
        """Whether it is news. Raises `NodeError`; what is taken is kept for good. What this node
        has signed itself needs no passport that is registered here."""
        try:
            digest = digest_of_document(document)
        except InputError as error:
            raise NodeError(400, "schema", error.message) from None
        if digest in self.revocations:
            return False
        require_document(document, REVOCATION)
        node_id = document["node_id"]
        if not source and not own and not self._is_of_registered(document):
            self._require_room_for_unknown(document.get("issuer/participant_id") or node_id)
        elif len(self.revocations) >= self._settings.revocations_max:
            raise self._too_many_revocations()
        self._number += 1
        event = RevocationTaken(revocation=document, number=self._number, source=source)
        with self._entities.change() as change:
            self.revocations[digest] = change.add(REVOCATIONS, digest, event)
            self.revoked.add(document)
            for known in list(self.registrations.get(node_id, {}).values()):
                if self.revoked.covers(kept_passport(known.passport)):
                    self._end(change, known, "revoked")
        self._tell(node_id)
        return True

    def _is_of_registered(self, document: Mapping[str, Any]) -> bool:
        """Whether it revokes a passport that is registered here, and not just one of that node."""
        alone = Revocations()
        alone.add(document)
        of_node = self.registrations.get(document["node_id"], {})
        return any(alone.covers(self.checked[document["node_id"], one]) for one in of_node)

    def _require_room_for_unknown(self, signer: str) -> None:
        """Anyone can make keys and revoke: a few of each signer are enough, and half of the room is
        for passports that are here."""
        count = self._unknown.get(signer, 0)
        if count >= UNKNOWN_REVOCATIONS_OF_A_SIGNER:
            raise NodeError(429, "too-many-revocations", "too many of passports not known here")
        if 2 * len(self.revocations) >= self._settings.revocations_max:
            raise self._too_many_revocations()
        self._unknown[signer] = count + 1

    def _too_many_revocations(self) -> NodeError:
        most = self._settings.revocations_max
        return NodeError(429, "too-many-revocations", f"`directory.revocations_max` is {most:,}")

    def _tell(self, node_id: str) -> None:
        for listener in self._listeners:
            listener(node_id)


def _advertisement_in(body: Any) -> tuple[dict[str, Any], int]:
    if not isinstance(body, dict) or not isinstance(body.get("advertisement"), dict):
        raise NodeError(400, "schema", "/advertisement: write the advertisement of the node")
    _require_sequence(body.get("sequence/no"))
    return body["advertisement"], body["sequence/no"]


def _number_in(advertisement: Mapping[str, Any]) -> Any:
    return advertisement.get("sequence/no", published_at(advertisement))


def _require_sequence(sequence: Any) -> None:
    whole = isinstance(sequence, int) and not isinstance(sequence, bool)
    if not whole or not 1 <= sequence <= SEQUENCE_MAX:
        raise NodeError(400, "schema", "/sequence~1no: write a whole number from 1 on")


def _require_newer(submitted: int, current: int) -> None:
    if submitted <= current:
        numbers = {"current/sequence-no": current, "submitted/sequence-no": submitted}
        message = f"the number of the last one is {current}"
        raise NodeError(409, "stale-sequence", message, more=numbers)

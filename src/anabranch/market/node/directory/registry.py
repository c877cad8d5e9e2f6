"""The seed directory of this node: what other nodes say of themselves, with their signatures.

Writes are authorised by the signed documents alone. A registration or advertisement with a number
that is not higher than the last one is stale, as is one that was published before; what is
revoked is never taken again. Decisions are made at once and are durable when `durable` returns.

What counts for a node is what the node has said: its newest advertisement presents the passport, or
somebody whom this node trusts has issued it. Nobody signs an endorsement: it takes what room is
left, and gives way.

An advertisement counts for `advertisement_ms` from its publication on, so that one which has ended
cannot be brought back by a stranger; with it end the registrations of its node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from anabranch.errors import InputError
from anabranch.market.node.directory.artifacts import (
    ADVERTISEMENT,
    CheckedBefore,
    CheckedPassport,
    digest_of_document,
    endpoints_of,
    kept_passport,
    presented_by,
    published_at,
    require_current,
    require_published,
    require_small,
    says,
    size_of,
)
from anabranch.market.node.directory.numbers import (
    advertisement_in,
    endorsement_in,
    is_signed_in,
    number_in,
    number_to_beat,
    require_newer,
)
from anabranch.market.node.directory.policy import IssuerPolicy
from anabranch.market.node.directory.records import (
    ADVERTISEMENTS,
    REGISTRATIONS,
    REVOCATIONS,
    Advertisement,
    AdvertisementEnded,
    AdvertisementTaken,
    CapabilityRegistered,
    EndorsementDropped,
    Registration,
    RegistrationEnded,
    Revocation,
    RevocationDropped,
    RevocationTaken,
    registration_of,
)
from anabranch.market.node.directory.revocations import (
    RevocationList,
    Revocations,
    keys_about,
    keys_of,
    signer_of,
)
from anabranch.market.node.directory.room import Strangers
from anabranch.market.node.directory.settings import DirectorySettings
from anabranch.market.node.entities import Change, Entities
from anabranch.market.node.errors import NodeError
from anabranch.market.node.ports import Signer
from anabranch.market.passports import PASSPORT, REVOCATION, Passport, instant

CAPABILITIES_OF_A_NODE = 64
UNKNOWN_REVOCATIONS_OF_A_SIGNER = 64  # of passports that are not registered here
TRUSTED_BYTES = 8  # times `node_bytes`
_ROW_BYTES = 512  # of a registration, beside its passport, endorsement and endpoints

#: Told the node whose documents have changed.
Listener = Callable[[str], None]


class NoRoomForStrangers(NodeError):
    """The room that is left is for revocations of those whom this node trusts."""


class SeedDirectory:
    """Everything that counts is in memory; `load` reads it from the state of the node."""

    def __init__(
        self,
        entities: Entities,
        settings: DirectorySettings,
        policy: IssuerPolicy,
        signer: Signer,
    ) -> None:
        self._entities = entities
        self._settings = settings
        self._policy = policy
        self._signer = signer
        self.strangers = Strangers()
        self.advertisements: dict[str, Advertisement] = {}
        self.registrations: dict[str, dict[str, Registration]] = {}  # node → capability
        self.checked: dict[tuple[str, str], CheckedPassport] = {}  # of each registration
        self.revocations: dict[str, Revocation] = {}  # by digest, in order of their numbers
        self.in_order = RevocationList()  # the same
        self.revoked = Revocations()
        self._documents = CheckedBefore()
        self._unknown: dict[str, int] = {}  # revocations of passports not seen here, by signer
        self._number = 0
        self._listeners: list[Listener] = []

    def load(self) -> None:
        for node, advertisement in self._entities.each_open(ADVERTISEMENTS):
            self._index_advertisement(node, advertisement)
        for _, registration in self._entities.each_open(REGISTRATIONS):
            self._index(registration)
        found = list(self._entities.each_open(REVOCATIONS))
        for digest, revocation in sorted(found, key=lambda one: one[1].number):
            self.revocations[digest] = revocation
            self.in_order.add(revocation)
            self.revoked.add(revocation.revocation)
        advertised = [one.number for one in self.advertisements.values()]
        revoked = [one.number for one in self.revocations.values()]
        self._number = max((*advertised, *revoked), default=0)
        self._date_old_ones()

    def _date_old_ones(self) -> None:
        """Those of a version in which advertisements did not expire."""
        old = [(node, one) for node, one in self.advertisements.items() if one.expires_at is None]
        with self._entities.change() as change:
            for node, one in old:
                self._take_advertisement(change, node, one.advertisement, one.sequence)

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def durable(self) -> None:
        await self._entities.durable()

    def check_documents(self, body: Any) -> None:
        """Shapes and signatures in a publication, in any thread. Raises `NodeError`."""
        alone = isinstance(body, dict) and "advertisement/id" in body
        if alone:
            self._documents.require(body, ADVERTISEMENT)
            return
        advertisement, _ = advertisement_in(body)
        self._documents.require(advertisement, ADVERTISEMENT, "/advertisement")
        if "passport" in body:
            self._documents.require(body["passport"], PASSPORT, "/passport")

    # -- advertisements ----------------------------------------------------------------------

    def put_advertisement(self, node_id: str, body: Any, source: str = "") -> bool:
        """Whether it is the first one of the node. Raises `NodeError`. An advertisement alone has
        the number that it was signed with, or else the instant at which it was published."""
        if isinstance(body, dict) and "advertisement/id" in body:
            self._documents.require(body, ADVERTISEMENT)
            body = {"advertisement": body, "sequence/no": number_in(body)}
        advertisement, sequence = advertisement_in(body)
        now = self._entities.clock.now()
        self._require_node(node_id, advertisement, sequence, now)
        known = self._entities.get(ADVERTISEMENTS, node_id)
        trusted = self._is_trusted(node_id, advertisement)
        if known is not None:
            self._require_back(known, advertisement, sequence, trusted=trusted)
            source = self._source_of(known, advertisement, source)
        others = list(self.registrations.get(node_id, {}).values())
        left = self._room_beside(advertisement, others, trusted=trusted)
        crowded = self._make_room(node_id, source, trusted=trusted)
        with self._entities.change() as change:
            self._end_node(change, crowded, "crowded")
            self._give_way(change, others, left)
            self._take_advertisement(
                change, node_id, advertisement, sequence, source=source, trusted=trusted
            )
        self._tell(node_id, crowded)
        return known is None or bool(known.ended)

    def _require_node(
        self, node_id: str, advertisement: Mapping[str, Any], sequence: int, now: int
    ) -> None:
        """The node itself has signed this, and its time has come."""
        self._documents.require(advertisement, ADVERTISEMENT, "/advertisement")
        require_published(advertisement, now)
        if advertisement["node/id"] != node_id:
            raise NodeError(403, "node-mismatch", "the advertisement is that of another node")
        if self.ends_at(advertisement) <= now:
            most = self._settings.advertisement_ms // 1000
            message = f"it counts for {most:,} s from its publication on: publish it anew"
            raise NodeError(403, "expired", message)
        signed = advertisement.get("sequence/no", sequence)
        if signed != sequence:
            raise NodeError(403, "sequence-mismatch", f"the node signed the number {signed!r:.20}")

    def ends_at(self, advertisement: Mapping[str, Any]) -> int:
        """The instant from which on it does not count here."""
        ends = published_at(advertisement) + self._settings.advertisement_ms
        named = advertisement.get("expires-at")
        return ends if named is None else min(ends, instant(named, "expires-at"))

    def _take_advertisement(
        self,
        change: Change,
        node_id: str,
        advertisement: dict[str, Any],
        sequence: int,
        *,
        source: str = "",
        trusted: bool = False,
    ) -> None:
        self._number += 1
        event = AdvertisementTaken(
            advertisement=advertisement,
            sequence=sequence,
            number=self._number,
            expires_at=self.ends_at(advertisement),
            source=source,
            trusted=trusted,
        )
        self._index_advertisement(node_id, change.add(ADVERTISEMENTS, node_id, event))

    def _index_advertisement(self, node_id: str, one: Advertisement) -> None:
        self.advertisements[node_id] = one
        if one.trusted:
            self.strangers.remove(node_id)
        else:
            self.strangers.add(node_id, one.source)

    # -- room --------------------------------------------------------------------------------

    def _room_beside(
        self,
        advertisement: Mapping[str, Any],
        registered: Collection[Registration],
        *passports: Mapping[str, Any],
        trusted: bool,
    ) -> int:
        """Bytes that are left for endorsements. Every reader of this directory gets all of it, so
        each node has its share of bytes."""
        most = self._settings.node_bytes * (TRUSTED_BYTES if trusted else 1)
        of_each = size_of(endpoints_of(advertisement)) + _ROW_BYTES
        rows = [*passports, *(one.passport for one in registered)]
        size = size_of(advertisement) + sum(size_of(one) + of_each for one in rows)
        if size > most:
            message = (
                f"the advertisement of this node and its capabilities take {size:,} bytes here, "
                f"and {most:,} are for it: present fewer passports, or smaller ones"
            )
            raise NodeError(413, "too-large", message)
        return most - size

    def _give_way(self, change: Change, registered: Iterable[Registration], left: int) -> None:
        """Endorsements that do not fit beside what their node has signed: anybody may have been
        first to write one."""
        for one in registered:
            if one.endorsement is not None and (left := left - size_of(one.endorsement)) < 0:
                thing = registration_of(one.node_id, one.capability_id)
                self._index(change.add(REGISTRATIONS, thing, EndorsementDropped()))

    def _is_trusted(self, node_id: str, advertisement: Mapping[str, Any], *passports: Any) -> bool:
        """Whether this node is the own one, or somebody whom it trusts vouches for it."""
        if node_id == self._signer.node_id or node_id in self._policy.bindings:
            return True
        presented = (one["passport"] for one in advertisement["capabilities/presented"])
        return any(self._vouches(one) for one in (*passports, *presented))

    def is_vouched_for(self, node_id: str) -> bool:
        one = self.advertisements.get(node_id)
        presented = {"capabilities/presented": []} if one is None else one.advertisement
        return self._is_trusted(node_id, presented)

    def _vouches(self, document: Mapping[str, Any]) -> bool:
        one = kept_passport(document)
        if one.passport.issuer != self._signer.participant_id and not self._policy.vouches(one):
            return False
        try:
            self._documents.require(document, PASSPORT)
            require_current(one.passport, self._entities.clock.now())
        except NodeError:
            return False
        return not self.revoked.covers(one)

    def _make_room(self, node_id: str, source: str, *, trusted: bool) -> str:
        """The node that is crowded out, "" where there is room. Raises `NodeError` where there is
        none for a node that nobody vouches for."""
        if node_id in self.advertisements or len(self.advertisements) < self._settings.nodes_max:
            return ""
        crowded = self.strangers.one_too_many(None if trusted else source)
        if not crowded and not trusted:
            message = (
                f"{self._settings.nodes_max:,} nodes are known (`directory.nodes_max`), and this "
                "source has its share: there is room when an advertisement expires, or for a node "
                "with a passport of an issuer that this node trusts"
            )
            raise NodeError(429, "too-many-nodes", message)
        return crowded

    def _require_back(
        self,
        known: Advertisement,
        advertisement: Mapping[str, Any],
        sequence: int,
        *,
        trusted: bool,
    ) -> None:
        """It is news, or has ended: then its node learns so late, and tells it as it was. What the
        operator has dropped stays away for as long as an advertisement counts."""
        require_newer(sequence, _to_beat(known, advertisement) - bool(known.ended))
        if published_at(advertisement) < published_at(known.advertisement):
            raise NodeError(409, "stale-advertisement", "a newer advertisement is known")
        until = known.ended_at + self._settings.advertisement_ms
        if known.ended == "dropped" and self._entities.clock.now() < until and not trusted:
            raise NodeError(403, "dropped", "the operator of this directory has dropped this node")

    def _source_of(
        self, known: Advertisement, advertisement: Mapping[str, Any], source: str
    ) -> str:
        """Who copies what a node has published does not become its source."""
        return known.source if known.advertisement == advertisement else source

    def expire_advertisement(self, node_id: str) -> None:
        """The time of an advertisement is over."""
        known = self.advertisements.get(node_id)
        if known is None or known.expires_at is None:
            return
        if known.expires_at <= self._entities.clock.now():
            with self._entities.change() as change:
                self._end_node(change, node_id, "expired")
            self._tell(node_id)

    def drop(self, node_ids: Iterable[str]) -> list[str]:
        """End the advertisements of these nodes, as their operator says; those that were there."""
        known = [node for node in node_ids if node in self.advertisements]
        if self._signer.node_id in known:
            raise NodeError(400, "own-node", "this is the node itself: it stays in its directory")
        with self._entities.change() as change:
            for node in known:
                self._end_node(change, node, "dropped")
        self._tell(*known)
        return known

    def _end_node(self, change: Change, node_id: str, reason: Any) -> None:
        """Its advertisement, and with it what it has registered."""
        if not node_id:
            return
        event = AdvertisementEnded(reason=reason, at=self._entities.clock.now())
        change.add(ADVERTISEMENTS, node_id, event)
        del self.advertisements[node_id]
        self.strangers.remove(node_id)
        for registration in list(self.registrations.get(node_id, {}).values()):
            self._end(change, registration, "unadvertised")

    # -- registrations -----------------------------------------------------------------------

    def put_capability(self, node_id: str, capability_id: str, body: Any, source: str = "") -> bool:
        """Whether it is the first registration of it. Raises `NodeError`."""
        advertisement, sequence = advertisement_in(body)
        endorsed = endorsement_in(body)
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
        self._require_said(node_id, advertisement, body["passport"])
        thing = registration_of(node_id, capability_id)
        known = self._entities.get(REGISTRATIONS, thing)
        if known is not None:
            at = published_at(advertisement)
            before = known.published or known.at
            require_newer(sequence, number_to_beat(known.sequence, before, at, known.signed))
            self._require_not_replaced(known, passport)
        self._require_few(node_id, capability_id)
        trusted = self._is_trusted(node_id, advertisement, body["passport"])
        ad = self._entities.get(ADVERTISEMENTS, node_id)
        if ad is not None:
            source = self._source_of(ad, advertisement, source)
            if ad.ended:
                self._require_back(ad, advertisement, sequence, trusted=trusted)
        active = self.registrations.get(node_id, {}).values()
        others = [each for each in active if each.capability_id != capability_id]
        left = self._room_beside(advertisement, others, body["passport"], trusted=trusted)
        if (left := left - endorsed) < 0:
            raise NodeError(413, "too-large", f"/endorsement: it is {-left:,} bytes too large")
        crowded = self._make_room(node_id, source, trusted=trusted)
        event = CapabilityRegistered(
            passport=body["passport"],
            sequence=sequence,
            expires_at=passport.expires_at,
            at=now,
            endorsement=body.get("endorsement"),
            published=published_at(advertisement),
            signed=is_signed_in(advertisement),
        )
        with self._entities.change() as change:
            self._end_node(change, crowded, "crowded")
            self._give_way(change, others, left)
            self._index(change.add(REGISTRATIONS, thing, event))
            if self._is_news(node_id, advertisement, sequence):
                self._take_advertisement(
                    change, node_id, advertisement, sequence, source=source, trusted=trusted
                )
            elif ad is not None and trusted and not ad.trusted:
                self._take_advertisement(
                    change, node_id, ad.advertisement, ad.sequence, source=ad.source, trusted=True
                )
        self._tell(node_id, crowded)
        return known is None

    def _require_said(
        self, node_id: str, advertisement: Mapping[str, Any], document: Mapping[str, Any]
    ) -> None:
        """Anyone can issue passports for any node, and copy its advertisement."""
        known = self.advertisements.get(node_id)
        if known and published_at(known.advertisement) > published_at(advertisement):
            advertisement = known.advertisement
        if not says(advertisement, document) and not self._vouches(document):
            message = "the newest advertisement of the node does not present this passport"
            raise NodeError(403, "not-presented", message)

    def _require_not_replaced(self, known: Registration, passport: Passport) -> None:
        """One that its issuer has issued anew does not come back."""
        before = kept_passport(known.passport).passport
        if before.key == passport.key and passport.issued_at < before.issued_at:
            raise NodeError(409, "stale-passport", "this passport was issued anew since")

    def _require_few(self, node_id: str, capability_id: str) -> None:
        active = self.registrations.get(node_id, {})
        if capability_id not in active and len(active) >= CAPABILITIES_OF_A_NODE:
            raise NodeError(
                429,
                "too-many-capabilities",
                f"a node has at most {CAPABILITIES_OF_A_NODE} capabilities registered",
            )

    def _is_news(self, node_id: str, advertisement: Mapping[str, Any], sequence: int) -> bool:
        known = self.advertisements.get(node_id)
        return known is None or (
            sequence > _to_beat(known, advertisement)
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
        """Whether it is news. Raises `NodeError`, and `NoRoomForStrangers` where the document holds
        and cannot be kept. What this node has signed itself always has room."""
        require_small(document, REVOCATION)
        try:
            digest = digest_of_document(document)
        except InputError as error:
            raise NodeError(400, "schema", error.message) from None
        if digest in self.revocations:
            return False
        self._documents.require(document, REVOCATION)
        node_id = document["node_id"]
        if not own:
            self._require_room_for(document)
        self._number += 1
        event = RevocationTaken(
            revocation=document,
            number=self._number,
            source=source,
            registered=bool(self._of_registered(document)),
        )
        with self._entities.change() as change:
            self.revocations[digest] = change.add(REVOCATIONS, digest, event)
            self.in_order.add(self.revocations[digest])
            self.revoked.add(document)
            for known in list(self.registrations.get(node_id, {}).values()):
                if self.revoked.covers(kept_passport(known.passport)):
                    self._end(change, known, "revoked")
        self._tell(node_id)
        return True

    def drop_revocations(
        self, known: Iterable[CheckedPassport], signer: str = "", *, registered: bool = False
    ) -> int:
        """Those of signers whom this node does not trust, or of one such signer alone. What revokes
        a passport that is known stays: it would count again; and, unless the operator says so,
        what revokes one that was registered here: it could come back."""
        needed = {key for one in (*known, *self.checked.values()) for key in keys_about(one)}
        gone = [
            digest
            for digest, one in self.revocations.items()
            if signer in ("", signer_of(one.revocation))
            and (registered or not one.registered)
            and not self._trusts_signer(one.revocation)
            and needed.isdisjoint(keys_of(one.revocation))
        ]
        with self._entities.change() as change:
            for digest in gone:
                change.add(REVOCATIONS, digest, RevocationDropped())
                del self.revocations[digest]
        self.in_order.replace(self.revocations.values())
        self.revoked.replace(one.revocation for one in self.revocations.values())
        self._unknown.clear()
        return len(gone)

    def _of_registered(self, document: Mapping[str, Any]) -> list[CheckedPassport]:
        """The passports that it revokes here, and not just those of that node."""
        alone = Revocations()
        alone.add(document)
        of_node = self.registrations.get(document["node_id"], {})
        found = (self.checked[document["node_id"], one] for one in of_node)
        return [one for one in found if alone.covers(one)]

    def _trusts_signer(self, document: Mapping[str, Any]) -> bool:
        signer = signer_of(document)
        own = self._signer.participant_id, self._signer.node_id
        return signer in own or self._policy.names(signer)

    def _is_of_trusted(self, document: Mapping[str, Any]) -> bool:
        """Whether a node that is trusted revokes a passport of its own, or its operator does. One
        that a stranger has registered for it is none of these."""
        one = self.advertisements.get(document["node_id"])
        if one is None or not one.trusted:
            return False
        return any(
            signer_of(document) == document["node_id"]
            or self._policy.is_operator(each, presented_by(one.advertisement))
            for each in self._of_registered(document)
        )

    def _require_room_for(self, document: Mapping[str, Any]) -> None:
        """The same wherever it comes from: what a seed says was said to it by strangers, too."""
        if not self._trusts_signer(document) and not self._is_of_trusted(document):
            self._require_room_for_strangers(document)
        elif len(self.revocations) >= self._settings.revocations_max:
            raise self._too_many_revocations()

    def _require_room_for_strangers(self, document: Mapping[str, Any]) -> None:
        """Anyone can make keys, register and revoke: a quarter of the room is for those who are
        trusted, a second one for passports that are here. Of others a few of each signer are
        enough."""
        registered = bool(self._of_registered(document))
        quarters = 3 if registered else 2
        if 4 * len(self.revocations) >= quarters * self._settings.revocations_max:
            raise self._too_many_revocations(NoRoomForStrangers)
        if registered:
            return
        signer = signer_of(document)
        count = self._unknown.get(signer, 0)
        if count >= UNKNOWN_REVOCATIONS_OF_A_SIGNER:
            message = "too many of passports not known here"
            raise NoRoomForStrangers(429, "too-many-revocations", message)
        self._unknown[signer] = count + 1

    def _too_many_revocations(self, kind: type[NodeError] = NodeError) -> NodeError:
        most = self._settings.revocations_max
        return kind(429, "too-many-revocations", f"`directory.revocations_max` is {most:,}")

    def _tell(self, *node_ids: str) -> None:
        for node_id in filter(None, node_ids):
            for listener in self._listeners:
                listener(node_id)


def _to_beat(known: Advertisement, advertisement: Mapping[str, Any]) -> int:
    before, now = published_at(known.advertisement), published_at(advertisement)
    return number_to_beat(known.sequence, before, now, is_signed_in(known.advertisement))

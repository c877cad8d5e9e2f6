"""What this node says of itself: the passports it holds, its advertisement, and its revocations.

It publishes them in its own directory and at every seed, when it is opened, when something changes
and before a passport expires. The number of a publication is durable before it is sent, so a node
that was killed never uses one twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import msgspec

from anabranch.errors import AnabranchError, InputError, StoreError
from anabranch.market.node.directory.artifacts import (
    CheckedPassport,
    checked_passport,
    kept_passport,
    published_at,
    require_current,
)
from anabranch.market.node.directory.records import (
    OWN_PASSPORTS,
    OWN_SEQUENCE,
    SEQUENCE,
    OwnPassport,
    PassportKept,
    PassportRevoked,
    SequenceUsed,
)
from anabranch.market.node.directory.registry import CAPABILITIES_OF_A_NODE, SeedDirectory
from anabranch.market.node.directory.settings import DirectorySettings
from anabranch.market.node.errors import NodeError
from anabranch.market.node.peers.http_transport import origin_of
from anabranch.market.node.ports import NodeContext, PeerUnreachable
from anabranch.market.passports import NOT_SIGNED, instant, passport_draft, revocation_draft
from anabranch.work.participants.performers import rfc3339
from anabranch.work.values.served_json import JsonRefused, read_json

logger = logging.getLogger("anabranch.node")

PROTOCOL = "1.0"
PROFILES = ("http-loopback",)
STALE_TRIES = 3
PUBLISHING_SECONDS = 30.0  # at one seed; one that takes longer is told anew later
RETRY_MS = 1000
NO_LIMIT = 2**62
LIFE_LEAST_MS = 2 * 60 * 1000  # of an advertisement, whatever a seed says: not published more often
LIFE_MAX_MS = 10 * 365 * 24 * 60 * 60 * 1000
#: How far above its own number, or the instant that stands for one, a seed may move this node. No
#: signature vouches for what a seed says; the last number that can be signed stays out of reach.
SEQUENCE_LEAP_MAX = 1_000_000


class OwnPublications:
    """`messages` names the messages that this node answers."""

    def __init__(
        self,
        context: NodeContext,
        settings: DirectorySettings,
        registry: SeedDirectory,
        seeds: Sequence[str],
        messages: Callable[[], Sequence[str]],
    ) -> None:
        self._context = context
        self._settings = settings
        self._registry = registry
        self._messages = messages
        #: The last number that each seed has taken, and what it has yet to be told.
        self.published: dict[str, int] = dict.fromkeys(seeds, 0)
        self.errors: dict[str, str] = {}
        self._to_revoke: dict[str, list[dict[str, Any]]] = {seed: [] for seed in seeds}
        self._advertisement: dict[str, Any] | None = None
        self._ends: dict[str, int] = {}  # until when each seed keeps the advertisement
        self._failures = 0
        self.refused = asyncio.Event()  # set where a seed could not be told
        self._lock = asyncio.Lock()

    @property
    def sequence(self) -> int:
        found = self._context.entities.get(OWN_SEQUENCE, SEQUENCE)
        return found.sequence if found else 0

    # -- passports ---------------------------------------------------------------------------

    def held(self) -> list[OwnPassport]:
        """Those of this node that have not ended, in order of capability."""
        now = self._context.clock.now()
        found = [
            one
            for _, one in self._context.entities.each_open(OWN_PASSPORTS)
            if not _has_expired(one.passport, now)
        ]
        return sorted(found, key=lambda one: str(one.passport["capability_id"]))

    def issue_missing(self) -> None:
        """What the file of this node says that it holds; what was revoked is not issued again."""
        for capability in self._settings.passports:
            draft = passport_draft("", "", self._context.signer.node_id, capability, issued_at="")
            if self._context.entities.get(OWN_PASSPORTS, draft["passport_id"]) is None:
                self.issue(capability)

    def issue(
        self,
        capability_id: str,
        node_id: str = "",
        *,
        scope: Mapping[str, Any] | None = None,
        life_ms: int | None = None,
        renew: bool = True,
    ) -> dict[str, Any]:
        """A passport that the participant of this node has signed, for this node or another one.
        Issued again, it is the same passport for another time."""
        signer, now = self._context.signer, self._context.clock.now()
        node_id = node_id or signer.node_id
        life = self._settings.passport_ms if life_ms is None else life_ms
        if not 1 <= life <= LIFE_MAX_MS:
            raise NodeError(400, "schema", "a passport is for at most ten years")
        draft = passport_draft(
            signer.participant_id, signer.node_id, node_id, capability_id,
            issued_at=rfc3339(now), scope=scope,
        )  # fmt: skip
        named, before = self._id(draft["passport_id"])
        issued = now
        if before is not None:
            issued = max(now, instant(before.passport["issued_at"], "issued_at") + 1)
        draft |= {
            "passport_id": named,
            "issued_at": rfc3339(issued),
            "expires_at": rfc3339(issued + life),
        }
        return self._keep(draft, mine=node_id == signer.node_id, renew=renew)

    def _id(self, base: str) -> tuple[str, OwnPassport | None]:
        """What is revoked stays so: the next passport has another id."""
        named, number = base, 1
        while (found := self._context.entities.get(OWN_PASSPORTS, named)) and found.revoked:
            number += 1
            named = f"{base}:{number}"
        return named, found

    def _keep(self, draft: dict[str, Any], *, mine: bool, renew: bool) -> dict[str, Any]:
        document = self._context.signer.sign_as_participant(draft, NOT_SIGNED)
        checked = checked_passport(document).passport
        assert checked.expires_at is not None
        half = (checked.issued_at + checked.expires_at) // 2
        self._record(document, PassportKept(
            passport=document, mine=mine, renew_at=half if mine and renew else None
        ))  # fmt: skip
        return document

    def take(self, document: Any) -> None:
        """A passport that another participant has issued for this node."""
        one = checked_passport(document)
        if one.passport.node_id != self._context.signer.node_id:
            raise NodeError(403, "node-mismatch", "the passport is for another node")
        require_current(one.passport, self._context.clock.now())
        if self._registry.revoked.covers(one):
            raise NodeError(403, "revoked", "the passport is revoked")
        known = self._context.entities.get(OWN_PASSPORTS, one.passport.passport_id)
        if known is not None and known.passport != document:
            raise NodeError(409, "passport-conflict", "another passport of this id is held")
        if known is None:
            self._record(document, PassportKept(passport=document, mine=True))

    def _record(self, document: Mapping[str, Any], event: PassportKept) -> None:
        others = [
            one for one in self.held() if one.passport["capability_id"] != document["capability_id"]
        ]
        if event.mine and len(others) >= CAPABILITIES_OF_A_NODE:
            message = f"a node has at most {CAPABILITIES_OF_A_NODE} capabilities"
            raise NodeError(429, "too-many-capabilities", message)
        with self._context.entities.change() as change:
            change.add(OWN_PASSPORTS, document["passport_id"], event)

    def renew(self, passport_id: str) -> bool:
        """Issue a passport of this node anew if its time has come. Whether it was."""
        one = self._context.entities.get(OWN_PASSPORTS, passport_id)
        now = self._context.clock.now()
        if one is None or one.renew_at is None or one.renew_at > now:
            return False
        passport = kept_passport(one.passport).passport
        assert passport.expires_at is not None
        life = passport.expires_at - passport.issued_at
        draft = {key: value for key, value in one.passport.items() if key != "signature"}
        draft |= {"issued_at": rfc3339(now), "expires_at": rfc3339(now + life)}
        self._keep(draft, mine=True, renew=True)
        return True

    def revoke(self, passport_id: str) -> dict[str, Any]:
        """Revoke a passport: as its issuer, or as the node that holds it."""
        signer, now = self._context.signer, self._context.clock.now()
        one = self._context.entities.get(OWN_PASSPORTS, passport_id)
        if one is None:
            raise NodeError(404, "not-found", f"no passport {passport_id[:100]!r} is known here")
        by_issuer = one.passport["issuer/participant_id"] == signer.participant_id
        draft = revocation_draft(one.passport, by_issuer=by_issuer, revoked_at=rfc3339(now))
        document = signer.sign_as_participant(draft) if by_issuer else signer.sign_as_node(draft)
        self._registry.revoke(document, own=True)
        if not one.revoked:
            with self._context.entities.change() as change:
                change.add(OWN_PASSPORTS, passport_id, PassportRevoked())
        for waiting in self._to_revoke.values():
            waiting.append(document)
        return document

    def remember_revocations(self) -> None:
        """Seeds may not know of those that this node made before it was opened; telling them twice
        changes nothing."""
        signer = self._context.signer
        mine = [
            one.revocation
            for one in self._registry.revocations.values()
            if one.revocation.get("issuer/participant_id", "") == signer.participant_id
            or (one.revocation["signed_by"], one.revocation["node_id"])
            == ("subject", signer.node_id)
        ]
        self._to_revoke = {seed: list(mine) for seed in self.published}

    # -- publishing --------------------------------------------------------------------------

    def prepare(self, at_least: int = 0) -> None:
        """The next advertisement, in the directory of this node at once."""
        sequence = max(self.sequence, at_least) + 1
        with self._context.entities.change() as change:
            change.add(OWN_SEQUENCE, SEQUENCE, SequenceUsed(sequence=sequence))
        self._advertisement = advertisement = self._signed(sequence)
        self._ends.clear()
        node_id = self._context.signer.node_id
        body = {"advertisement": advertisement, "sequence/no": sequence}
        try:
            self._registry.put_advertisement(node_id, body)
            for passport in self._presented():
                capability = str(passport["capability_id"])
                self._registry.put_capability(node_id, capability, {**body, "passport": passport})
        except NodeError as error:  # a clock that was set back by more than the skew
            logger.warning("this node cannot be shown in its own directory: %s", error.message)

    def refresh(self, missing: Sequence[str] = ()) -> None:
        """A new advertisement where half the time of the last one is over; the same once more for
        seeds that have lost it."""
        for seed in missing:
            self.published[seed] = 0
        one = self._advertisement
        if one is None:
            return
        ends = min(self._registry.ends_at(one), *self._ends.values(), NO_LIMIT)
        life = max(ends - published_at(one), LIFE_LEAST_MS)
        if self._context.clock.now() >= published_at(one) + life // 2:
            self.prepare()

    async def publish(self) -> None:
        """Tell every seed what it does not know yet; one that refuses is told again later."""
        async with self._lock:
            await self._context.entities.durable()
            await asyncio.gather(*(self._try(seed) for seed in self.published))
            self._failures = self._failures + 1 if self.errors else 0
            if self.errors:
                self.refused.set()

    @property
    def retry_ms(self) -> int:
        """How soon a seed that refused is told again."""
        return RETRY_MS << min(self._failures - 1, 20) if self._failures else NO_LIMIT

    async def _try(self, seed: str) -> None:
        said = f"it takes longer than {PUBLISHING_SECONDS:g} s for all of it"
        try:
            async with asyncio.timeout(PUBLISHING_SECONDS):
                await self._publish(seed)
            self.errors.pop(seed, None)
            return
        except StoreError:
            raise
        except TimeoutError:
            pass
        except AnabranchError as error:
            said = error.message
        if self.errors.get(seed) != said:
            logger.warning("nothing could be published at %s: %s", origin_of(seed), said)
        self.errors[seed] = said

    async def _publish(self, seed: str) -> None:
        """A revocation that the seed does not take now keeps nothing else from it."""
        refused: list[PeerUnreachable] = []
        for document in list(self._to_revoke[seed]):
            try:
                await self._call(seed, "POST", "/revoke", document)
            except PeerUnreachable as error:
                if error.code != "seed_refused":
                    raise
                refused.append(error)
            else:
                self._to_revoke[seed].remove(document)
        await self._publish_newest(seed)
        if refused:
            raise refused[0]

    async def _publish_newest(self, seed: str) -> None:
        for _ in range(STALE_TRIES):
            sequence, advertisement = self.sequence, self._advertisement
            if advertisement is None or self.published[seed] == sequence:
                return
            current = await self._register(seed, advertisement, sequence)
            if current is None:
                self.published[seed] = sequence
                return
            self.prepare(current)
            await self._context.entities.durable()
        raise PeerUnreachable("it takes every number for a stale one", code="stale-sequence")

    async def _register(
        self, seed: str, advertisement: dict[str, Any], sequence: int
    ) -> int | None:
        """None where the seed took everything; else the number that it holds already."""
        node = quote(self._context.signer.node_id, safe=":")
        body: dict[str, Any] = {"advertisement": advertisement, "sequence/no": sequence}
        paths = [(f"/adv/{node}", body)]
        for presented in advertisement["capabilities/presented"]:
            passport = presented["passport"]
            capability = quote(str(passport["capability_id"]), safe="")
            paths.append((f"/cap/{node}/{capability}", {**body, "passport": passport}))
        for path, content in paths:
            status, answer = await self._call(seed, "PUT", path, content, also=(409,))
            if status == 409:
                current = answer.get("current/sequence-no")
                if not isinstance(current, int) or current < sequence:
                    detail = str(answer.get("detail"))[:200]
                    raise PeerUnreachable(f"it refuses: {detail}", code="seed_refused")
                if current > max(sequence, self._context.clock.now()) + SEQUENCE_LEAP_MAX:
                    message = (
                        f"it says that this node published under a number far above {sequence}"
                    )
                    raise PeerUnreachable(message, code="seed_sequence")
                return current
            if path.startswith("/adv/"):
                self._note_end(seed, answer.get("expires_at"))
        return None

    def _note_end(self, seed: str, ends: Any) -> None:
        """Seeds of other versions do not say it."""
        with suppress(InputError):
            self._ends[seed] = instant(ends, "expires_at")

    async def _call(
        self, seed: str, method: str, path: str, body: Any, also: tuple[int, ...] = ()
    ) -> tuple[int, dict[str, Any]]:
        seconds, data = self._settings.fetch_ms / 1000, msgspec.json.encode(body)
        url = seed.rstrip("/") + path
        status, answer = await self._context.transport.call(method, url, data, seconds)
        try:
            fields = await read_json(answer)
        except JsonRefused as error:
            message = f"its answer is no JSON that is taken: {error}"
            raise InputError(message[:300], code="seed_shape") from None
        if not isinstance(fields, dict):
            raise InputError("its answer is no JSON object", code="seed_shape")
        if status not in (200, 201, *also):
            detail = f"{fields.get('code')}: {fields.get('detail')}"[:300]
            raise PeerUnreachable(f"it refuses ({status}) {detail}", code="seed_refused")
        return status, fields

    def _presented(self) -> list[dict[str, Any]]:
        """One for each capability: the newest."""
        newest: dict[str, dict[str, Any]] = {}
        for one in self.held():
            capability = str(one.passport["capability_id"])
            known = newest.get(capability)
            if known is None or one.passport["issued_at"] > known["issued_at"]:
                newest[capability] = one.passport
        return [one for one in newest.values() if not self._is_revoked(one)]

    def _is_revoked(self, document: Mapping[str, Any]) -> bool:
        one: CheckedPassport = kept_passport(document)
        return self._registry.revoked.covers(one)

    def _signed(self, sequence: int) -> dict[str, Any]:
        signer, url = self._context.signer, self._context.config.url
        presented = [
            {
                "capability/id": passport["capability_id"],
                "wire/name": f"role/{passport['capability_id']}",
                "assertion/kind": "capability-passport",
                "passport": passport,
            }
            for passport in self._presented()
        ]
        endpoint = {
            "endpoint/url": url,
            "endpoint/transport": url.partition(":")[0],
            "endpoint/role": "peer",
            "endpoint/priority": 0,
        }
        now = self._context.clock.now()
        known = self._registry.advertisements.get(signer.node_id)
        if known is not None:  # a clock that was set back makes nothing stale
            now = max(now, published_at(known.advertisement))
        return signer.sign_as_node(
            {
                "schema/v": 1,
                "advertisement/id": f"advertisement:{signer.node_id.rpartition(':')[2]}:{sequence}",
                "node/id": signer.node_id,
                "published-at": rfc3339(now),
                "protocol/version": PROTOCOL,
                "transport/profiles": list(PROFILES),
                "capabilities/core": ["core/messaging"],
                "capabilities/presented": presented,
                "messages/supported": list(self._messages()),
                "endpoints": [endpoint] if url else [],
                "sequence/no": sequence,
            }
        )


def _has_expired(document: Mapping[str, Any], now: int) -> bool:
    expires = document.get("expires_at")
    return expires is not None and instant(expires, "expires_at") <= now

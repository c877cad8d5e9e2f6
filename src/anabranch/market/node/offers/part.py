"""The part of a node that knows offers: what its endpoints and capabilities do, and its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.market.catalog import listing
from anabranch.market.catalog.listing import CatalogFilter
from anabranch.market.catalog.routes import is_active
from anabranch.market.identities import public_key
from anabranch.market.node.api import Answer, Call, Caller, Endpoint
from anabranch.market.node.entities import Change, Family
from anabranch.market.node.errors import NodeError
from anabranch.market.node.offers import drafts, records
from anabranch.market.node.offers.config import offers_config
from anabranch.market.node.offers.endpoints import (
    DropRequest,
    FetchRequest,
    PushRequest,
    TrustQuery,
    TrustRequest,
    table,
)
from anabranch.market.node.offers.messages import OfferMessages
from anabranch.market.node.offers.records import (
    LOCAL,
    OBSERVED,
    TRUSTED,
    LocalRetired,
    ObservedOffer,
    ProviderDistrusted,
    ProviderTrusted,
    TrustedProvider,
    published,
)
from anabranch.market.node.offers.registry import Registry
from anabranch.market.node.offers.trust import Judge
from anabranch.market.node.ports import NodeContext
from anabranch.work.participants.performers import rfc3339

FAMILIES: tuple[Family[Any], ...] = records.FAMILIES
PUBLISH, QUERY, FETCH = "offers.publish", "offers.local.query", "offers.fetch"
TRUST = "offers.trust.query"
FORGET_MS = 3_600_000  # between two looks for what can be forgotten


class OffersPart:
    """The port `Offers`."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._entities = context.entities
        self._signer = context.signer
        self.config = offers_config(context.config.raw)
        self._judge = Judge(context, self.config)
        me = context.signer.node_id
        self.registry = Registry(self._entities, self._judge, self.config, me)
        self.messages = OfferMessages(context, self.registry, self.config)
        self._forget_at = 0

    def endpoints(self) -> Sequence[Endpoint]:
        return table(self)

    async def open(self) -> None:
        self.messages.listen()
        self.registry.shorten()
        await self._forget()

    async def close(self) -> None:
        """There is nothing to end."""

    async def wake(self, family: Family[Any], thing: str) -> None:
        if family is OBSERVED:
            self.registry.drop_due(thing)
            await self._entities.durable()
            await self._forget()

    async def _forget(self) -> None:
        """Rows that were dropped long ago; looked for now and then."""
        now = self._context.clock.now()
        if now < self._forget_at:
            return
        self._forget_at = now + FORGET_MS
        while await self._entities.forget(OBSERVED, now - self.config.forget_seconds * 1000):
            pass

    # -- the port ----------------------------------------------------------------------------

    def offer(self, offer_id: str) -> Mapping[str, Any] | None:
        own = self.registry.local(offer_id)
        if own is not None:
            return own.offer
        observed = self.registry.visible(offer_id)
        return observed.offer if observed else None

    def terms(self, offer_id: str, number: int) -> Mapping[str, Any] | None:
        own = self.registry.local(offer_id)
        return None if own is None else own.terms_at(number, self._context.clock.now())

    def local(self, *, active_only: bool = True) -> list[Mapping[str, Any]]:
        now = self._context.clock.now()
        found = [one.offer for one in self.registry.every_local()]
        return [offer for offer in found if not active_only or is_active(offer, now)]

    # -- offers of this node -----------------------------------------------------------------

    async def publish(self, call: Call) -> Answer:
        self._require_grant(call.caller, PUBLISH)
        return await self._publish(call.body, call.caller)

    async def _publish(self, given: Any, caller: Caller) -> Answer:
        offer_id = drafts.offer_id_of(given, self._signer)
        with self._entities.change() as change:
            answer = self._published(change, offer_id, given, caller)
        await self._entities.durable()  # also what is unchanged may have been written just now
        return answer

    def _published(self, change: Change, offer_id: str, given: Any, caller: Caller) -> Answer:
        known = change.get(LOCAL, offer_id)
        if known is not None and drafts.is_repeated(given, known):
            return Answer(body={"status": "unchanged", "offer": known.offer})
        offer = drafts.finished(given, known, self._signer, self.config, change.now)
        drafts.require_newer(offer, known)
        if known is None or known.retired:
            self._make_room(change)
        self.registry.give_way(change, offer_id)
        change.add(LOCAL, offer_id, published(known, offer, caller.actor, change.now))
        return Answer(status=201, body={"status": "stored", "offer": offer})

    def _make_room(self, change: Change) -> None:
        """For one more; of those that are not active the one published first gives way."""
        if self._entities.count_open(LOCAL) < self.config.local_max:
            return
        idle = [
            (one.at, offer_id)
            for offer_id, one in self._entities.each_open(LOCAL)
            if not is_active(one.offer, change.now)
        ]
        if not idle:
            message = (
                f"this node has {self.config.local_max} active offers, the most that it keeps; "
                "withdraw one, or set `local_max` in the section `offers`"
            )
            raise NodeError(409, "catalog-full", message)
        change.add(LOCAL, min(idle)[1], LocalRetired(change.now))

    async def withdraw(self, call: Call) -> Answer:
        self._require_grant(call.caller, PUBLISH)
        offer_id = call.params["offer"]
        with self._entities.change() as change:
            known = change.get(LOCAL, offer_id)
            if known is None:
                raise _not_found(offer_id)
            status, offer = "unchanged", known.offer
            if offer.get("offer/status") != "withdrawn":
                status, offer = "withdrawn", drafts.withdrawn(known, self._signer, change.now)
                event = published(known, offer, call.caller.actor, change.now)
                change.add(LOCAL, offer_id, event)
        await self._entities.durable()
        return Answer(body={"status": status, "offer": offer})

    # -- lists -------------------------------------------------------------------------------

    async def listed(self, call: Call) -> Answer:
        source, wanted = listing.query_of(call.query)
        hidden = call.query.get("hidden") == "true"
        if hidden and call.caller.scope != "operator":
            raise NodeError(403, "forbidden", "offers of strangers are shown to the operator alone")
        local = self._local_rows(wanted) if source != "observed" and not hidden else []
        observed = self._observed_rows(wanted, hidden=hidden) if source != "local" else []
        body = listing.answer(local, observed, wanted.limit, "service_offers")
        if call.caller.scope == "operator":
            body["counts"]["hidden"] = self.registry.hidden()
        await self._entities.durable()
        return Answer(body=body)

    async def show(self, call: Call) -> Answer:
        offer_id = call.params["offer"]
        own, observed = self.registry.local(offer_id), self.registry.visible(offer_id)
        await self._entities.durable()
        if own is not None:
            return Answer(body=listing.local_row(own.offer, self._signer.node_id))
        if observed is None:
            raise _not_found(offer_id)
        return Answer(body=_observed_row(observed))

    async def query_local(self, body: Any, _caller: Caller, _query: Mapping[str, str]) -> Answer:
        """`offers.local.query`: a filter as `query` or `filter`, or its keys alone."""
        if body is not None and not isinstance(body, dict):
            raise NodeError(400, "bad_query", "the body is an object")
        given = dict(body or {})
        version, _ = given.pop("schema_version", "v1"), given.pop("capability_id", None)
        if version != "v1":
            raise NodeError(400, "bad_query", '`schema_version` is "v1"')
        inner = given.get("query", given.get("filter", given))
        try:
            wanted = listing.filter_of(inner)
        except InputError as error:
            raise NodeError(400, "bad_query", error.message) from None
        rows = self._local_rows(wanted)
        await self._entities.durable()
        return Answer(body=listing.answer(rows, [], wanted.limit, "offers_local_query"))

    def _local_rows(self, wanted: CatalogFilter) -> list[dict[str, Any]]:
        now, me = self._context.clock.now(), self._signer.node_id
        rows = self.registry.every_local()
        return [listing.local_row(one.offer, me) for one in rows if wanted.fits(one.offer, now)]

    def _observed_rows(self, wanted: CatalogFilter, *, hidden: bool) -> list[dict[str, Any]]:
        now = self._context.clock.now()
        rows = self.registry.every_hidden() if hidden else self.registry.every_visible()
        return [_observed_row(one) for one in rows if wanted.fits(one.offer, now)]

    # -- other nodes -------------------------------------------------------------------------

    async def fetch(self, call: Call) -> Answer:
        self._require_grant(call.caller, FETCH)
        asked = msgspec.convert(call.body, FetchRequest)
        _require_identity(asked.node_id, "node", "node_id")
        seconds = self.config.fetch_seconds if asked.timeout_ms is None else asked.timeout_ms / 1000
        found = await self.messages.fetch(asked.node_id, asked.filter, seconds)
        names = {one["offer_id"] for one in found["results"] if one["outcome"] != "rejected"}
        rows = [self.registry.visible(name) for name in sorted(names)]
        return Answer(body={**found, "offers": [_observed_row(one) for one in rows if one]})

    async def push(self, call: Call) -> Answer:
        self._require_grant(call.caller, PUBLISH)
        asked = msgspec.convert(call.body, PushRequest)
        for node_id in asked.node_ids:
            _require_identity(node_id, "node", "node_ids")
        targets = list(dict.fromkeys(asked.node_ids))
        results = await self.messages.push(targets, observed=asked.observed)
        return Answer(body={"results": results})

    async def drop(self, call: Call) -> Answer:
        """Offers of others, as the operator says."""
        by = msgspec.convert(call.body, DropRequest).by
        _require_identity(by, by.partition(":")[0], "by")
        dropped = self.registry.drop(lambda row: by in row.parties)
        if not dropped:
            raise NodeError(404, "not_found", f"no offer of others came from {by[:200]!r}")
        await self._entities.durable()
        return Answer(body={"status": "dropped", "offers": dropped})

    # -- who is trusted ----------------------------------------------------------------------

    async def trusted(self, _call: Call) -> Answer:
        rows = sorted(self._entities.each_open(TRUSTED))
        await self._entities.durable()
        return Answer(body={"items": [_entry(one) for _, one in rows]})

    async def trust(self, call: Call) -> Answer:
        asked = msgspec.convert(call.body, TrustRequest)
        named = {asked.participant_id, asked.entry_id} - {None}
        if len(named) != 1:
            raise NodeError(400, "schema", "`participant_id` names the one who is trusted")
        (participant,) = named
        assert participant is not None
        _require_identity(participant, "participant", "participant_id")
        with self._entities.change() as change:
            entry = change.get(TRUSTED, participant)
            is_new = entry is None or entry.removed_at is not None
            if entry is None or is_new:
                note = asked.note or asked.entry_note or ""
                event = ProviderTrusted(participant, "operator", note, change.now)
                entry = change.add(TRUSTED, participant, event)
        await self._entities.durable()
        return Answer(status=201 if is_new else 200, body=_entry(entry))

    async def distrust(self, call: Call) -> Answer:
        participant = call.params["participant"]
        with self._entities.change() as change:
            known = change.get(TRUSTED, participant)
            if known is None or known.removed_at is not None:
                raise NodeError(404, "not_found", f"{participant[:200]!r} is not trusted")
            event = ProviderDistrusted(by="operator", at=change.now)
            change.add(TRUSTED, participant, event)
        await self._entities.durable()
        return Answer(body={"participant_id": participant, "status": "removed"})

    async def query_trust(self, body: Any, _caller: Caller, _query: Mapping[str, str]) -> Answer:
        """`offers.trust.query`: which of these providers and nodes this host trusts now, for a
        module that keeps a catalog of its own."""
        try:
            asked = msgspec.convert(body, TrustQuery)
        except msgspec.ValidationError as error:
            raise NodeError(400, "schema", str(error)) from None
        entries = {one: self._entities.get(TRUSTED, one) for one in asked.participant_ids}
        answer = {
            "schema_version": "v1",
            "node_id": self._signer.node_id,
            "participant_ids": [
                one for one, entry in entries.items() if self._judge.is_trusted(entry)
            ],
            "node_ids": [one for one in asked.node_ids if self._judge.is_known(one)],
        }
        await self._entities.durable()
        return Answer(body=answer)

    def _require_grant(self, caller: Caller, grant: str) -> None:
        if caller.scope == "module" and not self._context.modules.is_granted(caller.module, grant):
            raise NodeError(
                403, "host_capability_forbidden", f"the module has no grant {grant}; the operator "
                "gives it in the configuration of the module",
            )  # fmt: skip


def _entry(one: TrustedProvider) -> dict[str, Any]:
    """`trusted-provider.v1`"""
    entry = {
        "schema/v": 1,
        "entry/participant-id": one.participant,
        "entry/added-at": rfc3339(one.added_at),
        "entry/added-by": one.added_by,
    }
    return entry | {"entry/note": one.note} if one.note else entry


def _observed_row(one: ObservedOffer) -> dict[str, Any]:
    return listing.observed_row(one.offer, one.trust, one.route, one.observed_at)


def _require_identity(text: str, role: str, field: str) -> None:
    try:
        public_key(text)
    except InputError as error:
        raise NodeError(400, "bad_identity", f"`{field}`: {error.message}") from None
    if not text.startswith(f"{role}:"):
        raise NodeError(400, "bad_identity", f"`{field}` names a {role}")


def _not_found(offer_id: str) -> NodeError:
    return NodeError(404, "offer-not-found", f"no offer {offer_id[:200]!r} is known here")


def make(context: NodeContext) -> OffersPart:
    part = OffersPart(context)
    context.offers = part
    context.catalog = part.messages

    async def publish(body: Any, caller: Caller, _query: Mapping[str, str]) -> Answer:
        return await part._publish(body, caller)

    context.capabilities.register(QUERY, part.query_local)
    context.capabilities.register(TRUST, part.query_trust)
    context.capabilities.register(PUBLISH, publish)
    return part

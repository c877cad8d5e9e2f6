"""The directory for the operator and for modules: what is known, and passports of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from anabranch.market.node.api import Answer, Call, Caller, Endpoint
from anabranch.market.node.directory.own import LIFE_MAX_MS, OwnPublications
from anabranch.market.node.directory.passport_cache import HERE, PassportCache
from anabranch.market.node.directory.records import OWN_PASSPORTS, OwnPassport
from anabranch.market.node.directory.registry import SeedDirectory
from anabranch.market.node.directory.sync import DirectorySync
from anabranch.market.node.errors import NodeError
from anabranch.market.node.paging import whole_number
from anabranch.market.node.peers.dispatch import SeedFilter
from anabranch.market.node.peers.http_transport import origin_of
from anabranch.market.node.ports import NodeContext
from anabranch.work.participants.performers import rfc3339

LISTED_MAX = 500


class IssueBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Either what to issue, or a passport that another participant issued for this node."""

    capability_id: str | None = None
    node_id: str = ""
    scope: dict[str, Any] = {}
    life_seconds: Annotated[int, msgspec.Meta(ge=1, le=LIFE_MAX_MS // 1000)] | None = None
    renew: bool = True
    passport: dict[str, Any] | None = None
    schema_version: Literal["v1"] = "v1"


class RevokeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    passport_id: str


class DropBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node, or all of a source that nobody vouches for."""

    node_id: str = ""
    source: str | None = None


class DropRevocationsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Those of one signer, or of all that this node does not trust; also those of passports that
    were registered here."""

    signer: str = ""
    registered: bool = False


class DirectoryQuery(SeedFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Either nodes with a passport for a capability, or the nodes of a participant."""

    capability_id: str = ""
    participant_id: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None


class QueryBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: DirectoryQuery
    schema_version: Literal["v1"] = "v1"
    capability_id: Literal["seed_directory_query"] = "seed_directory_query"


class OperatorSurface:
    def __init__(
        self,
        context: NodeContext,
        registry: SeedDirectory,
        cache: PassportCache,
        sync: DirectorySync,
        own: OwnPublications,
    ) -> None:
        self._context = context
        self._registry = registry
        self._cache = cache
        self._sync = sync
        self._own = own

    def register(self) -> None:
        self._context.capabilities.register("seed.directory.query", self.query)
        self._context.capabilities.register("capability.passport.issue", self.issue_for)

    def endpoints(self) -> Sequence[Endpoint]:
        def row(method: str, path: str, handler: Any, summary: str, **more: Any) -> Endpoint:
            return Endpoint(
                method=method, path=path, scopes=("operator",), handler=handler, summary=summary,
                **more,
            )  # fmt: skip

        return (
            row("GET", "/v1/directory", self.show, "What the directory and its cache hold"),
            row("GET", "/v1/directory/holders", self.holders,
                "Nodes with a valid passport for a capability, from the cache",
                query=("capability",), errors=(400,)),
            row("POST", "/v1/directory/sync", self.sync_now,
                "Read the seed directories now, and publish what they do not know yet"),
            row("GET", "/v1/directory/nodes", self.nodes,
                "Nodes that have published here, the newest first, with the network that each came "
                "from", query=("source", "limit"), errors=(400,)),
            row("POST", "/v1/directory/drop", self.drop,
                "Drop the advertisement and the capabilities of a node, or of all nodes of a "
                "source; they stay away for as long as an advertisement counts",
                body=DropBody, errors=(400, 404)),
            row("POST", "/v1/directory/revocations/drop", self.drop_revocations,
                "Drop revocations of signers that this node does not trust, or of one of them; "
                "those of passports that are known or, unless asked for, were registered here stay",
                body=DropRevocationsBody),
            row("GET", "/v1/passports", self.list_passports,
                "Passports that this node holds, and those that its participant issued"),
            row("POST", "/v1/passports", self.issue,
                "Issue a passport for this node or another one, or take one for this node",
                body=IssueBody, status=201, errors=(400, 403, 409, 429)),
            row("POST", "/v1/passports/revoke", self.revoke,
                "Revoke a passport that this node holds or its participant issued",
                body=RevokeBody, errors=(400, 404)),
        )  # fmt: skip

    async def show(self, _call: Call) -> Answer:
        now = self._context.clock.now()
        seeds = [
            {
                "url": origin_of(seed.url),
                "read_at": None if seed.read_at is None else rfc3339(seed.read_at),
                "counts": self._cache.is_fresh(seed.url, now),
                "error": seed.error or None,
                "refused": seed.refused,
                "published_sequence": self._own.published.get(seed.url, 0),
                "publish_error": self._own.errors.get(seed.url),
            }
            for seed in self._sync.seeds
        ]
        capabilities = {name: len(self._cache.rows(name)) for name in self._cache.capabilities()}
        here = self._cache.sources[HERE]
        body = {
            "node_id": self._context.signer.node_id,
            "sequence/no": self._own.sequence,
            "seeds": seeds,
            "capabilities": capabilities,
            "nodes": len(here.advertisements),
            "revocations": len(self._registry.revocations),
            "sync_ms": self._sync.delay_ms,
        }
        return Answer(body=body)

    async def holders(self, call: Call) -> Answer:
        capability = call.query.get("capability", "")
        if not capability:
            raise NodeError(400, "schema", "say which: ?capability=offer-catalog")
        return Answer(body={"items": self._cache.rows(capability)})

    async def nodes(self, call: Call) -> Answer:
        source = call.query.get("source")
        limit = whole_number(call.query, "limit", LISTED_MAX, least=1, most=LISTED_MAX)
        newest = sorted(
            self._registry.advertisements.items(), key=lambda item: item[1].number, reverse=True
        )
        items = [
            {
                "node_id": node,
                "source": one.source,
                "trusted": one.trusted,
                "published_at": one.advertisement["published-at"],
                "expires_at": rfc3339(self._registry.ends_at(one.advertisement)),
                "capabilities": sorted(self._registry.registrations.get(node, ())),
            }
            for node, one in newest
            if source in (None, one.source)
        ]
        return Answer(body={"items": items[:limit]})

    async def drop(self, call: Call) -> Answer:
        wanted = msgspec.convert(call.body, DropBody)
        if bool(wanted.node_id) == (wanted.source is not None):
            raise NodeError(400, "schema", "write either `node_id` or `source`")
        strangers = self._registry.strangers.nodes
        nodes = [wanted.node_id] if wanted.node_id else [
            node for node, source in strangers.items() if source == wanted.source
        ]  # fmt: skip
        dropped = self._registry.drop(nodes)
        if not dropped:
            raise NodeError(404, "not-found", "no such node has published here")
        await self._registry.durable()
        return Answer(body={"status": "dropped", "nodes": dropped})

    async def drop_revocations(self, call: Call) -> Answer:
        wanted = msgspec.convert(call.body, DropRevocationsBody)
        known = [row.checked for _, row in self._cache.every()]
        dropped = self._registry.drop_revocations(
            known, wanted.signer, registered=wanted.registered
        )
        await self._registry.durable()
        return Answer(body={"status": "dropped", "revocations": dropped})

    async def sync_now(self, call: Call) -> Answer:
        await self._own.publish()
        await self._sync.sync()
        return await self.show(call)

    async def list_passports(self, _call: Call) -> Answer:
        listed = await self._context.entities.listed(OWN_PASSPORTS, limit=LISTED_MAX)
        return Answer(body={"items": [self._row(one) for _, one, _ in listed]})

    async def issue(self, call: Call) -> Answer:
        return await self._issue(msgspec.convert(call.body, IssueBody))

    async def issue_for(self, body: Any, caller: Caller, _query: Mapping[str, str]) -> Answer:
        """The capability `capability.passport.issue`: modules sign nothing."""
        if caller.scope != "operator":
            raise NodeError(
                403, "host_capability_forbidden", "passports are issued by the operator"
            )
        try:
            wanted = msgspec.convert(body, IssueBody)
        except msgspec.ValidationError as error:
            raise NodeError(400, "schema", str(error)) from None
        return await self._issue(wanted)

    async def _issue(self, wanted: IssueBody) -> Answer:
        if (wanted.capability_id is None) == (wanted.passport is None):
            raise NodeError(400, "schema", "write either `capability_id` or `passport`")
        if wanted.passport is not None:
            self._own.take(wanted.passport)
            document = wanted.passport
        else:
            assert wanted.capability_id is not None
            document = self._own.issue(
                wanted.capability_id,
                wanted.node_id,
                scope=wanted.scope,
                life_ms=None if wanted.life_seconds is None else wanted.life_seconds * 1000,
                renew=wanted.renew,
            )
        if document["node_id"] == self._context.signer.node_id:
            self._own.prepare()
        await self._own.publish()
        return Answer(status=201, body={"passport": document})

    async def revoke(self, call: Call) -> Answer:
        document = self._own.revoke(call.body["passport_id"])
        self._own.prepare()
        await self._own.publish()
        return Answer(body={"status": "revoked", "revocation": document})

    async def query(self, body: Any, _caller: Caller, _query: Mapping[str, str]) -> Answer:
        """The capability `seed.directory.query`, from the cache."""
        try:
            wanted = msgspec.convert(body, QueryBody).query
        except msgspec.ValidationError as error:
            raise NodeError(400, "schema", str(error)) from None
        if bool(wanted.capability_id) == bool(wanted.participant_id):
            message = "`query` has either `capability_id` or `participant_id`"
            raise NodeError(400, "schema", message)
        items: list[Any] = self._nodes_of(wanted.participant_id)
        if wanted.capability_id:
            items = [row for row in self._cache.ranked(wanted.capability_id) if wanted.fits(row)]
        body = {"status": "ok", "items": items[: wanted.limit]}
        if not items and (why := self._sync.unread()):
            body["unread"] = why  # there may be some that this node has not heard of
        return Answer(body=body)

    def _nodes_of(self, participant_id: str) -> list[Any]:
        if not participant_id:
            return []
        found = self._context.directory.nodes_of(participant_id)
        return [{"node_id": node, "participant_id": participant_id} for node in found]

    def _row(self, one: OwnPassport) -> dict[str, Any]:
        return {
            "passport": one.passport,
            "held": one.mine,
            "revoked": one.revoked,
            "renew_at": None if one.renew_at is None else rfc3339(one.renew_at),
        }

"""`peer.message.dispatch` and `peer.session.establish`: how modules send messages to other nodes.

A message goes to one node, or to nodes with a capability: the first or last of those in the cache
that fit, with those that this node trusts before all others, to one of them (the next is tried
where one cannot be reached) or to all. A blocking call waits for the answers; of an async one the
answers come back as messages: `x.request` is answered by `x.response`, for the host or the chains
of modules, from the node that was asked.

Before a message leaves, modules are asked (`pre-send`): one may drop it, or answer it here. Such an
answer is never taken for one of the other node. Messages of the host itself pass no chain, as those
that the host answers do not. What goes to all nodes with a capability is a broadcast.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from anabranch.errors import AnabranchError
from anabranch.market.node.api import Answer, Caller
from anabranch.market.node.errors import NodeError
from anabranch.market.node.peers.envelope import require_names
from anabranch.market.node.peers.messenger import Messenger
from anabranch.market.node.ports import InboundMessage, NodeContext, PeerUnreachable

logger = logging.getLogger("anabranch.node")

#: Messages that hosts believe because a host sent them: no module writes one.
OF_THE_HOST = ("peer.", "artifact-delivery.")
TIMEOUT_MS = 10_000
TIMEOUT_MS_MAX = 120_000
TARGETS_MAX = 256
SELECTIONS_MAX = 1000
ASYNC_MAX = 1000  # messages of modules that are on their way
#: Messages whose answers hold offers: the host knows them before the module orders from one.
ABOUT_OFFERS = ("offer-catalog.fetch.request", "workflow.fanout.request")
Limit = Annotated[int, msgspec.Meta(ge=1, le=TARGETS_MAX)]
Timeout = Annotated[int, msgspec.Meta(ge=1, le=TIMEOUT_MS_MAX)]


class SeedFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which rows of the directory fit; everything that is given must hold."""

    node_id: str | None = None
    node_ids: tuple[str, ...] | None = None
    issuer: str | None = None
    issuers: tuple[str, ...] | None = None
    passport_profile: str | None = None
    endorsement: Any = msgspec.UNSET

    def fits(self, row: Mapping[str, Any]) -> bool:
        node, passport = row["node_id"], row["passport"]
        issuer = passport["issuer/participant_id"]
        return (
            self.node_id in (None, node)
            and (self.node_ids is None or node in self.node_ids)
            and self.issuer in (None, issuer)
            and (self.issuers is None or issuer in self.issuers)
            and self.passport_profile in (None, passport.get("capability_profile"))
            and self.endorsement in (msgspec.UNSET, row.get("endorsement"))
        )


class Destination(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    node_id: str | None = None
    capability_id: str | None = None
    seed_filter: SeedFilter = SeedFilter()
    selection_mode: Literal["first-n", "last-n"] = "first-n"
    limit: Limit | None = None
    delivery_mode: Literal["one", "all"] = "all"
    cache_ttl_ms: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)] = 0

    @property
    def is_broadcast(self) -> bool:
        return self.capability_id is not None and self.delivery_mode == "all"


class DispatchBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    destination: Destination
    msg: str
    correlation_id: str
    payload: Any = None
    execution_mode: Literal["async", "blocking"] = "async"
    timeout_ms: Timeout = TIMEOUT_MS
    schema_version: Literal["v1"] = "v1"
    capability_id: Literal["peer_message_dispatch"] = "peer_message_dispatch"


class EstablishBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    node_id: str
    timeout_ms: Timeout = TIMEOUT_MS
    schema_version: Literal["v1"] = "v1"
    capability_id: Literal["peer_session_establish"] = "peer_session_establish"


class _Selection(msgspec.Struct, frozen=True):
    """Nodes that were chosen, for as long as the caller said."""

    nodes: tuple[str, ...]
    until: int


class Dispatcher:
    def __init__(self, context: NodeContext, messenger: Messenger) -> None:
        self._context = context
        self._messenger = messenger
        self._selections: dict[bytes, _Selection] = {}
        self._under_way = 0  # async messages

    def register(self) -> None:
        self._context.capabilities.register("peer.message.dispatch", self.dispatch)
        self._context.capabilities.register("peer.session.establish", self.establish)

    async def establish(self, body: Any, _caller: Caller, _query: Mapping[str, str]) -> Answer:
        wanted = _read(body, EstablishBody)
        try:
            session = await self._messenger.establish(wanted.node_id, wanted.timeout_ms / 1000)
        except PeerUnreachable as error:
            raise NodeError(503, error.code, error.message) from None
        return Answer(body={"status": "established", "session_id": session})

    async def dispatch(self, body: Any, _caller: Caller, _query: Mapping[str, str]) -> Answer:
        wanted = _read(body, DispatchBody)
        require_names(wanted.msg, wanted.correlation_id)
        if wanted.msg.startswith(OF_THE_HOST):
            message = f"{wanted.msg} is sent by the host alone; see `artifact.delivery.send`"
            raise NodeError(403, "host_capability_forbidden", message)
        nodes = self._targets(wanted.destination)
        if wanted.execution_mode == "async":
            if self._under_way >= ASYNC_MAX:
                message = f"{ASYNC_MAX:,} messages of modules are on their way; send it later"
                raise NodeError(429, "peer_busy", message, headers={"Retry-After": "1"})
            self._under_way += 1
            self._context.spawn(self._later(wanted, nodes))
            targets = [{"node_id": node, "status": "queued"} for node in nodes]
            return Answer(
                status=202, body=_summary(wanted, "queued" if nodes else "failed", targets)
            )
        outcomes = await self._send(wanted, nodes)
        good = sum(one["status"] in ("responded", "no_response", "dropped") for one in outcomes)
        enough = good >= (1 if wanted.destination.delivery_mode == "one" else len(outcomes))
        status = "ok" if good and enough else "partial" if good else "failed"
        return Answer(body=_summary(wanted, status, outcomes))

    # -- to whom -----------------------------------------------------------------------------

    def _targets(self, destination: Destination) -> list[str]:
        if (destination.node_id is None) == (destination.capability_id is None):
            message = "`destination` has either `node_id` or `capability_id`"
            raise NodeError(400, "schema", message)
        if destination.node_id is not None:
            return [destination.node_id]
        rows = self._context.directory.holders(destination.capability_id or "")
        fitting = [row for row in rows if destination.seed_filter.fits(row)]
        return self._chosen(destination, fitting)

    def _chosen(self, destination: Destination, rows: list[Mapping[str, Any]]) -> list[str]:
        """As chosen before, if the caller allows it; a node that does not count any more is left
        out, whatever was chosen."""
        now, key = self._context.clock.now(), msgspec.json.encode(destination)
        known = self._selections.get(key)
        if known is not None and known.until > now and destination.cache_ttl_ms:
            fitting = {row["node_id"] for row in rows}
            return [node for node in known.nodes if node in fitting]
        limit = destination.limit or TARGETS_MAX
        chosen = _cut(rows, limit, first=destination.selection_mode == "first-n")
        if destination.cache_ttl_ms:
            if len(self._selections) >= SELECTIONS_MAX:
                self._selections.clear()
            self._selections[key] = _Selection(tuple(chosen), now + destination.cache_ttl_ms)
        return chosen

    # -- sending -----------------------------------------------------------------------------

    async def _send(self, wanted: DispatchBody, nodes: list[str]) -> list[dict[str, Any]]:
        if wanted.destination.delivery_mode == "all":
            return await asyncio.gather(*(self._one(wanted, node) for node in nodes))
        outcomes = []
        for node in nodes:
            outcomes.append(await self._one(wanted, node))
            if outcomes[-1]["status"] != "unreachable":
                break
        return outcomes

    async def _one(self, wanted: DispatchBody, node: str) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        until = loop.time() + wanted.timeout_ms / 1000
        held = await self._held_back(wanted, node)
        if held is not None:
            return held
        try:
            reply = await self._messenger.request(
                node, wanted.msg, wanted.payload, correlation_id=wanted.correlation_id,
                seconds=max(until - loop.time(), 0.001), broadcast=wanted.destination.is_broadcast,
            )  # fmt: skip
        except PeerUnreachable as error:
            return {"node_id": node, "status": "unreachable", "error": _error(error)}
        except AnabranchError as error:
            return {"node_id": node, "status": "error", "error": _error(error)}
        if reply is None:
            return {"node_id": node, "status": "no_response"}
        catalog = getattr(self._context, "catalog", None)
        if wanted.msg in ABOUT_OFFERS and catalog is not None:
            await catalog.observe(reply, node)
        return {"node_id": node, "status": "responded", "payload": reply}

    async def _held_back(self, wanted: DispatchBody, node: str) -> dict[str, Any] | None:
        """What a module has decided about a message to that node; None where it may leave."""
        modules = getattr(self._context, "modules", None)
        if modules is None:
            return None
        message = InboundMessage(
            msg=wanted.msg,
            payload=wanted.payload,
            correlation_id=wanted.correlation_id,
            remote_node_id=node,
            broadcast=wanted.destination.is_broadcast,
        )
        outcome = await modules.message("send", message)
        if outcome.kind == "dropped":
            return {"node_id": node, "status": "dropped"}
        if outcome.kind == "returned":
            here = self._context.signer.node_id
            found = {"status": "responded", "payload": outcome.payload, "answered_by": here}
            return {"node_id": node, **found}
        return None

    async def _later(self, wanted: DispatchBody, nodes: list[str]) -> None:
        try:
            outcomes = await self._send(wanted, nodes)
        finally:
            self._under_way -= 1
        for outcome in outcomes:
            if outcome["status"] == "responded":
                node = outcome.get("answered_by", outcome["node_id"])
                await self._hand_in(wanted, node, outcome["payload"])

    async def _hand_in(self, wanted: DispatchBody, node: str, payload: Any) -> None:
        """An answer is a message of the node that gave it; nobody has to listen to it."""
        message = InboundMessage(
            msg=wanted.msg.removesuffix(".request") + ".response",
            payload=payload,
            correlation_id=wanted.correlation_id,
            remote_node_id=node,
        )
        try:
            await self._messenger.receiver.handle(message)
        except AnabranchError as error:
            logger.info("%s of %s was not taken: %s", message.msg, node, error.message)


def _cut(rows: list[Mapping[str, Any]], limit: int, *, first: bool) -> list[str]:
    """So many of them, and of strangers none in the place of a node that is trusted."""
    chosen: list[str] = []
    for trusted in (True, False):
        nodes = [row["node_id"] for row in rows if row["trusted"] is trusted]
        left = limit - len(chosen)
        chosen += nodes[:left] if first else nodes[max(len(nodes) - left, 0) :]
    return chosen


def _read(body: Any, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise NodeError(400, "schema", str(error)) from None


def _summary(wanted: DispatchBody, status: str, targets: list[dict[str, Any]]) -> dict[str, Any]:
    return {"status": status, "correlation_id": wanted.correlation_id, "targets": targets}


def _error(error: AnabranchError) -> dict[str, str]:
    return {"code": error.code, "message": error.message}

"""Artifact delivery of a node: the capability, the peer message, the ledger and its surface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.deferred.part import may_see
from anabranch.market.node.deferred.records import operation_id_of
from anabranch.market.node.delivery.admission_records import (
    ADMISSIONS,
    INBOX,
    LAPSED,
    ORDERS_TAKEN,
    Admission,
)
from anabranch.market.node.delivery.arrivals import CloseOut, deliver_message_of
from anabranch.market.node.delivery.config import DeliveryConfig, read_config
from anabranch.market.node.delivery.inbound import Inbound, starting
from anabranch.market.node.delivery.inbox import Inbox
from anabranch.market.node.delivery.outbound import CAPABILITY, Outbound
from anabranch.market.node.delivery.records import BRIEF, CONTENTS, DELIVERIES, Delivery
from anabranch.market.node.delivery.rules import routes_for
from anabranch.market.node.delivery.sender import Sender
from anabranch.market.node.delivery.transport import MANY, MESSAGE
from anabranch.market.node.delivery.views import (
    OPERATION_KIND,
    PATH,
    diagnostics_of,
    operation_status,
    result_document,
    status_document,
)
from anabranch.market.node.entities import Family
from anabranch.market.node.errors import NodeError
from anabranch.market.node.paging import page_of, paged, whole_number
from anabranch.market.node.ports import InboundMessage, NodeContext
from anabranch.market.node.retention import DAY_MS, Retention, Rule
from anabranch.work.participants.performers import rfc3339

FAMILIES: tuple[Family[Any], ...] = (DELIVERIES, CONTENTS, ADMISSIONS, ORDERS_TAKEN, INBOX)
RECOVER_MAX = 10_000


def make(context: NodeContext) -> DeliveryPart:
    """Peers and deferred operations are made before."""
    part = DeliveryPart(context, read_config(context.config.raw.get("delivery")))
    context.delivery = part
    context.deferred.own(OPERATION_KIND)
    context.peers.on(MESSAGE, part.receive)
    context.peers.on(MANY, part.receive_many)
    context.capabilities.register(CAPABILITY, part.outbound.capability)
    return part


class DeliveryPart:
    def __init__(self, context: NodeContext, config: DeliveryConfig) -> None:
        self._context = context
        self._entities = context.entities
        self._config = config
        self._sender = Sender(context, config)
        self.outbound = Outbound(context, config, self._sender)
        self._inbox = Inbox(context, config, self.outbound)
        self._inbound = Inbound(context, config, self._inbox)
        self._retention = Retention(context, _rules(config))
        self._is_open = False

    # -- for the other parts -----------------------------------------------------------------

    async def send(self, component_id: str, envelope: Any) -> Mapping[str, Any]:
        return await self.outbound.send(component_id, envelope)

    async def send_deferred(self, component_id: str, envelope: Any) -> Mapping[str, Any]:
        return await self.outbound.send_deferred(component_id, envelope)

    # -- its life ----------------------------------------------------------------------------

    async def open(self) -> None:
        self._sender.open()
        self._inbound.open()
        await self._entities.durable()
        self._is_open = True
        self._retention.look()

    async def receive(self, message: InboundMessage) -> dict[str, Any]:
        """A message that comes before every part is open is sent again."""
        if not self._is_open:
            return starting()
        self._retention.look()
        return await self._inbound.message(message)

    async def receive_many(self, message: InboundMessage) -> dict[str, Any]:
        if not self._is_open:
            return {"admissions": []}  # they come again one by one
        self._retention.look()
        return await self._inbound.messages(message)

    async def close(self) -> None:
        await self._inbound.close()

    async def wake(self, family: Family[Any], thing: str) -> None:
        if family is DELIVERIES:
            self._sender.wake(thing)
        elif family is INBOX:
            self._inbox.lapse(thing)
            await self._entities.durable()

    # -- the surface -------------------------------------------------------------------------

    def endpoints(self) -> Sequence[Endpoint]:
        return (*self._ledger(), *self._admissions(), *self._inbox.endpoints())

    def _ledger(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                method="GET",
                path="/v1/artifact-delivery/routes",
                scopes=("operator", "module"),
                handler=self._routes,
                summary="Named routes, groups and defaults; a module sees the routes it may use",
            ),
            Endpoint(
                method="GET",
                path=PATH,
                scopes=("operator", "module"),
                handler=self._list,
                summary="Deliveries, newest first; a module sees its own",
                query=("component", "open", "limit", "before"),
            ),
            Endpoint(
                method="GET",
                path=f"{PATH}/{{delivery}}",
                scopes=("operator", "module"),
                handler=self._show,
                summary="A delivery: artifact-delivery-status.v1",
                errors=(404,),
            ),
            Endpoint(
                method="GET",
                path=f"{PATH}/{{delivery}}/operation-status",
                scopes=("operator", "module"),
                handler=self._operation_status,
                summary="How a delivery stands, as deferred-operation-status.v1",
                errors=(404,),
            ),
            Endpoint(
                method="POST",
                path="/v1/artifact-delivery/recover",
                scopes=("operator",),
                handler=self._recover,
                summary="Try deliveries that failed for now at once",
                query=("limit",),
            ),
        )

    def _admissions(self) -> tuple[Endpoint, ...]:
        path = "/v1/artifact-delivery/admissions"
        return (
            Endpoint(
                method="GET",
                path=path,
                scopes=("operator",),
                handler=self._list_admissions,
                summary="Admissions, newest first, and what was refused lately",
                query=("peer", "limit", "before"),
            ),
            Endpoint(
                method="POST",
                path=path,
                scopes=("operator", "module"),
                handler=self._post_admission,
                summary="Hand an artifact in (operator), or an invocation token back (module)",
                errors=(400, 403),
            ),
            Endpoint(
                method="GET",
                path=f"{path}/{{admission}}",
                scopes=("operator",),
                handler=self._show_admission,
                summary="An admission",
                errors=(404,),
            ),
        )

    async def _routes(self, call: Call) -> Answer:
        config = self._config
        if call.caller.scope == "module":
            named = routes_for(config.outbound, call.caller.module)
            return Answer(body={"routes": sorted(named & set(config.routes))})
        body = {
            "routes": config.routes,
            "groups": config.groups,
            "defaults": config.defaults,
            "outbound": config.outbound,
        }
        return Answer(body=body)

    async def _list(self, call: Call) -> Answer:
        page = page_of(call.query)
        group = call.query.get("component")
        if call.caller.scope == "module":
            group = call.caller.module
        rows = await self._entities.listed(
            DELIVERIES, group=group, is_open=page.is_open, before=page.before, limit=page.limit
        )
        return paged([(status_document(one, state), card) for one, state, card in rows], page)

    async def _show(self, call: Call) -> Answer:
        delivery_id, _ = self._visible(call)
        await self._entities.durable()
        delivery = self._entities.get(DELIVERIES, delivery_id)
        assert delivery is not None
        return Answer(body=status_document(delivery_id, delivery))

    async def _operation_status(self, call: Call) -> Answer:
        """Of the operation where one was promised, else of the delivery in the same words."""
        delivery_id, _ = self._visible(call)
        await self._entities.durable()
        operation_id = operation_id_of(OPERATION_KIND, delivery_id)
        try:
            body = dict(self._context.deferred.status(operation_id))
        except NodeError:
            delivery = self._entities.get(DELIVERIES, delivery_id)
            assert delivery is not None
            body = _as_operation(operation_id, delivery_id, delivery)
        retry = body.get("retry_after_seconds")
        return Answer(body=body, headers={"Retry-After": str(retry)} if retry else {})

    async def _recover(self, call: Call) -> Answer:
        limit = whole_number(call.query, "limit", 100, least=1, most=RECOVER_MAX)
        found = self._sender.recover(limit)
        await self._entities.durable()
        return Answer(body={"recovered": len(found), "deliveries": found})

    def _visible(self, call: Call) -> tuple[str, Delivery]:
        delivery_id = call.params["delivery"]
        delivery = self._entities.get(DELIVERIES, delivery_id)
        if delivery is None or not may_see(call.caller, delivery.submitted.component_id):
            message = f"there is no delivery {delivery_id[:200]!r}"
            raise NodeError(404, "unknown_delivery", message)
        return delivery_id, delivery

    # -- admissions --------------------------------------------------------------------------

    async def _list_admissions(self, call: Call) -> Answer:
        page = page_of(call.query)
        rows = await self._entities.listed(
            ADMISSIONS, group=call.query.get("peer"), before=page.before, limit=page.limit
        )
        answer = paged([(admission_document(one, state), card) for one, state, card in rows], page)
        return Answer(body={**answer.body, "refused": list(self._inbound.refusals)})

    async def _show_admission(self, call: Call) -> Answer:
        admission_id = call.params["admission"]
        admission = self._entities.get(ADMISSIONS, admission_id)
        if admission is None:
            message = f"there is no admission {admission_id[:200]!r}"
            raise NodeError(404, "unknown_admission", message)
        await self._entities.durable()
        return Answer(body=admission_document(admission_id, admission))

    async def _post_admission(self, call: Call) -> Answer:
        if not isinstance(call.body, dict):
            raise NodeError(400, "schema", "the body is an object")
        if call.caller.scope == "module":
            try:
                closing = msgspec.convert(call.body, CloseOut)
            except msgspec.ValidationError as error:
                raise NodeError(400, "schema", str(error)) from None
            return Answer(body=await self._inbound.close_out(closing))
        artifact, key = call.body.get("artifact"), call.body.get("idempotency/key", "")
        if not isinstance(artifact, dict) or not isinstance(key, str):
            raise NodeError(400, "schema", "`artifact` is an object, `idempotency/key` is a text")
        sent = deliver_message_of(artifact, key, "operator")
        return Answer(body=await self._inbound.admit("local", "", sent))


def _rules(config: DeliveryConfig) -> tuple[Rule, ...]:
    """Entries of the inbox name deliveries. What the operator has not answered in time is of
    strangers, mostly, and large; that it was taken is remembered."""
    remembered = int(config.remember_seconds * 1000)
    return (
        Rule(INBOX, DAY_MS, LAPSED),
        *(Rule(family, remembered) for family in (INBOX, ORDERS_TAKEN, ADMISSIONS, DELIVERIES)),
        Rule(CONTENTS, DAY_MS + int(config.ttl_seconds * 1000), BRIEF),
    )


def admission_document(admission_id: str, admission: Admission) -> dict[str, Any]:
    offered = admission.offered
    document = {
        "admission/id": admission_id,
        "status": admission.status,
        "acceptor/id": offered.acceptor_id,
        "source/adapter": offered.adapter,
        "source/peer": offered.peer or None,
        "idempotency/key": offered.key,
        "artifact": {
            "schema": offered.schema,
            "content/type": offered.content_type,
            "digest": offered.digest,
            "size/bytes": offered.size,
        },
        "offered-at": rfc3339(offered.at),
        "updated-at": rfc3339(admission.updated_at),
    }
    named = (("reason", admission.reason), ("artifact/ref", admission.artifact_ref))
    return document | {name: value for name, value in named if value}


def _as_operation(operation_id: str, delivery_id: str, delivery: Delivery) -> dict[str, Any]:
    status = operation_status(delivery)
    document: dict[str, Any] = {
        "schema": "deferred-operation-status.v1",
        "schema/v": 1,
        "status": status,
        "operation/id": operation_id,
        "operation/kind": OPERATION_KIND,
        "updated_at": rfc3339(delivery.updated_at),
        "expires_at": rfc3339(delivery.submitted.expires_at),
    }
    if status == "completed":
        document["result"] = result_document(delivery_id, delivery)
    elif status in ("pending", "running"):
        document["retry_after_seconds"] = 1
    if notes := diagnostics_of(delivery):
        document["diagnostics"] = notes
    return document

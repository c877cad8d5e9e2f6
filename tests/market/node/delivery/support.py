"""Nodes with deliveries and fakes of everything around them: peers, modules, orders, directory."""

# ruff: noqa: ARG002  # fakes have the signatures of ports

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from anabranch.market.documents import digest_of
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.deferred.part import FAMILIES as DEFERRED_FAMILIES
from anabranch.market.node.deferred.part import make as make_deferred
from anabranch.market.node.delivery.part import FAMILIES as DELIVERY_FAMILIES
from anabranch.market.node.delivery.part import make as make_delivery
from anabranch.market.node.entities import Family
from anabranch.market.node.errors import NodeError
from anabranch.market.node.node import MakePart
from anabranch.market.node.ports import (
    Acceptance,
    InboundMessage,
    MessageHandler,
    NodeContext,
)
from anabranch.testing.market import NodeSpec, World, WorldNode

SCHEMA = "note.v1"
CONTENT_TYPE = "application/json"
ACCEPTOR = "notes.acceptor"
#: Any component may send anything, and read references.
RULE = {
    "component/id": "*",
    "schema": "*",
    "artifact/ref-schemes": ["artifact", "module-artifact"],
    "route/refs": ["news"],
}

Accept = Callable[[Mapping[str, Any]], Acceptance]


class Module:
    """The acceptor of a module, over all lives of its node: it admits each artifact once."""

    def __init__(self, answers: Sequence[Acceptance | Exception | float] = ()) -> None:
        self.answers = list(answers)  # before it accepts; a number is seconds to wait
        self.invokes: list[Mapping[str, Any]] = []
        self.effects: list[tuple[str, str]] = []  # (admission, digest)
        self.files: dict[str, bytes] = {}
        self.slow: dict[str, float] = {}  # seconds by digest

    async def accept(self, invoke: Mapping[str, Any]) -> Acceptance:
        self.invokes.append(invoke)
        answer = self.answers.pop(0) if self.answers else None
        await asyncio.sleep(self.slow.get(invoke["artifact"]["digest"], 0))
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Acceptance):
            return answer
        if answer is not None:
            await asyncio.sleep(answer)
        effect = invoke["admission/id"], invoke["artifact"]["digest"]
        if effect in self.effects:
            return Acceptance(status="already-present", acceptor_id=ACCEPTOR)
        self.effects.append(effect)
        return Acceptance(status="accepted", acceptor_id=ACCEPTOR)


class Orders:
    """Orders of a node, over all its lives."""

    def __init__(self) -> None:
        self.said: list[tuple[str, ...]] = []
        self.prepare_error: NodeError | None = None
        self.verdict: Acceptance | None = None
        self.closed: dict[str, str] = {}  # digest by request

    def check_result(self, result: Mapping[str, Any], peer: str, digest: str) -> Acceptance | None:
        if self.verdict is not None:
            return self.verdict
        if result["provider/node-id"] != peer:
            return Acceptance(
                status="rejected", acceptor_id="orders", reason="source-peer-mismatch"
            )
        before = self.closed.get(result["request_id"])
        if before is None:
            return None
        if before == digest:
            return Acceptance(status="already-present", acceptor_id="orders")
        return Acceptance(status="rejected", acceptor_id="orders", reason="result-conflict")

    async def result_accepted(self, result: Mapping[str, Any], _peer: str, digest: str) -> None:
        self.said.append(("result", result["request_id"]))
        self.closed.setdefault(result["request_id"], digest)

    async def dispatch_prepared(
        self, order_id: str, delivery_id: str, _request: Mapping[str, Any]
    ) -> None:
        if self.prepare_error is not None:
            raise self.prepare_error
        self.said.append(("prepared", order_id, delivery_id))

    async def dispatched(self, order_id: str) -> None:
        self.said.append(("dispatched", order_id))

    async def dispatch_failed(self, order_id: str, reason: str) -> None:
        self.said.append(("failed", order_id, reason))


class Outside:
    """What a test sets up around the nodes, and looks at afterwards; it outlives their lives."""

    def __init__(self) -> None:
        self.modules: dict[str, dict[str, Module]] = {}  # by node, then by schema
        self.orders: dict[str, Orders] = {}
        self.participants: dict[str, list[str]] = {}
        self.trusted: set[str] = set()
        self.offers: dict[str, dict[str, Any]] | None = None  # None: no part has them

    def orders_of(self, node: str) -> Orders:
        return self.orders.setdefault(node, Orders())


class Fakes:
    """A part that stands for all the others."""

    def __init__(self, context: NodeContext, outside: Outside) -> None:
        self._context = context
        self._outside = outside
        self._name = context.config.name
        self._handlers: dict[str, MessageHandler] = {}
        context.peers = self  # type: ignore[assignment]
        context.modules = self  # type: ignore[assignment]
        context.directory = self  # type: ignore[assignment]
        context.orders = outside.orders_of(self._name)
        if outside.offers is not None:
            context.offers = self  # type: ignore[assignment]

    # peers
    def on(self, msg: str, handler: MessageHandler) -> None:
        self._handlers[msg] = handler

    async def establish(self, node_id: str, seconds: float) -> str:
        return node_id

    async def request(
        self, node_id: str, msg: str, payload: Any, *, correlation_id: str, seconds: float
    ) -> Any:
        body = {"from": self._context.signer.node_id, "msg": msg, "payload": payload}
        data = msgspec.json.encode(body)
        answer = msgspec.json.decode(await self._context.transport.send(node_id, "", data, seconds))
        if "error" in answer:
            raise NodeError(502, answer["error"], "the peer refuses")
        return answer["answer"]

    # modules
    def acceptor_for(self, schema: str, content_type: str) -> str:
        return ACCEPTOR if schema in self._outside.modules.get(self._name, {}) else ""

    async def accept(self, acceptor_id: str, invoke: Mapping[str, Any]) -> Acceptance:
        return await self._outside.modules[self._name][invoke["artifact"]["schema"]].accept(invoke)

    async def read_artifact(self, module_id: str, path: str) -> bytes:
        for module in self._outside.modules.get(self._name, {}).values():
            if path in module.files:
                return module.files[path]
        raise NodeError(404, "not_found", f"{module_id} has written no {path}")

    # offers
    def offer(self, offer_id: str) -> Mapping[str, Any] | None:
        return (self._outside.offers or {}).get(offer_id)

    def terms(self, offer_id: str, number: int) -> Mapping[str, Any] | None:
        """Number 0 was replaced long ago."""
        return None if number == 0 else self.offer(offer_id)

    # directory
    def is_trusted(self, node_id: str) -> bool:
        return node_id in self._outside.trusted

    def nodes_of(self, participant_id: str) -> list[str]:
        return self._outside.participants.get(participant_id, [])

    # a part
    def endpoints(self) -> Sequence[Endpoint]:
        rows = (
            ("/peer/messages", self._receive),
            ("/v1/host/capabilities/{capability}", self._capability),
        )
        return [
            Endpoint(
                method="POST",
                path=path,
                scopes=("open", "module"),
                handler=one,
                summary="",
                query=("mode",),
            )
            for path, one in rows
        ]

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def wake(self, family: Family[Any], thing: str) -> None: ...

    async def _receive(self, call: Call) -> Answer:
        handler = self._handlers.get(call.body["msg"])
        if handler is None:
            return Answer(body={"error": "message_unknown"})
        message = InboundMessage(
            msg=call.body["msg"],
            payload=call.body["payload"],
            correlation_id="",
            remote_node_id=call.body["from"],
        )
        try:
            return Answer(body={"answer": await handler(message)})
        except NodeError as error:
            return Answer(body={"error": error.code})

    async def _capability(self, call: Call) -> Answer:
        handler = self._context.capabilities.handler(call.params["capability"])
        assert handler is not None
        return await handler(call.body, call.caller, call.query)


def delivery_world(
    *nodes: str, outside: Outside | None = None, config: Mapping[str, Any] | None = None,
    configs: Mapping[str, Mapping[str, Any]] | None = None,
) -> World:  # fmt: skip
    """Nodes that may send everything and take notes into the host's own store."""
    around = outside or Outside()
    section = {
        "outbound": [RULE],
        "acceptors": [{"acceptor_id": "host.notes", "artifact_schema": SCHEMA}],
        **(config or {}),
    }
    specs = [
        NodeSpec(name=name, config={"delivery": {**section, **(configs or {}).get(name, {})}})
        for name in nodes
    ]

    def makers() -> Sequence[MakePart]:
        return [
            (lambda context: Fakes(context, around), ()),
            (make_deferred, DEFERRED_FAMILIES),
            (make_delivery, DELIVERY_FAMILIES),
        ]

    return World(specs, makers=makers)


# -- envelopes -------------------------------------------------------------------------------


def artifact(value: Any = "hello", schema: Any = SCHEMA, **changes: Any) -> dict[str, Any]:
    data = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
    document = {
        "schema": schema,
        "content/type": CONTENT_TYPE,
        "digest": digest_of(data),
        "size/bytes": len(data),
        "bytes/base64": b64encode(data).decode(),
        **changes,
    }
    return {name: one for name, one in document.items() if one is not None}


def to_node(node: WorldNode | str) -> dict[str, Any]:
    return {
        "selector/kind": "node",
        "node/id": node if isinstance(node, str) else node.node_id,
    }


def stage(name: str, *targets: Any, **more: Any) -> dict[str, Any]:
    return {
        "stage/id": name,
        "targets": [one if isinstance(one, dict) else to_node(one) for one in targets],
        **{key.replace("__", "/").replace("_", "-"): value for key, value in more.items()},
    }


def envelope(*stages: dict[str, Any], component: str = "arca", **changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "schema": "artifact-delivery-envelope.v1",
        "component/id": component,
        "artifact": artifact(),
        "delivery/plan": {"stages": list(stages)},
        **{key.replace("__", "/"): value for key, value in changes.items()},
    }
    return {name: one for name, one in document.items() if one is not None}


SEND = "/v1/host/capabilities/artifact.delivery.send"


async def send(node: WorldNode, document: Any, *, as_: str = "arca", query: str = "") -> Any:
    """What the capability answers."""
    return await node.request("POST", f"{SEND}{query}", document, as_=as_)


async def delivery_of(node: WorldNode, delivery_id: str) -> dict[str, Any]:
    path = f"/v1/artifact-delivery/deliveries/{delivery_id}"
    status, body = await node.request("GET", path)
    assert status == 200
    assert isinstance(body, dict)
    return body


async def admissions_of(node: WorldNode) -> list[dict[str, Any]]:
    _, body = await node.request("GET", "/v1/artifact-delivery/admissions?limit=500")
    items = body["items"]
    assert isinstance(items, list)
    return items


# -- orders ----------------------------------------------------------------------------------

DISPATCH, RESULT = "service-order.dispatch.request.v1", "service-order.result.v1"


def order(buyer: WorldNode, provider: WorldNode, **changes: Any) -> dict[str, Any]:
    document = {
        "schema/v": 1,
        "order/id": "order:r1-s1-a1",
        "created-at": "2026-06-10T07:59:00Z",
        "buyer/node-id": buyer.node_id,
        "buyer/subject-kind": "participant",
        "buyer/subject-id": buyer.participant_id,
        "provider/node-id": provider.node_id,
        "provider/participant-id": provider.participant_id,
        "offer/id": "offer:1",
        "offer/seq": 1,
        "service/type": "text/summarise",
        "request/units": 1,
        "request/input": {"text": "…"},
        "pricing/max-amount": 100,
        "pricing/currency": "ORC",
        **changes,
    }
    return buyer.signer.sign_as_participant(document)


def dispatch_request(buyer: WorldNode, provider: WorldNode, **changes: Any) -> dict[str, Any]:
    """A request of another id is one for the work of another order."""
    named = changes.get("request_id", "r1-s1-a1")
    return {
        "schema": DISPATCH,
        "request_id": "remote-execution:r1:s1:a1",
        "order": order(buyer, provider, **{"order/id": f"order:{named}"}),
        "dispatch_payload": {},
        "service_type": "text/summarise",
        "request/input": {"text": "…"},
        "workflow/run-id": "run:1",
        "workflow/phase-id": "s1",
        "correlation/id": "run:1",
        "reply/target": {"selector/kind": "node", "node/id": buyer.node_id},
        "delivery_deadline": "2026-06-10T09:00:00Z",
        **{key.replace("__", "/"): value for key, value in changes.items()},
    }


def order_result(provider: WorldNode, output: Any = "done", **changes: Any) -> dict[str, Any]:
    return {
        "schema": RESULT,
        "request_id": "remote-execution:r1:s1:a1",
        "workflow/run-id": "run:1",
        "workflow/phase-id": "s1",
        "correlation/id": "run:1",
        "service_type": "text/summarise",
        "status": "completed",
        "output": output,
        "provider/node-id": provider.node_id,
        "provider/participant-id": provider.participant_id,
        "responded_at": "2026-06-10T08:00:00Z",
        **{key.replace("__", "/"): value for key, value in changes.items()},
    }


def carrying(document: dict[str, Any], target: WorldNode, **changes: Any) -> dict[str, Any]:
    """An envelope with this document for that node."""
    given = artifact(document, document["schema"])
    return envelope(stage("s", target), artifact=given, **changes)

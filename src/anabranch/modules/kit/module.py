"""What a module is: a table of endpoints with the routes that every host asks for.

A host posts `middleware-init`, then messages of peers, calls of local routes and artifacts. A
subclass answers those; the table also has what it serves besides. Who calls was checked by the
surface that serves the table.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import parse_qsl

import msgspec

from anabranch.market.node.api import Answer, Api, Call, Caller, Endpoint, Handler
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.chains import TRUSTED_HEADER
from anabranch.modules.kit.host import HostRefused, HostUnavailable

logger = logging.getLogger("anabranch.module")

INIT, INVOKE = "/v1/middleware/init", "/v1/middleware/invoke"
ACCEPT = "/v1/artifact-delivery/accept"
LOCAL_ROOT, OWN_ROOT = "/v1/enact/", "/v1/"


class PeerMessage(msgspec.Struct, frozen=True):
    """peer-message-invoke.v1"""

    msg: str
    payload: Any
    correlation_id: str
    remote_node_id: str
    chain_kind: str = "inbound-peer"
    remote_trusted: bool = False  # whether the host trusts that node


#: Decides about a message of a peer.
MessageHandler = Callable[[PeerMessage], Awaitable[dict[str, Any]]]

#: Decisions about a message of a peer: not mine, and taken without an answer.
ALLOW = {"decision": "allow", "reason": "not for this module"}
DROP = {"decision": "drop", "reason": "taken"}


def reply(payload: Any, reason: str = "answered") -> dict[str, Any]:
    """The decision that answers a message of a peer."""
    return {"decision": "return", "reason": reason, "patch": payload}


class ModulePart(Protocol):
    """One of the things a module does; it puts its parts together in its report and its table."""

    def endpoints(self) -> Sequence[Endpoint]: ...

    def local_routes(self) -> Sequence[str]:
        """What the host serves for it, such as `GET service-catalog` (its own `/v1/…`)."""

    def messages(self) -> Mapping[str, MessageHandler]:
        """The kinds of messages of peers that it decides about."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...


class Module:
    """Implements `InProcessModule`: `handle` is all that a host needs."""

    module_id = ""

    def __init__(self) -> None:
        self.node_id = ""  # said by the host with `middleware-init`
        self.api = Api(_passing_on(one) for one in (*self._contract(), *self.endpoints()))

    # -- what a subclass says ------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """The module report, without `schema_version` and `module_id`."""
        raise NotImplementedError

    def endpoints(self) -> Sequence[Endpoint]:
        """What it serves besides, under paths of its own. Scope `operator` is its caller."""
        return ()

    async def start(self) -> None:
        """Begin to work; called once, before the first request."""

    async def close(self) -> None:
        """End in order."""

    async def ready(self) -> bool:
        return True

    async def initialised(self, init: Mapping[str, Any]) -> None:
        """The host has said who it is; also after every restart of the host."""

    async def peer_message(self, message: PeerMessage) -> dict[str, Any]:  # noqa: ARG002 - a default
        """The decision about a message."""
        return ALLOW

    async def accept(self, invoke: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - a default
        """`status` and `reason` for an artifact: accepted, already-present, rejected, retryable."""
        return {"status": "rejected", "reason": "kind-not-supported"}

    # -- the contract --------------------------------------------------------------------------

    async def handle(
        self, method: str, path: str, headers: Mapping[str, str], body: Any
    ) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        call = Call(
            method=method,
            path=path,
            caller=Caller("operator", actor="host"),
            query=_pairs(query),
            headers=headers,
            body=body,
        )
        answer = await self.api.handle(call)
        return answer.status, answer.body

    def _contract(self) -> list[Endpoint]:
        return [
            _row("GET", "/healthz", self._health, "Whether the module runs"),
            _row("GET", "/readyz", self._ready, "Whether the module can be asked"),
            _row("POST", INIT, self._init, "Who the host is; the report of this module"),
            _row("POST", INVOKE, self._invoke, "A message of a peer, or a call of a local route"),
            _row("POST", ACCEPT, self._accept, "An artifact that was delivered to this node"),
        ]

    async def _health(self, _call: Call) -> Answer:
        return Answer(body={"status": "ok", "module_id": self.module_id})

    async def _ready(self, _call: Call) -> Answer:
        if await self.ready():
            return Answer(body={"status": "ready"})
        return Answer(status=503, body={"status": "starting"}, headers={"Retry-After": "1"})

    async def _init(self, call: Call) -> Answer:
        said = call.body if isinstance(call.body, Mapping) else {}
        self.node_id = str(said.get("node_id") or "")
        self.module_id = str(said.get("module_id") or self.module_id)
        await self.initialised(said)
        report = {"schema_version": "v1", "module_id": self.module_id, **self.report()}
        return Answer(body=report)

    async def _invoke(self, call: Call) -> Answer:
        body = call.body if isinstance(call.body, Mapping) else {}
        if body.get("envelope_kind") == "local-input":
            return Answer(body=await self._local_route(body))
        try:
            message = msgspec.convert(body, PeerMessage)
        except msgspec.ValidationError as error:
            raise NodeError(400, "schema", f"the envelope: {error}") from None
        trusted = call.headers.get(TRUSTED_HEADER.lower()) == "true"
        message = msgspec.structs.replace(message, remote_trusted=trusted)
        return Answer(body=await self.peer_message(message))

    async def _local_route(self, envelope: Mapping[str, Any]) -> dict[str, Any]:
        """`/v1/enact/x` of the host is `/v1/x` of this module."""
        path = OWN_ROOT + str(envelope.get("path", "")).removeprefix(LOCAL_ROOT)
        call = Call(
            method=str(envelope.get("method", "")),
            path=path,
            caller=_caller(envelope.get("caller")),
            query=dict(envelope.get("query") or {}),
            body=envelope.get("body"),
        )
        answer = await self.api.handle(call)
        patch = {"status": answer.status, "headers": dict(answer.headers), "body": answer.body}
        return {"decision": "return", "reason": "answered", "patch": patch}

    async def _accept(self, call: Call) -> Answer:
        body = call.body if isinstance(call.body, Mapping) else {}
        said = await self.accept(body)
        return Answer(body={"acceptor/id": str(body.get("acceptor/id", "")), **said})


def _caller(said: Any) -> Caller:
    """Who called the local route: `module` of it is empty for the operator."""
    known = said if isinstance(said, Mapping) else {}
    module = str(known.get("module_id") or "")
    return Caller("operator", module=module, actor=module or str(known.get("scope") or "operator"))


def _passing_on(endpoint: Endpoint) -> Endpoint:
    """What the host refuses is refused here for the same reason, and so is what must wait."""
    handler: Handler = endpoint.handler

    async def handle(call: Call) -> Answer:
        try:
            return await handler(call)
        except HostUnavailable as error:
            raise NodeError(503, error.code, error.message, headers={"Retry-After": "1"}) from None
        except HostRefused as error:
            status = error.status if 400 <= error.status < 500 else 502
            raise NodeError(status, error.code, error.message) from None

    return msgspec.structs.replace(endpoint, handler=handle)


def _row(method: str, path: str, handler: Any, summary: str) -> Endpoint:
    return Endpoint(
        method=method, path=path, scopes=("operator", "open"), handler=handler, summary=summary
    )


def _pairs(query: str) -> dict[str, str]:
    return dict(reversed(parse_qsl(query, keep_blank_values=True)))

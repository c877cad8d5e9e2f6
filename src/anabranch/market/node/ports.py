"""What the parts of a node ask of each other and of the world.

A part keeps its state in `NodeContext.entities`, is opened after the state was loaded, and takes up
what is open. Parts find each other in the context by these ports, never by their classes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from anabranch.clock import Clock
from anabranch.errors import AnabranchError
from anabranch.market.node.api import Answer, Api, Caller, Endpoint
from anabranch.market.node.entities import Change, Entities, Family


class PeerUnreachable(AnabranchError):
    """The peer did not answer in time, or nothing is known of where it is."""

    code = "peer_unreachable"


class PeerTransport(Protocol):
    """Carries signed envelopes to other nodes: over loopback HTTP, or in memory."""

    async def send(
        self, node_id: str, url: str, envelope: bytes, seconds: float, *, most: int | None = None
    ) -> bytes:
        """The answer of the node at this address: an envelope, or the body of a refusal, of at most
        so many bytes. Raises `PeerUnreachable`."""

    async def call(self, method: str, url: str, body: bytes, seconds: float) -> tuple[int, bytes]:
        """Status and body of what a seed directory answers. Raises `PeerUnreachable`."""

    async def close(self) -> None: ...


class Signer(Protocol):
    """The keys of this node. Nothing else of the node signs."""

    node_id: str
    participant_id: str
    org_id: str  # "" where there is none; its custodian is the participant

    def sign_as_node(self, document: dict[str, Any]) -> dict[str, Any]: ...

    def sign_as_participant(
        self, document: dict[str, Any], without: tuple[str, ...] = ()
    ) -> dict[str, Any]: ...


class InboundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a peer. `remote_node_id` is who signed the envelope."""

    msg: str
    payload: Any
    correlation_id: str
    remote_node_id: str
    broadcast: bool = False  # sent to every node with a capability
    size: int = 0  # bytes of the payload as it came; 0 where that is not known


#: Answers a message of a peer, or None where there is nothing to say.
MessageHandler = Callable[[InboundMessage], Awaitable[Any]]


class Peers(Protocol):
    """Messages to and from other nodes."""

    async def establish(self, node_id: str, seconds: float) -> str:
        """The id of a session with that node. Raises `PeerUnreachable`."""

    async def request(
        self, node_id: str, msg: str, payload: Any, *, correlation_id: str, seconds: float
    ) -> Any:
        """What the peer answers to this message; None where it has nothing to say. Raises
        `PeerUnreachable` where it did not take the message, with `NodeError` what it answered in
        place of a reply."""

    def on(self, msg: str, handler: MessageHandler) -> None:
        """Messages of this kind are for the host; the others are for the chains of modules."""

    def messages(self) -> Sequence[str]:
        """The kinds of messages that the host itself answers."""


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """What an acceptor answered: accepted, already-present, rejected or retryable."""

    status: str
    acceptor_id: str
    reason: str = ""
    artifact_ref: str = ""


class MessageOutcome(Protocol):
    """What the chains of modules made of a message: `returned`, `dropped`, or `passed` by all."""

    @property
    def kind(self) -> str: ...

    @property
    def payload(self) -> Any:
        """Of what was returned."""


class Modules(Protocol):
    """The modules that this node hosts."""

    async def call_capability(self, capability_id: str, body: Any, caller: str) -> Any:
        """Ask the module that handles a host capability; raises `NodeError` with its class."""

    async def peer_message(self, message: InboundMessage) -> Any:
        """Give a message of a peer to the chains; what a module returns is the answer."""

    async def message(
        self, way: Literal["peer", "broadcast", "send"], message: InboundMessage
    ) -> MessageOutcome:
        """The same, also for broadcasts and for what is about to be sent, with whether a module
        took it."""

    def acceptor_for(self, schema: str, content_type: str) -> str:
        """The id of the acceptor that modules offer for such artifacts; "" if there is none."""

    async def accept(self, acceptor_id: str, invoke: Mapping[str, Any]) -> Acceptance: ...

    async def read_artifact(self, module_id: str, path: str) -> bytes:
        """What the module has written there, below its output root. Raises `NodeError`."""

    def is_granted(self, module_id: str, capability_id: str) -> bool:
        """Whether the operator lets this module use that; for endpoints outside the bridge."""


class Directory(Protocol):
    """Which nodes there are; read from the cache alone, but for `locate`."""

    def endpoint(self, node_id: str) -> str:
        """The URL of a node; "" where it is not known."""

    async def locate(self, node_id: str) -> str:
        """The URL of a node; seeds are asked where the cache does not know it. "" for none."""

    def nodes_of(self, participant_id: str) -> list[str]: ...

    def is_trusted(self, node_id: str) -> bool:
        """Whether the operator has named the node, or an issuer that vouches for it."""

    def holders(self, capability_id: str) -> list[Mapping[str, Any]]:
        """Rows with valid passports for a capability, in a fixed order."""


class Offers(Protocol):
    """Offers that this node knows: its own, and those it observed at others."""

    def offer(self, offer_id: str) -> Mapping[str, Any] | None:
        """The newest admitted offer if it is local or of somebody trusted; expired and withdrawn
        ones too: the caller looks."""

    def terms(self, offer_id: str, number: int) -> Mapping[str, Any] | None:
        """What an offer of this node said under a number that orders may still name: at least its
        service and its price. Of a number that comes yet, what the offer says now."""

    def local(self, *, active_only: bool = True) -> list[Mapping[str, Any]]: ...


class OfferCatalog(Protocol):
    """Where the answers of other nodes are looked at for offers."""

    async def observe(self, payload: Any, node_id: str) -> Mapping[str, int]:
        """Admit the offers in what this node said: relays, or an offer that it provides itself.
        How many were stored, stale or rejected; never raises for what is in there."""


class Deferred(Protocol):
    """Operations whose outcome a caller learns later. Its owner opens one in the block that takes
    the work on, and ends it in the block that ends the work."""

    def start(
        self,
        change: Change,
        *,
        kind: str,
        key: str,
        owner: str,
        status_href: str = "",
        retry_seconds: float | None = None,
        ttl_seconds: Sequence[float | None] = (),
        cancel_unavailable: str = "",
        correlation_id: str = "",
        audit_ref: str = "",
    ) -> str:
        """The id of the operation; the same for the same kind and key."""

    def run(self, change: Change, operation_id: str) -> None:
        """The work has begun."""

    def end(
        self,
        change: Change,
        operation_id: str,
        status: str,
        *,
        result: Any = None,
        diagnostics: Sequence[str] = (),
    ) -> bool:
        """Whether this ended it; one that has ended stays as it is."""

    def document(self, operation_id: str) -> Mapping[str, Any]:
        """The `deferred-operation.v1`. Raises `NodeError`."""

    def status(self, operation_id: str) -> Mapping[str, Any]:
        """The `deferred-operation-status.v1`. Raises `NodeError`."""

    def own(self, kind: str, cancel: Callable[[str], Awaitable[None]] | None = None) -> None:
        """Operations of this kind have an owner on this node, who is told the key of those that
        were cancelled. Called before the node is opened; what has no owner ends as unknown."""


class Delivery(Protocol):
    """Artifacts to other nodes."""

    async def send(self, component_id: str, envelope: Any) -> Mapping[str, Any]:
        """Deliver, and return the `artifact-delivery-result.v1`."""

    async def send_deferred(self, component_id: str, envelope: Any) -> Mapping[str, Any]:
        """Take it on, and return the `deferred-operation.v1`."""


class Orders(Protocol):
    """Orders that this node has placed, and what became of them."""

    def check_result(
        self, result: Mapping[str, Any], source_peer: str, digest: str
    ) -> Acceptance | None:
        """Before any acceptor sees a result: None where it may be offered to one. One that is
        `already-present` or `rejected` is for no acceptor. `source_peer` is who signed. That it is
        a `service-order.result.v1` was checked where it was read."""

    async def result_accepted(
        self, result: Mapping[str, Any], source_peer: str, digest: str
    ) -> None:
        """Close the execution with an admitted result, once. Also with one that an acceptor refused
        as `step-already-closed`: the work was done in time, so the money must not be stuck."""

    async def dispatch_prepared(
        self, order_id: str, delivery_id: str, request: Mapping[str, Any]
    ) -> None:
        """Before a `service-order.dispatch.request.v1` leaves. Raises `NodeError` where it is not
        for an open order of this node; then it must not leave. The same request again is fine."""

    async def dispatched(self, order_id: str) -> None:
        """The request has reached the provider."""

    async def dispatch_failed(self, order_id: str, reason: str) -> None:
        """The request will not reach the provider. What was dispatched stays so."""


#: Carries out a host capability: (body, who asks, query) → what is answered.
CapabilityHandler = Callable[[Any, Caller, Mapping[str, str]], Awaitable[Answer]]


class Capabilities:
    """What the host does for modules, by name: `POST /v1/host/capabilities/{name}`. The bridge has
    looked at the grants of the module before it calls a handler."""

    def __init__(self) -> None:
        self._handlers: dict[str, CapabilityHandler] = {}

    def register(self, name: str, handler: CapabilityHandler) -> None:
        if name in self._handlers:
            raise ValueError(f"the host capability {name} has a handler already")
        self._handlers[name] = handler

    def handler(self, name: str) -> CapabilityHandler | None:
        return self._handlers.get(name)

    def names(self) -> list[str]:
        return sorted(self._handlers)


class Tokens(Protocol):
    """The secrets of those who call this node."""

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """Who sent these headers (names in lower case); a token that is none is a 401."""


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a node is set up; the file of `node init` has these fields, see docs/node.md."""

    name: str = "node"
    url: str = ""  # where peers reach it: http://127.0.0.1:PORT
    data_dir: str = ""
    seeds: tuple[str, ...] = ()  # URLs of seed directories; empty: the embedded one alone
    raw: Mapping[str, Any] = {}  # sections of the parts, read by them


class NodeContext:
    """What every part finds. The parts are set when the node is put together."""

    peers: Peers
    modules: Modules
    directory: Directory
    offers: Offers
    catalog: OfferCatalog
    deferred: Deferred
    delivery: Delivery
    orders: Orders
    tokens: Tokens
    api: Api  # the table that all parts together offer

    def __init__(
        self,
        *,
        entities: Entities,
        clock: Clock,
        signer: Signer,
        config: NodeConfig,
        transport: PeerTransport,
        random_bytes: Callable[[int], bytes],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self.entities = entities
        self.clock = clock
        self.signer = signer
        self.config = config
        self.transport = transport
        self.random_bytes = random_bytes
        self.capabilities = Capabilities()
        self.spawn = spawn  # a task of the node; what it raises is logged and is a defect


class Part(Protocol):
    """One of the things a node does."""

    def endpoints(self) -> Sequence[Endpoint]: ...

    async def open(self) -> None:
        """Go on with what is open."""

    async def close(self) -> None: ...

    async def wake(self, family: Family[Any], thing: str) -> None:
        """The instant of an open thing has come; called for families of this part."""

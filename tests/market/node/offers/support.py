"""A node with offers and nothing else: keys from seeds, a directory in a dictionary, peers that are
asked without a network, a clock that stands until it is moved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import count
from typing import Any

import msgspec

from anabranch.clock import ManualClock
from anabranch.market.documents import sign
from anabranch.market.identities import SigningKey
from anabranch.market.node.api import OPERATOR, Answer, Api, Call, Caller
from anabranch.market.node.entities import Entities
from anabranch.market.node.offers import laws, part
from anabranch.market.node.offers.records import OBSERVED
from anabranch.market.node.ports import (
    InboundMessage,
    MessageHandler,
    NodeConfig,
    NodeContext,
    PeerUnreachable,
)
from anabranch.runtime.writer import Writer
from anabranch.store.memory.store import MemoryStore
from anabranch.work.participants.performers import rfc3339 as rfc3339

START = 1_781_078_400_000  # 2026-06-10T08:00:00Z
HOUR, DAY = 3_600_000, 86_400_000
DATOR = Caller("module", module="dator", actor="dator")
ARCA = Caller("module", module="arca", actor="arca")


class Keys:
    """The signer of a node whose keys are made of one number."""

    def __init__(self, number: int) -> None:
        self.node = SigningKey.from_seed(bytes([number]) * 32)
        self.participant = SigningKey.from_seed(bytes([number, 101]) * 16)
        self.node_id = self.node.identity("node")
        self.participant_id = self.participant.identity("participant")
        self.org_id = ""

    def sign_as_node(self, document: dict[str, Any]) -> dict[str, Any]:
        return self.node.sign(document)

    def sign_as_participant(
        self, document: dict[str, Any], without: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        return self.participant.sign(document, without)


#: This node, two that it knows, and one that it does not.
ME, PEER, OTHER, STRANGER = Keys(1), Keys(2), Keys(3), Keys(4)


def unsigned(keys: Keys = PEER, /, **changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "schema/v": 1,
        "offer/id": "offer:summaries",
        "created-at": rfc3339(START - DAY),
        "published-at": rfc3339(START - DAY),
        "expires-at": rfc3339(START + 30 * DAY),
        "sequence/no": 3,
        "provider/node-id": keys.node_id,
        "provider/participant-id": keys.participant_id,
        "service/type": "text/summarise",
        "service/description": "a summary",
        "pricing/amount": 100,
        "pricing/currency": "ORC",
        "pricing/unit": "text",
        "pricing/unit-kind": "per-item",
        "delivery/max-duration-sec": 3600,
        "queue/auto-accept": True,
        "queue/max-depth": 10,
        "hybrid": False,
        **changes,
    }
    return {key: value for key, value in document.items() if value is not None}


def offer(keys: Keys = PEER, /, **changes: Any) -> dict[str, Any]:
    return sign("service-offer.v1", unsigned(keys, **changes), keys.participant)


@lru_cache(maxsize=4096)
def numbered(keys: Keys, offer_id: str, sequence: int, status: str = "active") -> dict[str, Any]:
    """Signed once: random tests ask for the same ones again and again."""
    named = {"offer/id": offer_id, "sequence/no": sequence, "offer/status": status}
    return offer(keys, **named)


def relay(
    given: Mapping[str, Any] | None = None,
    origin: Keys = PEER,
    hops: int = 0,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    document = {
        "schema/v": 1,
        "relay/id": "offer-relay:r1",
        "relay/origin-node-id": origin.node_id,
        "relay/hops": hops,
        "relay/relayed-at": rfc3339(START),
        "offer": dict(given) if given is not None else offer(),
        **(more or {}),
    }
    return {key: value for key, value in document.items() if value is not None}


class Directory:
    def __init__(self) -> None:
        self.known = {PEER.node_id: "http://peer", OTHER.node_id: "http://other"}

    def is_trusted(self, node_id: str) -> bool:
        return node_id in self.known


class Outcome(msgspec.Struct, frozen=True):
    kind: str
    payload: Any = None


class Modules:
    """`dator` may publish; what the chains say to a message is set by tests."""

    def __init__(self) -> None:
        self.outcome = Outcome("passed")
        self.heard: list[InboundMessage] = []

    def is_granted(self, module_id: str, capability_id: str) -> bool:
        return module_id == "dator" and capability_id in (part.PUBLISH, part.FETCH)

    async def message(self, way: str, message: InboundMessage) -> Outcome:
        assert way == "peer"
        self.heard.append(message)
        return self.outcome


class Peers:
    """Messages come in by `Desk.message`; those that leave are answered by `reply`."""

    def __init__(self) -> None:
        self.handlers: dict[str, MessageHandler] = {}
        self.sent: list[tuple[str, str, Any]] = []
        self.reply: Callable[[str, str, Any], Any] = self._unreachable

    def on(self, msg: str, handler: MessageHandler) -> None:
        self.handlers[msg] = handler

    async def request(
        self, node_id: str, msg: str, payload: Any, *, correlation_id: str, seconds: float
    ) -> Any:
        assert correlation_id
        assert seconds > 0
        self.sent.append((node_id, msg, payload))
        return self.reply(node_id, msg, payload)

    def _unreachable(self, node_id: str, _msg: str, _payload: Any) -> Any:
        raise PeerUnreachable(f"{node_id} did not answer")


class Desk:
    """The node. `again` is what a restart leaves of it: what the store has."""

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        store: MemoryStore | None = None,
        clock: ManualClock | None = None,
        directory: Directory | None = None,
    ) -> None:
        self.store = store or MemoryStore()
        self.clock = clock or ManualClock(START)
        self.directory = directory or Directory()
        self.modules, self.peers = Modules(), Peers()
        self._config = config
        numbers = count(1)
        writer = Writer(self.store, seconds=lambda: 0.0)
        self.entities = Entities(self.store, self.clock, writer, part.FAMILIES)
        self.context = NodeContext(
            entities=self.entities,
            clock=self.clock,
            signer=ME,
            config=NodeConfig(raw={"offers": config or {}}),
            transport=None,  # type: ignore[arg-type]
            random_bytes=lambda size: next(numbers).to_bytes(size, "big"),
            spawn=lambda _work: None,
        )
        self.context.directory = self.directory  # type: ignore[assignment]
        self.context.modules = self.modules  # type: ignore[assignment]
        self.context.peers = self.peers  # type: ignore[assignment]
        self.part = part.make(self.context)
        self.api = Api(self.part.endpoints())
        self.entities.load()
        asyncio.run(self.part.open())

    def again(self) -> Desk:
        return Desk(self._config, store=self.store, clock=self.clock, directory=self.directory)

    def ask(
        self, method: str, path: str, body: Any = None, caller: Caller = OPERATOR
    ) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        pairs = dict(one.split("=", 1) for one in query.split("&")) if query else {}
        call = Call(method=method, path=path, body=body, query=pairs, caller=caller)
        answer: Answer = asyncio.run(self.api.handle(call))
        assert method == "GET" or self.broken() == []
        return answer.status, msgspec.json.decode(msgspec.json.encode(answer.body))

    def message(self, msg: str, payload: Any, source: Keys = PEER) -> Any:
        message = InboundMessage(
            msg=msg, payload=payload, correlation_id="c1", remote_node_id=source.node_id
        )
        answer = asyncio.run(self._handled(message))
        assert self.broken() == []
        return answer

    async def _handled(self, message: InboundMessage) -> Any:
        return await self.peers.handlers[message.msg](message)

    def admit(self, given: Any, source: Keys = PEER) -> tuple[str, str]:
        """Outcome and reason of one relay."""
        (verdict,) = asyncio.run(self.part.messages.admit([given], source.node_id))
        assert self.broken() == []
        return verdict.outcome, verdict.reason

    def capability(self, name: str, body: Any, caller: Caller = ARCA) -> tuple[int, Any]:
        handler = self.context.capabilities.handler(name)
        assert handler is not None

        async def called() -> Answer:
            return await handler(body, caller, {})

        answer = asyncio.run(called())
        return answer.status, msgspec.json.decode(msgspec.json.encode(answer.body))

    def pass_time(self, milliseconds: int) -> None:
        """And wake what is due, as the node does."""
        self.clock.advance_to(self.clock.now() + milliseconds)
        self.wake()

    def wake(self) -> None:
        async def work() -> None:
            for family, thing in self.entities.due(self.clock.now()):
                await self.part.wake(family, thing)

        asyncio.run(work())
        assert self.broken() == []

    def broken(self) -> list[str]:
        return laws.broken(self.entities, self.part.config, ME.node_id)

    def trust_of(self, offer_id: str = "offer:summaries") -> str:
        """As it is kept: also of what is not seen; "" for what is not kept."""
        found = self.entities.get(OBSERVED, offer_id)
        return found.trust if found is not None and not found.dropped else ""

    def seen(self) -> list[str]:
        status, body = self.ask("GET", "/v1/service-offers?source=observed&active_only=false")
        assert status == 200
        return [one["offer/id"] for one in body["offers"]]

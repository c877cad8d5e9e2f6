"""A node with orders and a ledger and nothing else.

Keys are made from seeds, offers are in a dictionary, the clock stands until it is moved, and the
store dies when it is told to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.clock import ManualClock
from anabranch.errors import StoreError
from anabranch.market.documents import digest_of, sign
from anabranch.market.identities import SigningKey, canonical
from anabranch.market.node.api import Answer, Api, Call, Caller
from anabranch.market.node.entities import Entities, Family
from anabranch.market.node.ledger import laws as ledger_laws
from anabranch.market.node.ledger import part as ledger_part
from anabranch.market.node.orders import laws as orders_laws
from anabranch.market.node.orders import part as orders_part
from anabranch.market.node.ports import NodeConfig, NodeContext
from anabranch.runtime.writer import Writer
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch
from anabranch.work.participants.performers import rfc3339

START = 1_781_078_400_000  # 2026-06-10T08:00:00Z
DAY = 86_400_000
FAMILIES: tuple[Family[Any], ...] = (*ledger_part.FAMILIES, *orders_part.FAMILIES)

OPERATOR = Caller("operator", actor="operator")
ARCA = Caller("module", module="arca", actor="arca")


class Keys:
    """The signer of a node whose keys are made of one number."""

    def __init__(self, number: int, *, org: bool = True) -> None:
        self.node = SigningKey.from_seed(bytes([number]) * 32)
        self.participant = SigningKey.from_seed(bytes([number, 101]) * 16)
        self.org = SigningKey.from_seed(bytes([number, 102]) * 16)
        self.node_id = self.node.identity("node")
        self.participant_id = self.participant.identity("participant")
        self.org_id = self.org.identity("org") if org else ""
        self.broken = False

    def sign_as_node(self, document: dict[str, Any]) -> dict[str, Any]:
        return self.node.sign(document)

    def sign_as_participant(
        self, document: dict[str, Any], without: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        if self.broken:
            raise StoreError("the key cannot be read")
        return self.participant.sign(document, without)


Changes = Mapping[str, Any]
NONE: Changes = {}

BUYER, PROVIDER, STRANGER = Keys(1), Keys(2), Keys(3)


def offer(changes: Changes = NONE, *, keys: Keys = PROVIDER) -> dict[str, Any]:
    """An offer for 100 ORC an item; `None` leaves a field out."""
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
        "confirmation/mode": "self-confirmed",
        **changes,
    }
    kept = {key: value for key, value in document.items() if value is not None}
    return sign("service-offer.v1", kept, keys.participant)


def draft(changes: Changes = NONE, *, order_id: str = "order:r1-s1-a1") -> dict[str, Any]:
    """An order of `offer()` as a module posts it."""
    document: dict[str, Any] = {
        "schema/v": 1,
        "order/id": order_id,
        "created-at": rfc3339(START),
        "provider/node-id": PROVIDER.node_id,
        "provider/participant-id": PROVIDER.participant_id,
        "offer/id": "offer:summaries",
        "offer/seq": 3,
        "service/type": "text/summarise",
        "request/units": 2,
        "request/input": {"text": "long"},
        "pricing/max-amount": 500,
        "pricing/currency": "ORC",
        "workflow/run-id": "run:r1",
        "workflow/phase-id": "s1",
        **changes,
    }
    return {key: value for key, value in document.items() if value is not None}


def request(order: Mapping[str, Any], changes: Changes = NONE) -> dict[str, Any]:
    """The request that carries an order to its provider."""
    name = order["order/id"].removeprefix("order:")
    return {
        "schema": "service-order.dispatch.request.v1",
        "request_id": f"remote-execution:{name}",
        "order": dict(order),
        "dispatch_payload": {},
        "service_type": order["service/type"],
        "request/input": order["request/input"],
        "workflow/run-id": order["workflow/run-id"],
        "workflow/phase-id": order["workflow/phase-id"],
        "correlation/id": order["workflow/run-id"],
        "reply/target": {"selector/kind": "node", "node/id": BUYER.node_id},
        "delivery_deadline": rfc3339(START + DAY),
        **changes,
    }


def result(
    changes: Changes = NONE, *, order_id: str = "order:r1-s1-a1", status: str = "completed"
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "schema": "service-order.result.v1",
        "request_id": f"remote-execution:{order_id.removeprefix('order:')}",
        "workflow/run-id": "run:r1",
        "workflow/phase-id": "s1",
        "correlation/id": "run:r1",
        "service_type": "text/summarise",
        "status": status,
        "provider/node-id": PROVIDER.node_id,
        "provider/participant-id": PROVIDER.participant_id,
        "responded_at": rfc3339(START),
    }
    if status == "completed":
        document["output"] = {"summary": "short"}
    else:
        document["error"] = {"code": "no_room", "message": "too many orders"}
    return {**document, **changes}


def digest(document: Any) -> str:
    return digest_of(canonical(document))


class MortalStore(MemoryStore):
    """Dies at the next commit: before it, so nothing is kept, or after it, so nobody is told."""

    def __init__(self) -> None:
        super().__init__()
        self.dies = ""
        self.commits = 0

    def commit(self, batch: Batch) -> None:
        dies, self.dies = self.dies, ""
        if dies == "before":
            raise StoreError("killed before the commit")
        super().commit(batch)
        self.commits += 1
        if dies == "after":
            raise StoreError("killed after the commit")


class Offers:
    def __init__(self, *known: Mapping[str, Any]) -> None:
        self.known = {one["offer/id"]: one for one in known}

    def offer(self, offer_id: str) -> Mapping[str, Any] | None:
        return self.known.get(offer_id)

    def terms(self, offer_id: str, number: int) -> Mapping[str, Any] | None:  # noqa: ARG002
        return self.offer(offer_id)

    def local(self, *, active_only: bool = True) -> list[Mapping[str, Any]]:  # noqa: ARG002
        return []


class Grants:
    """As much of the modules as orders ask for."""

    def is_granted(self, module_id: str, capability_id: str) -> bool:
        return (module_id, capability_id) == ("arca", orders_part.GRANT)


class Desk:
    """The node. `again` is what a restart leaves of it: what the store has."""

    def __init__(
        self,
        *offers: Mapping[str, Any],
        store: MemoryStore | None = None,
        clock: ManualClock | None = None,
        keys: Keys = BUYER,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.store = store or MortalStore()
        self.clock = clock or ManualClock(START)
        self.keys = keys
        self.config = config or {}
        self.offers = Offers(*(offers or (offer(),)))
        writer = Writer(self.store, seconds=lambda: 0.0)
        self.entities = Entities(self.store, self.clock, writer, FAMILIES)
        context = NodeContext(
            entities=self.entities,
            clock=self.clock,
            signer=keys,
            config=NodeConfig(raw={"orders": self.config}),
            transport=None,  # type: ignore[arg-type]
            random_bytes=bytes,
            spawn=lambda _work: None,
        )
        context.offers = self.offers
        context.modules = Grants()  # type: ignore[assignment]
        self.ledger = ledger_part.make(context)
        self.orders = orders_part.make(context)
        self.api = Api([*self.ledger.endpoints(), *self.orders.endpoints()])

    async def opened(self) -> Desk:
        self.entities.load()
        await self.orders.open()
        return self

    async def again(self) -> Desk:
        made = Desk(
            *self.offers.known.values(),
            store=self.store,
            clock=self.clock,
            keys=self.keys,
            config=self.config,
        )
        return await made.opened()

    async def call(
        self, method: str, path: str, body: Any = None, caller: Caller = OPERATOR
    ) -> Answer:
        path, _, query = path.partition("?")
        pairs = dict(each.split("=", 1) for each in query.split("&") if each)
        answer = await self.api.handle(
            Call(method=method, path=path, body=body, caller=caller, query=pairs)
        )
        json.dumps(answer.body)  # it is JSON
        return answer

    async def post(self, path: str, body: Any = None, caller: Caller = OPERATOR) -> Answer:
        return await self.call("POST", path, body, caller)

    async def get(self, path: str, caller: Caller = OPERATOR) -> Any:
        answer = await self.call("GET", path, caller=caller)
        assert answer.status == 200, answer.body
        return answer.body

    async def top_up(self, amount: int = 1000, **more: Any) -> Answer:
        return await self.post("/v1/ledger/top-up", {"amount": amount, **more})

    async def submit(self, document: Any = None, caller: Caller = ARCA) -> Answer:
        return await self.post("/v1/service-orders", document or draft(), caller)

    async def dispatch(self, order: Mapping[str, Any]) -> None:
        await self.orders.dispatch_prepared(order["order/id"], "delivery:1", request(order))
        await self.orders.dispatched(order["order/id"])

    async def deliver(self, document: Any, source: str = PROVIDER.node_id) -> str:
        """Hand a result in as deliveries do; what becomes of it."""
        met = self.orders.check_result(document, source, digest(document))
        if met is None:
            await self.orders.result_accepted(document, source, digest(document))
            return "accepted"
        await self.entities.durable()
        return f"{met.status} {met.reason}".strip()

    async def state(self, name: str = "r1-s1-a1") -> str:
        return str((await self.get(f"/v1/executions/execution:{name}"))["state"])

    async def balance(self, account: str = "") -> int:
        query = f"?account={account}" if account else ""
        return int((await self.get(f"/v1/ledger/account{query}"))["balance"])

    async def pass_time(self, to: int) -> None:
        """As the node's own loop does: everything that is due, in its order."""
        self.clock.advance_to(to)
        for family, thing in self.entities.due(to):
            await self.orders.wake(family, thing)

    async def broken_laws(self) -> list[str]:
        ledger = await ledger_laws.broken(self.entities)
        return [*ledger, *await orders_laws.broken(self.entities), *self.unequal_replays()]

    def unequal_replays(self) -> list[str]:
        """Streams whose card is not, byte by byte, what its events come to."""
        families = {family.name: family for family in FAMILIES}
        streams = self.store.node_streams
        assert streams is not None
        wrong = []
        for name in streams.stream_names(limit=100_000):
            card = streams.stream(name)
            assert card is not None
            family, state = families[card.family], None
            for row in streams.stream_events(name):
                for event in family.events_in(row.events):
                    state = family.evolve(state, event)
            if msgspec.json.encode(state, order="deterministic") != card.state:
                wrong.append(f"{name} is not the replay of its events")
        return wrong


async def ordered(*offers: Mapping[str, Any], money: int = 1000, changes: Changes = NONE) -> Desk:
    """A desk with an order that was opened and dispatched."""
    desk = await Desk(*offers).opened()
    if money:
        await desk.top_up(money)
    answer = await desk.submit(draft(changes))
    assert answer.status == 201, answer.body
    await desk.dispatch(answer.body["order"])
    return desk

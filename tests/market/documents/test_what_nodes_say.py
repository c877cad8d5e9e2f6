"""Every document that nodes make and hand out while an order is placed, done and paid for."""

from __future__ import annotations

from typing import Any

from anabranch.market import check
from anabranch.testing.market import World
from anabranch.testing.market.nodes import WorldNode
from in_loop import in_loop

OFFER: dict[str, Any] = {
    "offer/id": "offer:summaries",
    "service/type": "text/summarise",
    "service/description": "summaries",
    "pricing/amount": 250,
    "pricing/currency": "ORC",
    "pricing/unit": "text",
    "pricing/unit-kind": "per-item",
    "delivery/max-duration-sec": 600,
    "queue/auto-accept": True,
    "queue/max-depth": 4,
    "hybrid": False,
    "confirmation/mode": "self-confirmed",
    "expires-at": "2026-07-01T00:00:00Z",
}


class Checked:
    """What nodes answered, checked as it came; `kinds` are those that were seen."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.kinds: set[str] = set()

    def take(self, kind: str, document: Any) -> Any:
        at = self._world.clock.now()
        assert check(document, kind=kind, at=at) == []
        if kind != "seed-directory-row":
            assert check(document, at=at) == [], "and it says what it is"
        self.kinds.add(kind)
        return document

    async def ask(
        self, node: WorldNode, method: str, path: str, body: Any = None, kind: str = ""
    ) -> Any:
        status, answer = await node.request(method, path, body)
        assert status < 300, answer
        return self.take(kind, answer) if kind else answer


@in_loop
async def test_every_document_of_an_order_is_good() -> None:
    async with World(["buyer", "seller"]) as world:
        buyer, seller, checked = world["buyer"], world["seller"], Checked(world)
        await world.advance(5)
        await _offer(checked, buyer, seller)
        await _passport(checked, world, buyer, seller)
        await _order(checked, world, buyer, seller)
    assert checked.kinds == {
        "service-offer.v1",
        "trusted-provider.v1",
        "offer-catalog-query-response.v1",
        "capability-passport.v1",
        "capability-advertisement.v1",
        "seed-directory-row",
        "service-order.v1",
        "deferred-operation.v1",
        "deferred-operation-status.v1",
        "artifact-delivery-status.v1",
        "procurement-contract.v1",
        "procurement-receipt.v1",
        "ledger-hold.v1",
    }


async def _offer(checked: Checked, buyer: WorldNode, seller: WorldNode) -> None:
    published = await checked.ask(seller, "POST", "/v1/service-offers", OFFER)
    checked.take("service-offer.v1", published["offer"])
    trust = {"participant_id": seller.participant_id}
    await checked.ask(buyer, "POST", "/v1/trusted-providers", trust, "trusted-provider.v1")
    await checked.ask(buyer, "POST", "/v1/service-offers/fetch", {"node_id": seller.node_id})
    kind = "offer-catalog-query-response.v1"
    await checked.ask(buyer, "GET", "/v1/service-offers?source=observed", kind=kind)


async def _passport(checked: Checked, world: World, buyer: WorldNode, seller: WorldNode) -> None:
    wanted = {"node_id": seller.node_id, "capability_id": "offer-catalog"}
    issued = await checked.ask(seller, "POST", "/v1/passports", wanted)
    checked.take("capability-passport.v1", issued["passport"])
    await world.advance(5)
    said = await checked.ask(buyer, "GET", f"/adv/{seller.node_id}")
    checked.take("capability-advertisement.v1", said["advertisement"])
    rows = await checked.ask(buyer, "GET", "/cap?capability=offer-catalog")
    for row in rows["items"]:
        checked.take("seed-directory-row", row)


async def _order(checked: Checked, world: World, buyer: WorldNode, seller: WorldNode) -> None:
    await checked.ask(buyer, "POST", "/v1/ledger/top-up", {"amount": 10_000})
    wish = {"offer_id": OFFER["offer/id"], "input": {"text": "rivers"}}
    opened = await checked.ask(buyer, "POST", "/v1/orders", wish)
    checked.take("service-order.v1", opened["order"])
    checked.take("deferred-operation.v1", opened["delivery"])
    await world.advance(5)
    deliveries = await checked.ask(buyer, "GET", "/v1/artifact-delivery/deliveries")
    for one in deliveries["items"]:
        place = f"/v1/artifact-delivery/deliveries/{one['delivery/id']}"
        await checked.ask(buyer, "GET", place, kind="artifact-delivery-status.v1")
        status = f"{place}/operation-status"
        await checked.ask(buyer, "GET", status, kind="deferred-operation-status.v1")
    hold = f"/v1/ledger/holds/{opened['hold_id']}"
    await checked.ask(buyer, "GET", hold, kind="ledger-hold.v1")
    (request,) = (await checked.ask(seller, "GET", "/v1/inbox"))["items"]
    done = {"status": "completed", "output": {"summary": "water"}}
    await checked.ask(seller, "POST", f"/v1/inbox/{request['request_id']}/answer", done)
    await world.advance(5)
    execution = f"/v1/executions/{opened['execution_id']}"
    released = await checked.ask(buyer, "POST", f"{execution}/accept")
    contract = f"/v1/contracts/{opened['contract_id']}"
    await checked.ask(buyer, "GET", contract, kind="procurement-contract.v1")
    await checked.ask(buyer, "GET", hold, kind="ledger-hold.v1")
    receipt = f"/v1/receipts/{released['receipt_id']}"
    await checked.ask(buyer, "GET", receipt, kind="procurement-receipt.v1")

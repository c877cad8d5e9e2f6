"""An order between two whole nodes, either of which is killed between any two steps."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from anabranch.market.documents import check
from anabranch.market.node.ledger import laws as ledger_laws
from anabranch.market.node.orders import laws as orders_laws
from anabranch.testing.market import World

OFFER = {
    "offer/id": "offer:summaries",
    "service/type": "text/summarise",
    "service/description": "a summary",
    "pricing/amount": 100,
    "pricing/currency": "ORC",
    "pricing/unit": "text",
    "pricing/unit-kind": "per-item",
    "delivery/max-duration-sec": 3600,
    "queue/max-depth": 5,
    "confirmation/mode": "self-confirmed",
    "expires-at": "2026-07-01T00:00:00Z",
}
WISH = {"offer_id": "offer:summaries", "input": {"text": "long"}, "order_id": "order:one"}
PATH = "/v1/executions/execution:one"


class Story:
    def __init__(self) -> None:
        self.world = World(["buyer", "provider"])
        self.buyer, self.provider = self.world["buyer"], self.world["provider"]

    async def ask(self, node: str, method: str, path: str, body: Any = None) -> Any:
        status, answer = await self.world[node].request(method, path, body)
        assert status in (200, 201), (path, answer)
        return answer

    async def publish(self) -> None:
        published = await self.ask("provider", "POST", "/v1/service-offers", OFFER)
        trusted = {"participant_id": published["offer"]["provider/participant-id"]}
        await self.ask("buyer", "POST", "/v1/trusted-providers", trusted)
        found = {"node_id": self.provider.node_id}
        await self.ask("buyer", "POST", "/v1/service-offers/fetch", found)

    async def top_up(self) -> None:
        body = {"amount": 1000, "idempotency_key": "first"}
        await self.ask("buyer", "POST", "/v1/ledger/top-up", body)

    async def order(self) -> None:
        answer = await self.ask("buyer", "POST", "/v1/orders", WISH)
        assert answer["status"] == "opened-execution"

    async def wait(self) -> None:
        """For the request, or the result, to be there."""
        await self.world.advance(30)

    async def answer(self) -> None:
        inbox = await self.ask("provider", "GET", "/v1/inbox")
        path = f"/v1/inbox/{quote(inbox['items'][0]['id'], safe='')}/answer"
        await self.ask("provider", "POST", path, {"status": "completed", "output": {"n": 1}})

    async def accept(self) -> None:
        await self.ask("buyer", "POST", f"{PATH}/accept")


STEPS = ("publish", "top_up", "order", "wait", "answer", "wait", "accept")


@pytest.mark.parametrize("killed", ["buyer", "provider"])
@pytest.mark.parametrize("step", range(len(STEPS)))
def test_an_order_is_paid_once_whoever_is_killed_between_its_steps(step: int, killed: str) -> None:
    async def scenario() -> None:
        story = Story()
        for number, name in enumerate(STEPS):
            await getattr(story, name)()
            if number == step:
                await story.world.crash(killed)
        seen = await story.ask("buyer", "GET", PATH)
        assert seen["state"] == "released"
        account = await story.ask("buyer", "GET", "/v1/ledger/account")
        assert (account["balance"], account["held"]) == (900, 0)
        receipt = await story.ask("buyer", "GET", f"/v1/receipts/{seen['receipt_id']}")
        assert check(receipt, kind="procurement-receipt.v1") == []
        movements = (await story.ask("buyer", "GET", "/v1/ledger/movements"))["items"]
        assert sorted(one["kind"] for one in movements) == ["hold", "release", "top-up"]
        node = story.buyer.node
        assert node is not None
        for law in (ledger_laws.broken, orders_laws.broken):
            assert story.buyer.run(law(node.entities), 10) == []
        await story.world.close()

    asyncio.run(scenario())

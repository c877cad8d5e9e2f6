"""A node that is killed at any commit, calls at the same time, and time that passes by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from anabranch.errors import StoreError
from anabranch.market.node.api import Endpoint
from anabranch.market.node.entities import Family
from anabranch.market.node.ledger import part as ledger
from anabranch.market.node.orders import part as orders
from anabranch.market.node.ports import NodeContext
from anabranch.testing.market import World

from .support import BUYER, PROVIDER, Desk, Grants, Offers, digest, draft, offer, request, result

PATH = "/v1/executions/execution:r1-s1-a1"
COMMITS = 6  # money, order, request prepared, dispatched, result, accepted


async def everything(desk: Desk) -> None:
    """The whole way of an order, as callers go it again from the start after a crash."""
    for answer in (await desk.top_up(idempotency_key="once"), await desk.submit()):
        _alive(answer.status)
    order = answer.body["order"]
    if (await desk.get(PATH))["result"] is None:
        await desk.dispatch(order)
    document = result()
    await desk.orders.result_accepted(document, PROVIDER.node_id, digest(document))
    _alive((await desk.post(f"{PATH}/accept")).status)


def _alive(status: int) -> None:
    if status == 503:
        raise StoreError("killed")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", range(COMMITS))
def test_killed_at_any_commit_and_asked_again_nothing_happens_twice(
    number: int, moment: str
) -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        store: Any = desk.store
        keep = store.commit

        def commit(batch: Any) -> None:
            if store.commits == number and not store.died:
                store.died, store.dies = True, moment
            keep(batch)

        store.died, store.commit = False, commit
        with pytest.raises(StoreError):
            await everything(desk)
        desk = await desk.again()
        assert await desk.broken_laws() == []
        await everything(desk)
        assert await desk.state() == "released"
        kinds = [one["kind"] for one in (await desk.get("/v1/ledger/movements"))["items"]]
        assert sorted(kinds) == ["hold", "release", "top-up"]
        assert await desk.balance() == 800
        assert store.commits == COMMITS
        assert await desk.broken_laws() == []

    asyncio.run(scenario())


def test_orders_at_the_same_time_spend_no_money_twice() -> None:
    async def scenario() -> None:
        desk = await Desk(offer({"queue/max-depth": 100})).opened()
        await desk.top_up(700)  # three orders of 200
        names = [f"order:{number % 10}" for number in range(40)]  # each four times
        answers = await asyncio.gather(*(desk.submit(draft(order_id=name)) for name in names))
        opened = [one for one in answers if one.body["status"] == "opened-execution"]
        assert sorted(one.status for one in opened) == [200] * 9 + [201] * 3
        rejected = {one.body["classifier"] for one in answers if one not in opened}
        assert rejected == {"settlement-blocked"}
        assert await desk.balance() == 100
        assert len((await desk.get("/v1/executions"))["items"]) == 3
        assert await desk.broken_laws() == []

    asyncio.run(scenario())


class Shop:
    """A part that knows one offer, and a module that may order."""

    def __init__(self, context: NodeContext) -> None:
        context.offers = Offers(offer())
        context.modules = Grants()  # type: ignore[assignment]

    def endpoints(self) -> Sequence[Endpoint]:
        return ()

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def wake(self, family: Family[Any], thing: str) -> None: ...


def world() -> World:
    seeds = {
        "node": bytes([1]) * 32,
        "participant": bytes([1, 101]) * 16,
        "org": bytes([1, 102]) * 16,
    }
    parts = [(Shop, ()), *((one.make, one.FAMILIES) for one in (ledger, orders))]
    made = World([{"name": "buyer", "seeds": seeds}], makers=lambda: parts)
    assert made["buyer"].node_id == BUYER.node_id
    return made


@pytest.mark.parametrize("crashes", [False, True])
def test_time_expires_an_order_while_nothing_is_asked(crashes: bool) -> None:
    async def scenario() -> None:
        async with world() as place:
            buyer = place["buyer"]
            await buyer.request("POST", "/v1/ledger/top-up", {"amount": 200})
            status, _ = await buyer.request("POST", "/v1/service-orders", draft())
            assert status == 201
            await place.advance(3599)
            assert (await buyer.request("GET", PATH)).body["state"] == "opened"
            if crashes:
                await place.crash(buyer, 5)
            await place.advance(1)
            seen = (await buyer.request("GET", PATH)).body
            assert (seen["state"], seen["hold_id"]) == ("expired", "hold:r1-s1-a1")
            account = (await buyer.request("GET", "/v1/ledger/account")).body
            assert (account["balance"], account["held"]) == (200, 0)

    asyncio.run(scenario())


def test_time_releases_what_was_not_refused() -> None:
    async def scenario() -> None:
        async with world() as place:
            buyer = place["buyer"]
            await buyer.request("POST", "/v1/ledger/top-up", {"amount": 200})
            opened = await buyer.request("POST", "/v1/service-orders", draft())
            assert buyer.node is not None
            port = buyer.node.context.orders
            order = opened.body["order"]
            buyer.run(port.dispatch_prepared("order:r1-s1-a1", "delivery:1", request(order)), 10)
            document = result()
            buyer.run(port.result_accepted(document, PROVIDER.node_id, digest(document)), 10)
            await place.advance(3600 + 3 * 86_400 - 1)
            seen = (await buyer.request("GET", PATH)).body
            assert (seen["state"], seen["acceptance_overdue"]) == ("awaiting_acceptance", True)
            await place.crash(buyer)
            await place.advance(1)
            receipt = await buyer.request("GET", "/v1/receipts/receipt:r1-s1-a1")
            assert (receipt.status, receipt.body["outcome"]) == (200, "settled")

    asyncio.run(scenario())

"""`POST /v1/orders`: an order of the operator, sent once however often it is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.testing.market import World, check_laws
from in_loop import in_loop

OFFER = {
    "offer/id": "offer:x", "sequence/no": 1, "service/type": "text/x", "service/description": "x",
    "pricing/amount": 250, "pricing/currency": "ORC", "pricing/unit": "text",
    "pricing/unit-kind": "per-request", "delivery/max-duration-sec": 600,
    "queue/auto-accept": True, "queue/max-depth": 5, "hybrid": False,
    "confirmation/mode": "self-confirmed", "expires-at": "2026-06-20T08:00:00Z",
}  # fmt: skip
WISH = {"offer_id": "offer:x", "order_id": "order:one", "input": {"text": "hello"}}


async def market() -> World:
    world = World(["provider", "buyer"])
    world.advance(130)
    provider, buyer = world["provider"], world["buyer"]
    await provider.request("POST", "/v1/service-offers", OFFER)
    await buyer.request("POST", "/v1/service-offers/fetch", {"node_id": provider.node_id})
    await buyer.request("POST", "/v1/ledger/top-up", {"amount": 1000, "idempotency_key": "k"})
    return world


@in_loop
async def test_the_same_order_again_at_another_time_is_the_same_order() -> None:
    world = await market()
    buyer = world["buyer"]
    first = await buyer.request("POST", "/v1/orders", WISH)
    world.advance(30)
    again = await buyer.request("POST", "/v1/orders", WISH)
    assert (first.status, again.status) == (201, 200)
    assert again.body == first.body
    assert (await buyer.request("GET", "/v1/ledger/account")).body["held"] == 250
    assert len((await world["provider"].request("GET", "/v1/inbox")).body["items"]) == 1
    assert check_laws(world) == []


@in_loop
async def test_the_same_order_again_is_the_same_also_after_its_offer_has_changed() -> None:
    world = await market()
    first = await world["buyer"].request("POST", "/v1/orders", WISH)
    provider = world["provider"]
    dearer = {**OFFER, "sequence/no": 2, "pricing/amount": 300}
    assert (await provider.request("POST", "/v1/service-offers", dearer)).status == 201
    fetch = {"node_id": provider.node_id}
    assert (await world["buyer"].request("POST", "/v1/service-offers/fetch", fetch)).status == 200
    again = await world["buyer"].request("POST", "/v1/orders", WISH)
    assert (again.status, again.body["order"]) == (200, first.body["order"])


@pytest.mark.parametrize("other", [{"input": {"text": "bye"}}, {"units": 2}, {"max_amount": 9999}])
@in_loop
async def test_another_order_with_a_known_id_is_refused(other: dict[str, Any]) -> None:
    world = await market()
    await world["buyer"].request("POST", "/v1/orders", WISH)
    refused = await world["buyer"].request("POST", "/v1/orders", {**WISH, **other})
    assert refused.status == 409
    assert (await world["buyer"].request("GET", "/v1/ledger/account")).body["held"] == 250


@in_loop
async def test_an_execution_is_sent_by_its_name_alone_whatever_stands_in_it() -> None:
    world = await market()
    await world["buyer"].request("POST", "/v1/orders", {**WISH, "dispatch": False})
    path = "/v1/executions/execution:one%2Faccept/dispatch"
    assert (await world["buyer"].request("POST", path)).status == 404
    sent = await world["buyer"].request("POST", "/v1/executions/execution:one/dispatch")
    assert (sent.status, sent.body["order_id"]) == (200, "order:one")

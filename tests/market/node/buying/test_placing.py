"""`POST /v1/orders`: one order for one id, and no money on hold without a word about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.market.documents import check
from anabranch.market.node.buying.dispatching import dispatch_request
from anabranch.testing.market import NodeSpec, World
from in_loop import in_loop
from market.node.orders.support import BUYER, draft

PATH = "/v1/orders"
OFFER = {
    "offer/id": "offer:summaries",
    "service/type": "text/summarise",
    "pricing/amount": 100,
    "pricing/unit-kind": "per-item",
    "confirmation/mode": "self-confirmed",
}
WISH = {"offer_id": "offer:summaries", "order_id": "order:one", "input": {"text": "long"}}


async def market(config: Mapping[str, Any] | None = None) -> World:
    """A buyer with 1,000, who knows an offer of the provider."""
    world = World([NodeSpec(name="buyer", config=config or {}), "provider"])
    await asked(world, "POST", "/v1/service-offers", OFFER, node="provider")
    trusted = {"participant_id": world["provider"].participant_id}
    await asked(world, "POST", "/v1/trusted-providers", trusted)
    found = {"node_id": world["provider"].node_id}
    await asked(world, "POST", "/v1/service-offers/fetch", found)
    await asked(world, "POST", "/v1/ledger/top-up", {"amount": 1000})
    return world


async def asked(
    world: World, method: str, path: str, body: Any = None, *, node: str = "buyer", status: int = 0
) -> Any:
    answer = await world[node].request(method, path, body)
    assert answer.status == status or (not status and answer.status < 300), answer
    return answer.body


async def held(world: World) -> int:
    return int((await asked(world, "GET", "/v1/ledger/account"))["held"])


@in_loop
async def test_the_same_wish_again_is_the_same_order_at_any_time_whatever_became_of_the_offer() -> (
    None
):
    world = await market()
    first = await asked(world, "POST", PATH, {**WISH, "dispatch": False}, status=201)
    await world.advance(60)
    newer = {**OFFER, "pricing/amount": 700}
    await asked(world, "POST", "/v1/service-offers", newer, node="provider")
    found = {"node_id": world["provider"].node_id}
    await asked(world, "POST", "/v1/service-offers/fetch", found)
    again = await asked(world, "POST", PATH, WISH, status=200)
    assert again["order"] == first["order"]
    assert again["delivery"]["status"] == "deferred"
    assert await held(world) == 100
    await world.advance(5)
    inbox = await asked(world, "GET", "/v1/inbox", node="provider")
    assert [one["order/id"] for one in inbox["items"]] == ["order:one"]
    await world.close()


@in_loop
async def test_another_wish_under_the_same_id_is_a_conflict() -> None:
    world = await market()
    await asked(world, "POST", PATH, WISH, status=201)
    others: list[dict[str, Any]] = [
        {"units": 2},
        {"input": {"text": 1}},
        {"max_amount": 99},
        {"max_amount": 101},
    ]
    for other in others:
        refused = await asked(world, "POST", PATH, {**WISH, **other}, status=409)
        assert refused["code"] == "order_conflict"
    assert await held(world) == 100
    await world.close()


@in_loop
async def test_an_order_that_was_opened_and_not_sent_is_answered_with_both() -> None:
    world = await market({"delivery": {"max_bytes": 100}})
    body = await asked(world, "POST", PATH, WISH, status=201)
    assert body["execution_id"] == "execution:one"
    assert (body["delivery"]["status"], body["delivery"]["code"]) == ("failed", "runtime-limit")
    assert "max_bytes" in body["delivery"]["detail"]
    assert await held(world) == 100
    await world.advance(3600)
    assert await held(world) == 0, "it expires as every order that was not worked on"
    await world.close()


@in_loop
async def test_an_input_that_cannot_be_sent_holds_no_money() -> None:
    world = await market()
    wish = {**WISH, "input": {"text": "x" * 1024 * 1024}}
    refused = await asked(world, "POST", PATH, wish, status=413)
    assert refused["code"] == "too_large"
    assert "`input`" in refused["detail"]
    assert await held(world) == 0
    wish = {**WISH, "input": {"text": "x" * (1024 * 1024 - 20)}}
    assert (await asked(world, "POST", PATH, wish))["delivery"]["status"] == "deferred"
    await world.close()


@in_loop
async def test_a_flat_price_is_asked_for_once() -> None:
    world = await market()
    flat = {**OFFER, "offer/id": "offer:flat", "pricing/unit-kind": "flat"}
    await asked(world, "POST", "/v1/service-offers", flat, node="provider")
    found = {"node_id": world["provider"].node_id}
    await asked(world, "POST", "/v1/service-offers/fetch", found)
    wish = {"offer_id": "offer:flat", "units": 3}
    body = await asked(world, "POST", PATH, wish)
    assert body["order"]["pricing/max-amount"] == 100
    await world.close()


@in_loop
async def test_the_id_of_an_execution_is_one_part_of_the_path() -> None:
    world = await market()
    for name in ("execution:none%2Fdispatch", "execution:%2525", "execution:a%3Fopen"):
        refused = await asked(world, "POST", f"/v1/executions/{name}/dispatch", status=404)
        assert refused["code"] == "not_found"
    await world.close()


@pytest.mark.parametrize("length", [1, 200, 235, 245, 994])
@pytest.mark.parametrize("run", ["", "r", "r" * 300, "r" * 1024])
def test_the_request_for_any_order_is_a_whole_document(length: int, run: str) -> None:
    more = {"workflow/run-id": run or None, "workflow/phase-id": "s1" if run else None}
    order = draft(more, order_id=f"order:{'a' * length}")
    request = dispatch_request(
        order, f"execution:{'a' * length}", order["created-at"], BUYER.node_id
    )
    assert check(request, kind="service-order.dispatch.request.v1", draft=True) == []
    assert request["correlation/id"][:1] == ("r" if run else "e")

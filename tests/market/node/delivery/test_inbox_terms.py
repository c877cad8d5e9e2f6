"""The operator is asked for work that is on offer, on the terms of the offer."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.testing.market import World
from in_loop import in_loop
from market.node.delivery.support import (
    DISPATCH,
    Module,
    Outside,
    carrying,
    delivery_world,
    dispatch_request,
    order,
    send,
)

OFFER = {
    "offer/id": "offer:1",
    "expires-at": "2026-06-11T00:00:00Z",
    "delivery/max-duration-sec": 60,
    "sequence/no": 3,
    "service/type": "text/summarise",
    "pricing/amount": 50,
    "pricing/currency": "ORC",
    "pricing/unit-kind": "per-item",
}


def market() -> tuple[World, Outside]:
    outside = Outside()
    outside.offers = {}
    world = delivery_world("buyer", "provider", outside=outside)
    outside.offers["offer:1"] = {**OFFER, "provider/node-id": world["provider"].node_id}
    return world, outside


async def requested(world: World, ordered: dict[str, Any], asked: dict[str, Any]) -> Any:
    buyer, provider = world["buyer"], world["provider"]
    signed = order(buyer, provider, **ordered)
    given = {"order": signed, "request/input": signed["request/input"], **asked}
    request = {**dispatch_request(buyer, provider), **given}
    return await send(buyer, carrying(request, provider))


async def inbox_of(world: World) -> list[Any]:
    items = (await world["provider"].request("GET", "/v1/inbox")).body["items"]
    assert isinstance(items, list)
    return items


@pytest.mark.parametrize(
    ("ordered", "total", "units"),
    [
        ({"offer/seq": 3}, 50, 1),
        ({"offer/seq": 2}, 50, 1),  # it was on its way when the offer was published again
        ({"pricing/max-amount": 100, "request/units": 2}, 100, 2),
    ],
)
@in_loop
async def test_an_order_that_agrees_to_the_offer_is_shown_with_its_price(
    ordered: dict[str, Any], total: int, units: int
) -> None:
    world, _ = market()
    assert (await requested(world, ordered, {})).body["status"] == "succeeded"
    (entry,) = await inbox_of(world)
    assert (entry["pricing/total"], entry["pricing/currency"]) == (total, "ORC")
    assert (entry["request/units"], entry["offer/id"]) == (units, "offer:1")
    assert (entry["offer/seq"], entry["pricing/max-amount"]) == (ordered.get("offer/seq", 1), 100)


@pytest.mark.parametrize(
    ("ordered", "asked", "reason"),
    [
        ({"pricing/max-amount": 49}, {}, "price-exceeded"),
        ({"pricing/max-amount": 100, "request/units": 3}, {}, "price-exceeded"),
        ({"pricing/currency": "EUR"}, {}, "currency-mismatch"),
        ({"offer/seq": 4}, {}, "offer-seq-mismatch"),
        ({"offer/seq": 0}, {}, "offer-seq-mismatch"),
        ({"service/type": "a/b"}, {"service_type": "a/b"}, "service-type-mismatch"),
    ],
)
@in_loop
async def test_an_order_that_agrees_to_no_term_of_the_offer_does_not_reach_the_operator(
    ordered: dict[str, Any], asked: dict[str, Any], reason: str
) -> None:
    world, _ = market()
    sent = await requested(world, ordered, asked)
    assert sent.body["status"] == "failed-permanent"
    assert reason in sent.body["diagnostic"]
    assert await inbox_of(world) == []


@pytest.mark.parametrize("has_module", [False, True])
@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"request/input": {"text": "much more"}}, "input-mismatch"),
        ({"request/input": {"text": True}}, "input-mismatch"),
        ({"dispatch_payload": {"dispatch": {"service_type": "a/b"}}}, "dispatch-mismatch"),
        ({"dispatch_payload": {"dispatch": "all of it"}}, "dispatch-mismatch"),
    ],
)
@in_loop
async def test_a_request_for_other_work_than_its_order_reaches_no_acceptor(
    asked: dict[str, Any], reason: str, has_module: bool
) -> None:
    world, outside = market()
    dator = Module()
    if has_module:
        outside.modules["provider"] = {DISPATCH: dator}
    sent = await requested(world, {"request/input": {"text": 1}}, asked)
    assert sent.body["status"] == "failed-permanent"
    assert reason in sent.body["diagnostic"]
    assert await inbox_of(world) == []
    assert dator.invokes == []

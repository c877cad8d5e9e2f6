"""Documents of others: their bytes come first, and what is much is read beside the event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.clock import ManualClock
from anabranch.market.catalog.catalog import OfferCatalog
from anabranch.market.catalog.messages import PUSH
from anabranch.market.node import door
from anabranch.market.node.door import LARGE, Door, portions
from anabranch.market.node.errors import NodeError
from anabranch.testing.market import World
from in_loop import in_loop
from market.checks import BESIDE, HERE, watch_checks, where

from .delivery.support import RESULT, Outside, artifact, delivery_world, order_result
from .offers.support import PEER, START, STRANGER, Desk, offer, relay
from .orders import support as orders

RELAY = "service-offer-relay.v1"


def padded(size: int, number: int = 0) -> dict[str, Any]:
    """A relay whose offer has more than so many bytes."""
    named = {"offer/id": f"offer:n{number}", "policy_annotations": {"x": "y" * size}}
    return relay(offer(**named))


def test_what_is_little_is_read_here_and_what_is_much_beside_the_event_loop() -> None:
    async def scenario() -> list[str]:
        return [await Door().read(where, size) for size in (0, LARGE - 1, LARGE, 100 * LARGE)]

    assert asyncio.run(scenario()) == [HERE, HERE, BESIDE, BESIDE]


def test_portions_are_measured_by_their_bytes() -> None:
    some = ["x" * (LARGE // 2), "y" * (LARGE // 2), "z", "w" * (3 * LARGE), "\ud800", "v"]
    found = [(len(part), size >= LARGE) for part, size in portions(some)]
    assert found == [(2, True), (2, True), (1, True), (1, False)]
    assert [one for part, _ in portions(some) for one in part] == some


def test_a_message_of_many_bytes_of_offers_is_checked_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk, checks = Desk(), watch_checks(monkeypatch)
    for given, expected in (
        ([padded(100)], [(RELAY, HERE)]),
        ([padded(LARGE, number) for number in range(1, 4)], [(RELAY, BESIDE)] * 3),
    ):
        answer = desk.message(PUSH, {"offers": given})
        assert answer["counts"] == {"stored": len(given)}
        assert [one for one in checks if one[0] == RELAY] == expected
        checks.clear()


def test_a_catalog_checks_a_few_large_offers_beside_the_event_loop_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog, checks = OfferCatalog(clock=ManualClock(START)), watch_checks(monkeypatch)
    for given, place in (([padded(100)], HERE), ([padded(LARGE, 1)], BESIDE)):
        work = catalog.admit_batch(given, source_node=PEER.node_id)
        assert [one.status for one in asyncio.run(work)] == ["stored"]
        assert checks == [(RELAY, place)]
        checks.clear()
    catalog.close()


@pytest.mark.parametrize(
    "given", [padded(70_000), {**padded(10), "more": "x" * 70_000}], ids=["offer", "relay"]
)
def test_no_value_is_looked_at_of_an_offer_with_too_many_bytes(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, checks = Desk(), watch_checks(monkeypatch)
    assert desk.admit(given) == ("rejected", "too-large")
    assert checks == []


def test_offers_of_strangers_wait_for_room_and_those_of_trusted_peers_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door, "WAITING_BYTES", LARGE)
    desk = Desk()
    assert desk.message(PUSH, {"offers": [relay(origin=STRANGER)]}, STRANGER)["counts"] == {
        "stored": 1
    }
    with pytest.raises(NodeError) as caught:
        desk.message(PUSH, {"offers": [padded(LARGE)]}, STRANGER)
    assert (caught.value.status, caught.value.code) == (429, "peer_busy")
    assert desk.message(PUSH, {"offers": [padded(LARGE)]}, PEER)["counts"] == {"stored": 1}
    waiting = desk.part.messages._door.waiting
    assert (waiting.count, waiting.bytes) == (0, 0)


def test_a_document_with_too_many_bytes_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = watch_checks(monkeypatch)
    given = {"x": "y" * door.DOCUMENT_BYTES}
    (problem,) = asyncio.run(Door().problems(given, "workflow.fanout.request"))
    assert (problem.code, checks) == ("too-large", [])


@in_loop
async def test_a_result_is_checked_once_and_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outside = Outside()
    world: World = delivery_world("buyer", "provider", outside=outside)
    buyer, provider = world["buyer"], world["provider"]
    given = artifact({**order_result(provider), "output": "x" * LARGE}, RESULT)
    body = {
        "from": provider.node_id,
        "msg": "artifact-delivery.deliver",
        "payload": {
            "schema": "artifact-delivery-deliver.v1",
            "delivery/id": "d",
            "component/id": "x",
            "idempotency/key": "k",
            "artifact": given,
        },
    }
    checks = watch_checks(monkeypatch)
    answer = await buyer.request("POST", "/peer/messages", body, as_="peer")
    assert answer.body["answer"]["status"] == "accepted"
    assert outside.orders_of("buyer").said[-1][0] == "result"
    assert checks == [(RESULT, BESIDE)]


def test_orders_do_not_check_the_form_of_a_result_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        desk = await orders.ordered()
        checks = watch_checks(monkeypatch)
        assert await desk.deliver(orders.result()) == "accepted"
        assert checks == []

    asyncio.run(scenario())

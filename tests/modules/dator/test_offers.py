"""Offers of Dator: published once, again when they change, renewed, withdrawn, told to others."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.clock import ManualClock
from anabranch.market.node.api import Answer
from anabranch.modules.dator import offers
from anabranch.modules.dator.config import PushConfig
from anabranch.modules.dator.module import DatorModule
from anabranch.modules.dator.pushes import ASKERS_KEPT, Pushes
from anabranch.modules.dator.role import FunctionRoles
from anabranch.modules.dator.tasks import Tasks
from anabranch.modules.kit.host import Host
from in_loop import in_loop
from modules.dator.fake_host import FakeHost
from modules.dator.requests_of import order_of, request_of
from modules.dator.stage import NOW, OFFER_ID, Stage
from modules.dator.support import EXECUTOR, OFFER, Market, config_of

PUBLISH = "/v1/enact/participant/service-offers"
OTHER: dict[str, Any] = {**OFFER, "service_type": "text/translate", "pricing_amount": 7}


async def restarted(market: Market, config: Any = None) -> None:
    market.provider.kill()
    market.config = config or market.config
    market.provider.start()
    await market.world.advance(5)


async def seen(market: Market) -> list[tuple[int, int]]:
    """What the buyer knows of the provider: number and price of each offer."""
    body = await market.ask("buyer", "GET", "/v1/service-offers?source=observed")
    return [(one["sequence/no"], one["pricing/amount"]) for one in body["offers"]]


@in_loop
async def test_an_offer_of_the_configuration_is_published_and_signed_by_the_host() -> None:
    market = Market(config_of({**OFFER, "confirmation_mode": "automatic"}))
    (offer,) = await market.offers()
    assert (offer["service/type"], offer["pricing/amount"]) == ("text/summarise", 100)
    assert offer["provider/participant-id"] == market.provider.participant_id
    assert "confirmation/mode" not in offer  # `automatic` stays here
    assert "signature" in offer
    await market.close()


@in_loop
async def test_an_offer_that_says_the_same_is_not_published_again() -> None:
    market = Market()
    for _ in range(3):
        await restarted(market)
    (offer,) = await market.offers()
    assert offer["sequence/no"] == 1
    await market.close()


@pytest.mark.parametrize(
    "change",
    [
        {"pricing_amount": 90},
        {"service_description": "another"},
        {"confirmation_mode": None},
        {"hybrid": True, "model_first": True},
        {"queue_max_depth": 3},
    ],
    ids=lambda change: "-".join(change),
)
@in_loop
async def test_an_offer_that_says_something_else_gets_a_greater_number(
    change: dict[str, Any],
) -> None:
    market = Market()
    (before,) = await market.offers()
    await restarted(market, config_of({**OFFER, **change}))
    (after,) = await market.offers()
    assert (after["offer/id"], after["sequence/no"]) == (before["offer/id"], 2)
    assert before != after
    await restarted(market)
    assert (await market.offers())[0]["sequence/no"] == 2
    await market.close()


@in_loop
async def test_an_offer_that_is_removed_is_withdrawn_and_may_come_back() -> None:
    market = Market(config_of(OFFER, OTHER))
    assert len(await market.offers()) == 2
    await restarted(market, config_of(OFFER))
    assert [one["service/type"] for one in await market.offers()] == ["text/summarise"]
    gone = [one for one in await market.offers(active_only=False) if one != OFFER]
    assert sorted(one["offer/status"] for one in gone) == ["active", "withdrawn"]
    await restarted(market)
    assert {one["sequence/no"] for one in await market.offers(active_only=False)} == {1, 2}
    await restarted(market, config_of(OFFER, OTHER))
    assert sorted(one["sequence/no"] for one in await market.offers()) == [1, 3]
    await market.close()


@pytest.mark.soak
@in_loop
async def test_an_offer_that_was_withdrawn_long_ago_is_forgotten_and_keeps_its_number() -> None:
    market = Market(config_of(OFFER, OTHER))
    await restarted(market, config_of(OFFER))

    async def shown() -> int:
        return len((await market.ask("provider", "GET", "/v1/enact/dator/offers"))["items"])

    assert await shown() == 2
    await market.world.advance(2 * 86_400)
    assert await shown() == 1
    await restarted(market, config_of(OFFER, OTHER))
    assert sorted(one["sequence/no"] for one in await market.offers()) == [1, 3]
    await market.close()


@in_loop
async def test_an_offer_is_renewed_before_it_expires() -> None:
    market = Market(config_of(OFFER, offer_valid_sec=600))
    (first,) = await market.offers()
    for _ in range(10):
        await market.world.advance(200)
        (offer,) = await market.offers()
    assert offer["sequence/no"] >= 4
    assert offer["expires-at"] > first["expires-at"]
    await market.close()


@in_loop
async def test_the_depth_of_the_queue_is_kept_true_and_not_published_too_often() -> None:
    offer = {**OFFER, "queue_auto_accept": False}
    market = Market(config_of(offer, depth_interval_sec=100))
    await market.open()
    for number in range(4):
        await market.order(f"n{number}")
    await market.world.advance(20)
    assert len((await market.queue())["items"]) == 4
    (early,) = await market.offers()
    assert (early["sequence/no"], early["queue/current-depth"]) == (1, 0)
    await market.world.advance(100)
    (later,) = await market.offers()
    assert (later["sequence/no"], later["queue/current-depth"]) == (2, 4)
    for one in (await market.queue())["items"]:
        path = "/v1/enact/dator/queue/accept"
        await market.ask("provider", "POST", path, {"request": one["id"]})
    await market.world.advance(150)
    (last,) = await market.offers()
    assert (last["sequence/no"], last["queue/current-depth"]) == (3, 0)
    await market.order("late")  # the buyer knows version 1, which says the same
    await market.world.advance(5)
    assert len((await market.queue())["items"]) == 1
    await market.close()


# -- who is told -----------------------------------------------------------------------------


@in_loop
async def test_a_node_that_has_asked_is_told_of_changes_and_of_withdrawals() -> None:
    market = Market()
    await market.open()
    assert await seen(market) == [(1, 100)]
    offer = {**OTHER, "pricing_amount": 5}
    found = await market.ask("provider", "POST", PUBLISH, offer)
    await market.world.advance(5)
    assert sorted(await seen(market)) == [(1, 5), (1, 100)]
    await market.ask("provider", "POST", PUBLISH, {**offer, "pricing_amount": 6})
    await market.world.advance(5)
    assert sorted(await seen(market)) == [(1, 100), (2, 6)]
    gone = {"offer_id": found["offer"]["offer/id"]}
    await market.ask("provider", "POST", f"{PUBLISH}/withdraw", gone)
    await market.world.advance(5)
    assert await seen(market) == [(1, 100)]
    await market.close()


@in_loop
async def test_an_answer_that_leaves_offers_out_says_where_to_go_on() -> None:
    market = Market(config_of(OFFER, OTHER))
    await market.open()
    buyer = market.world["buyer"]
    assert buyer.node is not None

    def page(wanted: dict[str, Any]) -> Any:
        assert buyer.node is not None
        work = buyer.node.context.peers.request(
            market.provider.node_id,
            "offer-catalog.fetch.request",
            {"filter": wanted},
            correlation_id="q1",
            seconds=30,
        )
        return buyer.run(work)

    first = page({"limit": 1})
    second = page({"limit": 1, "after": first["next"]})
    found = [one["offer"]["offer/id"] for one in (*first["offers"], *second["offers"])]
    assert found == sorted(one["offer/id"] for one in await market.offers())
    assert "next" not in second
    await market.close()


@in_loop
async def test_configured_nodes_are_told_that_never_asked() -> None:
    market = Market()
    trusted = {"participant_id": market.provider.participant_id}
    await market.ask("buyer", "POST", "/v1/trusted-providers", trusted)
    push = {"node_ids": [market.buyers[0].node_id], "askers": False}
    await restarted(market, config_of({**OFFER, "pricing_amount": 80}, push=push))
    assert await seen(market) == [(2, 80)]
    await market.close()


@in_loop
async def test_dator_answers_with_the_offers_of_its_own_node_and_no_others() -> None:
    market = Market(buyers=("buyer", "other"))
    await market.world.advance(5)
    await market.ask("other", "POST", "/v1/service-offers", {
        "service/type": "text/summarise", "pricing/amount": 1,
    })  # fmt: skip
    other = market.world["other"]
    trusted = {"participant_id": other.participant_id}
    await market.ask("provider", "POST", "/v1/trusted-providers", trusted)
    asked = {"node_id": other.node_id}
    await market.ask("provider", "POST", "/v1/service-offers/fetch", asked)
    observed = await market.ask("provider", "GET", "/v1/service-offers?source=observed")
    assert len(observed["offers"]) == 1
    asked = {"node_id": market.provider.node_id}
    found = await market.ask("buyer", "POST", "/v1/service-offers/fetch", asked)
    assert [one["offer_id"] for one in found["results"]] == [market.offer_id]
    assert market.heard == ["offer-catalog.fetch.request"]
    await market.close()


@in_loop
async def test_a_question_with_a_filter_that_is_none_is_answered_with_an_error() -> None:
    market = Market()
    await market.world.advance(5)
    asked = {"node_id": market.provider.node_id, "filter": {"limit": -1}}
    answer = await market.ask("buyer", "POST", "/v1/service-offers/fetch", asked, good=False)
    assert (answer.status, answer.body["code"]) == (502, "peer_answer")
    assert "bad_query" in answer.body["detail"]
    await market.close()


@in_loop
async def test_a_snapshot_has_all_offers_of_the_node_as_relays_and_may_be_pushed() -> None:
    market = Market(config_of(OFFER, OTHER))
    await market.open()
    body = await market.ask("provider", "POST", "/v1/enact/offers/snapshot", {"push": True})
    assert len(body["offers"]) == 2
    assert {one["relay/hops"] for one in body["offers"]} == {0}
    assert [one["status"] for one in body["pushed"]] == ["queued"]
    wanted = {"filter": {"service/type": "text/translate"}}
    body = await market.ask("provider", "POST", "/v1/enact/offers/snapshot", wanted)
    assert [one["offer"]["pricing/amount"] for one in body["offers"]] == [7]
    wrong = await market.ask(
        "provider", "POST", "/v1/enact/offers/snapshot", {"limit": 1}, good=False
    )
    assert (wrong.status, wrong.body["code"]) == (400, "schema")
    await market.close()


# -- offers of the participant ---------------------------------------------------------------


@in_loop
async def test_an_offer_of_the_participant_outlives_restarts_and_is_ordered_from() -> None:
    market = Market(config_of())
    found = await market.ask("provider", "POST", PUBLISH, OFFER)
    assert found["status"] == "stored"
    assert (await market.ask("provider", "POST", PUBLISH, OFFER))["status"] == "unchanged"
    await restarted(market)
    market.config = config_of(OFFER)  # for its id; the module runs without
    await market.open()
    await market.order()
    await market.world.advance(5)
    assert (await market.result())["status"] == "completed"
    await market.close()


@pytest.mark.parametrize(
    ("offer", "status", "code"),
    [
        ({**OTHER, "pricing_amount": -1}, 400, "schema"),
        ({**OTHER, "colour": "red"}, 400, "schema"),
        ({**OTHER, "model_first": True}, 400, "schema"),
        ({**OTHER, "offer_id": "offer:no_such"}, 400, "invalid_document"),
        (OFFER, 409, "offer-configured"),
    ],
)
@in_loop
async def test_an_offer_that_cannot_be_published_changes_nothing(
    offer: dict[str, Any], status: int, code: str
) -> None:
    market = Market()
    before = await market.ask("provider", "GET", "/v1/enact/dator/offers")
    answer = await market.ask("provider", "POST", PUBLISH, offer, good=False)
    assert (answer.status, answer.body["code"]) == (status, code)
    assert await market.ask("provider", "GET", "/v1/enact/dator/offers") == before
    await market.close()


@in_loop
async def test_offers_of_the_configuration_are_withdrawn_there_and_unknown_ones_nowhere() -> None:
    market = Market()
    for name, status in ((market.offer_id, 409), ("offer:none", 404)):
        answer = await market.ask(
            "provider", "POST", f"{PUBLISH}/withdraw", {"offer_id": name}, good=False
        )
        assert answer.status == status
    assert len(await market.offers()) == 1
    await market.close()


# -- what the host refuses --------------------------------------------------------------------


@in_loop
async def test_an_offer_that_the_host_refuses_is_told_to_the_operator_and_the_rest_works() -> None:
    market = Market(config_of({**OTHER, "offer_id": "offer:no_such"}, OFFER))
    await market.world.advance(5)
    items = (await market.ask("provider", "GET", "/v1/enact/dator/offers"))["items"]
    assert sorted(one["status"] for one in items) == ["published", "refused"]
    notes = (await market.ask("provider", "GET", "/v1/notifications"))["items"]
    assert [one["level"] for one in notes] == ["error"]
    await market.world.advance(3000)
    notes = (await market.ask("provider", "GET", "/v1/notifications"))["items"]
    assert len(notes) == 1  # told once
    assert len(await market.offers()) == 1
    await market.close()


@in_loop
async def test_a_module_without_the_grant_publishes_nothing_and_says_so() -> None:
    executor = {**EXECUTOR, "grants": ["offers.local.query", "artifact.delivery.send"]}
    market = Market(node={"modules": [executor]})
    await market.world.advance(5)
    assert await market.offers() == []
    (item,) = (await market.ask("provider", "GET", "/v1/enact/dator/offers"))["items"]
    assert item["status"] == "refused"
    assert "offers.publish" in item["problem"]
    await market.close()


# -- a host that refuses, and clocks that jump ---------------------------------------------------


@in_loop
async def test_an_offer_that_cannot_even_be_looked_up_leaves_the_rest_and_the_requests_alone() -> (
    None
):
    stage = Stage()
    config = config_of(OFFER, {**OTHER, "offer_id": "offer:odd"})
    stage.module = DatorModule(
        host=Host(stage.host), clock=stage.clock, config=config, roles=FunctionRoles({})
    )
    refused = Answer(status=400, body={"code": "bad_path", "detail": "no such id"})
    stage.host.refuse = lambda method, path: (
        refused if method == "GET" and path.endswith("odd") else None
    )
    await stage.open()
    assert list(stage.host.offers) == [OFFER_ID]
    shown = {one["offer/id"]: one["status"] for one in stage.module._offers.views()}
    assert shown == {OFFER_ID: "published", "offer:odd": "refused"}
    assert await stage.accept(request_of(order_of(OFFER_ID))) == ("accepted", "")
    await stage.module.close()


@in_loop
async def test_an_offer_from_a_clock_that_was_ahead_is_published_again_when_it_is_right() -> None:
    """Others take no offer that has not begun."""
    stage = await Stage().open()
    for offer in stage.host.offers.values():
        offer |= {"published-at": "2027-06-10T08:00:00Z", "expires-at": "2027-07-10T08:00:00Z"}
    await stage.module.close()
    after = Stage(stage.host)
    await after.open()
    assert after.host.offers[OFFER_ID]["published-at"] == "2026-06-10T08:00:00Z"
    assert after.host.offers[OFFER_ID]["sequence/no"] == 2
    await after.module.close()


@in_loop
async def test_an_offer_that_was_refused_is_tried_again_also_where_the_clock_went_back() -> None:
    stage = Stage()
    refused = Answer(status=409, body={"code": "no", "detail": "no"})
    stage.host.refuse = lambda method, path: (
        refused if (method, path) == ("POST", "/v1/service-offers") else None
    )
    await stage.open()
    stage.host.refuse = lambda _method, _path: None
    stage.clock = stage.module._offers._clock = ManualClock(NOW - 86_400_000)
    await stage.module._offers.settle()
    assert list(stage.host.offers) == [OFFER_ID]
    await stage.module.close()


@in_loop
async def test_offers_that_were_withdrawn_leave_room_for_others_and_are_forgotten_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offers, "OFFERS_MAX", 2)
    stage = await Stage().open()
    for number in range(4):
        given = {**OTHER, "service_type": f"text/{number}"}
        status, said = await stage.module.handle(
            "POST", "/v1/participant/service-offers", {}, given
        )
        assert status == 201, said
        withdrawn = {"offer_id": said["offer"]["offer/id"]}
        path = "/v1/participant/service-offers/withdraw"
        status, said = await stage.module.handle("POST", path, {}, withdrawn)
        assert (status, said["status"]) == (200, "withdrawn")
    stage.clock.advance_to(stage.clock.now() + 86_401_000)
    await stage.module._offers.settle()
    assert len(stage.host.kind("dator-offer")) == 1
    await stage.module.close()


def test_strangers_that_ask_for_offers_push_out_no_trusted_node_that_is_told_of_changes() -> None:
    pushes = Pushes(host=Host(FakeHost()), clock=ManualClock(0), config=PushConfig(), tasks=Tasks())
    pushes._note("node:friend", trusted=True)
    for number in range(2 * ASKERS_KEPT):
        pushes._note(f"node:{number}", trusted=False)
    assert len(pushes._askers) == ASKERS_KEPT
    assert "node:friend" in pushes._askers

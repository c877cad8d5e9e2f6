"""Dispatch requests: what the order of the buyer learns, and the inbox of the provider."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.market.documents import check
from anabranch.market.node.delivery import laws
from anabranch.market.node.delivery.replies import reply_stages
from anabranch.market.node.errors import NodeError
from anabranch.market.node.ports import Acceptance
from anabranch.testing.market import World, WorldNode
from in_loop import in_loop
from market.node.delivery.support import (
    ACCEPTOR,
    DISPATCH,
    Module,
    Outside,
    carrying,
    delivery_of,
    delivery_world,
    dispatch_request,
    order,
    send,
)
from market.support import node as node_id

COMPLETED = {"status": "completed", "output": {"text": "short", "score": 0.5}}


async def requested(world: World, **changes: Any) -> Any:
    """The buyer sends a request to the provider."""
    request = dispatch_request(world["buyer"], world["provider"], **changes)
    return await send(world["buyer"], carrying(request, world["provider"]))


async def inbox_of(world: World) -> list[Any]:
    _, body = await world["provider"].request("GET", "/v1/inbox")
    items = body["items"]
    assert isinstance(items, list)
    return items


async def refusals(node: WorldNode) -> Any:
    """The newest first."""
    answer = await node.request("GET", "/v1/artifact-delivery/admissions")
    return answer.body["refused"][::-1]


async def answer(world: World, entry: str, body: Any = COMPLETED) -> Any:
    return await world["provider"].request("POST", f"/v1/inbox/{entry}/answer", body)


def market(outside: Outside | None = None, **config: Any) -> World:
    return delivery_world("buyer", "provider", outside=outside, config=config)


# -- orders of the buyer ---------------------------------------------------------------------


@in_loop
async def test_the_order_learns_that_its_request_is_prepared_and_has_arrived() -> None:
    outside = Outside()
    world = market(outside)
    sent = await requested(world)
    assert outside.orders_of("buyer").said == [
        ("prepared", "order:r1-s1-a1", sent.body["delivery/id"]),
        ("dispatched", "order:r1-s1-a1"),
    ]
    await requested(world)  # the same delivery
    assert len(outside.orders_of("buyer").said) == 2


@in_loop
async def test_the_order_learns_that_its_request_will_not_arrive() -> None:
    outside = Outside()
    world = market(outside, ttl_seconds=20, stage_timeout_ms=1000)
    world.drop("buyer", "provider")
    sent = await requested(world)
    assert sent.body["status"] == "failed-retryable"
    assert len(outside.orders_of("buyer").said) == 1
    await world.advance(60)
    (_, (word, order_id, reason)) = outside.orders_of("buyer").said
    assert (word, order_id) == ("failed", "order:r1-s1-a1")
    assert reason.startswith("stage-timeout")


@in_loop
async def test_a_request_that_has_no_open_order_does_not_leave() -> None:
    outside = Outside()
    outside.orders_of("buyer").prepare_error = NodeError(409, "order_unknown", "no such order")
    world = market(outside)
    sent = await requested(world)
    assert (sent.status, sent.body["code"]) == (409, "order_unknown")
    assert await inbox_of(world) == []
    assert world["buyer"].store.node_streams.stream_names() == []


# -- the inbox -------------------------------------------------------------------------------


@in_loop
async def test_the_operator_answers_a_request_and_the_buyer_gets_the_result() -> None:
    outside = Outside()
    world = market(outside)
    assert (await requested(world)).body["status"] == "succeeded"
    (entry,) = await inbox_of(world)
    assert (entry["status"], entry["service_type"]) == ("open", "text/summarise")
    assert entry["source/peer"] == world["buyer"].node_id
    status, answered = await answer(world, entry["id"])
    assert (status, answered["status"]) == (200, "answered")
    assert check(answered["result"], kind="service-order.result.v1") == []
    await world.advance(1)
    assert outside.orders_of("buyer").said[-1] == ("result", entry["request_id"])
    delivery = await delivery_of(world["provider"], answered["delivery/id"])
    assert (delivery["status"], delivery["component/id"]) == ("succeeded", "host")
    for one in world.nodes:
        assert one.run(laws.broken(one.entities)) == []


@in_loop
async def test_an_answer_is_given_once_and_the_same_one_may_be_repeated() -> None:
    world = market()
    await requested(world)
    (entry,) = await inbox_of(world)
    request = entry["request_id"]
    first = await answer(world, request.replace("/", "%2F"))  # by the id of the request
    assert first.status == 200
    assert (await answer(world, entry["id"])).body == first.body
    other = await answer(world, entry["id"], {"status": "completed", "output": "other"})
    assert (other.status, other.body["code"]) == (409, "already_answered")
    _, body = await world["provider"].request("GET", "/v1/artifact-delivery/deliveries")
    assert len(body["items"]) == 1


@in_loop
async def test_an_answer_whose_delivery_failed_is_sent_again_as_it_was() -> None:
    outside = Outside()
    world = market(outside, ttl_seconds=20, stage_timeout_ms=1000)
    await requested(world)
    (entry,) = await inbox_of(world)
    world.drop("buyer", "provider")
    first = await answer(world, entry["id"])
    await world.advance(60)
    assert (await delivery_of(world["provider"], first.body["delivery/id"]))["status"] == "expired"
    world.heal("buyer", "provider")
    second = await answer(world, entry["id"])
    assert second.body["delivery/id"] != first.body["delivery/id"]
    assert second.body["result"] == first.body["result"]
    await world.advance(1)
    assert outside.orders_of("buyer").said[-1] == ("result", entry["request_id"])


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"status": "done", "output": 1},
        {"status": "completed"},
        {"status": "failed"},
        {"status": "completed", "output": 1, "error": {"code": "x", "message": "y"}},
        {"status": "failed", "output": 1, "error": {"code": "x", "message": "y"}},
        {"status": "failed", "error": {"code": "x" * 200, "message": "y"}},
        {"status": "failed", "error": {"code": "x"}},
        {"status": "completed", "output": 1, "extra": 1},
    ],
)
@in_loop
async def test_an_answer_that_is_no_result_is_refused_and_changes_nothing(body: Any) -> None:
    world = market()
    await requested(world)
    (entry,) = await inbox_of(world)
    refused = await answer(world, entry["id"], body)
    assert (refused.status, refused.body["code"]) == (400, "schema")
    assert await inbox_of(world) == [entry]


@pytest.mark.parametrize("status", ["failed", "rejected"])
@in_loop
async def test_the_operator_may_answer_with_an_error(status: str) -> None:
    world = market()
    await requested(world)
    (entry,) = await inbox_of(world)
    error = {"code": "too-long", "message": "the text is too long"}
    answered = await answer(world, entry["id"], {"status": status, "error": error})
    assert (answered.body["result"]["status"], answered.body["result"]["error"]) == (status, error)


@in_loop
async def test_requests_that_are_not_there_or_not_unique_are_told_apart() -> None:
    world = delivery_world("buyer", "other", "provider")
    for buyer in (world["buyer"], world["other"]):
        request = dispatch_request(buyer, world["provider"])
        await send(buyer, carrying(request, world["provider"]))
    both = await inbox_of(world)
    assert len(both) == 2
    assert (await answer(world, both[0]["request_id"])).body["code"] == "ambiguous_request"
    assert (await answer(world, "request:none")).status == 404
    assert (await answer(world, both[0]["id"])).status == 200
    assert (await answer(world, both[0]["request_id"])).status == 200  # one is left


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another buyer": ({"order": ("other", "provider")}, "buyer-mismatch"),
    "another provider": ({"order": ("buyer", "other")}, "provider-mismatch"),
    "too late": ({"delivery_deadline": "2026-06-10T07:00:00Z"}, "deadline-passed"),
    "no way back": (
        {"reply__target": {"selector/kind": "routing-subject", "routing-subject/id": "subject:x"}},
        "reply-not-supported",
    ),
}


@pytest.mark.parametrize("has_module", [False, True])
@pytest.mark.parametrize("case", REFUSED)
@in_loop
async def test_a_request_that_is_not_for_this_provider_is_rejected(
    case: str, has_module: bool
) -> None:
    changes, reason = REFUSED[case]
    outside, dator = Outside(), Module()
    if has_module:
        outside.modules["provider"] = {DISPATCH: dator}
    world = delivery_world("buyer", "other", "provider", outside=outside)
    if "order" in changes:
        buyer, provider = changes["order"]
        changes = {"order": order(world[buyer], world[provider])}
    sent = await requested(world, **changes)
    assert sent.body["status"] == "failed-permanent"
    assert reason in sent.body["diagnostic"]
    assert await inbox_of(world) == []
    assert dator.invokes == []
    assert world["provider"].store.node_streams.stream_names() == []


@in_loop
async def test_a_conflicting_request_is_rejected_and_the_first_stays() -> None:
    world = market()
    await requested(world)
    before = await inbox_of(world)
    sent = await requested(world, request__input={"text": "another"})
    assert sent.body["failure/class"] == "admission-conflict"
    assert await inbox_of(world) == before


@in_loop
async def test_a_full_inbox_takes_requests_later() -> None:
    world = market(inbox_max=1)
    await requested(world)
    sent = await requested(world, request_id="another")
    assert (sent.body["status"], sent.body["failure/class"]) == (
        "failed-retryable",
        "adapter-transient",
    )
    (entry,) = await inbox_of(world)
    await answer(world, entry["id"])
    await world.advance(10)
    assert len(await inbox_of(world)) == 2


@in_loop
async def test_a_request_whose_deadline_has_passed_takes_no_room_and_can_be_answered() -> None:
    outside = Outside()
    world = market(outside, inbox_max=1)
    await requested(world, delivery_deadline="2026-06-10T08:05:00Z")
    await world.advance(400)
    (entry,) = await inbox_of(world)
    assert entry["status"] == "lapsed"
    assert (await requested(world, request_id="another")).body["status"] == "succeeded"
    assert (await answer(world, entry["id"])).body["status"] == "answered"
    await world.advance(1)
    assert outside.orders_of("buyer").said[-1] == ("result", entry["request_id"])


@pytest.mark.parametrize("has_module", [False, True])
@in_loop
async def test_who_orders_once_is_worked_for_once_under_whatever_ids(has_module: bool) -> None:
    """Ten requests for one order were ten pieces of work for the operator, and one price."""
    outside = Outside()
    module = Module([Acceptance(status="rejected", acceptor_id=ACCEPTOR, reason="no")])
    if has_module:
        outside.modules["provider"] = {DISPATCH: module}
    world = market(outside)
    buyer, provider = world["buyer"], world["provider"]
    same = order(buyer, provider)
    if has_module:
        refused = await requested(world, request_id="none", order=same)
        assert refused.body["status"] == "failed-permanent"
    assert (await requested(world, order=same)).body["status"] == "succeeded", "none was taken"
    again = await requested(world, request_id="another", order=same)
    assert again.body["status"] == "failed-permanent"
    assert [one["reason"] for one in (await refusals(provider))][:1] == ["order-conflict"]
    assert (await requested(world)).body["status"] == "succeeded", "the same request again"
    if not has_module:
        assert len(await inbox_of(world)) == 1


@pytest.mark.parametrize(
    ("created", "reason"),
    [
        ("2026-05-10T07:59:00Z", "order-too-old"),
        ("2026-06-10T08:10:00Z", "order-from-the-future"),
    ],
)
@in_loop
async def test_an_order_is_taken_as_long_as_others_would_be_remembered(
    created: str, reason: str
) -> None:
    world = market()
    signed = order(world["buyer"], world["provider"], **{"created-at": created})
    assert (await requested(world, order=signed)).body["status"] == "failed-permanent"
    assert [one["reason"] for one in await refusals(world["provider"])] == [reason]


@in_loop
async def test_what_strangers_have_left_is_forgotten_after_a_while() -> None:
    """And nothing of it can be asked for again. It was kept for good."""
    world = market(remember_seconds=3 * 86_400)
    provider, old = world["provider"], order(world["buyer"], world["provider"])
    await requested(world, order=old, delivery_deadline="2026-06-10T08:05:00Z")
    await requested(world, request_id="lapses", delivery_deadline="2026-06-10T08:05:00Z")
    (lapses, entry) = await inbox_of(world)
    await answer(world, entry["id"])
    await world.advance(2 * 86_400)
    await requested(world, request_id="x", delivery_deadline="2026-06-10T07:00:00Z")
    await world.advance(1)
    assert [one["id"] for one in await inbox_of(world)] == [entry["id"]], "the large one is gone"
    assert lapses["status"] == "open"
    await world.advance(2 * 86_400)
    late = await requested(
        world, request_id="later", order=old, delivery_deadline="2026-06-20T08:00:00Z"
    )
    assert late.body["status"] == "failed-permanent"
    await world.advance(1)
    streams = provider.store.node_streams
    assert streams.stream_names() == []
    assert [one["reason"] for one in await refusals(provider)][:1] == ["order-too-old"]


@in_loop
async def test_a_deadline_that_passes_while_the_node_is_down_is_seen_when_it_is_back() -> None:
    world = market(inbox_max=1)
    await requested(world, delivery_deadline="2026-06-10T08:05:00Z")
    world.crash("provider", down_seconds=400)
    await world.advance(500)
    assert [one["status"] for one in await inbox_of(world)] == ["lapsed"]


@in_loop
async def test_one_peer_cannot_fill_the_inbox() -> None:
    world = delivery_world("buyer", "other", "provider", config={"inbox_per_peer": 1})
    await requested(world)
    again = await requested(world, request_id="another")
    assert (again.body["status"], again.body["failure/class"]) == (
        "failed-retryable",
        "adapter-transient",
    )
    request = dispatch_request(world["other"], world["provider"])
    sent = await send(world["other"], carrying(request, world["provider"]))
    assert sent.body["status"] == "succeeded"


def own_offer(world: World, **changes: Any) -> dict[str, Any]:
    return {
        "offer/id": "offer:1",
        "provider/node-id": world["provider"].node_id,
        "expires-at": "2026-06-11T00:00:00Z",
        "delivery/max-duration-sec": 60,
        "sequence/no": 1,
        "service/type": "text/summarise",
        "pricing/amount": 100,
        "pricing/currency": "ORC",
        "pricing/unit-kind": "per-item",
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (None, "offer-not-found"),
        ({"provider/node-id": node_id(7)}, "offer-not-found"),
        ({"offer/status": "withdrawn"}, "offer-not-active"),
        ({"expires-at": "2026-06-10T07:59:59Z"}, "offer-not-active"),
    ],
)
@in_loop
async def test_a_request_for_what_is_not_on_offer_does_not_reach_the_operator(
    changes: dict[str, Any] | None, reason: str
) -> None:
    outside = Outside()
    outside.offers = {}
    world = market(outside)
    if changes is not None:
        outside.offers["offer:1"] = own_offer(world, **changes)
    sent = await requested(world)
    assert sent.body["status"] == "failed-permanent"
    assert reason in sent.body["diagnostic"]
    assert await inbox_of(world) == []


@in_loop
async def test_a_request_takes_room_no_longer_than_the_work_of_its_offer() -> None:
    outside = Outside()
    outside.offers = {}
    world = market(outside)
    outside.offers["offer:1"] = own_offer(world)
    sent = await requested(world, delivery_deadline="9999-06-10T08:00:00Z")
    assert sent.body["status"] == "succeeded"
    await world.advance(350)
    assert [one["status"] for one in await inbox_of(world)] == ["open"]
    await world.advance(20)
    assert [one["status"] for one in await inbox_of(world)] == ["lapsed"]


@in_loop
async def test_peers_with_nothing_but_a_key_leave_places_of_the_inbox_to_trusted_ones() -> None:
    outside = Outside()
    world = market(outside, inbox_max=4)
    for number in range(4):
        sent = await requested(world, request_id=f"request:{number}")
        assert sent.body["status"] == ("succeeded" if number < 3 else "failed-retryable")
    outside.trusted.add(world["buyer"].node_id)
    assert (await requested(world, request_id="request:5")).body["status"] == "succeeded"
    assert (await requested(world, request_id="request:6")).body["status"] == "failed-retryable"


@in_loop
async def test_a_module_with_an_acceptor_gets_the_request_instead() -> None:
    outside = Outside()
    dator = Module()
    outside.modules["provider"] = {DISPATCH: dator}
    world = market(outside)
    assert (await requested(world)).body["status"] == "succeeded"
    assert await inbox_of(world) == []
    assert dator.invokes[0]["artifact"]["schema"] == DISPATCH


# -- reply plans -----------------------------------------------------------------------------

A, B, C = ({"selector/kind": "node", "node/id": node_id(number)} for number in (1, 2, 3))


def plan(mode: str, *stages: dict[str, Any]) -> dict[str, Any]:
    return {"reply/target": A, "reply/delivery_plan": {"mode": mode, "stages": list(stages)}}


def wide(name: str, mode: str, policy: str, *targets: Any, **more: Any) -> dict[str, Any]:
    return {
        "stage/id": name, "mode": mode, "success/policy": policy, "targets": list(targets),
        **{key.replace("__", "/"): one for key, one in more.items()},
    }  # fmt: skip


def test_without_a_plan_the_reply_goes_to_the_target() -> None:
    (stage,) = reply_stages({"reply/target": A})
    assert (stage["targets"], stage["success/policy"]) == ([A], "any")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (plan("sequence", wide("s", "parallel", "all", A, B)), [("s", [A, B], "all", None)]),
        (plan("parallel", wide("s", "sequence", "all", A, B)), [("s", [A, B], "all", None)]),
        (
            plan("sequence", wide("s", "sequence", "any", A, B), wide("t", "parallel", "any", C)),
            [("s.1", [A], "any", None), ("s.2", [B], "any", None), ("t", [C], "any", None)],
        ),
        (
            plan(
                "sequence",
                wide("s", "parallel", "all", A, on__failure="u"),
                wide("t", "parallel", "all", B),
                wide("u", "sequence", "any", B, C),
            ),
            [
                ("s", [A], "all", "u.1"), ("t", [B], "all", None),
                ("u.1", [B], "any", None), ("u.2", [C], "any", None),
            ],
        ),
    ],
)  # fmt: skip
def test_a_wide_reply_plan_becomes_a_delivery_plan(given: Any, expected: Any) -> None:
    found = [
        (one["stage/id"], one["targets"], one["success/policy"], one.get("on/failure"))
        for one in reply_stages(given)
    ]
    assert found == expected


def test_a_reply_plan_with_stages_in_parallel_cannot_be_carried_out() -> None:
    stages = wide("s", "parallel", "all", A), wide("t", "parallel", "all", B)
    with pytest.raises(NodeError) as caught:
        reply_stages(plan("parallel", *stages))
    assert caught.value.code == "kind-not-supported"

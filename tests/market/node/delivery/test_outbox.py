"""Deliveries that go together: one message for many, and nothing waits for a slow acceptor."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from anabranch.market.node.delivery import inbound
from anabranch.market.node.delivery.records import Artifact
from anabranch.market.node.delivery.transport import MANY, MANY_MAX, MESSAGE, deliver_message
from anabranch.testing.market import Fate, World, WorldNode
from in_loop import in_loop
from market.node.delivery.support import (
    CONTENT_TYPE,
    SCHEMA,
    Module,
    Outside,
    admissions_of,
    artifact,
    delivery_world,
    envelope,
    stage,
)


def heard(world: World) -> list[tuple[str, int]]:
    """The messages between nodes from here on: which, and how many artifacts are in each."""
    sent: list[tuple[str, int]] = []

    def fate(_a: WorldNode, _b: WorldNode, data: bytes) -> Fate:
        message = msgspec.json.decode(data)
        sent.append((message["msg"], len(message["payload"].get("deliveries", [1]))))
        return Fate()

    world.fate = fate
    return sent


def together(world: World, count: int, **changes: Any) -> list[dict[str, Any]]:
    """So many deliveries of `a` to `b` that begin at the same time; what became of them."""
    node = world["a"]
    assert node.node is not None
    delivery = node.node.context.delivery
    documents = [
        envelope(stage("s", world["b"]), artifact=artifact(number), **changes)
        for number in range(count)
    ]

    async def all_of_them() -> list[Any]:
        return list(await asyncio.gather(*(delivery.send("arca", one) for one in documents)))

    results = node.run(all_of_them())
    assert isinstance(results, list)
    return results


@in_loop
async def test_a_peer_has_a_limit_to_what_is_not_decided_and_the_rest_comes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbound, "UNDECIDED_OF_A_PEER", 5)
    outside = Outside()
    slow = outside.modules.setdefault("b", {}).setdefault(SCHEMA, Module([20.0] * 12))
    world = delivery_world("a", "b", outside=outside, config={"acceptor_timeout_ms": 60_000})
    asked: list[list[Any]] = []
    for first in (0, 6):
        many = [
            deliver_message("delivery:x", "arca", f"k{n}", Artifact(
                schema=SCHEMA, content_type=CONTENT_TYPE, digest=one["digest"],
                size=one["size/bytes"],
            ), one["bytes/base64"])
            for n in range(first, first + 6)
            if (one := artifact(n))
        ]  # fmt: skip
        body = {"from": "node:x", "msg": MANY, "payload": {"deliveries": many}}
        answer = await world["b"].request("POST", "/peer/messages", body, as_="peer")
        asked.append(answer.body["answer"]["admissions"])
    assert asked == [[None] * 6, [None] * 6]
    assert len(slow.invokes) == 5
    await world.advance(60)
    await world["b"].request("POST", "/peer/messages", body, as_="peer")  # there is room again
    assert len(slow.invokes) == 10


@in_loop
async def test_a_delivery_that_is_alone_has_its_own_message() -> None:
    world = delivery_world("a", "b")
    sent = heard(world)
    together(world, 1)
    assert sent == [(MESSAGE, 1)]


@pytest.mark.parametrize("places", [1, 32])
@in_loop
async def test_deliveries_at_the_same_time_share_messages_and_each_is_admitted(
    places: int,
) -> None:
    world = delivery_world("a", "b", config={"max_per_peer": places})
    sent = heard(world)
    results = together(world, 40)
    assert {one["status"] for one in results} == {"succeeded"}
    assert len(await admissions_of(world["b"])) == 40
    assert sum(count for _, count in sent) == 40
    assert max(count for _, count in sent) <= MANY_MAX
    assert len(sent) < 20


@in_loop
async def test_a_slow_acceptor_delays_its_own_delivery_and_no_other() -> None:
    outside = Outside()
    module = Module()
    module.slow[artifact(3)["digest"]] = 9.0
    outside.modules["b"] = {SCHEMA: module}
    world = delivery_world("a", "b", outside=outside, config={"max_per_peer": 2})
    sent = heard(world)
    results = together(world, 8, policy={"timeout/ms": 5000})
    statuses = [one["status"] for one in results]
    assert statuses == ["succeeded"] * 3 + ["failed-retryable"] + ["succeeded"] * 4
    artifacts = [count for name, count in sent if name == MANY]
    assert sum(artifacts) >= 6
    assert sum(count for _, count in sent) == 9  # the slow one was asked for alone, too
    await world.advance(30)
    assert len(module.effects) == len(module.invokes) == 8


@in_loop
async def test_a_node_that_takes_one_at_a_time_gets_them_so() -> None:
    world = delivery_world("a", "b")
    assert world["b"].node is not None
    fakes: Any = world["b"].node.parts[0]
    del fakes._handlers[MANY]
    sent = heard(world)
    results = together(world, 5)
    assert {one["status"] for one in results} == {"succeeded"}
    assert sent.count((MESSAGE, 1)) == 5
    assert any(name == MANY for name, _ in sent)


@pytest.mark.parametrize(
    "payload", [None, {}, {"deliveries": []}, {"deliveries": {}}, {"deliveries": [{}] * 17}]
)
@in_loop
async def test_a_message_that_holds_no_deliveries_is_refused(payload: Any) -> None:
    world = delivery_world("b")
    body = {"from": "node:x", "msg": MANY, "payload": payload}
    answer = await world["b"].request("POST", "/peer/messages", body, as_="peer")
    assert answer.body == {"error": "envelope-malformed"}


@in_loop
async def test_what_is_wrong_with_one_of_them_is_said_of_that_one() -> None:
    world = delivery_world("b")
    fine = {
        "schema": "artifact-delivery-deliver.v1", "delivery/id": "delivery:x",
        "component/id": "arca", "idempotency/key": "k", "artifact": artifact(),
    }  # fmt: skip
    body = {"from": "node:x", "msg": MANY, "payload": {"deliveries": [fine, {}, 7]}}
    answer = await world["b"].request("POST", "/peer/messages", body, as_="peer")
    statuses = [one["status"] for one in answer.body["answer"]["admissions"]]
    assert statuses == ["accepted", "rejected", "rejected"]


@in_loop
async def test_nothing_is_left_behind_when_all_have_been_answered() -> None:
    world = delivery_world("a", "b")
    together(world, 40)
    await world.advance(1)
    assert world["a"].node is not None
    part: Any = world["a"].node.parts[2]
    assert part._sender._outbox._lines == {}
    assert part._sender._active == {}

"""Artifacts of strangers that wait: how many, and how many bytes, of all of them together."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.market.node import door
from anabranch.market.node.delivery.transport import MANY, MESSAGE
from anabranch.testing.market import World
from in_loop import in_loop
from market.node.delivery.support import SCHEMA, Module, Outside, artifact, delivery_world
from market.support import node as node_id

FRIEND, LARGE = node_id(9), "x" * door.LARGE


def slow_world() -> tuple[World, Module]:
    """The acceptor of the node takes longer than anybody waits."""
    outside = Outside()
    outside.trusted.add(FRIEND)
    slow = outside.modules.setdefault("b", {}).setdefault(SCHEMA, Module([20.0] * 99))
    config = {"acceptor_timeout_ms": 60_000}
    return delivery_world("b", outside=outside, config=config), slow


def delivered(key: str, value: str = "") -> dict[str, Any]:
    return {
        "schema": "artifact-delivery-deliver.v1",
        "delivery/id": "delivery:x",
        "component/id": "arca",
        "idempotency/key": key,
        "artifact": artifact(f"{key}{value}"),
    }


async def said(world: World, peer: str, msg: str, payload: Any) -> Any:
    body = {"from": peer, "msg": msg, "payload": payload}
    return (await world["b"].request("POST", "/peer/messages", body, as_="peer")).body["answer"]


async def sent_together(world: World, peer: str, count: int, value: str = "") -> None:
    """None of them is decided as long as the peer waits."""
    many = [delivered(f"{peer}-{number}", value) for number in range(count)]
    answer = await said(world, peer, MANY, {"deliveries": many})
    assert answer == {"admissions": [None] * count}


def waiting(world: World) -> tuple[int, int]:
    live = world["b"].node
    assert live is not None
    part: Any = live.parts[2]
    found = part._inbound._door.waiting
    return found.count, found.bytes


@in_loop
async def test_artifacts_of_any_number_of_strangers_have_a_total(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door, "WAITING_MAX", 5)
    world, slow = slow_world()
    for peer in (node_id(1), node_id(2), node_id(3)):
        await sent_together(world, peer, 4)
    assert (len(slow.invokes), waiting(world)[0]) == (5, 5)
    answer = await said(world, node_id(4), MESSAGE, delivered("alone", LARGE))
    assert (answer["status"], answer["reason"]) == ("retryable", "peer_busy")
    await sent_together(world, FRIEND, 4)
    assert len(slow.invokes) == 9, "trusted peers have their places"
    await world.advance(60)
    assert waiting(world) == (0, 0)
    await sent_together(world, node_id(3), 4)
    assert len(slow.invokes) == 13, "there is room again"


@in_loop
async def test_artifacts_of_strangers_have_a_total_of_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door, "WAITING_BYTES", 5 * door.LARGE)
    world, slow = slow_world()
    for peer in (node_id(1), node_id(2), FRIEND):
        await sent_together(world, peer, 4, LARGE)
    assert len(slow.invokes) == 3 + 4
    answer = await said(world, node_id(4), MESSAGE, delivered("alone", LARGE))
    assert (answer["status"], answer["reason"]) == ("retryable", "peer_busy")
    await world.advance(60)
    assert waiting(world) == (0, 0)

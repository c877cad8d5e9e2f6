"""Requests in the inbox are weighed: of one peer, of all strangers, of all."""

from __future__ import annotations

from anabranch.testing.market import World
from in_loop import in_loop
from market.node.delivery.support import (
    Outside,
    carrying,
    delivery_world,
    dispatch_request,
    order,
    send,
)

SIZE = 40_000  # of the input of a request, which has it twice


async def requested(world: World, buyer: str, number: int) -> bool:
    """Whether one more large request has found room."""
    given = {"text": "x" * SIZE}
    here, there = world[buyer], world["provider"]
    request = dispatch_request(
        here, there,
        order=order(here, there, **{"request/input": given, "order/id": f"order:{number}"}),
        request__input=given, request_id=f"request:{number}",
    )  # fmt: skip
    sent = await send(here, carrying(request, there))
    assert sent.body["status"] in ("succeeded", "failed-retryable")
    return bool(sent.body["status"] == "succeeded")


async def answer_one(world: World) -> None:
    _, body = await world["provider"].request("GET", "/v1/inbox?open=true")
    path = f"/v1/inbox/{body['items'][0]['id']}/answer"
    await world["provider"].request("POST", path, {"status": "completed", "output": 1})


@in_loop
async def test_one_peer_has_a_limit_of_bytes_and_an_answer_makes_room() -> None:
    limits = {"inbox_bytes_per_peer": 5 * SIZE}
    world = delivery_world("buyer", "other", "provider", config=limits)
    assert [await requested(world, "buyer", n) for n in range(3)] == [True, True, False]
    assert await requested(world, "other", 3)
    while (await inbox_open(world)) > 1:
        await answer_one(world)
    assert await requested(world, "buyer", 4)


async def inbox_open(world: World) -> int:
    _, body = await world["provider"].request("GET", "/v1/inbox?open=true")
    return len(body["items"])


@in_loop
async def test_strangers_leave_bytes_of_the_inbox_to_trusted_peers() -> None:
    outside = Outside()
    limits = {"inbox_bytes": 10 * SIZE}
    world = delivery_world("a", "b", "friend", "provider", outside=outside, config=limits)
    outside.trusted.add(world["friend"].node_id)
    found = [await requested(world, peer, n) for n, peer in enumerate(("a", "b", "a", "b"))]
    assert found == [True, True, True, False]
    assert [await requested(world, "friend", n) for n in (5, 6)] == [True, False]

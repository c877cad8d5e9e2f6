"""The result of an order, for the operator who bought it."""

from __future__ import annotations

from anabranch.testing.market import World, WorldNode
from in_loop import in_loop

OFFER = {"offer/id": "offer:x", "service/type": "text/x", "pricing/amount": 0}
RESULT = "/v1/executions/execution:one/result"


async def ordered(world: World) -> tuple[WorldNode, WorldNode]:
    provider, buyer = world["provider"], world["buyer"]
    await provider.request("POST", "/v1/service-offers", OFFER)
    await buyer.request(
        "POST", "/v1/trusted-providers", {"participant_id": provider.participant_id}
    )
    await buyer.request("POST", "/v1/service-offers/fetch", {"node_id": provider.node_id})
    order = {"offer_id": "offer:x", "order_id": "order:one"}
    assert (await buyer.request("POST", "/v1/orders", order)).status == 201
    await world.advance(5)
    return provider, buyer


@in_loop
async def test_the_operator_reads_the_result_as_it_was_delivered() -> None:
    async with World(nodes=["provider", "buyer"]) as world:
        provider, buyer = await ordered(world)
        status, body = await buyer.request("GET", RESULT)
        assert (status, body["code"]) == (404, "no_result")
        answer = {"status": "completed", "output": {"deep": [1, {"a": None}]}}
        await provider.request("POST", "/v1/inbox/remote-execution:order:one/answer", answer)
        await world.advance(5)
        await world.crash("buyer")
        status, body = await buyer.request("GET", RESULT)
        assert status == 200
        assert body["output"] == {"deep": [1, {"a": None}]}
        assert body["provider/node-id"] == provider.node_id


@in_loop
async def test_results_are_for_the_operator_alone() -> None:
    async with World(nodes=["provider", "buyer"]) as world:
        _, buyer = await ordered(world)
        assert (await buyer.request("GET", RESULT, as_="some-module")).status == 403
        assert (await buyer.request("GET", RESULT, as_="open")).status == 401
        unknown = await buyer.request("GET", "/v1/executions/execution:none/result")
        assert unknown.status == 404

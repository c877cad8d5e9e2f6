"""A definition with `offer_ref` on a node: exactly that offer is ordered, also from a template."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.testing.market import World, WorldNode, arca, check_laws
from in_loop import in_loop

from .template_module import asked

RUNS = "/v1/enact/arca/runs"
SERVICE = "text/summarise"
#: The provider has a cheaper offer for the same service, which nobody has named.
OFFERS = {"offer:named": 250, "offer:cheaper": 100}

TEMPLATE: dict[str, Any] = {
    "template_id": "order-an-offer.v1",
    "parameters": {"units": {"type": "integer", "default": 1}, "budget": "integer"},
    "plan": {
        "steps": [
            {
                "step_id": "order",
                "service_type": SERVICE,
                "input": {"text": "{{input.text}}"},
                "offer_ref": {"from": "/input/offer"},
                "request_units": "{{params.units}}",
                "max_amount": "{{params.budget}}",
                "currency": "ORC",
            }
        ]
    },
}


async def started(world: World, parameters: dict[str, Any]) -> Any:
    """The run of the template for the named offer, with everything around it."""
    buyer, provider = world["buyer"], world["provider"]
    await world.advance(5)  # the module is ready
    for name, amount in OFFERS.items():
        offer = {
            "offer/id": name, "service/type": SERVICE, "pricing/amount": amount,
            "pricing/unit-kind": "per-item",
        }  # fmt: skip
        await provider.request("POST", "/v1/service-offers", offer)
    await buyer.request(
        "POST", "/v1/trusted-providers", {"participant_id": provider.participant_id}
    )
    await buyer.request("POST", "/v1/service-offers/fetch", {"node_id": provider.node_id})
    await buyer.request("POST", "/v1/ledger/top-up", {"amount": 10_000, "idempotency_key": "k"})
    await asked(buyer, "POST", "", TEMPLATE)
    offer = (await buyer.request("GET", "/v1/service-offers/offer:named")).body["offer"]
    body = {
        "template_id": TEMPLATE["template_id"],
        "parameters": parameters,
        "input": {"text": "a b", "offer": offer},
    }
    answer = await buyer.request("POST", RUNS, body)
    assert answer.status == 201, answer.body
    return answer.body["run_id"]


def world() -> World:
    return World(nodes=[{"name": "buyer", "modules": {"arca": arca()}}, {"name": "provider"}])


async def executions(buyer: WorldNode) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await buyer.request("GET", "/v1/executions")).body["items"]
    return items


@in_loop
async def test_the_named_offer_is_ordered_although_another_one_is_cheaper() -> None:
    async with world() as nodes:
        run = await started(nodes, {"units": 3, "budget": 900})
        await nodes.advance(10)
        (execution,) = await executions(nodes["buyer"])
        shown = await nodes["buyer"].request("GET", f"/v1/executions/{execution['execution_id']}")
        order = shown.body["order"]
        assert (order["offer/id"], order["request/units"]) == ("offer:named", 3)
        assert (order["pricing/max-amount"], order["pricing/currency"]) == (900, "ORC")
        (waiting,) = (await nodes["provider"].request("GET", "/v1/inbox")).body["items"]
        request = waiting["request_id"]
        done = {"status": "completed", "output": {"summary": "a"}}
        await nodes["provider"].request("POST", f"/v1/inbox/{request}/answer", done)
        await nodes.advance(10)
        found = (await nodes["buyer"].request("GET", f"{RUNS}/{run}")).body
        assert found["status"] == "completed"
        assert check_laws(nodes) == []


@pytest.mark.parametrize("budget", [749, 0])
@in_loop
async def test_more_than_the_step_may_cost_is_not_ordered(budget: int) -> None:
    async with world() as nodes:
        run = await started(nodes, {"units": 3, "budget": budget})
        await nodes.advance(10)
        found = (await nodes["buyer"].request("GET", f"{RUNS}/{run}")).body
        assert found["status"] == "failed"
        assert found["error"]["code"] == "price-exceeded"
        assert await executions(nodes["buyer"]) == []


@in_loop
async def test_a_withdrawn_offer_is_not_replaced_by_another_one_of_its_provider() -> None:
    async with world() as nodes:
        buyer, provider = nodes["buyer"], nodes["provider"]
        run = await started(nodes, {"budget": 900})
        await nodes.advance(10)
        offer = (await buyer.request("GET", "/v1/service-offers/offer:named")).body["offer"]
        await provider.request("POST", "/v1/service-offers/offer:named/withdraw")
        all_of_them = {"node_id": provider.node_id, "filter": {"active_only": False}}
        await buyer.request("POST", "/v1/service-offers/fetch", all_of_them)
        again = {
            "template_id": TEMPLATE["template_id"],
            "parameters": {"budget": 900},
            "input": {"text": "a b", "offer": offer},
        }
        second = (await buyer.request("POST", RUNS, again)).body["run_id"]
        await nodes.advance(10)
        assert second != run
        found = (await buyer.request("GET", f"{RUNS}/{second}")).body
        assert found["status"] == "failed"
        assert found["error"]["code"] == "offer-expired"
        assert len(await executions(buyer)) == 1

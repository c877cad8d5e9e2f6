"""Deliveries between whole nodes: signed messages, modules in this process, orders and ledgers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.errors import AnabranchError
from anabranch.market.node.delivery import laws
from anabranch.testing.market import World
from in_loop import in_loop
from market.node.delivery.support import (
    ACCEPTOR,
    SCHEMA,
    admissions_of,
    delivery_of,
    envelope,
    send,
    stage,
)

ACCEPT_PATH = "/v1/artifact-delivery/accept"


class Notes:
    """A module that takes notes, over all its lives."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    async def handle(
        self, _method: str, path: str, _headers: Mapping[str, str], body: Any
    ) -> tuple[int, Any]:
        if path != ACCEPT_PATH:
            return 200, {"schema_version": "v1", "module_id": "notes", "status": "ok"}
        digest = body["artifact"]["digest"]
        status = "already-present" if digest in self.taken else "accepted"
        if status == "accepted":
            self.taken.append(digest)
        return 200, {"status": status, "acceptor/id": body["acceptor/id"]}


def noted(notes: Notes) -> World:
    """`a` may send notes; a module of `b` takes them."""
    acceptor = {
        "acceptor_id": ACCEPTOR, "component_id": "notes", "artifact_schema": SCHEMA,
        "invoke_path": ACCEPT_PATH,
    }  # fmt: skip
    module = {"id": "notes", "kind": "in_process", "acceptors": [acceptor]}
    rule = {"component/id": "arca", "schema": SCHEMA, "recipient/selectors": ["node"]}
    return World(
        {
            "a": {
                "config": {"delivery": {"outbound": [rule]}},
                "modules": {"arca": lambda _host: Notes()},
            },
            "b": {"config": {"modules": [module]}, "modules": {"notes": lambda _host: notes}},
        }
    )


@in_loop
async def test_a_module_sends_an_artifact_to_a_module_of_another_node() -> None:
    notes = Notes()
    world = noted(notes)
    await world.advance(5)  # the modules get ready
    answer = await send(world["a"], envelope(stage("s", world["b"])))
    assert (answer.status, answer.body["status"]) == (200, "succeeded")
    assert len(notes.taken) == 1
    (admission,) = await admissions_of(world["b"])
    assert (admission["source/peer"], admission["acceptor/id"]) == (world["a"].node_id, ACCEPTOR)
    await world.close()


@in_loop
async def test_a_node_that_is_down_gets_the_artifact_when_it_is_up() -> None:
    notes = Notes()
    world = noted(notes)
    await world.advance(5)
    world["b"].kill()
    answer = await send(world["a"], envelope(stage("s", world["b"])))
    assert (answer.body["status"], answer.body["failure/class"]) == (
        "failed-retryable",
        "adapter-transient",
    )
    await world.advance(5)
    world["b"].start()
    await world.advance(60)
    delivery = await delivery_of(world["a"], answer.body["delivery/id"])
    assert delivery["status"] == "succeeded"
    assert len(notes.taken) == 1
    await world.close()


@in_loop
async def test_a_module_without_the_grant_may_not_send() -> None:
    world = World({"a": {"modules": {"arca": lambda _host: Notes()}, "grants": ("peer.*",)}})
    await world.advance(5)
    answer = await send(world["a"], envelope(stage("s", world["a"])))
    assert (answer.status, answer.body["code"]) == (403, "host_capability_forbidden")
    await world.close()


# -- orders ----------------------------------------------------------------------------------

OFFER = {
    "offer/id": "offer:summaries",
    "service/type": "text/summarise",
    "service/description": "a summary",
    "pricing/amount": 10,
    "pricing/currency": "ORC",
    "pricing/unit": "text",
    "pricing/unit-kind": "per-item",
    "delivery/max-duration-sec": 3600,
    "queue/auto-accept": True,
    "queue/max-depth": 10,
    "hybrid": False,
    "confirmation/mode": "self-confirmed",
}


async def asked(world: World, node: str, method: str, path: str, body: Any = None) -> Any:
    """What the node says; it is asked again where it dies meanwhile."""
    for _ in range(5):
        for one in world.nodes:
            if one.node is None:
                one.start()
        try:
            answer = await world[node].request(method, path, body)
        except AnabranchError:
            continue
        assert answer.status < 300, answer
        return answer.body
    raise AssertionError("the node dies whenever it is asked")


async def ordered(world: World) -> str:
    """An order at the provider, on its way; the id of its execution."""
    await asked(world, "provider", "POST", "/v1/service-offers", OFFER)
    provider = world["provider"]
    trusted = {"entry/participant-id": provider.participant_id}
    await asked(world, "buyer", "POST", "/v1/trusted-providers", trusted)
    await world.advance(60)
    await asked(world, "buyer", "POST", "/v1/service-offers/fetch", {"node_id": provider.node_id})
    await asked(world, "buyer", "POST", "/v1/ledger/top-up", {"amount": 100})
    wish = {"offer_id": OFFER["offer/id"], "order_id": "order:1", "input": {"text": "long"}}
    body = await asked(world, "buyer", "POST", "/v1/orders", wish)
    return str(body["execution_id"])


@pytest.mark.parametrize("crashed", ["", "buyer", "provider"])
@in_loop
async def test_an_order_reaches_the_inbox_and_its_result_closes_it(crashed: str) -> None:
    world = World(["buyer", "provider"])
    execution = await ordered(world)
    await world.advance(5)
    if crashed:
        world.crash(crashed)
    items = (await asked(world, "provider", "GET", "/v1/inbox"))["items"]
    assert [one["order/id"] for one in items] == ["order:1"]
    answer = {"status": "completed", "output": {"text": "short"}}
    path = f"/v1/inbox/{items[0]['id']}/answer"
    await asked(world, "provider", "POST", path, answer)
    if crashed:
        world.crash(crashed)
    await world.advance(30)
    body = await asked(world, "buyer", "GET", f"/v1/executions/{execution}")
    assert body["state"] == "awaiting_acceptance"
    for one in world.nodes:
        assert one.run(laws.broken(one.entities)) == []
    await world.close()

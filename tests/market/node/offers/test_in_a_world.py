"""Offers between whole nodes, over signed envelopes: fetched, pushed, passed on, and still there
after a crash at any commit."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from anabranch.errors import AnabranchError
from anabranch.market.node.api import Answer, Caller
from anabranch.market.node.offers import laws
from anabranch.market.node.offers.config import OffersConfig
from anabranch.testing.market import World
from anabranch.testing.market.disk import Died
from anabranch.testing.market.nodes import NodeSpec, WorldSigner

PATH = "/v1/service-offers"


def lawful(world: World) -> None:
    """The laws of offers hold after every commit of every node."""

    def check(node: Any) -> None:
        assert laws.broken(node.entities, OffersConfig(), node.node_id) == []

    world.after_commit = check


async def published(node: Any, name: str) -> dict[str, Any]:
    draft = {"offer/id": f"offer:{name}", "service/type": "text/summarise", "pricing/amount": 5}
    answer = await node.request("POST", PATH, draft)
    assert answer.status == 201
    found: dict[str, Any] = answer.body["offer"]
    return found


async def seen(node: Any) -> list[tuple[str, int]]:
    answer = await node.request("GET", f"{PATH}?source=observed&active_only=false")
    rows = answer.body["observed_offers"]
    return [(row["offer"]["offer/id"], row["relay_hops"]) for row in rows]


def test_offers_are_fetched_and_are_there_after_a_crash() -> None:
    async def scenario() -> None:
        async with World(["a", "b"]) as world:
            lawful(world)
            a, b = world["a"], world["b"]
            offer = await published(b, "b1")
            answer = await a.request("POST", f"{PATH}/fetch", {"node_id": b.node_id})
            assert (answer.status, answer.body["counts"]) == (200, {"stored": 1})
            assert answer.body["offers"][0]["trust_level"] == "federation"
            await world.crash("a")
            assert await seen(a) == [("offer:b1", 0)]
            assert a.node is not None
            assert a.node.context.offers.offer("offer:b1") == offer
            assert (await b.request("POST", f"{PATH}/offer:b1/withdraw")).status == 200
            answer = await a.request(
                "POST",
                f"{PATH}/fetch",
                {"node_id": b.node_id, "filter": {"active_only": False}},
            )
            assert answer.body["counts"] == {"stored": 1}
            assert (await a.request("GET", f"{PATH}?source=observed")).body["offers"] == []

    asyncio.run(scenario())


@pytest.mark.parametrize("way", ["published", "given", "bound", "vouched for"])
def test_a_peer_is_known_that_the_node_trusts_and_not_one_that_has_published_an_address(
    way: str,
) -> None:
    b = WorldSigner(NodeSpec(name="b"))
    config: dict[str, Any] = {"offers": {"federation": "known-peers"}}
    if way == "given":
        config["peers"] = {"endpoints": {b.node_id: "http://b.world"}}
    elif way == "bound":
        config["directory"] = {"bindings": {b.node_id: b.participant_id}}
    elif way == "vouched for":
        config["directory"] = {"issuers": [b.participant_id]}

    async def scenario() -> None:
        own = {"directory": {"passports": ["offer-catalog"]}}
        nodes = [{"name": "a", "config": config}, {"name": "b", "config": own}]
        async with World(nodes) as world:
            a = world["a"]
            assert a.node is not None
            assert a.node.context.directory.endpoint(b.node_id)  # anyone may publish one
            await published(world["b"], "b1")
            body = {"node_ids": [a.node_id]}
            await world["b"].request("POST", f"{PATH}/push", body)
            counts = (await a.request("GET", f"{PATH}?source=all")).body["counts"]
            seen_ones = int(way != "published")
            assert (counts["observed"], counts["hidden"]) == (seen_ones, 1 - seen_ones)

    asyncio.run(scenario())


def test_a_node_that_cannot_be_reached_is_told_in_bounded_time() -> None:
    async def scenario() -> None:
        async with World(["a", "b"]) as world:
            await world.drop("a", "b")
            node_id = world["b"].node_id
            answer = await world["a"].request("POST", f"{PATH}/fetch", {"node_id": node_id})
            assert (answer.status, answer.body["code"]) == (503, "peer_unreachable")

    asyncio.run(scenario())


def test_what_is_passed_on_goes_three_hops_and_no_further() -> None:
    async def scenario() -> None:
        names = ["a", "b", "c", "d", "e"]
        async with World(names) as world:
            lawful(world)
            await published(world["a"], "a1")
            for name in names:  # those that came later know the others already
                assert (await world[name].request("POST", "/v1/directory/sync")).status == 200
            for source, target in pairwise(names):
                body = {"node_ids": [world[target].node_id], "observed": True}
                answer = await world[source].request("POST", f"{PATH}/push", body)
                assert answer.body["results"][0]["status"] == "sent", answer.body
            found = {name: await seen(world[name]) for name in names}
            assert found == {
                "a": [],
                "b": [("offer:a1", 0)],
                "c": [("offer:a1", 1)],
                "d": [("offer:a1", 2)],
                "e": [("offer:a1", 3)],
            }
            body = {"node_ids": [world["a"].node_id], "observed": True}
            answer = await world["e"].request("POST", f"{PATH}/push", body)
            assert answer.body["results"][0]["offers"] == 0

    asyncio.run(scenario())


def test_offers_of_strangers_are_gone_after_an_hour() -> None:
    async def scenario() -> None:
        config = {"offers": {"federation": "none"}}
        async with World([{"name": "a", "config": config}, "b"]) as world:
            a, b = world["a"], world["b"]
            await published(b, "b1")
            await a.request("POST", f"{PATH}/fetch", {"node_id": b.node_id})
            counts = (await a.request("GET", PATH)).body["counts"]
            assert (counts["observed"], counts["hidden"]) == (0, 1)
            await world.advance(3_599)
            assert (await a.request("GET", PATH)).body["counts"]["hidden"] == 1
            await world.advance(2)
            assert (await a.request("GET", PATH)).body["counts"]["hidden"] == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_node_that_dies_at_a_commit_has_published_the_offer_or_not(when: str) -> None:
    """And says so to the caller only when it is durable."""

    async def scenario() -> None:
        async with World(["a"]) as world:
            a = world["a"]
            first = await published(a, "a1")
            doomed = a.commits + 1

            def die(moment: str, number: int) -> None:
                if (moment, number) == (when, doomed):
                    raise Died(9)

            a.on_commit = die
            draft = {**first, "sequence/no": 2, "pricing/amount": 6}
            del draft["signature"]
            with pytest.raises((AnabranchError, asyncio.CancelledError)):
                await a.request("POST", PATH, draft)
            a.on_commit = lambda _when, _number: None
            assert a.node is None
            a.start()
            known = (await a.request("GET", f"{PATH}/offer:a1")).body["offer"]
            assert known["sequence/no"] == (1 if when == "before" else 2)
            answer = await a.request("POST", PATH, draft)
            assert answer.status == (201 if when == "before" else 200)
            assert answer.body["offer"]["sequence/no"] == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("mode", ["blocking", "async"])
def test_what_a_module_fetches_by_a_message_is_known_to_the_host(mode: str) -> None:
    async def scenario() -> None:
        async with World(["a", "b"]) as world:
            lawful(world)
            a, b = world["a"], world["b"]
            await published(b, "b1")
            assert a.node is not None
            dispatch = a.node.context.capabilities.handler("peer.message.dispatch")
            assert dispatch is not None
            body = {
                "schema_version": "v1",
                "execution_mode": mode,
                "destination": {"node_id": b.node_id},
                "msg": "offer-catalog.fetch.request",
                "payload": {},
                "correlation_id": "q1",
            }
            caller = Caller("module", module="arca", actor="arca")

            async def dispatched() -> Answer:
                return await dispatch(body, caller, {})

            answer = a.run(dispatched())
            assert answer.status == (200 if mode == "blocking" else 202)
            await world.advance(1)
            assert await seen(a) == [("offer:b1", 0)]

    asyncio.run(scenario())

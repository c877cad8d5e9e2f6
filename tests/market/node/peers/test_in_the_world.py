"""Peers and directories of nodes that are cut off, crash and die at any commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from anabranch.errors import AnabranchError
from anabranch.market.node.directory import part as directory
from anabranch.market.node.directory.laws import broken as broken_in_directory
from anabranch.market.node.node import MakePart
from anabranch.market.node.peers import part as peers
from anabranch.market.node.peers.laws import broken as broken_in_peers
from anabranch.market.node.ports import PeerUnreachable
from anabranch.testing.market import Fate, World, WorldNode
from anabranch.testing.market.disk import Died
from in_loop import in_loop

from .support import Echo

CAPABILITY = "offer-catalog"


def parts() -> list[MakePart]:
    return [(peers.make, peers.FAMILIES), (directory.make, directory.FAMILIES)]


def world(*names: str) -> World:
    made = World(names, makers=parts)
    made.after_commit = laws_hold
    return made


def laws_hold(one: WorldNode) -> None:
    if one.node is None:
        return
    messages, known = one.node.parts
    assert isinstance(messages, peers.PeersPart)
    assert isinstance(known, directory.DirectoryPart)
    assert list(broken_in_peers(messages.messenger)) == []
    assert list(broken_in_directory(known, one.node.entities)) == []


def answering(one: WorldNode) -> Echo:
    assert one.node is not None
    echo = Echo()
    one.node.context.peers.on("a.request", echo)
    return echo


def ask(one: WorldNode, other: WorldNode, payload: Any = 1, seconds: float = 10) -> Any:
    assert one.node is not None
    return one.run(
        one.node.context.peers.request(
            other.node_id, "a.request", payload, correlation_id="c", seconds=seconds
        )
    )


async def holders(one: WorldNode) -> list[str]:
    found = await one.request("GET", f"/cap?capability={CAPABILITY}", as_="open")
    return [row["node_id"] for row in found.body["items"]]


async def issue(one: WorldNode, **body: Any) -> Any:
    return await one.request("POST", "/v1/passports", {"capability_id": CAPABILITY, **body})


@in_loop
async def test_nodes_find_each_other_through_a_seed_and_talk() -> None:
    one = world("seed", "a", "b")
    echo = answering(one["b"])
    assert ask(one["a"], one["b"]) == {"echo": 1}
    assert echo.seen[0].remote_node_id == one["a"].node_id
    row = (await one["a"].request("GET", "/v1/peers")).body["items"][0]
    assert (row["node_id"], row["status"]) == (one["b"].node_id, "reachable")
    await one.close()


@in_loop
async def test_a_link_that_is_cut_and_healed_and_a_crash_of_either_end_in_an_answer() -> None:
    one = world("seed", "a", "b")
    a, b = one["a"], one["b"]
    answering(b)
    assert ask(a, b, 1) == {"echo": 1}
    one.drop("a", "b")
    with pytest.raises(PeerUnreachable):
        ask(a, b)
    one.heal("a", "b")
    one.advance(10)
    assert ask(a, b, 2) == {"echo": 2}
    one.crash("b")
    answering(b)
    assert ask(a, b, 3) == {"echo": 3}
    one.crash("a")
    assert ask(a, b, 4) == {"echo": 4}
    await one.close()


@in_loop
async def test_a_doubled_message_is_handled_once() -> None:
    one = world("seed", "a", "b")
    echo = answering(one["b"])
    one.fate = lambda _from, _to, _data: Fate((0.0, 0.2))
    for number in range(5):
        assert ask(one["a"], one["b"], number) == {"echo": number}
    one.advance(2)
    assert [message.payload for message in echo.seen] == list(range(5))
    await one.close()


def die_at(number: int, when: str) -> Callable[[str, int], None]:
    seen = 0

    def committing(at: str, _number: int) -> None:
        nonlocal seen
        if at == when:
            seen += 1
            if seen == number:
                raise Died(9)

    return committing


async def carried_out(one: World, victim: WorldNode, work: Callable[[], Any]) -> None:
    """Until it is answered or the victim is dead, which is then started again."""
    with suppress(AnabranchError, asyncio.CancelledError):
        await work()
    one.advance(1)
    if victim.node is None:
        victim.on_commit = lambda _when, _number: None
        victim.start()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("node", ["seed", "a"])
@pytest.mark.parametrize("number", range(1, 9))
@in_loop
async def test_killed_at_any_commit_a_passport_is_published_and_revoked_in_the_end(
    node: str, when: str, number: int
) -> None:
    one = world("seed", "a")
    a, victim = one["a"], one[node]
    victim.on_commit = die_at(number, when)
    await carried_out(one, victim, lambda: issue(a))
    await carried_out(one, victim, lambda: issue(a))
    await carried_out(one, victim, lambda: one.advance(120))
    assert await holders(a) == await holders(one["seed"]) == [a.node_id]
    (held,) = (await a.request("GET", "/v1/passports")).body["items"]
    named = {"passport_id": held["passport"]["passport_id"]}
    await carried_out(one, victim, lambda: a.request("POST", "/v1/passports/revoke", named))
    victim.on_commit = lambda _when, _number: None
    (held,) = (await a.request("GET", "/v1/passports")).body["items"]
    if not held["revoked"]:
        assert (await a.request("POST", "/v1/passports/revoke", named)).status == 200
    one.advance(120)
    assert await holders(a) == await holders(one["seed"]) == []
    for each in one.nodes:
        one.crash(each)
        laws_hold(each)
        assert await holders(each) == []
    await one.close()

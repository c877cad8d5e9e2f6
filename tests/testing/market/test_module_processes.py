"""Modules of the world are processes of their own: they are started and closed, they die alone or
with their node, and what they keep outlives both."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from anabranch.errors import AnabranchError
from anabranch.market.node.modules import part as modules
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch, Store
from anabranch.store.stream_ports import StreamCard, StreamCommit
from anabranch.testing.market import LastingModule, ModuleLife, NodeSpec, World
from anabranch.testing.market.disk import Died
from in_loop import in_loop

ROUTE = "/v1/enact/numbers"


class Numbers:
    """Keeps a stream of what it was told, says what it is doing, and asks its host."""

    def __init__(self, life: ModuleLife, store: MemoryStore, told: list[str]) -> None:
        self._host = life.host
        self._store: Store = life.disk(store)
        self._told = told
        self._beat: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await asyncio.sleep(1)
        self._told.append("started")
        self._beat = asyncio.ensure_future(self._beats())

    async def close(self) -> None:
        self._told.append("closed")
        if self._beat is not None:
            self._beat.cancel()

    async def _beats(self) -> None:
        while True:
            await asyncio.sleep(10)
            self._told.append("beat")

    async def handle(
        self, _method: str, path: str, _headers: Mapping[str, str], body: Any
    ) -> tuple[int, Any]:
        if path == "/v1/middleware/init":
            chain = {"chain": "inbound-local", "local_routes": [f"POST {ROUTE}"]}
            return 200, {"schema_version": "v1", "module_id": "numbers", "input_chains": [chain]}
        if path != "/v1/middleware/invoke":
            return 200, {}
        number = self._number() + 1
        self._keep(number)
        if body["body"] == "slow":
            await asyncio.sleep(2)
        said = await self._host("GET", "/v1/module/workflow/runs", None, {})
        patch = {"status": said.status, "body": {"number": number}}
        return 200, {"decision": "return", "reason": "counted", "patch": patch}

    def _number(self) -> int:
        card = self._store.node_streams.stream("numbers")  # type: ignore[union-attr]
        return card.seq if card is not None else 0

    def _keep(self, number: int) -> None:
        card = StreamCard(
            stream="numbers", family="number", seq=number, state=b"1", created_at=0, updated_at=0
        )
        row = StreamCommit(card=card, events=b"[1]", count=1, at=0)
        self._store.commit(Batch(streams=[row]))


def made(told: list[str]) -> World:
    numbers = LastingModule(
        lambda _clock: MemoryStore(), lambda life, store: Numbers(life, store, told)
    )
    spec = NodeSpec(name="a", modules={"numbers": numbers})
    world = World([spec], makers=lambda: [(modules.make, modules.FAMILIES)])
    world.advance(5)
    return world


async def count(world: World, how: str = "") -> int:
    status, body = await world["a"].request("POST", ROUTE, how)
    assert status == 200, body
    return int(body["number"])


@in_loop
async def test_a_module_is_started_before_its_first_request_and_closed_in_order() -> None:
    told: list[str] = []
    world = made(told)
    assert told == ["started"]
    assert await count(world) == 1
    world.advance(10)
    await world.close()
    assert told == ["started", "beat", "closed"]


@in_loop
async def test_what_a_module_keeps_outlives_its_process_and_that_of_its_node() -> None:
    told: list[str] = []
    world = made(told)
    assert await count(world) == 1
    world.crash("a", down_seconds=30)
    world.advance(5)
    assert await count(world) == 2
    world.crash_module("a", "numbers")
    world.advance(5)
    assert await count(world) == 3
    assert told == ["started"] * 3, "no process of a module outlives a kill, and none is closed"


@in_loop
async def test_a_module_dies_alone_and_its_node_starts_it_again() -> None:
    world = made([])
    before = (await world["a"].request("GET", "/v1/modules/numbers")).body
    world.crash_module("a", "numbers")
    world.rest()  # the node notices
    assert (await world["a"].request("POST", ROUTE, "")).status == 503
    world.advance(5)
    after = (await world["a"].request("GET", "/v1/modules/numbers")).body
    assert (before["state"], after["state"]) == ("ready", "ready")
    assert after["restarts"] == before["restarts"] + 1
    assert after["last_problem"]["code"] == "crashed"
    assert world["a"].lives == 1


@in_loop
async def test_a_request_to_a_module_that_dies_meanwhile_is_answered_as_failed() -> None:
    world = made([])
    node = world["a"]
    node.loop.call_later(1, node.modules["numbers"].kill)
    status, body = await node.request("POST", ROUTE, "slow")
    assert (status, body["code"]) == (502, "module_failed")


@pytest.mark.parametrize(("when", "kept"), [("before", 0), ("after", 1)])
@in_loop
async def test_a_module_can_die_just_before_and_just_after_a_commit_of_its_own(
    when: str, kept: int
) -> None:
    world = made([])
    module = world["a"].modules["numbers"]

    def die(at: str, _number: int) -> None:
        if at == when:
            raise Died(9)

    module.on_commit = die
    assert (await world["a"].request("POST", ROUTE, "")).status == 502
    module.on_commit = lambda _when, _number: None
    world.advance(5)
    assert await count(world) == kept + 1
    assert (module.lives, module.commits) == (2, 2)


@in_loop
async def test_two_nodes_of_one_recipe_keep_their_own() -> None:
    numbers = LastingModule(
        lambda _clock: MemoryStore(), lambda life, store: Numbers(life, store, [])
    )
    specs = [NodeSpec(name=name, modules={"numbers": numbers}) for name in "ab"]
    world = World(specs, makers=lambda: [(modules.make, modules.FAMILIES)])
    world.advance(5)
    for node in world.nodes:
        assert (await node.request("POST", ROUTE, "")).body == {"number": 1}
    assert world["a"].modules["numbers"].kept is not world["b"].modules["numbers"].kept


@in_loop
async def test_a_module_that_cannot_begin_ends_and_is_no_defect_of_the_world() -> None:
    class Broken:
        async def start(self) -> None:
            raise AnabranchError("no room")

        async def handle(self, *_call: Any) -> tuple[int, Any]:
            return 200, msgspec.UNSET

    world = World(
        [NodeSpec(name="a", modules={"broken": lambda _host: Broken()})],
        makers=lambda: [(modules.make, modules.FAMILIES)],
    )
    world.advance(60)
    shown = (await world["a"].request("GET", "/v1/modules/broken")).body
    assert not shown["ready"]
    assert shown["last_problem"]["code"] == "crashed"
    assert shown["restarts"] > 5, "it is started again and again"


@in_loop
async def test_a_module_that_dies_while_it_begins_is_started_again() -> None:
    told: list[str] = []
    world = made(told)
    world.crash_module("a", "numbers")
    world.advance(0.5)  # it begins, which takes it a second
    world.crash_module("a", "numbers")
    world.advance(5)
    assert await count(world) == 1
    assert told == ["started", "started"]

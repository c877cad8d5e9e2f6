"""Deliveries under crashes at every commit, and with lost, doubled and late messages.

Whatever happens: an artifact is admitted once, the ledger keeps its laws, every card is the replay
of its stream, and a delivery that has the time for it arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pytest

from anabranch.errors import AnabranchError
from anabranch.market.node.deferred.laws import broken as broken_operations
from anabranch.market.node.deferred.laws import broken_history as broken_operation_history
from anabranch.market.node.deferred.records import OPERATIONS
from anabranch.market.node.delivery import laws
from anabranch.market.node.delivery.admission_records import ADMISSIONS, INBOX, ORDERS_TAKEN
from anabranch.market.node.delivery.records import CONTENTS, DELIVERIES
from anabranch.market.node.entities import Family
from anabranch.market.node.ports import Acceptance
from anabranch.testing.market import Fate, World, WorldNode
from anabranch.testing.market.disk import Died
from in_loop import in_loop
from market.node.delivery.support import (
    ACCEPTOR,
    SCHEMA,
    Module,
    Outside,
    artifact,
    carrying,
    delivery_world,
    dispatch_request,
    envelope,
    send,
    stage,
)
from seeds import seeds

FAMILIES: tuple[Family[Any], ...] = (
    DELIVERIES, CONTENTS, ADMISSIONS, ORDERS_TAKEN, INBOX, OPERATIONS,
)  # fmt: skip
HISTORIES: dict[str, Callable[..., Any]] = {
    DELIVERIES.name: laws.broken_delivery_history,
    ADMISSIONS.name: laws.broken_admission_history,
    OPERATIONS.name: broken_operation_history,
}
_encode = msgspec.json.Encoder(order="deterministic").encode


def require_histories(node: WorldNode) -> None:
    """The state of every stream is the replay of its events, and its history keeps the laws."""
    streams = node.store.node_streams
    for name in streams.stream_names():
        card = streams.stream(name)
        assert card is not None
        family = next(one for one in FAMILIES if one.name == card.family)
        events = [
            event for row in streams.stream_events(name) for event in family.events_in(row.events)
        ]
        state = None
        for event in events:
            state = family.evolve(state, event)
        assert _encode(state) == card.state
        assert card.open == family.is_open(state)
        if family.name in HISTORIES:
            assert list(HISTORIES[family.name](name, events)) == []


def require_laws(world: World) -> None:
    others = {one.node_id: one.entities for one in world.nodes}
    for one in world.nodes:
        require_histories(one)
        assert one.run(laws.broken(one.entities)) == []
        assert one.run(broken_operations(one.entities)) == []
        assert one.run(laws.broken_between(one.entities, one.node_id, others)) == []


#: What a caller sees of a node that dies while it is asked.
GONE = (AnabranchError, asyncio.CancelledError)


def revive(world: World) -> None:
    for one in world.nodes:
        while one.node is None:
            with suppress(*GONE):  # it may die while it opens
                one.start()


async def settle(world: World, seconds: int) -> None:
    for _ in range(seconds):
        revive(world)
        await world.advance(1)
    revive(world)


class Crash:
    """Kills a node at its commit with that number, just before or just after it."""

    def __init__(self, node: WorldNode, number: int, when: str) -> None:
        self.happened = False
        self._number, self._when = node.commits + number, when
        node.on_commit = self

    def __call__(self, when: str, number: int) -> None:
        if not self.happened and when == self._when and number >= self._number:
            self.happened = True
            raise Died(9)


async def deferred(world: World, name: str, document: Any) -> str:
    while True:
        revive(world)
        try:
            answer = await send(world[name], document, query="?mode=deferred")
        except GONE:
            continue  # the host died meanwhile: a module sends the same again
        assert answer.status == 202
        return str(answer.body["audit/outcome-ref"])


FALLBACK_COMMITS = 4  # one more than any node makes for it
ORDER_COMMITS = 6


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("victim", ["a", "b", "c"])
@pytest.mark.parametrize("number", range(1, FALLBACK_COMMITS + 1))
@in_loop
async def test_a_crash_at_any_commit_loses_and_doubles_nothing(
    number: int, victim: str, when: str
) -> None:
    """`c` does not want it, so that it goes to `b`."""
    outside = Outside()
    module = Module([1.0])
    unwilling = Acceptance(status="rejected", acceptor_id=ACCEPTOR, reason="no")
    outside.modules["b"] = {SCHEMA: module}
    outside.modules["c"] = {SCHEMA: Module([unwilling] * 9)}
    world = delivery_world("a", "b", "c", outside=outside, config={"stage_timeout_ms": 3000})
    crash = Crash(world[victim], number, when)
    plan = stage("s", world["c"]), stage("t", world["b"])
    delivery_id = await deferred(world, "a", envelope(*plan))
    await settle(world, 30)
    assert number < FALLBACK_COMMITS or not crash.happened  # every commit had its turn
    delivery = world["a"].entities.get(DELIVERIES, delivery_id)
    assert delivery.status == "succeeded"
    assert len(module.effects) == 1
    require_laws(world)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("victim", ["buyer", "provider"])
@pytest.mark.parametrize("number", range(1, ORDER_COMMITS + 1))
@in_loop
async def test_a_request_and_its_result_survive_a_crash_at_any_commit(
    number: int, victim: str, when: str
) -> None:
    outside = Outside()
    world = delivery_world("buyer", "provider", outside=outside, config={"stage_timeout_ms": 3000})
    crash = Crash(world[victim], number, when)
    request = dispatch_request(world["buyer"], world["provider"])
    await deferred(world, "buyer", carrying(request, world["provider"]))
    await settle(world, 20)
    (entry,) = world["provider"].entities.each_open(INBOX)
    body = {"status": "completed", "output": "done"}
    for _ in range(2):  # the operator tries again where the host died meanwhile
        revive(world)
        try:
            await world["provider"].request("POST", f"/v1/inbox/{entry[0]}/answer", body)
            break
        except GONE:
            pass
    await settle(world, 40)
    assert number < ORDER_COMMITS or not crash.happened
    said = outside.orders_of("buyer").said
    assert {one[0] for one in said} == {"prepared", "dispatched", "result"}
    assert list(outside.orders_of("buyer").closed) == [request["request_id"]]
    for family in (DELIVERIES, ADMISSIONS, INBOX):
        for one in world.nodes:
            assert list(one.entities.each_open(family)) == []
    require_laws(world)


@pytest.mark.parametrize("seed", seeds(200))
@in_loop
async def test_random_faults_admit_every_artifact_once(seed: int) -> None:
    chance = Random(seed)
    outside = Outside()
    modules = {name: Module() for name in "bc"}
    for name, module in modules.items():
        outside.modules[name] = {SCHEMA: module}
    config = {
        "stage_timeout_ms": 2000,
        "retry_seconds_max": 4,
        "max_in_flight": chance.choice((3, 9)),
        "max_per_peer": chance.choice((1, 9)),  # with one, those that wait go together
    }
    world = delivery_world("a", "b", "c", outside=outside, config=config)
    calm = False

    def fate(_a: WorldNode, _b: WorldNode, _data: bytes) -> Fate:
        if calm:
            return Fate()
        delays = tuple(chance.choice((0.0, 0.5, 3.0, 9.0)) for _ in range(chance.randrange(3)))
        return Fate(delays=delays, answered=chance.random() < 0.7)

    world.fate = fate
    for one in world.nodes:
        one.on_commit = lambda _when, _number: _die_sometimes(chance, calm)
    ids = []
    for number in range(4):
        targets = chance.choice((["b"], ["b", "c"]))
        policy = chance.choice(("all", "any"))
        plan = [stage("s", *(world[name] for name in targets), success__policy=policy)]
        if chance.random() < 0.4:
            plan.append(stage("t", world["c"]))
        ids.append(await deferred(world, "a", envelope(*plan, artifact=artifact(number))))
        await settle(world, chance.randrange(4))
    calm = True
    await settle(world, 60)
    for delivery_id in ids:
        assert world["a"].entities.get(DELIVERIES, delivery_id).status == "succeeded"
    for module in modules.values():
        digests = [digest for _, digest in module.effects]
        assert len(digests) == len(set(digests))
    require_laws(world)


def _die_sometimes(chance: Random, calm: bool) -> None:
    if not calm and chance.random() < 0.04:
        raise Died(9)

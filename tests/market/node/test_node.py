"""A node comes up whole or not at all, goes down whole, and one part that fails stops no other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from anabranch.clock import SystemClock
from anabranch.errors import InputError, StoreError
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.entities import Family
from anabranch.market.node.node import Node
from anabranch.market.node.ports import NodeConfig, NodeContext
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch
from hangs import HANG_SECONDS
from in_loop import in_loop


class Alarm(msgspec.Struct, frozen=True):
    at: int


ALARMS: Family[Alarm] = Family(
    "alarm",
    Alarm,
    Alarm,
    lambda _state, event: event,
    is_open=lambda alarm: alarm.at > 0,
    wake=lambda alarm: alarm.at,
)


class FakePart:
    """Notes what is done with it; raises in what `fails` names."""

    def __init__(self, context: NodeContext, name: str, log: list[str], fails: str = "") -> None:
        self._context, self._name, self._log, self._fails = context, name, log, fails
        self.woken: dict[str, int] = {}
        self.rang = asyncio.Event()

    def endpoints(self) -> Sequence[Endpoint]:
        if self._name != "first":
            return ()
        return (
            Endpoint(method="GET", path="/alarm", scopes=("open",), handler=self._show, summary=""),
        )

    async def _show(self, _call: Call) -> Answer:
        alarm = self._context.entities.get(ALARMS, "a")
        return Answer(body={"at": alarm.at if alarm else 0})

    async def open(self) -> None:
        self._note("open")
        self._context.spawn(self._for_ever())
        await asyncio.sleep(0)  # it begins

    async def close(self) -> None:
        self._note("close")

    async def wake(self, family: Family[Any], thing: str) -> None:
        self.woken[thing] = self.woken.get(thing, 0) + 1
        if thing == "broken":
            raise LookupError("a defect")
        with self._context.entities.change() as change:
            change.add(family, thing, Alarm(0))
        self.rang.set()

    async def _for_ever(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._log.append(f"{self._name} ended")

    def _note(self, verb: str) -> None:
        self._log.append(f"{verb} {self._name}")
        if verb == self._fails:
            raise InputError(f"{self._name} cannot {verb}")


def node_of(log: list[str], store: MemoryStore | None = None, **fails: str) -> Node:
    def maker(name: str) -> Any:
        return lambda context: FakePart(context, name, log, fails.get(name, ""))

    names = ("first", "second", "third")
    makers = [(maker(name), (ALARMS,) if name == "first" else ()) for name in names]
    unused: Any = None
    store = store or MemoryStore()
    return Node(store, SystemClock(), unused, NodeConfig(), unused, makers)


@in_loop
async def test_a_node_that_cannot_open_leaves_nothing_that_runs() -> None:
    log: list[str] = []
    node = node_of(log, second="open")
    with pytest.raises(InputError, match="second cannot open"):
        await node.open()
    assert log == ["open first", "open second", "close second", "close first", "first ended"]
    await node.close()
    assert len(log) == 5, "and there is nothing to close twice"


@in_loop
async def test_a_part_that_cannot_close_keeps_no_other_open() -> None:
    log: list[str] = []
    node = node_of(log, third="close")
    await node.open()
    await asyncio.sleep(0)
    log.clear()
    with pytest.raises(InputError, match="third cannot close"):
        await node.close()
    assert log[:3] == ["close third", "close second", "close first"]
    assert sorted(log[3:]) == ["first ended", "second ended", "third ended"]


@in_loop
async def test_what_cannot_be_woken_is_told_once_and_holds_up_nothing_else() -> None:
    defects: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, said: defects.append(said))
    node = node_of([])
    await node.open()
    part: Any = node.parts[0]
    for thing in ("broken", "fine", "fine, too"):
        part.rang.clear()
        with node.entities.change() as change:
            change.add(ALARMS, thing, Alarm(1))
        await node.entities.durable()
        if thing != "broken":
            async with asyncio.timeout(HANG_SECONDS):
                await part.rang.wait()
    with node.entities.change() as change:
        change.add(ALARMS, "soon", Alarm(node.context.clock.now() + 20))
    await node.entities.durable()
    part.rang.clear()
    async with asyncio.timeout(HANG_SECONDS):
        await part.rang.wait()
    assert part.woken == {"broken": 1, "fine": 1, "fine, too": 1, "soon": 1}
    assert [type(one["exception"]) for one in defects] == [LookupError]
    assert "state/alarm/broken" in defects[0]["message"]
    await node.close()


@in_loop
async def test_a_node_that_could_not_write_closes_without_a_further_error() -> None:
    class Full(MemoryStore):
        def commit(self, batch: Batch) -> None:  # noqa: ARG002
            raise StoreError("no room")

    log: list[str] = []
    node = node_of(log, Full())
    await node.open()
    with node.entities.change() as change:
        change.add(ALARMS, "a", Alarm(1))
    with pytest.raises(StoreError, match="no room"):
        await node.entities.durable()
    await node.close()
    assert log[-6:-3] == ["close third", "close second", "close first"]


@in_loop
async def test_a_task_that_fails_is_told_to_the_loop() -> None:
    defects: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, said: defects.append(said))
    node = node_of([])
    await node.open()

    async def broken() -> None:
        raise LookupError("a defect")

    node.context.spawn(broken())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await node.close()
    assert [type(one["exception"]) for one in defects] == [LookupError]


@pytest.mark.parametrize(("fails", "status"), [(False, 200), (True, 503)])
@in_loop
async def test_an_answer_that_rests_on_what_is_not_durable_yet_waits(
    fails: bool, status: int
) -> None:
    class Slow(MemoryStore):
        begun, go = threading.Event(), threading.Event()

        def commit(self, batch: Batch) -> None:
            self.begun.set()
            assert self.go.wait(HANG_SECONDS)
            if fails:
                raise StoreError("no room")
            super().commit(batch)

    store = Slow()
    node = node_of([], store)
    node._writer._seconds = 1.0  # a slow disk: commits are made in the thread
    await node.open()
    with node.entities.change() as change:
        change.add(ALARMS, "a", Alarm(2**50))
    writing = asyncio.ensure_future(node.entities.durable())
    while not store.begun.is_set():
        await asyncio.sleep(0.001)
    asked = asyncio.ensure_future(node.handle(Call(method="GET", path="/alarm")))
    await asyncio.wait((asked,), timeout=0.02)
    assert not asked.done(), "it has seen an alarm that may be lost"
    store.go.set()
    answer = await asked
    assert answer.status == status
    assert (answer.body == {"at": 2**50}) is not fails
    await asyncio.wait((writing,))
    assert (writing.exception() is not None) is fails
    await node.close()

"""Things and their streams against a plain dictionary: random blocks, writes that take their time,
crashes between them, and opening again.

The laws: what is in the store after a crash is what some number of whole blocks comes to, never
fewer than `durable` has promised; a card is the replay of its stream, byte by byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.clock import ManualClock
from anabranch.market.node import entities as entities_module
from anabranch.market.node.check import check_streams
from anabranch.market.node.entities import Entities, Family
from anabranch.runtime.writer import Writer
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch, Store
from anabranch.store.sqlite.store import SqliteStore


class Added(msgspec.Struct, frozen=True, tag="added"):
    amount: int


class Reset(msgspec.Struct, frozen=True, tag="reset"):
    pass


class Sum(msgspec.Struct, frozen=True):
    total: int = 0
    changes: int = 0


def evolve(state: Sum | None, event: Added | Reset) -> Sum:
    state = state or Sum()
    total = 0 if isinstance(event, Reset) else state.total + event.amount
    return Sum(total, state.changes + 1)


def is_open(state: Sum) -> bool:
    return state.total % 3 != 0


FAMILIES = tuple(
    Family(
        name,
        Sum,
        Added | Reset,
        evolve,
        is_open=is_open,
        wake=lambda state: state.total if state.total % 2 else None,
        group=lambda state: "even" if state.changes % 2 == 0 else "",
    )
    for name in ("account", "account-hold")
)
Model = dict[tuple[str, str], Sum]

#: (family, thing, event): one block is a list of these.
EVENTS = st.one_of(st.builds(Added, st.integers(-3, 5)), st.just(Reset()))
BLOCKS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from("abc"), EVENTS), min_size=1, max_size=4
)
STEPS = st.lists(
    st.one_of(BLOCKS, st.sampled_from(["durable", "pass", "raise", "crash", "listed"])), max_size=25
)


@pytest.fixture(autouse=True, scope="module")
def _little_memory() -> Iterator[None]:
    """Closed things are read from the store again and again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entities_module, "CLOSED_KEPT", 1)
        yield


class SlowWriter(Writer):
    """Lets others have their turn before and after a commit, as a thread and a disk do."""

    async def write(self, batch: Batch, then: Callable[[], None]) -> None:
        for _ in range(2):
            await asyncio.sleep(0)
        self._journal.commit(batch)
        await asyncio.sleep(0)
        then()


class Life:
    """One store over several lives of a node, and the model after each block."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.after: list[Model] = [{}]
        self.promised = 0  # blocks that are known to be durable
        self.clock = ManualClock(1000)

    async def live(self, steps: list[Any]) -> None:
        """Until the steps end or the node crashes; takes the steps that it has done."""
        entities = Entities(self.store, self.clock, SlowWriter(self.store), FAMILIES)
        entities.load()
        told: list[tuple[str, str, Any, Any]] = []
        self.changes: list[tuple[str, str, Any, Any]] = []
        entities.listen(lambda one: told.append((one.family.name, one.thing, *one[2:])))
        self.compare(entities)
        while steps:
            self.clock.advance_to(self.clock.now() + 1)
            step = steps.pop(0)
            if step == "crash":
                return
            await self._do(entities, step)
            self.compare(entities)
            assert told == self.changes[: len(told)], "news come in the order of the blocks"
        await entities.durable()
        self.promised = len(self.after) - 1
        assert told == self.changes

    async def _do(self, entities: Entities, step: Any) -> None:
        match step:
            case "durable":
                await self._durable(entities)
            case "pass":
                asyncio.get_running_loop().call_soon(lambda: None)
                await asyncio.sleep(0)
            case "raise":
                with pytest.raises(ZeroDivisionError):
                    self._raise(entities)
            case "listed":
                await self._listed(entities)
            case _:
                self._block(entities, step)

    def _raise(self, entities: Entities) -> None:
        with entities.change() as change:
            change.add(FAMILIES[0], "a", Added(1))
            1 / 0  # noqa: B018

    def _block(self, entities: Entities, step: list[tuple[int, str, Any]]) -> None:
        model = dict(self.after[-1])
        with entities.change() as change:
            for number, thing, event in step:
                family = FAMILIES[number]
                key = family.name, thing
                model[key] = evolve(model.get(key), event)
                assert change.add(family, thing, event) == model[key]
                assert change.get(family, thing) == model[key]
        touched = dict.fromkeys((FAMILIES[number].name, thing) for number, thing, _ in step)
        before = self.after[-1]
        self.changes += [(*key, before.get(key), model[key]) for key in touched]
        self.after.append(model)
        # Written without being waited for, so that later blocks join a write that is on its way.
        asyncio.get_running_loop().create_task(self._durable(entities))

    async def _durable(self, entities: Entities) -> None:
        mark = len(self.after) - 1
        await entities.durable()
        self.promised = max(self.promised, mark)

    async def _listed(self, entities: Entities) -> None:
        mark = len(self.after) - 1
        for family in FAMILIES:
            found = {thing: state for thing, state, _ in await entities.listed(family)}
            here = {
                thing: state for (name, thing), state in self.after[mark].items()
                if name == family.name
            }  # fmt: skip
            assert found == here

    def compare(self, entities: Entities) -> None:
        model = self.after[-1]
        for family in FAMILIES:
            here = {thing: state for (name, thing), state in model.items() if name == family.name}
            opened = {thing: state for thing, state in here.items() if is_open(state)}
            assert dict(entities.each_open(family)) == opened
            assert entities.count_open(family) == len(opened)
            assert {thing: entities.get(family, thing) for thing in "abc"} == {
                thing: here.get(thing) for thing in "abc"
            }
        wakes = sorted(
            (state.total, *key)
            for key, state in model.items()
            if is_open(state) and state.total % 2
        )
        assert entities.next_wake() == (wakes[0][0] if wakes else None)
        assert [(family.name, thing) for family, thing in entities.due(3)] == [
            (name, thing) for at, name, thing in wakes if at <= 3
        ]

    def after_a_crash(self) -> None:
        """What is durable is a number of whole blocks; the node goes on from there."""
        found = stored(self.store)
        whole = [number for number, model in enumerate(self.after) if model == found]
        assert whole, "the store holds part of a block"
        assert whole[-1] >= self.promised, "what was durable is lost"
        self.after = self.after[: whole[-1] + 1]
        self.promised = min(self.promised, whole[-1])


def stored(store: Store) -> Model:
    assert store.node_streams is not None
    found: Model = {}
    for name in store.node_streams.stream_names():
        card = store.node_streams.stream(name)
        assert card is not None
        (family,) = (one for one in FAMILIES if one.name == card.family)
        found[family.name, family.thing(name)] = family.state_in(card)
    return found


def play(store: Store, steps: list[Any]) -> None:
    life = Life(store)
    steps = list(steps)
    while True:
        asyncio.run(life.live(steps))
        life.after_a_crash()
        assert store.node_streams is not None
        report = check_streams(store.node_streams, FAMILIES)
        assert (report.problems, report.older) == ([], 0)
        if not steps:
            return


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_node_in_memory_is_what_a_dictionary_says(steps: list[Any]) -> None:
    play(MemoryStore(), steps)


@settings(max_examples=12, deadline=None)
@given(STEPS)
def test_a_node_in_a_file_is_what_a_dictionary_says(steps: list[Any]) -> None:
    with TemporaryDirectory() as place:
        store = SqliteStore(Path(place) / "node.db", synchronous="NORMAL")
        try:
            play(store, steps)
        finally:
            store.close()

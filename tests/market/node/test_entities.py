"""Things that events change: one transaction a block, seen at once, durable in order."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

import anabranch.market.node.entities as entities_module
from anabranch.clock import ManualClock
from anabranch.errors import Conflict, StoreError
from anabranch.market.node.check import check_streams, rebuild
from anabranch.market.node.entities import Changed, Entities, Family
from anabranch.runtime.writer import Writer
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch
from anabranch.store.sqlite.store import SqliteStore
from costs import operations
from hangs import HANG_SECONDS


class Added(msgspec.Struct, frozen=True, tag="added"):
    amount: int


class Sum(msgspec.Struct, frozen=True):
    total: int = 0


def add(state: Sum | None, event: Added) -> Sum:
    return Sum((state.total if state else 0) + event.amount)


SUMS = Family("sum", Sum, Added, add, is_open=lambda state: state.total < 10)


class Set(msgspec.Struct, frozen=True, tag="set"):
    amount: int


def set_or_add(state: Sum | None, event: Added | Set) -> Sum:
    return Sum(event.amount) if isinstance(event, Set) else add(state, event)


NEWEST = Family(
    "newest", Sum, Added | Set, set_or_add, begins_anew=lambda event: isinstance(event, Set)
)


def entities_on(store: MemoryStore) -> Entities:
    return Entities(store, ManualClock(1000), Writer(store), (SUMS,))


def test_a_block_is_seen_at_once_and_told_when_it_is_durable() -> None:
    async def scenario() -> None:
        entities = entities_on(MemoryStore())
        told: list[Changed] = []
        entities.listen(told.append)
        with entities.change() as change:
            assert change.add(SUMS, "a", Added(1)) == Sum(1)
            assert change.add(SUMS, "a", Added(2)) == Sum(3)
        assert entities.get(SUMS, "a") == Sum(3)
        assert told == []
        await entities.durable()
        assert [(one.thing, one.before, one.after) for one in told] == [("a", None, Sum(3))]

    asyncio.run(scenario())


def test_a_block_that_raises_changes_nothing() -> None:
    async def scenario() -> None:
        entities = entities_on(MemoryStore())

        def broken() -> None:
            with entities.change() as change:
                change.add(SUMS, "a", Added(1))
                change.add(SUMS, "a", Added("two"))  # type: ignore[arg-type]

        with pytest.raises(TypeError):
            broken()
        await entities.durable()
        assert entities.get(SUMS, "a") is None

    asyncio.run(scenario())


def test_opened_again_it_has_what_was_durable_and_only_what_is_open_in_memory() -> None:
    store = MemoryStore()

    async def scenario() -> None:
        entities = entities_on(store)
        for thing, amount in (("a", 1), ("b", 20)):
            with entities.change() as change:
                change.add(SUMS, thing, Added(amount))
        await entities.durable()
        again = entities_on(store)
        again.load()
        assert list(again.each_open(SUMS)) == [("a", Sum(1))]
        assert again.get(SUMS, "b") == Sum(20)
        assert [thing for thing, _, _ in await again.listed(SUMS)] == ["b", "a"]

    asyncio.run(scenario())


def test_a_write_that_fails_ends_the_node() -> None:
    class Full(MemoryStore):
        def commit(self, batch: Batch) -> None:  # noqa: ARG002
            raise StoreError("no room")

    async def scenario() -> None:
        entities = entities_on(Full())
        with entities.change() as change:
            change.add(SUMS, "a", Added(1))
        with pytest.raises(StoreError, match="no room"):
            await entities.durable()
        with pytest.raises(StoreError, match="start it again"), entities.change():
            pass

    asyncio.run(scenario())


class Slow(MemoryStore):
    """Each commit takes as long as the test says, in the thread of the writer."""

    def __init__(self) -> None:
        super().__init__()
        self.go = [threading.Event() for _ in range(3)]
        self.commits = 0

    def commit(self, batch: Batch) -> None:
        self.commits += 1
        assert self.go[self.commits - 1].wait(HANG_SECONDS)
        super().commit(batch)


def test_who_waits_for_a_write_does_not_wait_for_those_that_come_after_it() -> None:
    async def scenario() -> None:
        store = Slow()
        entities = entities_on(store)
        entities._writer._seconds = 1.0  # a slow disk: commits are made in the thread
        with entities.change() as change:
            change.add(SUMS, "a", Added(1))
        first = asyncio.ensure_future(entities.durable())
        while not store.commits:
            await asyncio.sleep(0.001)
        with entities.change() as change:
            change.add(SUMS, "b", Added(1))
        second = asyncio.ensure_future(entities.durable())
        store.go[0].set()
        async with asyncio.timeout(HANG_SECONDS):
            await first
        assert not second.done()
        store.go[1].set()
        await second

    asyncio.run(scenario())


def test_a_conflict_in_the_store_is_told_as_a_failure_of_the_node() -> None:
    class Taken(MemoryStore):
        def commit(self, batch: Batch) -> None:  # noqa: ARG002
            raise Conflict("another process wrote this stream")

    async def scenario() -> None:
        entities = entities_on(Taken())
        with entities.change() as change:
            change.add(SUMS, "a", Added(1))
        with pytest.raises(StoreError, match="start it again"):
            await entities.durable()

    asyncio.run(scenario())


def test_a_listener_that_raises_stops_neither_the_node_nor_the_other_listeners() -> None:
    async def scenario() -> None:
        defects: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, said: defects.append(said))
        entities = entities_on(MemoryStore())
        told: list[Changed] = []
        entities.listen(lambda _changed: [].pop())
        entities.listen(told.append)
        for thing in ("a", "b"):
            with entities.change() as change:
                change.add(SUMS, thing, Added(1))
            await entities.durable()
        assert [one.thing for one in told] == ["a", "b"]
        assert [type(one["exception"]) for one in defects] == [IndexError, IndexError]

    asyncio.run(scenario())


class Noted(msgspec.Struct, frozen=True, tag="noted"):
    text: str


NOTES: Family[Sum] = Family(
    "note", Sum, Noted, lambda state, _event: state or Sum(), is_open=lambda _state: True
)


def test_a_block_with_an_event_that_cannot_be_written_changes_nothing() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        entities = Entities(store, ManualClock(1000), Writer(store), (SUMS, NOTES))
        with entities.change() as change:
            change.add(NOTES, "n", Noted("fine"))

        def block() -> None:
            with entities.change() as change:
                change.add(SUMS, "a", Added(1))
                change.add(NOTES, "n", Noted("half a character: \ud800"))

        with pytest.raises(UnicodeEncodeError):
            block()
        await entities.durable()
        assert entities.get(SUMS, "a") is None
        assert [thing for thing, _ in entities.each_open(NOTES)] == ["n"]

    asyncio.run(scenario())


@pytest.mark.parametrize("state", [b"[]", b"{", b'{"total":"x"}'])
def test_a_damaged_card_is_named(state: bytes) -> None:
    store = written_by_an_earlier_version()
    card = store.node_streams.stream("state/sum/a")
    assert card is not None
    store.node_streams.renew_cards([msgspec.structs.replace(card, state=state)])
    entities = entities_on(store)
    with pytest.raises(StoreError, match=r"state/sum/a .*node check"):
        entities.load()


def test_what_waits_to_be_written_stays_in_memory_at_the_same_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entities_module, "CLOSED_KEPT", 20)
    entities = entities_on(MemoryStore())
    names = count(1)

    def changes() -> None:
        for _ in range(20):
            with entities.change() as change:
                change.add(SUMS, f"closed {next(names)}", Added(10))

    changes()
    first = operations(changes)
    for _ in range(10):
        changes()
    assert operations(changes) < 1.5 * first
    assert len(entities._closed) == 260
    asyncio.run(entities.durable())
    changes()
    assert len(entities._closed) == 20


def test_closed_things_in_memory_have_a_limit_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entities_module, "CLOSED_BYTES", 100)

    async def scenario() -> None:
        entities = entities_on(MemoryStore())
        for round_ in range(2):
            for number in range(30):
                with entities.change() as change:
                    change.add(SUMS, f"n{number}", Added(20))
                await entities.durable()
            assert 0 < len(entities._closed) <= 100 // len('{"total":20}')
            sizes = [len(entry.card.state) for entry in entities._closed.values()]
            assert entities._closed_bytes == sum(sizes) <= 100
            found = [entities.get(SUMS, f"n{number}") for number in range(30)]
            assert found == [Sum(20 + 20 * round_)] * 30, "the others are in the store"

    asyncio.run(scenario())


def test_a_block_whose_family_raises_changes_nothing() -> None:
    def group(state: Sum) -> str:
        return str(1 // (state.total - 7))

    fussy = Family("fussy", Sum, Added, add, is_open=lambda _state: True, group=group)

    async def scenario() -> None:
        store = MemoryStore()
        entities = Entities(store, ManualClock(1000), Writer(store), (SUMS, fussy))

        def block() -> None:
            with entities.change() as change:
                change.add(SUMS, "a", Added(1))
                change.add(fussy, "b", Added(7))

        with pytest.raises(ZeroDivisionError):
            block()
        await entities.durable()
        assert entities.get(SUMS, "a") is None
        assert list(entities.each_open(fussy)) == []

    asyncio.run(scenario())


def test_a_block_that_would_lose_the_events_of_another_is_refused() -> None:
    async def scenario() -> None:
        entities = entities_on(MemoryStore())

        def blocks(outside: str, inside: str) -> None:
            with entities.change() as outer:
                outer.add(SUMS, outside, Added(1))
                with entities.change() as inner:
                    inner.add(SUMS, inside, Added(2))

        with pytest.raises(RuntimeError, match="state/sum/a"):
            blocks("a", "a")
        blocks("b", "a")
        await entities.durable()
        assert (entities.get(SUMS, "a"), entities.get(SUMS, "b")) == (Sum(4), Sum(1))

    asyncio.run(scenario())


def test_what_is_closed_and_old_is_forgotten_and_can_begin_anew() -> None:
    store = MemoryStore()

    async def scenario() -> None:
        entities = entities_on(store)
        for thing, amount in (("open", 1), ("old", 20), ("young", 30)):
            with entities.change() as change:
                change.add(SUMS, thing, Added(amount))
            assert isinstance(entities.clock, ManualClock)
            entities.clock.advance_to(entities.clock.now() + 10)
        assert await entities.forget(SUMS, 1020) == 1
        assert entities.get(SUMS, "old") is None
        assert entities.get(SUMS, "young") == Sum(30)
        assert list(entities.each_open(SUMS)) == [("open", Sum(1))]
        with entities.change() as change:
            change.add(SUMS, "old", Added(2))
        await entities.durable()
        assert entities.get(SUMS, "old") == Sum(2)

    asyncio.run(scenario())


class LaterSum(msgspec.Struct, frozen=True):
    """What a later version makes of it: without the changes, with a note."""

    total: int = 0
    note: str = "none"


def later(state: LaterSum | None, event: Added) -> LaterSum:
    return LaterSum((state.total if state else 0) + event.amount)


class CountedSum(msgspec.Struct, frozen=True):
    total: int = 0
    changes: int = 0


def counted(state: CountedSum | None, event: Added) -> CountedSum:
    state = state or CountedSum()
    return CountedSum(state.total + event.amount, state.changes + 1)


EARLIER = Family("sum", CountedSum, Added, counted, is_open=lambda state: state.total < 10)
LATER = Family("sum", LaterSum, Added, later, is_open=lambda state: state.total < 20)


def written_by_an_earlier_version() -> MemoryStore:
    store = MemoryStore()

    async def scenario() -> None:
        entities = Entities(store, ManualClock(1000), Writer(store), (EARLIER,))
        for thing, amount in (("a", 1), ("b", 12), ("c", 30)):
            with entities.change() as change:
                change.add(EARLIER, thing, Added(amount))
        await entities.durable()

    asyncio.run(scenario())
    return store


def test_a_later_version_reads_what_an_earlier_one_has_written() -> None:
    store = written_by_an_earlier_version()

    async def scenario() -> None:
        entities = Entities(store, ManualClock(2000), Writer(store), (LATER,))
        entities.load()
        assert list(entities.each_open(LATER)) == [("a", LaterSum(1))]
        with entities.change() as change:
            change.add(LATER, "a", Added(1))
        await entities.durable()
        assert entities.get(LATER, "a") == LaterSum(2)

    asyncio.run(scenario())


def test_cards_of_an_earlier_version_are_no_damage_and_can_be_made_anew() -> None:
    store = written_by_an_earlier_version()
    streams = store.node_streams
    report = check_streams(streams, (LATER,))
    assert (report.streams, report.events, report.older) == (3, 3, 2)
    (problem,) = report.problems
    assert problem.stream == "state/sum/b"
    assert "open=False" in problem.message, "the later version says otherwise what is open"
    assert rebuild(streams, (LATER,)) == ["state/sum/a", "state/sum/b", "state/sum/c"]
    assert rebuild(streams, (LATER,)) == []
    report = check_streams(streams, (LATER,))
    assert (report.problems, report.older) == ([], 0)
    entities = Entities(store, ManualClock(2000), Writer(store), (LATER,))
    entities.load()
    assert [thing for thing, _ in entities.each_open(LATER)] == ["a", "b"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE streams SET state = CAST('{\"total\":5}' AS BLOB)", "another state"),
        ("UPDATE streams SET state = CAST('[]' AS BLOB)", "cannot be read"),
        ("UPDATE streams SET open = 0", "open=False"),
        ("UPDATE streams SET wake = 5", "wake=5"),
        ("UPDATE streams SET group_name = 'x'", "group='x'"),
        ("UPDATE streams SET seq = 9", "ends at event 3"),
        ("UPDATE streams SET family = 'other'", "unknown family"),
        ("DELETE FROM stream_events WHERE last_seq = 2", "event 2 is missing"),
        ("UPDATE stream_events SET events = CAST('[{\"amount\":\"x\"}]' AS BLOB) "
         "WHERE last_seq = 2", "cannot be replayed"),
        ("UPDATE stream_events SET events = CAST('[]' AS BLOB) WHERE last_seq = 2", "0 events"),
    ],
)  # fmt: skip
def test_what_was_changed_in_the_file_of_a_node_is_found(
    change: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "node.db"

    async def scenario(store: SqliteStore) -> None:
        entities = Entities(store, ManualClock(1000), Writer(store), (SUMS,))
        for _ in range(3):
            with entities.change() as block:
                block.add(SUMS, "a", Added(1))
            await entities.durable()

    with closing(SqliteStore(path)) as store:
        asyncio.run(scenario(store))
        assert store.node_streams is not None
        assert check_streams(store.node_streams, (SUMS,)).problems == []
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(change)
    with closing(SqliteStore(path)) as store:
        assert store.node_streams is not None
        (problem,) = check_streams(store.node_streams, (SUMS,)).problems
        assert problem.stream == "state/sum/a"
        assert said in problem.message


def test_a_stream_of_an_unknown_family_stops_the_start() -> None:
    store = written_by_an_earlier_version()
    other = Family("other", Sum, Added, add)
    with pytest.raises(StoreError, match="newer version"):
        Entities(store, ManualClock(1), Writer(store), (other,)).load()


@pytest.mark.parametrize("waits", [(0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 0, 1), (1, 0, 0, 1)])
def test_a_thing_that_begins_anew_keeps_no_history_of_before(
    waits: tuple[int, ...], tmp_path: Path
) -> None:
    """Whether the blocks before are durable by then, wait, or are the same."""

    async def scenario(store: Any) -> None:
        entities = Entities(store, ManualClock(1000), Writer(store), (NEWEST,))
        for number, wait in enumerate(waits):
            with entities.change() as change:
                change.add(NEWEST, "a", Added(number))
                assert change.add(NEWEST, "a", Set(number)) == Sum(number)
                change.add(NEWEST, "a", Added(10))
            if wait:
                await entities.durable()
        with entities.change() as change:
            change.add(NEWEST, "a", Added(100))
        await entities.durable()
        events = [NEWEST.events_in(row.events)
                  for row in store.node_streams.stream_events("state/newest/a")]  # fmt: skip
        assert [one for row in events for one in row] == [Set(3), Added(10), Added(100)]
        report = check_streams(store.node_streams, (NEWEST,))
        assert (report.events, report.problems) == (3, [])

    with closing(SqliteStore(tmp_path / "a.db")) as store:
        for each in (MemoryStore(), store):
            asyncio.run(scenario(each))

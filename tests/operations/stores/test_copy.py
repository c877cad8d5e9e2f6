"""A store copied to another: whole, compared, gone on with after an interrupt, never mixed."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import anabranch
from anabranch.errors import AnabranchError, InputError, StoreError, StoreInUse, UnusableStore
from anabranch.operations.stores.copy import DIFFERS, TargetReport, copy_store
from anabranch.settings import Settings
from anabranch.store.hook_ports import DeliveryFilter, Hook
from anabranch.store.relational import transfer
from anabranch.store.relational.errors import UNFINISHED_COPY
from anabranch.store.relational.tables import TableReader
from anabranch.store.sqlite.store import SqliteStore
from anabranch.store.sqlite.transfer import SqliteSource
from anabranch.testing.store_suite.samples import NOW, refused
from seeds import SHARE

from ..support import run
from .filled import (
    DONE,
    counters_of,
    fill,
    order_of,
    rows_of,
    settings_of,
    unseen_of,
)

PostgresStore = pytest.importorskip("anabranch.store.postgres.store").PostgresStore
SchemaOf = Callable[[], str]


def quietly(_what: str, _done: int, _total: int) -> None:
    """Progress that no one looks at."""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "runs.db"
    fill(path)
    return path


@pytest.fixture
def path(master: Path, tmp_path: Path) -> Path:
    """A store of this test alone."""
    copy = tmp_path / "runs.db"
    shutil.copy(master, copy)
    return copy


@pytest.fixture
def schema(postgres: str) -> SchemaOf:
    """The address of a schema that is not there yet."""

    def new() -> str:
        joint = "&" if "?" in postgres else "?"
        return f"{postgres}{joint}schema=copy_{secrets.token_hex(6)}"

    return new


def copied(source: object, target: object, partitions: int = 0) -> TargetReport:
    settings = settings_of("", store_partitions=partitions)
    return copy_store(settings, str(source), str(target), quietly)


def same(left: object, right: object) -> None:
    """Rows, what webhooks have yet to see, the order in every run, and what was given out."""
    assert rows_of(str(left)) == rows_of(str(right))
    assert unseen_of(str(left)) == unseen_of(str(right))
    assert order_of(str(left)) == order_of(str(right))
    assert counters_of(str(left)) == counters_of(str(right))


# -- whole -----------------------------------------------------------------------------------


def test_every_table_of_the_master_has_rows(master: Path) -> None:
    assert [name for name, rows in rows_of(master).items() if not rows] == []


def test_a_copy_holds_all_that_its_source_holds_whichever_way_it_goes(
    path: Path, schema: SchemaOf, tmp_path: Path
) -> None:
    first, other, back, again = schema(), schema(), tmp_path / "back.db", tmp_path / "again.db"
    done = copied(path, first, 8)
    assert (done.resumed, done.notifications, done.check.problems) == (False, 0, [])
    assert {one.table: one.rows for one in done.tables} == {
        name: len(rows) for name, rows in rows_of(path).items()
    }
    same(path, first)
    copied(first, other, 3)  # as many partitions as one likes
    same(path, other)
    copied(other, back)
    same(path, back)
    copied(back, again)
    same(path, again)
    assert back.stat().st_mode & 0o777 == 0o600


def test_a_copy_between_schemas_of_as_many_partitions_keeps_runs_where_they_are(
    path: Path, schema: SchemaOf
) -> None:
    first, other = schema(), schema()
    copied(path, first, 4)
    copied(first, other, 4)
    same(first, other)
    with closing(PostgresStore(first)) as left, closing(PostgresStore(other)) as right:
        runs = sorted(rows[0] for rows in rows_of(path)["heads"])
        assert [left.cluster.place(each) for each in runs] == [
            right.cluster.place(each) for each in runs
        ]


def test_a_child_is_copied_to_the_partition_of_its_parent(path: Path, schema: SchemaOf) -> None:
    target = schema()
    copied(path, target, 64)
    heads = {row[0]: row[10] for row in rows_of(path)["heads"]}
    ((child, parent),) = [(one, above) for one, above in heads.items() if above]
    with closing(PostgresStore(target)) as store:
        assert store.cluster.place(child) == store.cluster.place(parent.partition("/")[0])


def test_a_copy_whose_partitions_are_wrong_is_no_store(
    path: Path, schema: SchemaOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = schema()
    monkeypatch.setattr(
        transfer.Transfer, "_places_of_log", lambda _self, rows, _partition: [0] * len(rows)
    )
    with pytest.raises(StoreError, match="its partitions are wrong") as wrong:
        copied(path, target, 8)
    assert wrong.value.code == DIFFERS
    with pytest.raises(UnusableStore) as unusable:
        _open(target)
    assert unusable.value.code == UNFINISHED_COPY


def test_runs_go_on_where_they_were_copied_to(path: Path, schema: SchemaOf, tmp_path: Path) -> None:
    """A decision is made and a child answers its parent; the rest goes on in a file again."""

    async def go_on(store: str, *gates: str, waits: tuple[str, ...] = ()) -> None:
        async with anabranch.Engine(settings=settings_of(store)) as engine:
            for each in gates:
                await engine.decide(each, "ask", "fulfil")
            for each in (*gates, *waits):
                await engine.wait(each)

    async def take_message(store: str) -> None:
        """One that was posted before the copy, and asks for a pause."""
        async with anabranch.Engine(settings=settings_of(store)) as engine:
            while (await engine.wait("gate4", standing=True)).status != "paused":
                await asyncio.sleep(0.05)
            await engine.resume("gate4")

    first, back = schema(), tmp_path / "back.db"
    copied(path, first, 8)
    child = next(row[0] for row in rows_of(path)["heads"] if row[10])
    run(take_message(first))
    run(go_on(first, child, "gate0", "gate4", waits=("parent",)))
    assert copied(first, back).check.problems == []
    run(go_on(str(back), "gate1", "gate2"))
    ended = {row[0] for row in rows_of(back)["heads"] if row[4] == "completed"}
    assert ended >= {child, "parent", "gate0", "gate1", "gate2", "gate4"}


def test_webhooks_that_are_ahead_of_each_other_miss_nothing_and_hear_nothing_twice(
    schema: SchemaOf, tmp_path: Path
) -> None:
    """In a file they share one order: what one of them has not seen is found by the copy."""
    source, target = schema(), tmp_path / "copy.db"
    settings = settings_of(source, store_partitions=4)

    async def finish_some() -> None:
        async with anabranch.Engine(settings=settings) as engine:
            for number in range(12):
                await engine.wait(await engine.start(DONE, run=f"r{number}"))

    run(finish_some())
    with closing(PostgresStore(source)) as store:
        ends = store.positions()
        for name, ahead in (("left", {0, 1}), ("right", {2, 3})):
            hook = Hook(
                id=name, url="https://example.org/", secret="env:X", kinds=("run.finished",)
            )
            store.add_hook(hook)
            for partition in ahead:
                cursor = store.cursors(name)[partition]
                assert store.advance_hook(name, cursor, ends[partition], [], partition)
        places = {f"r{number}": store.cluster.place(f"r{number}") for number in range(12)}
    done = copied(source, target)
    with closing(SqliteStore(target)) as store:
        last = store.positions()[0]
        for name, ahead in (("left", {0, 1}), ("right", {2, 3})):
            waiting = store.deliveries(DeliveryFilter(hook=name))
            found = {one.run for one in waiting}
            arrived = store.hook(name)
            assert arrived is not None
            later = {one.run for one in store.feed(arrived.cursor, last)}
            assert found | later == {one for one, place in places.items() if place not in ahead}
            assert not found & later
    assert done.notifications > 0
    assert done.check.problems == []
    again = copied(source, schema(), 3)  # another number of partitions than the source has
    assert again.notifications > 0
    assert again.check.problems == []


# -- interrupted -----------------------------------------------------------------------------


FURTHER = 1 if SHARE >= 1 else 3  # so many reports more than before the stop before


class Stop(Exception):
    """As if the process ended here."""


class StopAfter:
    """Ends the copy after so many reports."""

    def __init__(self, reports: int) -> None:
        self.left = reports

    def __call__(self, _what: str, _done: int, _total: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise Stop


@pytest.mark.parametrize("to_postgres", [True, False])
def test_a_copy_that_is_stopped_again_and_again_goes_on_and_is_whole(
    to_postgres: bool, path: Path, schema: SchemaOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is two rows: it stops inside every table, in the comparison and in the check."""
    source: object = path
    target: object = schema() if to_postgres else tmp_path / "copy.db"
    if not to_postgres:
        source = schema()
        copied(path, source, 4)
    monkeypatch.setattr(TableReader, "rows_at_once", 2)
    stops = 0
    while True:
        try:
            settings = settings_of("", store_partitions=4)
            done = copy_store(settings, str(source), str(target), StopAfter(7 + FURTHER * stops))
            break
        except Stop:
            stops += 1
            with pytest.raises(UnusableStore) as unusable:
                _open(target)
            assert unusable.value.code == UNFINISHED_COPY
            assert "anabranch store copy" in unusable.value.message
    assert stops > 10
    assert done.resumed
    assert done.check.problems == []
    same(source, target)
    _open(target)


def test_what_was_changed_in_an_unfinished_copy_is_named(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "copy.db"
    monkeypatch.setattr(TableReader, "rows_at_once", 2)
    with pytest.raises(Stop):
        copy_store(settings_of(""), str(path), str(target), StopAfter(12))
    with closing(sqlite3.connect(target)) as db, db:
        assert db.execute("UPDATE heads SET name = 'other' WHERE run = 'done0'").rowcount == 1
        assert db.execute("DELETE FROM heads WHERE run = 'done1'").rowcount == 1
    with pytest.raises(StoreError) as differs:
        copied(path, target)
    assert differs.value.code == DIFFERS
    assert "heads done0 differs in name" in differs.value.message
    assert "heads done1 is not in the copy" in differs.value.message
    with pytest.raises(UnusableStore):
        _open(target)


def test_a_source_that_has_changed_meanwhile_is_not_mixed_with_what_it_was(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "copy.db"
    monkeypatch.setattr(TableReader, "rows_at_once", 2)
    with pytest.raises(Stop):
        copy_store(settings_of(""), str(path), str(target), StopAfter(12))

    async def move() -> None:
        async with anabranch.Engine(settings=settings_of(path)) as engine:
            await engine.cancel("gate0")

    run(move())
    with pytest.raises(StoreError, match="has changed since its copy"):
        copied(path, target)


def test_an_unfinished_copy_of_another_store_is_not_gone_on_with(
    path: Path, tmp_path: Path, schema: SchemaOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableReader, "rows_at_once", 2)
    other = tmp_path / "other.db"
    shutil.copy(path, other)
    for target in (tmp_path / "copy.db", schema()):
        with pytest.raises(Stop):
            copy_store(settings_of(""), str(path), str(target), StopAfter(12))
        with refused(StoreInUse, "is an unfinished copy of", str(path), "not of", str(other)):
            copied(other, target)
        with refused(UnusableStore, "unfinished copy"):  # nor is it a source
            copied(target, tmp_path / "third.db")


def _open(store: object) -> None:
    if "://" in str(store):
        PostgresStore(str(store)).close()
    else:
        SqliteStore(str(store)).close()


# -- not mixed -------------------------------------------------------------------------------


def test_a_copy_does_not_mix_with_what_is_there(
    path: Path, schema: SchemaOf, tmp_path: Path
) -> None:
    for target in (tmp_path / "there.db", schema()):
        copied(path, target)
        before = rows_of(str(target))
        with refused(StoreInUse, "is not empty", "does not mix"):
            copied(path, target)
        assert rows_of(str(target)) == before


def test_a_store_that_is_not_used_yet_can_be_the_target(
    path: Path, schema: SchemaOf, tmp_path: Path
) -> None:
    for target in (tmp_path / "there.db", schema()):
        _open(target)
        copied(path, target)
        same(path, target)


def test_a_store_that_an_engine_uses_is_neither_source_nor_target(
    path: Path, schema: SchemaOf, tmp_path: Path
) -> None:
    shared, file = schema(), tmp_path / "copy.db"
    copied(path, shared, 2)

    async def while_served(settings: Settings, source: object, target: object) -> None:
        async with anabranch.Engine(settings=settings):
            with refused(StoreInUse, "in use by"):
                copied(source, target)

    run(while_served(settings_of(path), path, file))
    run(while_served(settings_of(shared), shared, file))
    run(while_served(settings_of(tmp_path / "empty.db"), path, tmp_path / "empty.db"))
    run(while_served(settings_of(schema_ := schema()), path, schema_))
    assert not file.exists()


def test_nothing_is_written_to_a_source_while_it_is_copied(
    path: Path, schema: SchemaOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that starts meanwhile, or a command that posts, is told that it is busy."""
    monkeypatch.setattr("anabranch.store.sqlite.file.BUSY_SECONDS", 0.1)
    monkeypatch.setitem(_session_settings(), "lock_timeout", "100ms")
    shared = schema()
    copied(path, shared, 2)
    for source, target in ((path, tmp_path / "one.db"), (shared, tmp_path / "two.db")):
        tried: list[str] = []

        def write(_what: str, _done: int, _total: int, source: object = source) -> None:
            if not tried:  # noqa: B023
                tried.extend(_refusals(source))  # noqa: B023

        copy_store(settings_of(""), str(source), str(target), write)
        assert set(tried) == {"store_busy"}
        same(source, target)


def _session_settings() -> dict[str, str]:
    """What every connection to PostgreSQL is given."""
    from anabranch.store.postgres import connections

    (found,) = (
        one for one in vars(connections).values() if isinstance(one, dict) and "lock_timeout" in one
    )
    return found


def _refusals(store: object) -> list[str]:
    """What those are told who want to write."""
    if "://" not in str(store):
        with pytest.raises(StoreError) as busy:
            SqliteStore(str(store))
        return [busy.value.code]
    with closing(PostgresStore(str(store))) as shared:
        with pytest.raises(StoreError) as busy:
            shared.post("gate0", b"{}", NOW)
        with pytest.raises(StoreError) as late:
            shared.cluster.join("late", "", 10.0)
    return [busy.value.code, late.value.code]


def test_a_store_is_no_copy_of_itself(path: Path, schema: SchemaOf) -> None:
    for store in (str(path), schema(), ":memory:"):
        with pytest.raises(InputError):
            copied(store, store)


def test_a_damaged_run_is_copied_as_it_is_and_named(path: Path, schema: SchemaOf) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("UPDATE payloads SET content = x'00'").rowcount
        assert db.execute("UPDATE heads SET status = 'no such' WHERE run = 'gate1'").rowcount
    target = schema()
    done = copied(path, target)
    assert {(one.run, one.part) for one in done.check.problems} >= {
        ("gate1", "head"),
        ("", "payload"),
    }
    same(path, target)


def test_a_value_that_postgresql_cannot_hold_is_named(
    path: Path, schema: SchemaOf, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("UPDATE tokens SET name = 'a' || char(0) WHERE id = 't1'").rowcount == 1
    with refused(StoreError, "table tokens of the source", "t0 to t1"):
        copied(path, schema())
    copied(path, tmp_path / "copy.db")  # SQLite can


def test_no_password_is_shown(path: Path) -> None:
    address = "postgresql://ann:s3cret@127.0.0.1:9/none?schema=x"
    for source, target in ((path, address), (address, path)):
        with pytest.raises(AnabranchError) as away:
            copied(source, target)
        assert "s3cret" not in away.value.message


def test_the_source_is_left_as_it_was(path: Path, schema: SchemaOf) -> None:
    before = rows_of(path)
    shared = schema()
    copied(path, shared, 2)
    assert rows_of(path) == before
    with closing(SqliteSource(str(path))) as source:
        assert source.epochs() == 0
    with closing(PostgresStore(shared)) as store:
        assert {one.epoch for one in store.cluster.partition_records()} == {0}
        assert store.cluster.servers() == []

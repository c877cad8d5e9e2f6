"""The rows of a query as a collection, in every database."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from anabranch.errors import InputError
from anabranch.work.loops.collections.all import Collections
from anabranch.work.loops.collections.port import CollectionError
from anabranch.work.secrets.redaction import Keyring, Secret
from work.sql.databases import KINDS, Database, Keeper, open_keeper

from .support import all_items, all_shards, using

T = TypeVar("T")


#: The one of this file, while its tests run.
KEPT: list[Keeper] = []


@pytest.fixture(scope="module", autouse=True)
def _keeper() -> Iterator[None]:
    with open_keeper() as keeper:
        KEPT.append(keeper)
        yield
        KEPT.clear()


def with_databases(scenario: Callable[[Collections], Awaitable[T]]) -> T:
    (keeper,) = KEPT

    async def guarded() -> T:
        collections = Collections(performers={kind: keeper.performer(kind, {}) for kind in KINDS})
        try:
            return await scenario(collections)
        finally:
            await collections.close()

    return keeper.run(guarded())


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """A table `t` of 23 rows with gaps in `id`, in each database."""
    kind = request.param
    here: dict[str, Any] = {"database": str(tmp_path / "x.db")}
    if kind == "postgres":
        here = {"dsn": request.getfixturevalue("postgres")}
    values = ", ".join(f"({n * 3}, 'name {n:02}', {n % 2})" for n in range(23))
    script = (
        "drop table if exists t; "
        "create table t (id integer primary key, name varchar(20), odd integer); "
        f"insert into t values {values}"
    )

    answer = Database(kind, here, KEPT[0]).query(script)
    assert answer.status == "ok", answer
    return {"kind": kind, **here}


def test_rows_of_a_query(place: dict[str, Any]) -> None:
    async def scenario(collections: Collections) -> None:
        for key, query in (("id", "select * from t"), ("name", "select name, odd from t;")):
            for count, shards in ((1, 4), (5, 2), (23, 1), (100, 3)):
                value = {"sql": {**place, "query": query, "key": key}}
                found = await all_items(collections, value, count, shards)
                assert len(found) == 23
                assert found[22].key == ("66" if key == "id" else "name 22")
        assert found[0].item == {"name": "name 00", "odd": 0}

    with_databases(scenario)


def test_a_query_with_parameters_and_percent_signs(place: dict[str, Any]) -> None:
    named = {"sqlite": ":odd", "postgres": "%(odd)s", "duckdb": "$odd"}[place["kind"]]

    async def scenario(collections: Collections) -> None:
        query = f"select id, 'x' as note from t where odd = {named} -- why not"
        value = {"sql": {**place, "query": query, "key": "id", "params": {"odd": 1}}}
        assert len(await all_items(collections, value, 4, 2)) == 11
        query = "select id, '5%' as note from t where name like 'name 1%'"
        found = await all_items(collections, {"sql": {**place, "query": query, "key": "id"}}, 4, 2)
        assert [item.item["note"] for item in found] == ["5%"] * 10

    with_databases(scenario)


@pytest.mark.parametrize(
    ("query", "key", "words"),
    [
        ("select odd from t", "odd", "odd is not unique: 0 comes twice"),
        ("select nullif(id, 6) as id from t", "id", "rows whose id is null"),
        ("select * from nowhere", "id", "the query failed: "),
        ("select * from t", "nope", "the query failed: "),
    ],
)
def test_queries_that_are_no_collections(
    place: dict[str, Any], query: str, key: str, words: str
) -> None:
    with pytest.raises(CollectionError) as raised:
        with_databases(lambda c: all_items(c, {"sql": {**place, "query": query, "key": key}}))
    assert words in raised.value.message
    assert not raised.value.retryable


def test_a_range_that_changed_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "x.db")
    table = sqlite3.connect(path, isolation_level=None)
    table.execute("create table t (id integer primary key)")
    table.executemany("insert into t values (?)", [(n * 2,) for n in range(10)])

    async def scenario(collections: Collections) -> None:
        given = {"sql": {"kind": "sqlite", "path": path, "query": "select * from t", "key": "id"}}
        descriptor = await collections.describe(given)
        first, second, *_ = await all_shards(collections, descriptor, 4, 9)
        table.execute("insert into t values (3)")
        with pytest.raises(CollectionError, match=r"\(id up to 6\) changed .* 5 rows instead of 4"):
            await collections.items(descriptor, first.first, first.count, first.cursor)
        found = await collections.items(descriptor, second.first, second.count, second.cursor)
        assert [item.key for item in found] == ["8", "10", "12", "14"]

    try:
        with_databases(scenario)
    finally:
        table.close()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "oracle"}, "sql.kind must be one of sqlite, postgres, duckdb"),
        ({"query": "select 1"}, "sql.key must be text"),
        ({"key": "id"}, "sql.query must be text"),
        ({"query": "delete from t", "key": "id"}, "must be one statement that reads"),
        ({"query": "select 1; select 2", "key": "id"}, "must be one statement that reads"),
        ({"query": "select ?", "key": "id", "params": [1]}, "here parameters need names"),
        ({"query": "select 1", "key": "id", "password": "x"}, "name an entry of the keychain"),
        (
            {"query": "select 1", "key": "id", "dsn": "postgresql://u:pw@h/d"},
            "has a password in it",
        ),
        ({"query": "select 1", "key": "id", "dsn": "host=h password=pw"}, "has a password in it"),
        (
            {"query": "select 1", "key": "id", "auth": {"password": "x"}},
            "the name of a keychain entry",
        ),
        ({"query": "select 1", "key": "id", "colour": "x"}, "sql: 'colour' is not known"),
    ],
)
def test_bad_queries_are_named_and_passwords_not_recorded(given: Any, words: str) -> None:
    with pytest.raises(InputError) as raised:
        using(lambda collections: collections.describe({"sql": given}))
    assert words in raised.value.message
    assert "pw" not in raised.value.message


def test_secrets_come_from_the_keychain(postgres: str) -> None:
    """The descriptor has only the name of the entry; the entry is asked for when it is needed."""
    where = {"kind": "postgres", "auth": "db"}
    value = {"sql": {**where, "query": "select g as id from generate_series(1, 5) g", "key": "id"}}
    ring = Keyring({"db": {"dsn": Secret(postgres)}})

    async def scenario(collections: Collections) -> None:
        assert len(await all_items(collections, value, keyring=ring)) == 5
        descriptor = await collections.describe(value)
        assert postgres not in msgspec.json.encode(descriptor).decode()
        with pytest.raises(CollectionError, match="the keychain has no entry 'db'"):
            await collections.cut(descriptor, None, 1, 1)

    with_databases(scenario)

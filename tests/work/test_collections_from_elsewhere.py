"""Parquet files, folders, queries and paged endpoints as collections."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from aiohttp import web

from anabranch.errors import InputError
from anabranch.work.collections import CollectionError, Collections, Limits, Shard
from anabranch.work.collections.listing import Listings
from anabranch.work.http import Http
from anabranch.work.port import Performer
from anabranch.work.redaction import Keyring, Secret
from anabranch.work.registry import close_all
from anabranch.work.sql.duckdb import DuckDb
from anabranch.work.sql.postgres import Postgres
from anabranch.work.sql.sqlite import Sqlite
from anabranch.work.threads import Threads

from .collecting import all_items, all_shards, items_of, using
from .databases import KINDS
from .support import run, server, task

T = TypeVar("T")

# -- Parquet ---------------------------------------------------------------------------------


def parquet(path: Path, rows: int = 25, group: int = 10) -> str:
    arrow: Any = pytest.importorskip("pyarrow")
    file: Any = pytest.importorskip("pyarrow.parquet")
    table = arrow.table(
        {
            "id": list(range(rows)),
            "name": [f"row {n}" for n in range(rows)],
            "price": [Decimal(n) / 4 for n in range(rows)],
            "at": [datetime(2026, 1, 1, tzinfo=UTC)] * rows,
        }
    )
    file.write_table(table, path, row_group_size=group)
    return str(path)


def test_rows_of_parquet(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet")
    for count, shards in ((1, 3), (7, 2), (10, 1), (100, 1)):
        rows = items_of({"parquet": path}, count, shards)
        assert [row["id"] for row in rows] == list(range(25))
    assert rows[5] == {"id": 5, "name": "row 5", "price": 1.25, "at": "2026-01-01T00:00:00+00:00"}
    assert items_of({"parquet": path, "columns": ["name"]})[0] == {"name": "row 0"}
    assert items_of({"parquet": parquet(tmp_path / "b.parquet", rows=0)}) == []


def test_parquet_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_text("no parquet")
    with pytest.raises(InputError, match=r"a\.parquet is not a Parquet file"):
        items_of({"parquet": str(path)})
    with pytest.raises(InputError, match="has no column 'nope'; it has id, name"):
        items_of({"parquet": parquet(path), "columns": ["nope"]})


def test_parquet_that_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"

    async def scenario(collections: Collections) -> None:
        descriptor = await collections.describe({"parquet": parquet(path)})
        await collections.items(descriptor, 0, 5)
        parquet(path, rows=30)
        with pytest.raises(CollectionError, match="changed while the loop was running"):
            await collections.items(descriptor, 0, 5)

    using(scenario)


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    path = parquet(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"pip install anabranch\[parquet\]"):
        items_of({"parquet": path})


# -- folders ---------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.csv", "a.csv", "c.txt", ".hidden.csv", "sub/d.csv", "sub/deep/e.csv", "z.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "loop").symlink_to(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({}, ["a.csv", "b.csv", "c.txt", "loop", "z.csv"]),
        ({"pattern": "*.csv"}, ["a.csv", "b.csv", "z.csv"]),
        ({"pattern": ".*"}, [".hidden.csv"]),
        (
            {"pattern": "*.csv", "recursive": True},
            ["a.csv", "b.csv", "sub/d.csv", "sub/deep/e.csv", "z.csv"],
        ),
        ({"pattern": "**/*.csv"}, ["a.csv", "b.csv", "sub/d.csv", "sub/deep/e.csv", "z.csv"]),
        ({"pattern": "sub/*.csv"}, ["sub/d.csv", "sub/deep/e.csv"]),
        ({"pattern": "*.none"}, []),
    ],
)
def test_files_of_a_folder(more: Any, names: list[str], folder: Path) -> None:
    for count, shards in ((1, 1), (2, 2), (100, 1)):
        value = {"listing": str(folder), **more}
        found = using(partial(all_items, value=value, count=count, shards=shards))
        assert [item.key for item in found] == names


def test_an_item_says_where_the_file_is(folder: Path) -> None:
    (item, *_) = items_of({"listing": str(folder), "pattern": "sub/*.csv"})
    assert item == {"path": f"{folder}/sub/d.csv", "name": "d.csv", "size": 9}


def test_other_files_may_come_and_go_but_not_those_of_the_shard(folder: Path) -> None:
    async def scenario(collections: Collections) -> None:
        descriptor = await collections.describe({"listing": str(folder), "pattern": "*.csv"})
        first, second = await all_shards(collections, descriptor, 2, 9)

        async def names(shard: Shard) -> list[str]:
            found = await collections.items(descriptor, shard.first, shard.count, shard.cursor)
            return [item.key for item in found]

        (folder / "y.csv").write_text("")
        assert await names(first) == ["a.csv", "b.csv"]
        with pytest.raises(CollectionError, match="changed while the loop was running"):
            await names(second)
        (folder / "y.csv").unlink()
        assert await names(second) == ["z.csv"]
        (folder / "a.csv").unlink()
        with pytest.raises(CollectionError, match="changed"):
            await names(first)

    using(scenario)


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    (Path(os.fsdecode(bytes(tmp_path) + b"/\xff.csv"))).write_text("")
    with pytest.raises(CollectionError, match="is not valid text"):
        items_of({"listing": str(tmp_path)})


def test_a_large_folder_is_walked_in_linear_time(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"{number:06}").touch()
    looked_at = 0

    class Watched(Listings):
        def _walk(self, *given: Any) -> Any:
            nonlocal looked_at
            for parts in super()._walk(*given):
                looked_at += 1
                yield parts

    async def scenario() -> None:
        threads = Threads(1)
        listings = Watched(threads, Limits())
        descriptor = await listings.describe({"listing": str(tmp_path)})
        cursor, total, end = None, 0, False
        while not end:
            cuts = await listings.cut(descriptor, cursor, 10, 5, {})
            cursor, end = cuts.next_cursor, cuts.end
            for shard in cuts.shards:
                total += len(await listings.items(descriptor, shard, {}))
        await threads.close()
        assert total == 3000

    run(scenario())
    assert looked_at < 3000 * 2 + 200


# -- queries ---------------------------------------------------------------------------------


def with_databases(scenario: Callable[[Collections], Awaitable[T]]) -> T:
    async def guarded() -> T:
        performers: dict[str, Performer] = {
            "sqlite": Sqlite(),
            "postgres": Postgres(),
            "duckdb": DuckDb(),
        }
        collections = Collections(performers=performers)
        try:
            return await scenario(collections)
        finally:
            await close_all(performers)
            await collections.close()

    return run(guarded())


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

    async def prepare() -> None:
        performer = KINDS[kind]()
        answer = await performer.perform(task(kind, **{"command": script, **here}))
        assert answer.status == "ok", answer
        await performer.close()

    run(prepare())
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


# -- pages -----------------------------------------------------------------------------------


class Api:
    """Twelve things in pages of five, in every way an API can page."""

    def __init__(self) -> None:
        self.things = [{"id": f"t{n}", "n": n} for n in range(12)]
        self.requests: list[str] = []
        self.broken_after = 99
        self.pages: dict[str, Any] = {}

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        self.requests.append(request.path_qs)
        if len(self.requests) > self.broken_after:
            return web.Response(status=503)
        query = request.query
        match request.path:
            case "/link":
                at = int(query.get("at", 0))
                following = f"/link?at={at + 5}" if at + 5 < len(self.things) else None
                return web.json_response(
                    {"data": {"list": self.things[at : at + 5]}, "next": following}
                )
            case "/token":
                at = int(query.get("cursor", "c0").removeprefix("c"))
                token = f"c{at + 5}" if at + 5 < len(self.things) else ""
                return web.json_response({"items": self.things[at : at + 5], "cursor": token})
            case "/number":
                at = (int(query.get("page", 1)) - 1) * 5
                return web.json_response(self.things[at : at + 5])
            case "/offset":
                at = int(query.get("skip", 0))
                more = at + 5 < len(self.things)
                return web.json_response({"items": self.things[at : at + 5], "more": more})
            case _:
                return web.json_response(self.pages.get(request.path))


def with_api(
    scenario: Callable[[Collections, str, Api], Awaitable[T]], api: Api | None = None
) -> T:
    async def guarded() -> T:
        http = Http()
        collections = Collections(performers={"http": http})
        handler = api or Api()
        async with server(handler) as address:
            try:
                return await scenario(collections, address, handler)
            finally:
                await http.close()
                await collections.close()

    return run(guarded())


WAYS: list[dict[str, Any]] = [
    {"url": "/link", "items": "$.data.list", "next": "$.next"},
    {"url": "/token", "items": "$.items", "next": "$.cursor", "next_param": "cursor"},
    {"url": "/number", "page_param": "page"},
    {"url": "/offset", "items": "items", "offset_param": "skip", "has_more": "$.more"},
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way["url"])
@pytest.mark.parametrize(("count", "shards"), [(1, 1), (4, 2), (5, 1), (7, 3), (100, 1)])
def test_every_way_to_page(way: dict[str, Any], count: int, shards: int) -> None:
    async def scenario(collections: Collections, address: str, api: Api) -> None:
        value = {"pages": {**way, "url": address + way["url"], "key": "$.id"}}
        found = await all_items(collections, value, count, shards)
        assert [item.item for item in found] == api.things
        assert [item.key for item in found] == [thing["id"] for thing in api.things]
        assert len(api.requests) <= 4  # each page once, in spite of cutting and reading twice

    with_api(scenario)


def test_the_parameters_of_the_author_stay(tmp_path: Path) -> None:
    async def scenario(collections: Collections, address: str, api: Api) -> list[str]:
        given = {"url": f"{address}/number", "page_param": "page", "params": {"sort": "n"}}
        await all_items(collections, {"pages": given}, 100, 1)
        return api.requests

    assert with_api(scenario)[1] == "/number?sort=n&page=2"


def test_an_endpoint_that_fails_halfway_says_where() -> None:
    api = Api()
    api.broken_after = 1

    async def scenario(collections: Collections, address: str, _: Api) -> None:
        value = {"pages": {"url": f"{address}/link", "items": "$.data.list", "next": "$.next"}}
        with pytest.raises(CollectionError) as raised:
            await all_items(collections, value, 4, 9)
        assert raised.value.message.startswith(f"page 2 of {address}/link: GET ")
        assert "answered 503" in raised.value.message
        assert raised.value.retryable

    with_api(scenario, api)


@pytest.mark.parametrize(
    ("page", "more", "words"),
    [
        ({"data": {"a": 1}}, {"items": "$.data"}, "page 1 of {}/x: $.data is no list but dict"),
        ({}, {"items": "$.data"}, "$.data is no list but nothing"),
        (None, {}, "$ is no list but nothing"),
        (
            {"data": [1], "next": "/x"},
            {"items": "data", "next": "next"},
            "page 2 of {}/x: its next page is the page itself",
        ),
        (
            {"data": [1], "next": {}},
            {"items": "data", "next": "next"},
            "is no address and no token",
        ),
        ([{"id": None}], {"key": "$.id"}, "item 0: $.id is no text or number to know it by"),
    ],
)
def test_pages_that_are_none(page: Any, more: Any, words: str) -> None:
    api = Api()
    api.pages["/x"] = page

    async def scenario(collections: Collections, address: str, _: Api) -> None:
        with pytest.raises(CollectionError) as raised:
            await all_items(collections, {"pages": {"url": f"{address}/x", **more}}, 4, 9)
        assert words.format(address) in raised.value.message

    with_api(scenario, api)


def test_an_endpoint_that_shrank_is_refused() -> None:
    async def scenario(collections: Collections, address: str, api: Api) -> None:
        value = {"pages": {"url": f"{address}/number", "page_param": "page"}}
        descriptor = await collections.describe(value)
        shards = await all_shards(collections, descriptor, 4, 9)
        fresh = Collections(performers={"http": collections._sources["pages"]._performers["http"]})  # type: ignore[attr-defined]
        del api.things[3:]
        for shard in shards[1:]:
            with pytest.raises(CollectionError, match="changed while the loop was running"):
                await fresh.items(descriptor, shard.first, shard.count, shard.cursor)
        await fresh.close()

    with_api(scenario)


def test_credentials_come_from_the_keychain_and_stay_with_the_host() -> None:
    seen: list[str] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.json_response({"data": [1], "next": "http://elsewhere.invalid/"})

    async def scenario() -> None:
        http = Http()
        collections = Collections(performers={"http": http})
        ring = Keyring({"api": {"type": "bearer", "token": Secret("tok-123456")}})
        async with server(handler) as address:
            value = {"pages": {"url": address, "items": "data", "next": "next", "auth": "api"}}
            descriptor = await collections.describe(value)
            with pytest.raises(CollectionError, match="the next page is on another host"):
                await collections.cut(descriptor, None, 5, 1, keyring=ring)
            with pytest.raises(CollectionError, match="the keychain has no entry 'api'"):
                await Collections(performers={"http": http}).cut(descriptor, None, 5, 1)
        await http.close()
        await collections.close()

    run(scenario())
    assert seen == ["Bearer tok-123456"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "pages.url must be text"),
        ({"url": "http://u:pw@h/"}, "have credentials in them"),
        ({"url": "http://h/", "headers": {"X-Api-Key": "pw"}}, "have credentials in them"),
        ({"url": "http://h/", "items": "$.a[*]"}, "is not a path"),
        ({"url": "http://h/", "next": "a", "page_param": "b"}, "one way to the next page"),
        ({"url": "http://h/", "page_start": "x"}, "page_start must be a whole number"),
        ({"url": "http://h/", "colour": "x"}, "pages: 'colour' is not known"),
    ],
)
def test_bad_pages_are_named(given: Any, words: str) -> None:
    with pytest.raises(InputError) as raised:
        using(lambda collections: collections.describe({"pages": given}))
    assert words in raised.value.message


def test_nothing_to_fetch_with() -> None:
    for value in (
        {"pages": {"url": "http://h/"}},
        {"sql": {"query": "select 1 as a", "key": "a", "path": "x"}},
    ):

        async def scenario(collections: Collections, value: Any = value) -> None:
            descriptor = await collections.describe(value)
            with pytest.raises(CollectionError, match="there is no work of kind"):
                await collections.cut(descriptor, None, 1, 1)

        using(scenario)


def test_many_shards_are_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f"{n}\n" for n in range(5000)))

    async def scenario(collections: Collections) -> None:
        descriptor = await collections.describe({"jsonl": str(path)})
        shards = await all_shards(collections, descriptor, 50, 10)
        parts = await asyncio.gather(
            *(collections.items(descriptor, s.first, s.count, s.cursor) for s in shards)
        )
        assert [item.item for part in parts for item in part] == list(range(5000))

    using(scenario)

"""A transfer moves rows between databases, in chunks and in one transaction: all, or none."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from anabranch.kernel.values import Answer, Fault
from anabranch.work.kind_options import WorkSettings
from anabranch.work.kinds.transfer import AT_ONCE
from anabranch.work.port import Performer
from anabranch.work.registry import close_all, standard_performers
from work.sql.databases import ENDLESS, Database, Keeper, made, open_keeper

from ..support import fault_of, perform, run, server, task

pytest.importorskip("duckdb")
KINDS = ("sqlite", "postgres", "duckdb")


@pytest.fixture(scope="module")
def keeper() -> Iterator[Keeper]:
    """All that a transfer needs; tests look at its databases through the same performers."""
    with open_keeper() as opened:
        opened.made.update(opened.run(everything()))
        yield opened


async def everything() -> dict[str, Performer]:
    return standard_performers()


class Transfers:
    """Transfers, one after the other, through performers that stay."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper

    def __call__(self, **inputs: Any) -> Answer:
        job = task("transfer", **inputs)
        return self.keeper.run(perform(self.keeper.made["transfer"], job))

    def refused(self, **inputs: Any) -> Fault:
        return fault_of(self(**inputs))


@pytest.fixture
def transfer(keeper: Keeper) -> Transfers:
    return Transfers(keeper)


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path, keeper: Keeper) -> Database:
    (tmp_path / "to").mkdir()
    database = made(request.param, request, tmp_path / "to", keeper)
    columns = "id integer primary key, name text, score double precision"
    database.query(f"drop table if exists people; create table people ({columns})")
    return database


@pytest.fixture(params=KINDS)
def source(
    request: pytest.FixtureRequest, tmp_path: Path, target: Database, keeper: Keeper
) -> Database:
    if request.param == target.kind == "postgres":
        return filled(target)
    (tmp_path / "from").mkdir()
    return filled(made(request.param, request, tmp_path / "from", keeper))


def filled(database: Database) -> Database:
    database.query(
        "drop table if exists visitors;"
        "create table visitors (id integer, name text, score double precision);"
        "insert into visitors values (1, 'Ada', 1.5), (2, null, -2), (3, 'Ünal ''%s''', 1e300)"
    )
    return database


def side(database: Database, **more: Any) -> dict[str, Any]:
    return {"tool": database.kind, **database.connection, **more}


def rows(database: Database) -> list[list[Any]]:
    found = database.query("select id, name, score from people order by id").result["rows"]
    return [list(row.values()) for row in found]


def plan(source: Database, target: Database, **more: Any) -> dict[str, Any]:
    query = "select id, name, score from visitors order by id"
    return {
        "source": side(source, query=query),
        "target": side(target, table="people"),
        "chunk_size": 2,
        **more,
    }


ALL: list[list[Any]] = [[1, "Ada", 1.5], [2, None, -2], [3, "Ünal '%s'", 1e300]]


def test_rows_go_from_any_database_to_any_other(
    source: Database, target: Database, transfer: Transfers
) -> None:
    answer = transfer(**plan(source, target))
    assert answer.result == {
        "status": "success",
        "direction": f"{source.kind}_to_{target.kind}",
        "source_type": source.kind,
        "target_type": target.kind,
        "mode": "append",
        "target_table": "people",
        "rows_transferred": 3,
        "chunks_processed": 2,
        "columns": ["id", "name", "score"],
    }
    assert rows(target) == ALL


@pytest.fixture
def visitors(tmp_path: Path, keeper: Keeper) -> Database:
    return filled(Database("sqlite", {"database": str(tmp_path / "visitors.db")}, keeper))


def test_replace_and_upsert_leave_the_same_however_often_they_run(
    visitors: Database, target: Database, transfer: Transfers
) -> None:
    target.query("insert into people values (3, 'old', 0), (9, 'nine', 9)")
    for _ in range(2):
        assert transfer(**plan(visitors, target, mode="upsert", key="id")).status == "ok"
    assert rows(target) == [*ALL, [9, "nine", 9]]
    for _ in range(2):
        assert transfer(**plan(visitors, target, mode="replace")).status == "ok"
    assert rows(target) == ALL


def test_a_transfer_that_fails_in_its_middle_has_changed_nothing(
    visitors: Database, target: Database, transfer: Transfers
) -> None:
    target.query("insert into people values (3, 'in the way', 0)")
    fault = transfer.refused(**plan(visitors, target, mode="append"))
    assert fault.kind == "db_constraint", fault
    assert rows(target) == [[3, "in the way", 0]]
    copied = {**plan(visitors, target, mode="replace"), "mapping": {"id": "score", "name": "name"}}
    transfer.refused(**{**copied, "target": side(target, table="no_such_table")})
    assert rows(target) == [[3, "in the way", 0]]


def test_columns_are_mapped_and_a_statement_of_ones_own_is_done_for_each_row(
    visitors: Database, target: Database, transfer: Transfers
) -> None:
    mapped = plan(visitors, target, mapping={"name": "name", "id": "id"})
    assert transfer(**mapped).result["columns"] == ["name", "id"]
    assert [row[:2] for row in rows(target)] == [row[:2] for row in ALL]
    mark = "%s" if target.kind == "postgres" else "?"
    own = f"update people set score = {mark} where id = {mark}"
    query = "select score * 2, id from visitors where id = 1"
    given = {"source": side(visitors, query=query), "target": side(target, query=own)}
    assert transfer(**given).result["mode"] == "custom"
    assert rows(target)[0][2] == 3


def test_values_that_only_one_database_has_arrive_as_what_they_mean(
    target: Database, transfer: Transfers
) -> None:
    kinds = {"sqlite": "blob", "postgres": "bytea", "duckdb": "blob"}
    target.query("drop table if exists kept")
    target.query(
        f"create table kept (day date, price decimal(10, 2), raw {kinds[target.kind]}, many text)"
    )
    query = "select date '2026-03-01', 12.50::decimal(10,2), '\\xAA'::blob, [1, 2]::json::text"
    given = {"tool": "duckdb", "query": query}
    mapping = {"day": "d", "price": "p", "raw": "r", "many": "m"}
    given["query"] = "select d, p, r, m from (" + query + ") as t(d, p, r, m)"
    answer = transfer(source=given, target=side(target, table="kept"), mapping=mapping)
    assert answer.status == "ok", answer
    (row,) = target.query("select * from kept").result["rows"]
    assert row["day"] == "2026-03-01"
    assert float(row["price"]) == 12.5
    assert (row["raw"], row["many"].replace(" ", "")) == ("qg==", "[1,2]")


def test_no_row_at_all_is_fine(visitors: Database, target: Database, transfer: Transfers) -> None:
    given = plan(visitors, target)
    given["source"]["query"] = "select id, name from visitors where id > :least"
    given["source"]["params"] = {"least": 99}
    assert transfer(**given).result["rows_transferred"] == 0


def test_many_rows_come_in_chunks_of_a_thousand(
    tmp_path: Path, visitors: Database, transfer: Transfers
) -> None:
    target = Database("sqlite", {"database": str(tmp_path / "numbers.db")}, transfer.keeper)
    target.query("create table numbers (n integer)")
    numbers = "select 1 union all select n + 1 from x limit 20000"
    query = f"with recursive x(n) as ({numbers}) select n from x"
    given = {"source": side(visitors, query=query), "target": side(target, table="numbers")}
    assert transfer(**given).result["chunks_processed"] == 20
    found = target.query("select count(*) as c, sum(n) as s from numbers").result["rows"]
    assert found == [{"c": 20000, "s": 200010000}]


#: Twenty rows of a megabyte each.
LARGE = {
    "sqlite": "with recursive n(i) as (select 1 union all select i + 1 from n limit 20) "
    "select printf('%.*c', 1000000, 'x') as a from n",
    "postgres": "select array[repeat('x', 1000000)] as a from generate_series(1, 20)",
    "duckdb": "select [repeat('x', 1000000)] as a from range(20)",
}


@pytest.mark.parametrize("kind", KINDS)
def test_large_rows_come_in_chunks_of_few(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, transfer: Transfers
) -> None:
    source, target = made(kind, request, tmp_path, transfer.keeper), tmp_path / "target.db"
    sqlite3.connect(target).execute("create table t (a)").connection.close()
    given = {
        "source": side(source, query=LARGE[kind]),
        "target": {"tool": "sqlite", "database": str(target), "table": "t"},
    }
    result = transfer(**given).result
    assert (result["rows_transferred"], result["chunks_processed"] > 1) == (20, True)


def test_a_row_of_duckdb_that_is_larger_than_a_result_is_not_made_in_the_engine(
    tmp_path: Path, transfer: Transfers
) -> None:
    target = Database("duckdb", {"database": str(tmp_path / "target.db")}, transfer.keeper)
    target.query("create table t (a text)")
    fault = transfer.refused(
        source={"tool": "duckdb", "query": "select repeat('x', 40000000) as a"},
        target=side(target, table="t"),
    )
    assert (fault.kind, "sql_result_bytes" in fault.message) == ("result", True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_transfer_that_is_stopped_has_changed_nothing(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, transfer: Transfers
) -> None:
    endless = made(kind, request, tmp_path, transfer.keeper)
    target = tmp_path / "target.db"
    sqlite3.connect(target).execute("create table t (n)").connection.close()
    given = {
        "source": side(endless, query=ENDLESS[kind]),
        "target": {"tool": "sqlite", "database": str(target), "table": "t"},
        "timeout": 0.5,
    }
    fault = transfer.refused(**given)
    assert (fault.kind, fault.code, fault.retryable) == ("db_timeout", "TIMEOUT", True)
    with closing(sqlite3.connect(target)) as db:
        assert db.execute("select count(*) from t").fetchone() == (0,)


def test_many_transfers_on_one_server_do_not_wait_for_each_other_for_ever(
    postgres: str, keeper: Keeper
) -> None:
    database = filled(Database("postgres", {"dsn": postgres}, keeper))
    database.query("drop table if exists copies")
    database.query("create table copies (id integer, name text, score double precision)")
    given = plan(database, database)
    given["target"]["table"] = "copies"

    async def work() -> None:
        job = task("transfer", **given)
        many = [perform(keeper.made["transfer"], job) for _ in range(3 * AT_ONCE)]
        answers = await asyncio.gather(*many)
        assert {answer.status for answer in answers} == {"ok"}

    keeper.run(work())


def test_records_of_a_call_go_into_a_table(target: Database, keeper: Keeper) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/away":
            return web.Response(status=503)
        return web.json_response(
            {"data": {"items": [{"id": 7, "who": {"name": "Ada"}}, {"id": 8, "who": {}}]}}
        )

    async def work() -> list[Answer]:
        async with server(answer) as address:
            given = {
                "source": {"tool": "http", "url": address, "data_path": "data.items"},
                "target": side(target, table="people"),
                "mapping": {"id": "id", "name": "who.name"},
            }
            away = {**given, "source": {"tool": "http", "url": f"{address}/away"}}
            jobs = [task("transfer", **each) for each in (given, away)]
            return [await perform(keeper.made["transfer"], job) for job in jobs]

    done, away = keeper.run(work())
    assert done.result["rows_transferred"] == 2
    assert [row[:2] for row in rows(target)] == [[7, "Ada"], [8, None]]
    assert fault_of(away).kind == "server_error"


FILE = {"tool": "sqlite", "database": "/tmp/no-such-file-of-a-transfer.db"}
FROM = {"tool": "sqlite", "database": ":memory:", "query": "select 1 as a"}


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({}, "needs source"),
        ({"source": FROM}, "needs target"),
        ({"source": {**FROM, "tool": "oracle"}, "target": FILE}, "not 'oracle'"),
        ({"source": FROM, "target": {**FILE, "tool": "http"}}, "target.tool must be one of"),
        ({"source": FROM, "target": FILE}, "either table or query"),
        ({"source": {**FROM, "query": "delete from a"}, "target": {**FILE, "table": "t"}}, "reads"),
        ({"source": FROM, "target": {**FILE, "table": "t; drop table t"}}, "name of a table"),
        ({"source": FROM, "target": {**FILE, "table": "t"}, "mode": "merge!"}, "append, replace"),
        ({"source": FROM, "target": {**FILE, "table": "t"}, "chunk_size": 0}, "from 1 to 10,000"),
        ({"source": FROM, "target": {**FILE, "table": "t"}, "mapping": {"b": "x"}}, "it has a"),
        ({"source": FROM, "target": {**FILE, "table": "t"}, "key": "z", "mode": "upsert"}, "'z'"),
        ({"source": FROM, "target": {**FROM, "query": None, "table": "t"}}, "are one file"),
        (
            {"source": {**FILE, "query": "select 1"}, "target": {**FILE, "table": "t"}},
            "INSERT INTO",
        ),
    ],
)
def test_what_cannot_be_transferred_says_why(
    inputs: dict[str, Any], said: str, transfer: Transfers
) -> None:
    fault = transfer.refused(**inputs)
    assert (fault.kind, fault.retryable) == ("config", False)
    assert said in fault.message
    assert not Path(FILE["database"]).exists()


def test_a_side_whose_kind_is_off_is_refused(tmp_path: Path) -> None:
    target = {"tool": "sqlite", "database": str(tmp_path / "t.db"), "table": "t"}
    given = {"source": {"tool": "duckdb", "query": "select 1"}, "target": target}

    async def work() -> Answer:
        performers = standard_performers(WorkSettings(without=frozenset({"duckdb"})))
        try:
            return await perform(performers["transfer"], task("transfer", **given))
        finally:
            await close_all(performers)

    assert fault_of(run(work())).code == "KIND_OFF"

"""SQLite and DuckDB: files, locks, and what is particular to each."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from hangs import HANG_SECONDS

from ..support import fault_of
from .databases import Database, Sql


@pytest.fixture
def sqlite(tmp_path: Path) -> Database:
    return Database("sqlite", {"database": str(tmp_path / "test.db")})


@pytest.fixture
def duckdb(tmp_path: Path) -> Database:
    return Database("duckdb", {"database": str(tmp_path / "test.duckdb")})


class Locked:
    """Somebody else who holds the write lock of a file."""

    def __init__(self, database: Database) -> None:
        self._other = sqlite3.connect(
            database.connection["database"], isolation_level=None, check_same_thread=False
        )

    def __enter__(self) -> sqlite3.Connection:
        self._other.execute("begin immediate")
        return self._other

    def __exit__(self, *_: object) -> None:
        self._other.close()


def test_a_task_waits_for_the_lock(sqlite: Database) -> None:
    async def scenario(sql: Sql) -> None:
        await sql("create table t (a)")
        with Locked(sqlite) as other:
            threading.Timer(0.2, other.rollback).start()
            assert (await sql("insert into t values (1)")).status == "ok"

    sqlite.using(scenario)


def test_waiting_for_the_lock_has_an_end_and_can_be_cancelled(sqlite: Database) -> None:
    async def scenario(sql: Sql) -> None:
        await sql("create table t (a)")
        with Locked(sqlite):
            fault = fault_of(await sql("insert into t values (1)"))
            assert (fault.kind, fault.code, fault.retryable) == ("db_timeout", "SQLITE_BUSY", True)
            assert "database is locked" in fault.message
            assert await sql.rows("select * from t") == []  # readers need not wait

    async def cut_short(sql: Sql) -> None:
        with Locked(sqlite):
            fault = fault_of(await sql("insert into t values (1)", timeout=0.1))
            assert fault.code == "TIMEOUT", "before the database gave up waiting"

    sqlite.using(scenario, busy_seconds=0.5)
    sqlite.using(cut_short, busy_seconds=HANG_SECONDS)


def test_parameters_and_triggers(sqlite: Database) -> None:
    script = """
        create table t (a); create table seen (a);
        create trigger note after insert on t begin
            insert into seen values (new.a); insert into seen values (-new.a);
        end;
        insert into t values (7);
        select a from seen order by a;
    """
    assert sqlite.query(script).result["rows"] == [{"a": -7}, {"a": 7}]


def test_values_sqlite_allows(sqlite: Database) -> None:
    row = sqlite.query("select x'00ff' as raw, cast(x'ff41' as text) as odd, 1e999 as big").result
    assert row["rows"] == [{"raw": "AP8=", "odd": "\ufffdA", "big": "inf"}]
    fault = sqlite.failing("select ?", params=[2**70])
    assert (fault.kind, fault.retryable) == ("config", False)
    assert sqlite.failing("select ?", params=[{"a": 1}]).kind == "config"


@pytest.mark.parametrize(
    ("connection", "kind", "words"),
    [
        ({}, "config", "needs database"),
        ({"database": "a", "path": "b"}, "config", "needs database"),
        ({"database": "/nowhere/at/all.db"}, "db_connection", "unable to open"),
    ],
)
def test_files_that_are_none(connection: Any, kind: str, words: str) -> None:
    fault = Database("sqlite", connection).failing("select * from sqlite_master")
    assert (fault.kind, fault.retryable) == (kind, False)
    assert words in fault.message


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("this is just text, and quite a lot of it " * 100)
    fault = Database("sqlite", {"path": str(path)}).failing("select * from t")
    assert (fault.kind, fault.code, fault.retryable) == ("db_connection", "SQLITE_NOTADB", False)


MIB = 1024 * 1024
#: Values, and rows of values, that are far larger than any result.
LARGE = (
    "select cast(randomblob(100000000) as text) as a",
    "select hex(zeroblob(50000000)) as a",
    "select group_concat(a) as a from (select printf('%.*c', 900000, 'x') as a from t x, t y)",
    "select zeroblob(900000) as a from t x, t y",
    "select printf('%.*c', 900000, 'x') as a from t x, t y",
)


@pytest.mark.parametrize("query", LARGE)
def test_no_more_is_made_of_rows_than_a_result_may_have(sqlite: Database, query: str) -> None:
    async def scenario(sql: Sql) -> None:
        await sql("create table t (a); insert into t values " + ", ".join(["(1)"] * 10))
        tracemalloc.start()
        try:
            fault = fault_of(await sql(query))
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (fault.kind, fault.retryable) == ("result", False)
        assert "sql_result_bytes" in fault.message
        assert most < 20 * MIB

    sqlite.using(scenario, result_bytes=2 * MIB)


def test_memory_is_empty_in_every_task(sqlite: Database) -> None:
    async def scenario(sql: Sql) -> None:
        first = await sql("create table t (a)", database=":memory:")
        second = await sql("select * from t", database=":memory:")
        assert (first.status, fault_of(second).kind) == ("ok", "db_error")

    sqlite.using(scenario)


def test_many_cancels_at_random_instants_leave_the_file_free(sqlite: Database) -> None:
    async def scenario(sql: Sql) -> None:
        await sql("create table t (a)")
        for number in range(30):
            work = asyncio.ensure_future(sql(f"insert into t values (1); {sqlite.endless}"))
            await asyncio.sleep(number % 10 * 0.002)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
        assert await sql.rows("select count(*) as n from t") == [{"n": 0}]

    sqlite.using(scenario)


# -- DuckDB ----------------------------------------------------------------------------------


def test_duckdb_without_a_file_is_in_memory() -> None:
    database = Database("duckdb", {})
    assert database.query("create table t as select 1 as a; select * from t").result["rows"] == [
        {"a": 1}
    ]


def test_duckdb_types_come_as_json(duckdb: Database) -> None:
    row = duckdb.query(
        """
        select 1.50::decimal(9, 2) as exact, [1, null] as list, {'a': 1} as struct,
               map {'k': 2} as map, date '2026-01-02' as day, 'ab'::blob as raw,
               timestamp '2026-01-02 03:04:05' as at, interval 90 second as span,
               170141183460469231731687303715884105727::hugeint as huge,
               'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid as id
        """
    ).result["rows"][0]
    assert row == {
        "exact": 1.5,
        "list": [1, None],
        "struct": {"a": 1},
        "map": {"k": 2},
        "day": "2026-01-02",
        "raw": "YWI=",
        "at": "2026-01-02T03:04:05",
        "span": 90.0,
        "huge": "170141183460469231731687303715884105727",
        "id": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    }


def test_duckdb_times_with_zones(duckdb: Database) -> None:
    answer = duckdb.query("select timestamptz '2026-01-02 03:04:05+00' as at")
    assert answer.result["rows"][0]["at"].startswith("2026-01-02T03:04:05")


def test_duckdb_reads_files(duckdb: Database, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,name\n1,x\n2,y\n")
    query = f"select sum(n) as n from read_csv('{tmp_path}/a.csv')"
    assert duckdb.query(query).result["rows"] == [{"n": 3}]


def test_duckdb_counts_what_it_changed(duckdb: Database) -> None:
    result = duckdb.query(
        "create table t (a int); insert into t select * from range(5); delete from t where a > 2; "
        "select count(*) as Count from t"
    ).result
    counts = [result[f"command_{number}"]["row_count"] for number in (1, 2)]
    assert counts == [5, 2]
    assert result["rows"] == [{"Count": 3}]


def test_duckdb_read_only(duckdb: Database) -> None:
    duckdb.query("create table t (a int)")
    fault = duckdb.failing("insert into t values (1)", read_only=True)
    assert "read-only" in fault.message
    assert duckdb.query("select * from t", read_only=True).status == "ok"


def test_duckdb_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    path.write_text("no database " * 1000)
    fault = Database("duckdb", {"path": str(path)}).failing("select 1")
    assert fault.kind == "db_connection"
    both = Database("duckdb", {"path": "a", "database": "b"}).failing("select 1")
    assert "takes one database" in both.message

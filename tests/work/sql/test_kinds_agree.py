"""SQLite, PostgreSQL and DuckDB answer in one way: same inputs, same result, same errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.work.sql.rows import json_safe, unique

from ..support import fault_of, run, task
from .databases import MARK, NAMED, Database, Keeper, Sql, made, open_keeper

TABLE = "create table t (a integer primary key, b varchar(20) not null)"


@pytest.fixture(scope="module")
def keeper() -> Iterator[Keeper]:
    with open_keeper() as opened:
        yield opened


@pytest.fixture(params=["sqlite", "postgres", "duckdb"])
def database(request: pytest.FixtureRequest, tmp_path: Path, keeper: Keeper) -> Database:
    return made(request.param, request, tmp_path, keeper)


def test_each_command_has_its_result_and_the_last_rows_stand_on_top(database: Database) -> None:
    answer = database.query(
        f"{TABLE}; insert into t values (1, 'x'), (2, 'y'); select * from t order by a; "
        "update t set b = 'z' where a > 1"
    )
    result = answer.result
    assert list(result) == [*(f"command_{n}" for n in range(4)), "rows", "row_count"]
    assert result["rows"] == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert result["row_count"] == 2
    select, update = result["command_2"], result["command_3"]
    assert select["columns"] == ["a", "b"]
    assert (select["status"], select["row_count"]) == ("success", 2)
    assert (update["rows"], update["row_count"], update["columns"]) == ([], 1, [])
    assert result["command_1"]["row_count"] == 2
    assert all(isinstance(result[f"command_{n}"]["message"], str) for n in range(4))


def test_without_rows_the_top_speaks_of_the_last_command(database: Database) -> None:
    result = database.query(f"{TABLE}; insert into t values (1, 'x'), (2, 'y')").result
    assert (result["rows"], result["row_count"]) == ([], 2)


def test_no_rows_still_have_columns(database: Database) -> None:
    result = database.query(f"{TABLE}; select * from t").result
    assert (result["rows"], result["row_count"]) == ([], 0)
    assert result["command_1"]["columns"] == ["a", "b"]


def test_a_change_may_return_rows(database: Database) -> None:
    result = database.query(f"{TABLE}; insert into t values (1, 'x'), (2, 'y') returning a").result
    assert result["rows"] == [{"a": 1}, {"a": 2}]


def test_parameters_by_place_and_by_name(database: Database) -> None:
    async def scenario(sql: Sql) -> None:
        await sql(TABLE)
        mark, named = MARK[database.kind], NAMED[database.kind]
        await sql(f"insert into t values ({mark}, {mark})", params=[1, "it's; 'quoted' %"])
        await sql(f"insert into t values ({named}, 'y')", params={"n": 2})
        rows = await sql.rows("select b from t order by a")
        assert [row["b"] for row in rows] == ["it's; 'quoted' %", "y"]

    database.using(scenario)


def test_all_commands_or_none(database: Database) -> None:
    async def scenario(sql: Sql) -> None:
        await sql(TABLE)
        answer = await sql("insert into t values (1, 'x'); insert into t values (1, 'again')")
        assert fault_of(answer).details["command"] == 1
        assert await sql.rows("select * from t") == []

    database.using(scenario)


def test_with_autocommit_each_command_stays(database: Database) -> None:
    async def scenario(sql: Sql) -> None:
        await sql(TABLE)
        twice = "insert into t values (1, 'x'); insert into t values (1, 'again')"
        assert (await sql(twice, autocommit=True)).status == "error"
        assert len(await sql.rows("select * from t")) == 1

    database.using(scenario)


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("insert into t values (1, 'again')", "db_constraint"),
        ("insert into t values (2, null)", "db_constraint"),
        ("selec 1", "db_error"),
        ("select * from nowhere", "db_error"),
    ],
)
def test_errors_have_kinds_codes_and_places(database: Database, command: str, kind: str) -> None:
    fault = database.failing(f"{TABLE}; insert into t values (1, 'x'); {command}")
    assert (fault.kind, fault.retryable) == (kind, False)
    assert fault.code.startswith(
        {"sqlite": "SQLITE_", "postgres": "PG_", "duckdb": "DUCKDB_"}[database.kind]
    )
    assert fault.details["command"] == 2
    assert fault.message.startswith(f"{database.kind} ")


def test_wrong_parameters_are_the_authors_mistake(database: Database) -> None:
    fault = database.failing(f"select {MARK[database.kind]} as a", params=[1, 2])
    assert (fault.kind, fault.retryable) == ("config", False)


def test_too_many_rows_are_refused_with_the_setting(database: Database) -> None:
    async def scenario(sql: Sql) -> None:
        await sql(f"{TABLE}; insert into t values (1, 'x'), (2, 'x'), (3, 'x')")
        fault = fault_of(await sql("select x.a from t x, t y, t z"))
        assert (fault.kind, fault.code) == ("result", "TOO_MANY_ROWS")
        assert "more than 10 rows (setting sql_rows_max)" in fault.message
        assert len(await sql.rows("select x.a from t x, t y")) == 9

    database.using(scenario, rows_max=10)


def test_too_many_bytes_are_refused_with_the_setting(database: Database) -> None:
    async def scenario(sql: Sql) -> None:
        fault = fault_of(await sql(f"select '{'x' * 2000}' as a"))
        assert "more than 1,000 bytes (setting sql_result_bytes)" in fault.message
        assert await sql.rows("select 1 as a") == [{"a": 1}]

    database.using(scenario, result_bytes=1000)


def test_a_long_result_is_read_in_parts(database: Database) -> None:
    numbers = {
        "sqlite": "with recursive x as (select 1 n union all select n + 1 from x where n < 20000) "
        "select n from x",
        "postgres": "select n from generate_series(1, 20000) n",
        "duckdb": "select range + 1 as n from range(20000)",
    }
    rows = database.query(numbers[database.kind]).result["rows"]
    assert [row["n"] for row in rows] == list(range(1, 20001))


def test_a_timeout_stops_the_statement(database: Database) -> None:
    async def scenario(sql: Sql) -> None:
        fault = fault_of(await sql(database.endless, timeout="300ms"))
        assert (fault.kind, fault.code, fault.retryable) == ("db_timeout", "TIMEOUT", True)
        assert "longer than 0.3 s" in fault.message
        assert await sql.rows("select 1 as a") == [{"a": 1}]

    database.using(scenario, threads=1, connections=1)


def test_a_cancel_undoes_and_leaves_the_database_free(database: Database) -> None:
    async def scenario(sql: Sql) -> None:
        await sql(TABLE)
        for _ in range(3):
            work = asyncio.ensure_future(sql(f"insert into t values (1, 'x'); {database.endless}"))
            await asyncio.sleep(0.15)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
        assert await sql.rows("select * from t") == []
        assert (await sql("insert into t values (1, 'y')")).status == "ok"

    database.using(scenario, threads=1, connections=1)


def test_waiting_for_a_turn_can_be_cancelled_too(database: Database) -> None:
    async def scenario(sql: Sql) -> None:
        first = asyncio.ensure_future(sql(database.endless))
        await asyncio.sleep(0.05)
        second = asyncio.ensure_future(sql("select 1 as a"))
        await asyncio.sleep(0.05)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert not first.done(), "it did not wait for its turn"
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    database.using(scenario, threads=1, connections=1)


def test_tasks_at_once_do_not_disturb_each_other(database: Database) -> None:
    async def scenario(sql: Sql) -> None:
        await sql(TABLE)

        async def insert(number: int) -> None:
            for attempt in range(50):
                answer = await sql(f"insert into t values ({number}, 'x')")
                if answer.status == "ok":
                    return
                assert fault_of(answer).retryable, (attempt, answer)

        await asyncio.gather(*map(insert, range(20)))
        assert len(await sql.rows("select * from t")) == 20

    database.using(scenario)


def test_columns_of_the_same_name_get_numbers(database: Database) -> None:
    rows = database.query("select 1 as a, 2 as a, 3 as a_2").result["rows"]
    assert list(rows[0].values()) == [1, 2, 3]
    assert unique(["a", "a", "a_2", "a"]) == ["a", "a_2", "a_2_2", "a_3"]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"auth": [1]}, "auth must be a mapping"),
        ({"query": "b"}, "it has command and query"),
    ],
)
def test_bad_inputs_reach_no_database(database: Database, inputs: Any, words: str) -> None:
    fault = database.failing("select 1", **inputs)
    assert (fault.kind, fault.retryable) == ("config", False)
    assert words in fault.message


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from .databases import KINDS

    for kind, package in (("postgres", "psycopg"), ("duckdb", "duckdb")):
        monkeypatch.setitem(sys.modules, package, None)

        async def scenario(kind: str = kind) -> str:
            performer = KINDS[kind]()
            try:
                answer = await performer.perform(task(kind, command="select 1", dsn="host=x"))
                return fault_of(answer).message
            finally:
                await performer.close()

        assert f"pip install anabranch[{kind}]" in run(scenario())


def test_nothing_but_json_comes_out() -> None:
    import uuid
    from datetime import UTC, date, datetime, timedelta
    from decimal import Decimal
    from ipaddress import ip_address

    sample = uuid.uuid4()
    values: dict[Any, Any] = {
        Decimal("1.50"): 1.5,
        Decimal("3"): 3,
        Decimal("12345678901234567890.123"): "12345678901234567890.123",
        Decimal("NaN"): "NaN",
        2**70: str(2**70),
        float("inf"): "inf",
        datetime(2026, 1, 2, 3, 4, tzinfo=UTC): "2026-01-02T03:04:00+00:00",
        date(2026, 1, 2): "2026-01-02",
        timedelta(minutes=2): 120.0,
        b"\x00\xff": "AP8=",
        sample: str(sample),
        ip_address("10.0.0.1"): "10.0.0.1",
    }
    for given, expected in values.items():
        assert json_safe(given) == expected
        assert type(json_safe(given)) is type(expected)
    assert json_safe({"a": [Decimal(1), {1: b"x"}]}) == {"a": [1, {"1": "eA=="}]}

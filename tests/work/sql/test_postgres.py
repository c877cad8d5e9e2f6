"""PostgreSQL: its error codes, its types, its connections, and passwords nobody gets to see."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from anabranch.kernel.values import Answer
from anabranch.work.sql.postgres import Postgres
from anabranch.work.values import served_json, served_values
from hangs import HANG_SECONDS

from ..support import fault_of
from .databases import Database, Sql, made

CANARY = "canary-4f1d9c"


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return made("postgres", request, tmp_path)


@pytest.mark.parametrize(
    ("command", "kind", "code", "retryable"),
    [
        ("select 1/0", "db_error", "PG_22012", False),
        ("set local statement_timeout = 50; select pg_sleep(9)", "db_timeout", "PG_57014", True),
        ("do $$ begin raise sqlstate '40001'; end $$", "db_deadlock", "PG_40001", True),
        ("do $$ begin raise sqlstate '53300'; end $$", "db_connection", "PG_53300", True),
        ("do $$ begin raise sqlstate '42501'; end $$", "auth", "PG_42501", False),
        (
            "create table t (a int check (a > 0)); insert into t values (0)",
            "db_constraint",
            "PG_23514",
            False,
        ),
    ],
)
def test_codes_and_kinds(
    database: Database, command: str, kind: str, code: str, retryable: bool
) -> None:
    fault = database.failing(command)
    assert (fault.kind, fault.code, fault.retryable) == (kind, code, retryable)
    assert fault.details["pg_code"] == code.removeprefix("PG_")


def test_a_broken_rule_names_table_and_constraint(database: Database) -> None:
    fault = database.failing(
        "create table t (a int constraint above check (a > 0)); insert into t values (0)"
    )
    assert (fault.details["table"], fault.details["constraint"]) == ("t", "above")


def test_two_that_wait_for_each_other(database: Database) -> None:
    async def scenario(sql: Sql) -> tuple[Answer, Answer]:
        await sql("create table t (a int); insert into t values (1), (2)")
        lock = (
            "update t set a = a where a = {}; select pg_sleep(0.4); update t set a = a where a = {}"
        )
        return await asyncio.gather(sql(lock.format(1, 2)), sql(lock.format(2, 1)))

    answers = database.using(scenario)
    fault = fault_of(next(answer for answer in answers if answer.status == "error"))
    assert (fault.kind, fault.code, fault.retryable) == ("db_deadlock", "PG_40P01", True)


def test_statements_outside_a_transaction(database: Database) -> None:
    fault = database.failing("vacuum")
    assert fault.message.endswith("(set autocommit: true)")
    assert database.query("vacuum", autocommit=True).status == "ok"


def test_a_script_with_bodies(database: Database) -> None:
    script = """
        create function twice(n int) returns int as $$ begin return n * 2; end; $$ language plpgsql;
        do $body$ begin perform twice(1); end; $body$;
        select twice(21) as n;
    """
    assert database.query(script).result["rows"] == [{"n": 42}]


def test_types_come_as_json(database: Database) -> None:
    row = database.query(
        """
        select 1.50::numeric as exact, 'NaN'::float8 as none, '{1,2}'::int[] as list,
               '{"a": [1, null]}'::jsonb as json, timestamptz '2026-01-02 03:04:05+00' as at,
               date '2026-01-02' as day, interval '90 seconds' as span, '\\x00ff'::bytea as raw,
               '10.0.0.0/8'::cidr as net, int4range(1, 5) as part,
               'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid as id, null as nothing, true as yes
        """
    ).result["rows"][0]
    assert row | {"at": "", "part": ""} == {
        "exact": 1.5,
        "none": "nan",
        "list": [1, 2],
        "json": {"a": [1, None]},
        "at": "",
        "day": "2026-01-02",
        "span": 90.0,
        "raw": "AP8=",
        "net": "10.0.0.0/8",
        "part": "",
        "id": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "nothing": None,
        "yes": True,
    }
    assert row["at"].startswith("2026-01-02T")


MANY = "'[' || repeat('[],', {}) || '[]]'"


def test_json_is_taken_apart_beside_the_event_loop(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver would do it where it fetches a row: a server held everybody for seconds."""
    threads = []
    build = served_json.build_json

    def built(text: bytes, *, wide: bool = False) -> Any:
        threads.append(threading.current_thread())
        return build(text, wide=wide)

    monkeypatch.setattr(served_values, "build_json", built)
    many = MANY.format(200_000)
    query = f"select ({many})::json as a, ({many})::jsonb as b, array[({many})::json] as c"
    row = database.query(query).result["rows"][0]
    assert len(row["a"]) == len(row["b"]) == len(row["c"][0]) == 200_001
    assert len(threads) == 3
    assert threading.main_thread() not in threads
    assert database.query("select '[1e400, 1]'::json as a").result["rows"] == [{"a": ["inf", 1]}]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (f"select ({MANY.format(1_000_000)})::json", "more than 1,000,000 lists and objects"),
        (f"select ({MANY.format(2_000)})::json from generate_series(1, 501)", "1,000,000 lists"),
        ("select (repeat('[', 201) || repeat(']', 201))::json", "more than 200 levels"),
    ],
)
def test_json_has_its_limits(database: Database, query: str, said: str) -> None:
    assert said in database.failing(query).message


def test_mappings_become_json_and_lists_arrays(database: Database) -> None:
    rows = database.query(
        "select %(doc)s ->> 'a' as a, %(ids)s::int[] as ids, 5 = any(%(ids)s) as has",
        params={"doc": {"a": "x"}, "ids": [4, 5]},
    ).result["rows"]
    assert rows == [{"a": "x", "ids": [4, 5], "has": True}]


def test_a_percent_sign_without_parameters_is_itself(database: Database) -> None:
    assert database.query("select 'abc' like 'a%' as yes").result["rows"] == [{"yes": True}]


# -- connections -----------------------------------------------------------------------------

OURS = "from pg_stat_activity where datname = current_database()"
SESSIONS = f"select count(*) as n {OURS}"


def test_connections_are_used_again_and_carry_nothing_over(database: Database) -> None:
    async def scenario(sql: Sql) -> None:
        pid = "select pg_backend_pid() as pid"
        first = await sql.rows(f"set search_path = nowhere; create temp table x (a int); {pid}")
        assert await sql.rows(pid) == first
        assert await sql.rows("show search_path") == [{"search_path": '"$user", public'}]
        assert fault_of(await sql("select * from x")).code == "PG_42P01"

    database.using(scenario)


def test_a_connection_that_died_is_replaced(database: Database) -> None:
    async def scenario(sql: Sql) -> None:
        await sql("select 1")
        other = Postgres()
        killer = Sql(Database("postgres", {**database.connection, "user": "postgres"}), other)
        ended = f"select pg_terminate_backend(pid) {OURS} and pid <> pg_backend_pid()"
        await killer(ended)
        await other.close()
        answer = await sql("select 1 as a")
        if answer.status == "error":  # it had been used a moment before and was not asked
            fault = fault_of(answer)
            assert (fault.kind, fault.retryable) == ("db_connection", True)
            answer = await sql("select 1 as a")
        assert answer.result["rows"] == [{"a": 1}]

    database.using(scenario)


def test_there_are_never_more_than_allowed_and_idle_ones_are_closed(database: Database) -> None:
    async def one_is_left(sql: Sql) -> None:
        until = time.monotonic() + HANG_SECONDS
        while (await sql.rows(SESSIONS))[0]["n"] > 1:
            assert time.monotonic() < until
            await asyncio.sleep(0.05)

    async def scenario(sql: Sql) -> None:
        await one_is_left(sql)  # the server may still be ending those of the test before
        counts = await asyncio.gather(
            *(sql.rows(f"select pg_sleep(0.05); {SESSIONS}") for _ in range(9))
        )
        assert max(rows[0]["n"] for rows in counts) <= 3
        await one_is_left(sql)

    database.using(scenario, connections=3, idle_seconds=0.2)


def test_a_cancel_ends_the_statement_on_the_server(database: Database) -> None:
    async def scenario(sql: Sql) -> None:
        work = asyncio.ensure_future(sql("select pg_sleep(297)"))
        running = f"select pid {OURS} and query = 'select pg_sleep(297)' and state = 'active'"
        while not await sql.rows(running):
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert await sql.rows(running) == []

    database.using(scenario)


def test_a_limit_is_met_before_all_rows_have_come(database: Database) -> None:
    begin = time.process_time()
    fault = database.failing("select generate_series(1, 100000000) as n")
    assert fault.code == "TOO_MANY_ROWS"
    assert time.process_time() - begin < 10  # seconds of our own work


# -- addresses and passwords -----------------------------------------------------------------


def test_an_address_in_parts(database: Database) -> None:
    from psycopg.conninfo import conninfo_to_dict

    address = conninfo_to_dict(database.connection["dsn"])
    place = {"host": address["host"], "port": address["port"]}
    auth = {**place, "username": "postgres", "database": "nowhere"}
    parts = Database("postgres", {"auth": auth, "dbname": "postgres"})
    fault = parts.failing("select 1")
    assert (fault.kind, fault.retryable) == ("db_connection", False)  # auth.database came first
    parts = Database("postgres", {"auth": auth | {"database": "postgres"}})
    assert parts.query("select 1 as a").result["rows"] == [{"a": 1}]


@pytest.mark.parametrize(
    "connection",
    [
        {"host": "127.0.0.1", "port": 1, "user": "u", "password": CANARY, "dbname": "d"},
        {"dsn": f"postgresql://u:{CANARY}@127.0.0.1:1/d"},
        {"dsn": f"host=127.0.0.1 port=1 password={CANARY}"},
        {"dsn": f"host=127.0.0.1 {CANARY}"},
        {"dsn": f"postgresql://u:{CANARY}@[127/d"},
        {"auth": {"password": CANARY, "host": "127.0.0.1", "port": "1"}, "dbname": "d"},
        {"auth": CANARY},
    ],
)
def test_a_password_is_in_no_answer(connection: dict[str, Any]) -> None:
    answer = Database("postgres", connection).query("select 1")
    fault = fault_of(answer)
    assert fault.kind in ("config", "db_connection")
    assert CANARY not in repr(answer)


def test_no_stars_tell_the_letters_of_a_short_password() -> None:
    logins = [f"u{password}" for password in ("", ":o", ":on", ":port", ":refused")]
    places = [{"dsn": f"postgresql://{login}@127.0.0.1:1/d"} for login in logins]
    assert len({Database("postgres", place).failing("select 1").message for place in places}) == 1


def test_nobody_there(database: Database) -> None:
    fault = Database("postgres", {"host": "127.0.0.1", "port": 1, "dbname": "d"}).failing(
        "select 1"
    )
    assert (fault.kind, fault.retryable) == ("db_connection", True)
    assert fault.message.startswith("postgres 127.0.0.1:1/d: ")
    assert database.query("select 1").status == "ok"


def test_an_address_must_say_something() -> None:
    fault = Database("postgres", {}).failing("select 1")
    assert fault.message == "a postgres task needs dsn, or host and dbname (also from auth)"

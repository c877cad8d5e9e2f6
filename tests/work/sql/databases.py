"""The three databases as the tests use them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from anabranch.kernel.values import Answer, Fault
from anabranch.work.kind_options import SqlOptions
from anabranch.work.sql.duckdb import DuckDb
from anabranch.work.sql.postgres import Postgres
from anabranch.work.sql.sqlite import Sqlite

from ..support import fault_of, run, task

T = TypeVar("T")
Kind = Sqlite | Postgres | DuckDb

KINDS: dict[str, type[Kind]] = {"sqlite": Sqlite, "postgres": Postgres, "duckdb": DuckDb}
#: A statement that runs for a very long time.
ENDLESS = {
    "sqlite": "with recursive x as (select 1 n union all select n + 1 from x) select sum(n) from x",
    "postgres": "select pg_sleep(300)",
    "duckdb": "select sum(a.range % (b.range + 1)) from range(10000000000) a, range(1000) b",
}
MARK = {"sqlite": "?", "postgres": "%s", "duckdb": "?"}
NAMED = {"sqlite": ":n", "postgres": "%(n)s", "duckdb": "$n"}


@dataclass
class Database:
    kind: str
    connection: dict[str, Any]

    def using(self, scenario: Callable[[Sql], Awaitable[T]], **options: Any) -> T:
        async def guarded() -> T:
            performer = KINDS[self.kind](SqlOptions(**options))
            try:
                return await scenario(Sql(self, performer))
            finally:
                await performer.close()

        return run(guarded())

    def query(self, command: str, **inputs: Any) -> Answer:
        return self.using(lambda sql: sql(command, **inputs))

    def failing(self, command: str, **inputs: Any) -> Fault:
        return fault_of(self.query(command, **inputs))

    @property
    def endless(self) -> str:
        return ENDLESS[self.kind]


class Sql:
    """Commands on one database through one performer."""

    def __init__(self, database: Database, performer: Kind) -> None:
        self.database = database
        self.performer = performer

    async def __call__(self, command: str, **inputs: Any) -> Answer:
        given = {**self.database.connection, "command": command, **inputs}
        return await self.performer.perform(task(self.database.kind, **given))

    async def rows(self, command: str, **inputs: Any) -> list[dict[str, Any]]:
        answer = await self(command, **inputs)
        assert answer.status == "ok", answer
        rows: list[dict[str, Any]] = answer.result["rows"]
        return rows


def made(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A database with nothing in it."""
    if kind != "postgres":
        return Database(kind, {"database": str(tmp_path / "test.db")})
    database = Database(kind, {"dsn": request.getfixturevalue("postgres")})
    database.query("drop schema public cascade; create schema public")
    return database

"""The three databases as the tests use them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from anabranch.kernel.values import Answer, Fault
from anabranch.work.kind_options import SqlOptions
from anabranch.work.port import Performer
from anabranch.work.registry import close_all
from anabranch.work.sql.duckdb import DuckDb
from anabranch.work.sql.postgres import Postgres
from anabranch.work.sql.sqlite import Sqlite
from hangs import HANG_SECONDS

from ..support import fault_of, perform, run, task

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
class Keeper:
    """Performers that a file of tests shares, and the loop that they live in: every performer of
    DuckDB begins a process."""

    runner: asyncio.Runner
    made: dict[str, Performer] = field(default_factory=dict)

    def run(self, work: Awaitable[T]) -> T:
        async def limited() -> T:
            async with asyncio.timeout(HANG_SECONDS):
                return await work

        return self.runner.run(limited())

    def performer(self, kind: str, options: dict[str, Any]) -> Performer:
        name = f"{kind} {options}" if options else kind
        if name not in self.made:
            self.made[name] = KINDS[kind](SqlOptions(**options))
        return self.made[name]


@contextmanager
def open_keeper() -> Iterator[Keeper]:
    with asyncio.Runner() as runner:
        keeper = Keeper(runner)
        try:
            yield keeper
        finally:
            keeper.run(close_all(keeper.made))


@dataclass
class Database:
    kind: str
    connection: dict[str, Any]
    keeper: Keeper | None = None

    def using(self, scenario: Callable[[Sql], Awaitable[T]], **options: Any) -> T:
        if self.keeper is not None:
            return self.keeper.run(scenario(Sql(self, self.keeper.performer(self.kind, options))))

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

    def __init__(self, database: Database, performer: Performer) -> None:
        self.database = database
        self.performer = performer

    async def __call__(self, command: str, **inputs: Any) -> Answer:
        given = {**self.database.connection, "command": command, **inputs}
        return await perform(self.performer, task(self.database.kind, **given))

    async def rows(self, command: str, **inputs: Any) -> list[dict[str, Any]]:
        answer = await self(command, **inputs)
        assert answer.status == "ok", answer
        rows: list[dict[str, Any]] = answer.result["rows"]
        return rows


def made(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, keeper: Keeper | None = None
) -> Database:
    """A database with nothing in it."""
    if kind != "postgres":
        return Database(kind, {"database": str(tmp_path / "test.db")}, keeper)
    database = Database(kind, {"dsn": request.getfixturevalue("postgres")}, keeper)
    database.query("drop schema public cascade; create schema public")
    return database

"""A database that sends more than a result may have is given up before it is in memory."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.kernel.values import Answer
from anabranch.work.kind_options import SqlOptions, WorkSettings
from anabranch.work.registry import close_all, standard_performers

from ..support import fault_of, perform, run, task

psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="who counts is Linux")

MIB = 1024 * 1024
LARGE = 80 * MIB
ROOM = 40 * MIB  # for what stands in buffers of the system
SETTINGS = WorkSettings(sql=SqlOptions(result_bytes=MIB))
#: As one value, as rows that are streamed, and of statements that do not only read.
ANSWERS = (
    f"select repeat('x', {LARGE}) as a",
    f"select repeat('x', {MIB}) as a from generate_series(1, 80)",
    f"insert into t select repeat('x', {MIB}) from generate_series(1, 80) returning a",
    f"declare c cursor for select repeat('x', {MIB}) from generate_series(1, 80); fetch all in c",
    f"do $$ begin for n in 1..80 loop raise notice '%', repeat('x', {MIB}); end loop; end $$",
)


class Relay:
    """Between a task and the database: counts what the database sends."""

    def __init__(self, dsn: str) -> None:
        self._dsn = psycopg.conninfo.conninfo_to_dict(dsn)
        self.sent = 0

    @asynccontextmanager
    async def address(self) -> AsyncIterator[str]:
        async with await asyncio.start_server(self._pass_on, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            yield psycopg.conninfo.make_conninfo("", **{**self._dsn, "host": host, "port": port})

    async def _pass_on(self, asked: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        place = f"{self._dsn['host']}/.s.PGSQL.{self._dsn['port']}"
        answers, database = await asyncio.open_unix_connection(place)
        asking = asyncio.create_task(self._copy(asked, database))
        try:
            await self._copy(answers, client, counts=True)
        finally:
            asking.cancel()
            for writer in (client, database):
                writer.close()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts: bool = False
    ) -> None:
        try:
            while part := await reader.read(64 * 1024):
                self.sent += len(part) if counts else 0
                writer.write(part)
                await writer.drain()
        except ConnectionError:
            return


def through_a_relay(postgres: str, *tasks: tuple[str, dict[str, Any]]) -> list[tuple[Answer, int]]:
    """The answer of each task, and what the database sent for it."""

    async def work() -> list[tuple[Answer, int]]:
        performers = standard_performers(SETTINGS)
        relay = Relay(postgres)
        done = []
        async with relay.address() as dsn:
            for kind, given in tasks:
                before = relay.sent
                answer = await perform(performers[kind], task(kind, **naming(kind, given, dsn)))
                done.append((answer, relay.sent - before))
            await close_all(performers)
        return done

    return run(work())


def naming(kind: str, given: dict[str, Any], dsn: str) -> dict[str, Any]:
    """The inputs with the address of the database where it belongs."""
    if kind == "postgres":
        return {**given, "dsn": dsn}
    return {**given, "source": {**given["source"], "dsn": dsn}} if "source" in given else given


def test_an_answer_that_is_larger_than_a_result_is_given_up_as_it_comes(postgres: str) -> None:
    begin = ("postgres", {"query": "create table if not exists t (a text)"})
    asked = [("postgres", {"query": query}) for query in ANSWERS]
    after = ("postgres", {"query": "select 1 as a"})
    _, *refused, (last, _) = through_a_relay(postgres, begin, *asked, after)
    for query, (answer, sent) in zip(ANSWERS, refused, strict=True):
        fault = fault_of(answer)
        assert (fault.kind, fault.retryable) == ("result", False), (query, fault)
        assert "sql_result_bytes" in fault.message, query
        assert sent < ROOM, query
    assert last.result["rows"] == [{"a": 1}]


def test_a_transfer_takes_rows_as_far_as_there_is_room(postgres: str, tmp_path: Path) -> None:
    def transfer(rows: str) -> tuple[str, dict[str, Any]]:
        source = {"tool": "postgres", "query": f"select repeat('x', {rows}"}
        target = {"tool": "sqlite", "database": str(tmp_path / "t.db"), "table": "t"}
        return "transfer", {"source": source, "target": target, "mapping": {"a": "repeat"}}

    made = {"database": str(tmp_path / "t.db"), "query": "create table t (a)"}
    many, few = "100000) from generate_series(1, 200)", f"{5 * MIB}) from generate_series(1, 16)"
    _, (fine, _), (large, sent) = through_a_relay(
        postgres, ("sqlite", made), transfer(many), transfer(few)
    )
    assert fine.status == "ok", fine
    assert fine.result["rows_transferred"] == 200
    assert fault_of(large).kind == "result"
    assert sent < ROOM

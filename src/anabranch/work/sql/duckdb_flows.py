"""Rows out of and into DuckDB files, for transfers: the end in the engine.

The other end (`_HeldConnections` of `duckdb_session.py`) runs in the process for DuckDB and keeps a
connection from the first request of a transfer to the last.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.work.faults import Unavailable
from anabranch.work.kinds import inputs
from anabranch.work.kinds.commands.child_process import undisturbed
from anabranch.work.sql.duckdb import DuckDb, answer_of, ask, place
from anabranch.work.sql.duckdb_channel import Channel, ProcessLost
from anabranch.work.sql.flows import Insertion, Row
from anabranch.work.sql.task import Params, SqlCommand, SqlTask
from anabranch.work.sql.text import DUCKDB, split, take_apart


class DuckDbFlows:
    def __init__(self, duckdb: DuckDb) -> None:
        self._duckdb = duckdb

    @asynccontextmanager
    async def reading(
        self, given: Mapping[str, Any], query: str, params: Params
    ) -> AsyncIterator[_Reading]:
        read_only = inputs.flag(given.get("read_only", False), "source.read_only")
        path = place(given)
        begin = {"read_only": read_only and path != ":memory:"}
        async with self._held(path, query) as ask_for:
            found = await ask_for("read", **begin, commands=[("SELECT", query, params)])
            yield _Reading(ask_for, found)

    @asynccontextmanager
    async def writing(self, given: Mapping[str, Any], into: Insertion) -> AsyncIterator[_Writing]:
        path = place(given)
        if path == ":memory:":
            raise InputError("target.database must be a file: in memory it is gone with the task")
        text = into.text("?")
        whole = not into.statement and into.mode != "upsert"
        if whole:  # a column at a time: ten times as fast as row by row
            marks = ", ".join(f"unnest(${number + 1})" for number in range(len(into.columns)))
            text = f"{into.head} SELECT {marks}"
        async with self._held(path, text) as ask_for:
            begin = [("DELETE", into.empties, None)] if into.empties else []
            await ask_for("write", commands=begin)
            yield _Writing(ask_for, text, "columns" if whole else "rows")

    @asynccontextmanager
    async def _held(self, path: str, text: str) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
        """A way to ask for one thing after another; the connection is let go at the end."""
        statements = await take_apart(text, split, text, DUCKDB)
        work = SqlTask(commands=tuple(SqlCommand(one, None) for one in statements))
        channel, access = await self._duckdb.channel_for(path, work)
        name = channel.name()

        async def ask_for(flow: str, **request: Any) -> Any:
            begins = access.fields if flow in ("read", "write") else {}
            reply = await ask(channel, flow=flow, held=name, **begins, **request)
            if reply.error or reply.unexpected:
                raise Unavailable(reply.message, answer_of(reply, path, work, access.hint))
            return reply.result

        try:
            yield ask_for
        finally:
            await undisturbed(_ended(channel, name))


async def _ended(channel: Channel, name: str) -> None:
    with suppress(ProcessLost, OSError):  # it is gone, and the connection with it
        await channel.ask(flow="end", held=name)


class _Reading:
    def __init__(self, ask: Callable[..., Awaitable[Any]], columns: list[str]) -> None:
        self._ask = ask
        self._columns = columns

    @property
    def columns(self) -> list[str]:
        return self._columns

    async def chunk(self, size: int) -> list[Row]:
        rows: list[Row] = await self._ask("next", size=size)
        return rows


class _Writing:
    def __init__(self, ask: Callable[..., Awaitable[Any]], statement: str, by: str) -> None:
        self._ask = ask
        self._statement = statement
        self._by = by

    async def write(self, rows: list[Row]) -> None:
        packed = base64.b64encode(msgspec.msgpack.encode(rows)).decode()
        commands = [("INSERT", self._statement, None)]
        await self._ask("put", commands=commands, rows=packed, by=self._by)

    async def commit(self) -> None:
        await self._ask("commit")

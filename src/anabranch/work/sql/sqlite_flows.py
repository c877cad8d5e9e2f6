"""Rows out of and into SQLite files, for transfers."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from anabranch.errors import InputError
from anabranch.work.faults import Unavailable
from anabranch.work.kind_options import SqlOptions
from anabranch.work.sql.blocking import Blocking, Halt
from anabranch.work.sql.flows import Insertion, Row, as_json, portable_rows
from anabranch.work.sql.named_files import resolve_sqlite
from anabranch.work.sql.rows import next_rows
from anabranch.work.sql.sqlite import Sqlite, SqliteSession, connect, fault_for, place
from anabranch.work.sql.task import Params

T = TypeVar("T")


class SqliteFlows:
    def __init__(self, sqlite: Sqlite) -> None:
        self._sqlite = sqlite

    @asynccontextmanager
    async def reading(
        self, given: Mapping[str, Any], query: str, params: Params
    ) -> AsyncIterator[_Reading]:
        async with self._opened(place(given)) as side:
            reading = _Reading(side)
            await side.run(lambda session: reading.begin(session, query, params))
            yield reading

    @asynccontextmanager
    async def writing(self, given: Mapping[str, Any], into: Insertion) -> AsyncIterator[_Writing]:
        path = place(given)
        if path == ":memory:":
            raise InputError("target.database must be a file: ':memory:' is gone with the task")
        async with self._opened(path) as side:
            writing = _Writing(side, into.text("?"))
            await side.run(lambda session: writing.begin(session, into.empties))
            yield writing

    @asynccontextmanager
    async def _opened(self, path: str) -> AsyncIterator[_Side]:
        blocking = self._sqlite.blocking()
        side = _Side(path, blocking, self._sqlite.options)
        try:
            yield side
        finally:
            await blocking.run_to_the_end(side.close)  # what was not committed is undone


class _Side:
    """One connection; what it does is done in a thread, one thing at a time."""

    def __init__(self, path: str, blocking: Blocking, options: SqlOptions) -> None:
        self._path = path
        self._blocking = blocking
        self._options = options
        self._connection: sqlite3.Connection | None = None
        self._session: SqliteSession | None = None

    async def run(self, call: Callable[[SqliteSession], T]) -> T:
        return await self._blocking.run(partial(self._called, call), None)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _called(self, call: Callable[[SqliteSession], T], halt: Halt) -> T:
        try:
            session = self._with(halt)
            return call(session)
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            halt.check()
            raise Unavailable(str(error), fault_for(error, self._path, None)) from None
        finally:
            halt.release()

    def _with(self, halt: Halt) -> SqliteSession:
        if self._connection is None or self._session is None:
            path = resolve_sqlite(self._path, self._options.files)
            self._connection = connect(path, halt, self._options)
            self._session = SqliteSession(self._connection, halt, self._options)
            self._session.refuse_stores()
        self._session.under(halt)
        return self._session


class _Reading:
    def __init__(self, side: _Side) -> None:
        self._side = side
        self._cursor: sqlite3.Cursor | None = None

    @property
    def columns(self) -> list[str]:
        described = None if self._cursor is None else self._cursor.description
        return [column[0] for column in described or ()]

    async def chunk(self, size: int) -> list[Row]:
        return await self._side.run(lambda _session: self._fetched(size))

    def begin(self, session: SqliteSession, query: str, params: Params) -> None:
        session.patiently("BEGIN")
        self._cursor = session.guarded(query, params)

    def _fetched(self, size: int) -> list[Row]:
        return [] if self._cursor is None else portable_rows(next_rows(self._cursor, size))


class _Writing:
    def __init__(self, side: _Side, statement: str) -> None:
        self._side = side
        self._statement = statement

    async def write(self, rows: list[Row]) -> None:
        await self._side.run(lambda session: self._written(session, rows))

    async def commit(self) -> None:
        await self._side.run(lambda session: session.patiently("COMMIT"))

    def begin(self, session: SqliteSession, empties: str) -> None:
        session.patiently("BEGIN IMMEDIATE")
        if empties:
            session.patiently(empties)

    def _written(self, session: SqliteSession, rows: list[Row]) -> None:
        session.many(self._statement, [[as_json(value) for value in row] for row in rows])

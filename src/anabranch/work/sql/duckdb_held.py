"""Connections that a transfer keeps from one request to the next, in the process for DuckDB.

read     opens, and executes a query         next     some more of its rows
write    opens, and begins a transaction     put      rows for it        commit   its end
end      closes; what was not committed is undone
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec

from anabranch.work.sql.blocking import Blocking, Halt
from anabranch.work.sql.duckdb_files import OpenFiles
from anabranch.work.sql.flows import as_json, portable_rows


class Held:
    def __init__(self, blocking: Blocking, files: OpenFiles, driver: Callable[[], Any]) -> None:
        self._blocking = blocking
        self._files = files
        self._driver = driver
        self._open: dict[str, tuple[Any, AsyncExitStack]] = {}

    async def perform(self, request: Any) -> Any:
        if request.flow == "end":
            return await self._close(request.held)
        if request.flow in ("read", "write"):
            await self._begin(request)
        connection, _ = self._open[request.held]
        call = {"read": _read, "next": _next, "write": _write, "put": _put, "commit": _commit}
        work = partial(_called, call[request.flow], connection, request)
        return await self._blocking.run(work, None)

    async def close(self) -> None:
        for name in tuple(self._open):
            await self._close(name)

    async def _begin(self, request: Any) -> None:
        stack = AsyncExitStack()
        if request.path == ":memory:":
            connect = partial(self._driver().connect, request.path)
            connection = await self._blocking.run_to_the_end(connect)
        else:
            use = self._files.use(request.path, request.read_only, tidy=True)
            connection = await stack.enter_async_context(use)
        self._open[request.held] = (connection, stack)

    async def _close(self, name: str) -> None:
        connection, stack = self._open.pop(name, (None, None))
        if connection is not None and stack is not None:
            await self._blocking.run_to_the_end(connection.close)
            await stack.aclose()


def _called(call: Callable[[Any, Any], Any], connection: Any, request: Any, halt: Halt) -> Any:
    try:
        halt.watch(connection.interrupt)
        return call(connection, request)
    finally:
        halt.release()


def _read(connection: Any, request: Any) -> list[str]:
    (command,) = request.commands
    connection.execute(command.text, command.params)
    return [column[0] for column in connection.description or ()]


def _next(connection: Any, request: Any) -> list[list[Any]]:
    return portable_rows(connection.fetchmany(request.size))


def _write(connection: Any, request: Any) -> None:
    connection.execute("BEGIN TRANSACTION")
    for command in request.commands:
        connection.execute(command.text)


def _put(connection: Any, request: Any) -> None:
    (command,) = request.commands
    rows = msgspec.msgpack.decode(base64.b64decode(request.rows))
    rows = [[as_json(value) if isinstance(value, dict) else value for value in row] for row in rows]
    if request.by == "columns":
        connection.execute(command.text, [list(column) for column in zip(*rows, strict=True)])
    else:
        connection.executemany(command.text, rows)


def _commit(connection: Any, _request: Any) -> None:
    connection.execute("COMMIT")

"""DuckDB statements as the process for them runs them: requests in, replies out.

Nothing here knows secrets or tasks: the engine reads the task and makes the answer of the reply.
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec

from anabranch.work.kind_options import SqlOptions
from anabranch.work.libraries import load
from anabranch.work.sql.blocking import Blocking, Halt
from anabranch.work.sql.duckdb_files import OpenFiles, Opening
from anabranch.work.sql.flows import as_json, portable_rows
from anabranch.work.sql.rows import CHUNK, Collector, ResultTooLarge, length_of, next_rows

_TIDY = frozenset({"SELECT", "WITH", "VALUES", "FROM", "INSERT", "UPDATE", "DELETE", "MERGE"})
_CHANGES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "CREATE", "COPY"})

HEAD = struct.Struct(">QI")  # of a reply: the number of the request, and how long the reply is
HEAD_BYTES = HEAD.size


class DuckDbCommand(msgspec.Struct, frozen=True, array_like=True):
    verb: str
    text: str
    params: Any = None


class DuckDbRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One task, or a part of a transfer; any other request takes the one of that number back."""

    number: int
    path: str = ""
    folders: tuple[str, ...] | None = None  # that its statements may reach; None: everything
    files: tuple[str, ...] = ()  # and files besides
    read_only: bool = False
    commands: tuple[DuckDbCommand, ...] = ()
    autocommit: bool = False
    timeout_seconds: float | None = None
    flow: str = ""  # of a transfer: what to do with the connection that it keeps
    held: str = ""  # which one that is
    size: int = 0
    rows: str = ""  # base64 of MessagePack
    by: str = "rows"


def opening_of(request: DuckDbRequest) -> Opening:
    return Opening(request.path, request.read_only, request.folders, request.files)


class DuckDbReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    result: Any = None
    error: str = ""  # the class of DuckDB's error; `ResultTooLarge` and `TimeoutError` are ours
    message: str = ""
    at: int | None = None  # the number of the statement that failed
    unexpected: str = ""  # an error that no code foresaw


class DuckDbSessions:
    """Runs requests, some at a time; to be used in one event loop."""

    def __init__(self, options: SqlOptions) -> None:
        self._options = options
        self._blocking = Blocking(options.threads)
        self._files = OpenFiles(self._blocking.run_to_the_end, options.file_keep_seconds)
        self._held = _HeldConnections(self._blocking, self._files, options.result_bytes)

    async def perform(self, request: DuckDbRequest) -> DuckDbReply:
        duckdb = await self._blocking.run_to_the_end(partial(load, "duckdb"))
        try:
            if request.flow:
                return DuckDbReply(result=await self._held.perform(request))
            return await self._performed(request)
        except duckdb.Error as error:  # the file could not be opened
            return _failed(error)
        except (TimeoutError, ResultTooLarge) as error:
            return _failed(error)

    async def _performed(self, request: DuckDbRequest) -> DuckDbReply:
        session = partial(_session, request, self._options)
        limit = request.timeout_seconds
        if request.path == ":memory:":  # there every task has a database of its own
            return await self._blocking.run(partial(session, None), limit)
        tidy = all(command.verb in _TIDY for command in request.commands)
        async with self._files.use(opening_of(request), tidy=tidy) as connection:
            return await self._blocking.run(partial(session, connection), limit)

    async def close(self) -> None:
        await self._held.close()
        await self._files.close()
        await self._blocking.close()


def _session(
    request: DuckDbRequest, options: SqlOptions, connection: Any, halt: Halt
) -> DuckDbReply:
    duckdb = load("duckdb")
    collector = Collector(options)
    if connection is None:
        connection = opening_of(request).connect()
    try:
        _run(connection, request, collector, halt)
        return DuckDbReply(result=collector.result())
    except ResultTooLarge as error:
        return _failed(error, collector.at)
    except duckdb.Error as error:
        halt.check()
        return _failed(error, collector.at)
    finally:
        halt.release()
        connection.close()  # what was not committed is undone


def _run(connection: Any, request: DuckDbRequest, collector: Collector, halt: Halt) -> None:
    halt.watch(connection.interrupt)
    if not request.autocommit:
        connection.execute("BEGIN TRANSACTION")
    for command in request.commands:
        halt.check()
        _execute(connection, command, collector)
    if not request.autocommit:
        halt.check()
        connection.execute("COMMIT")


def _execute(connection: Any, command: DuckDbCommand, collector: Collector) -> None:
    connection.execute(command.text, command.params)
    columns = [column[0] for column in connection.description or ()]
    if command.verb in _CHANGES and columns == ["Count"]:  # so many rows were changed
        row = connection.fetchone()
        changed = int(row[0]) if row else 0
        collector.add(None, changed, f"{command.verb} {changed}")
        return
    table = collector.table(columns)
    while rows := connection.fetchmany(CHUNK):
        table.take(rows)
    collector.add(table if columns else None, 0, f"{command.verb} {len(table.rows)}")


def _failed(error: Exception, at: int | None = None) -> DuckDbReply:
    message = str(error).strip()
    return DuckDbReply(error=type(error).__name__, message=message, at=at)


class _HeldConnections:
    """Connections that a transfer keeps from one request to the next.

    read     opens, and executes a query         next     some more of its rows
    write    opens, and begins a transaction     put      rows for it        commit   its end
    end      closes; what was not committed is undone
    """

    def __init__(self, blocking: Blocking, files: OpenFiles, result_bytes: int) -> None:
        self._blocking = blocking
        self._files = files
        self._result_bytes = result_bytes
        self._open: dict[str, tuple[Any, AsyncExitStack]] = {}

    async def perform(self, request: DuckDbRequest) -> Any:
        if request.flow == "end":
            return await self._close(request.held)
        if request.flow in ("read", "write"):
            await self._begin(request)
        connection, _ = self._open[request.held]
        call: dict[str, Callable[[Any, DuckDbRequest], Any]] = {
            "read": _read,
            "next": partial(_next, self._result_bytes),
            "write": _write,
            "put": _put,
            "commit": _commit,
        }
        work = partial(_called, call[request.flow], connection, request)
        return await self._blocking.run(work, None)

    async def close(self) -> None:
        for name in tuple(self._open):
            await self._close(name)

    async def _begin(self, request: DuckDbRequest) -> None:
        stack = AsyncExitStack()
        if request.path == ":memory:":
            connection = await self._blocking.run_to_the_end(opening_of(request).connect)
        else:
            use = self._files.use(opening_of(request), tidy=True)
            connection = await stack.enter_async_context(use)
        self._open[request.held] = (connection, stack)

    async def _close(self, name: str) -> None:
        connection, stack = self._open.pop(name, (None, None))
        if connection is not None and stack is not None:
            await self._blocking.run_to_the_end(connection.close)
            await stack.aclose()


def _called(
    call: Callable[[Any, DuckDbRequest], Any], connection: Any, request: DuckDbRequest, halt: Halt
) -> Any:
    try:
        halt.watch(connection.interrupt)
        return call(connection, request)
    finally:
        halt.release()


def _read(connection: Any, request: DuckDbRequest) -> list[str]:
    (command,) = request.commands
    connection.execute(command.text, command.params)
    return [column[0] for column in connection.description or ()]


def _next(result_bytes: int, connection: Any, request: DuckDbRequest) -> list[list[Any]]:
    """Some more rows, and no more than the engine has room for."""
    rows = next_rows(iter(connection.fetchone, None), request.size)
    if length_of(rows) > result_bytes:
        raise ResultTooLarge(
            f"a row has more than {result_bytes:,} bytes (setting sql_result_bytes)"
        )
    return portable_rows(rows)


def _write(connection: Any, request: DuckDbRequest) -> None:
    connection.execute("BEGIN TRANSACTION")
    for command in request.commands:
        connection.execute(command.text)


def _put(connection: Any, request: DuckDbRequest) -> None:
    (command,) = request.commands
    rows = msgspec.msgpack.decode(base64.b64decode(request.rows))
    rows = [[as_json(value) if isinstance(value, dict) else value for value in row] for row in rows]
    if request.by == "columns":
        connection.execute(command.text, [list(column) for column in zip(*rows, strict=True)])
    else:
        connection.executemany(command.text, rows)


def _commit(connection: Any, _request: DuckDbRequest) -> None:
    connection.execute("COMMIT")


async def serve(channel: asyncio.StreamReader, replies: asyncio.StreamWriter, given: bytes) -> None:
    """Answers what comes over the channel until it is closed; then stops what is under way."""
    sessions = DuckDbSessions(msgspec.json.decode(given, type=SqlOptions))
    working: dict[int, asyncio.Task[None]] = {}
    try:
        while (request := await _request(channel)) is not None:
            if not request.commands and not request.flow:
                if request.number in working:
                    working[request.number].cancel()
                continue
            task = asyncio.create_task(_answer(sessions, request, replies))
            working[request.number] = task
            task.add_done_callback(partial(_forget, working, request.number))
            await asyncio.sleep(0)  # a task that is cancelled before it begins would not reply
    finally:
        left = tuple(working.values())
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await sessions.close()


def _forget(working: dict[int, asyncio.Task[None]], number: int, _task: object) -> None:
    working.pop(number, None)


async def _answer(
    sessions: DuckDbSessions, request: DuckDbRequest, replies: asyncio.StreamWriter
) -> None:
    """There is one reply to each request, also to one that was taken back."""
    try:
        reply = await sessions.perform(request)
    except asyncio.CancelledError:
        reply = DuckDbReply(error="CancelledError")
    except Exception as error:  # whatever it is, whoever asked must hear of it
        text = f"{type(error).__name__}: {error}"
        reply = DuckDbReply(unexpected=text.encode(errors="replace").decode())
    data = msgspec.msgpack.encode(reply)
    replies.write(HEAD.pack(request.number, len(data)) + data)
    await replies.drain()


async def _request(channel: asyncio.StreamReader) -> DuckDbRequest | None:
    try:
        size = int.from_bytes(await channel.readexactly(4), "big")
        return msgspec.convert(json.loads(await channel.readexactly(size)), DuckDbRequest)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None

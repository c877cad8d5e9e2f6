"""The kind `sqlite`: commands on a SQLite file, in one transaction.

The file is `database` (or `path`, `dsn`, `connection`); `:memory:` is empty in every task. Commands
that write take the write lock at the start, so that two tasks queue instead of deadlocking; whoever
waits for the lock longer than `busy_seconds` fails with `db_timeout`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from anabranch.errors import InputError
from anabranch.kernel.values import Answer, succeeded
from anabranch.work.faults import OUT_OF_FILES, fault, misconfigured, no_file_left
from anabranch.work.kind_options import SqlOptions
from anabranch.work.kinds import inputs
from anabranch.work.kinds.script_sources import ScriptSources
from anabranch.work.port import Task
from anabranch.work.sql.blocking import Blocking, Halt
from anabranch.work.sql.guard.sqlite_guard import SqliteGuard, harden
from anabranch.work.sql.named_files import resolve_sqlite
from anabranch.work.sql.rows import CHUNK, Collector, ResultTooLarge, next_rows
from anabranch.work.sql.task import SqlCommand, SqlTask, connection_fields, read_task_aside
from anabranch.work.sql.text import SQLITE

T = TypeVar("T")

_PLACES = ("database", "path", "dsn", "connection")
_INSTRUCTIONS = 20_000  # between two looks at whether to stop
_BUSY_PAUSE_SECONDS = 0.01
#: Of one value or row: as many as a result may have, since it is there before anything counts it.
_VALUE_BYTES_LEAST = 1024 * 1024  # rows are read and written, too, where a result is small
_VALUE_BYTES_MOST = 1_000_000_000  # SQLite has no more
_TOO_BIG = "SQLITE_TOOBIG"
_KINDS = {
    "SQLITE_CONSTRAINT": ("db_constraint", False),
    "SQLITE_BUSY": ("db_timeout", True),
    "SQLITE_LOCKED": ("db_deadlock", True),
    "SQLITE_CANTOPEN": ("db_connection", False),
    "SQLITE_IOERR": ("db_connection", True),
    "SQLITE_NOTADB": ("db_connection", False),
    "SQLITE_CORRUPT": ("db_connection", False),
    "SQLITE_FULL": ("storage_quota", False),
    "SQLITE_READONLY": ("storage_access", False),
    "SQLITE_PERM": ("storage_access", False),
    _TOO_BIG: ("result", False),
}


class Sqlite:
    def __init__(
        self, options: SqlOptions | None = None, scripts: ScriptSources | None = None
    ) -> None:
        self.options = options or SqlOptions()
        self._scripts = scripts or ScriptSources()
        self._blocking: Blocking | None = None

    async def perform(self, task: Task) -> Answer:
        try:
            work = await read_task_aside(await self._scripts.with_sql(task), SQLITE)
            path = place(task.inputs)
        except InputError as error:
            return misconfigured(error)
        session = partial(_session, path, work, self.options)
        try:
            return await self.blocking().run(session, work.timeout_seconds)
        except InputError as error:
            return misconfigured(error)
        except TimeoutError:
            limit = f"{work.timeout_seconds:g}"
            return fault("db_timeout", f"the commands took longer than {limit} s", code="TIMEOUT")

    def blocking(self) -> Blocking:
        """The threads for SQLite."""
        if self._blocking is None:
            self._blocking = Blocking(self.options.threads)
        return self._blocking

    async def close(self) -> None:
        if self._blocking is not None:
            await self._blocking.close()


def place(given: Any) -> str:
    """The file of a task."""
    fields = connection_fields(given, _PLACES)
    if len(fields) != 1:
        raise InputError("a sqlite task needs database: the path of a file, or ':memory:'")
    ((name, value),) = fields.items()
    return inputs.text(value, name).removeprefix("sqlite:///")


def _session(path: str, work: SqlTask, options: SqlOptions, halt: Halt) -> Answer:
    collector = Collector(options)
    try:
        connection = connect(resolve_sqlite(path, options.files), halt, options)
    except sqlite3.Error as error:
        return fault_for(error, path, None)
    try:
        SqliteSession(connection, halt, options).run(work, collector)
        return succeeded(collector.result())
    except ResultTooLarge as error:
        return fault("result", str(error), code="TOO_MANY_ROWS", details={"command": collector.at})
    except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
        halt.check()
        return fault_for(error, path, collector.at)
    finally:
        halt.release()
        connection.close()  # what was not committed is undone


def connect(path: str, halt: Halt, options: SqlOptions) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path,
        timeout=0,  # SQLite's own waiting cannot be interrupted
        isolation_level=None,
        check_same_thread=False,  # `interrupt` comes from the event loop
        uri=path.startswith("file:"),
    )
    harden(connection)
    length = min(max(options.result_bytes, _VALUE_BYTES_LEAST), _VALUE_BYTES_MOST)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, length)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.set_progress_handler(lambda: int(halt.told), _INSTRUCTIONS)
    return connection


class SqliteSession:
    def __init__(self, connection: sqlite3.Connection, halt: Halt, options: SqlOptions) -> None:
        self._connection = connection
        self._halt = halt
        self._busy_seconds = options.busy_seconds
        self._guard = SqliteGuard(connection, options.files)

    def run(self, work: SqlTask, collector: Collector) -> None:
        self._halt.watch(self._connection.interrupt)
        self.refuse_stores()
        if not work.autocommit:
            self.patiently("BEGIN" if work.reads else "BEGIN IMMEDIATE")
            self.patiently("PRAGMA application_id")  # no other journal counts from here on
        for command in work.commands:
            self._halt.check()
            self._execute(command, collector)
        if self._connection.in_transaction:
            self._halt.check()
            self.patiently("COMMIT")

    def under(self, halt: Halt) -> None:
        """From now on this one stops it."""
        self._halt = halt
        halt.watch(self._connection.interrupt)

    def refuse_stores(self) -> None:
        """Raises where the file is a store, whoever has it open."""
        self.patiently("PRAGMA application_id")  # waits for who writes to it
        self._guard.refuse_stores()

    def guarded(self, text: str, params: Any = None) -> sqlite3.Cursor:
        """Executes a statement of the author's."""
        self._guard.before(text, params)
        try:
            return self.patiently(text, params)
        finally:
            self._guard.after()

    def many(self, text: str, rows: list[list[Any]]) -> None:
        """Executes it once for each row."""
        self._guard.before(text, None)
        try:
            self._connection.executemany(text, rows)
        finally:
            self._guard.after()

    def _execute(self, command: SqlCommand, collector: Collector) -> None:
        cursor = self.guarded(command.statement.text, command.params)
        if cursor.description is None:
            changed = max(cursor.rowcount, 0)
            collector.add(None, changed, f"{command.statement.verb} {changed}")
            return
        table = collector.table([column[0] for column in cursor.description])
        while rows := next_rows(cursor, CHUNK):
            table.take(rows)
        collector.add(table, 0, f"{command.statement.verb} {len(table.rows)}")

    def patiently(self, text: str, params: Any = None) -> sqlite3.Cursor:
        """Executes a statement, waiting while the file is locked by somebody else."""
        call: Callable[[], sqlite3.Cursor] = partial(
            self._connection.execute, text, () if params is None else params
        )
        until = time.monotonic() + self._busy_seconds
        while True:
            try:
                return call()
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > until:
                    raise
            self._halt.check()
            time.sleep(_BUSY_PAUSE_SECONDS)


def _is_busy(error: sqlite3.Error) -> bool:
    return str(getattr(error, "sqlite_errorname", "")).startswith("SQLITE_BUSY")


def fault_for(error: Exception, path: str, command: int | None) -> Answer:
    name = str(getattr(error, "sqlite_errorname", "") or "")
    family = "_".join(name.split("_")[:2])
    kind, retryable = _KINDS.get(family, ("db_error", False))
    if family == "SQLITE_CANTOPEN" and no_file_left():
        kind, retryable = OUT_OF_FILES, True
    if not name:  # Python's own: wrong number of parameters, a type it cannot bind
        kind, retryable = "config", False
    limit = " (setting sql_result_bytes)" if family == _TOO_BIG else ""
    return fault(
        kind,
        f"sqlite {path}: {error}{limit}",
        code=name,
        retryable=retryable,
        details=None if command is None else {"command": command},
    )

"""The kind `duckdb`: commands on a DuckDB file or in memory, in one transaction.

The file is `database` (or `path`, `dsn`, `connection`); without one the database is in memory and
empty in every task. `read_only: true` opens a file that others read too. Needs the extra `duckdb`.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from functools import partial
from typing import Any

from anabranch.errors import InputError
from anabranch.kernel.values import Answer, succeeded
from anabranch.work import inputs
from anabranch.work.faults import fault, misconfigured
from anabranch.work.port import Task
from anabranch.work.redaction import given_to_work
from anabranch.work.sql.blocking import Blocking, Halt
from anabranch.work.sql.duckdb_files import OpenFiles
from anabranch.work.sql.own_store import refuse_own_store
from anabranch.work.sql.rows import CHUNK, Collector, TooMuch
from anabranch.work.sql.task import Command, SqlOptions, SqlTask, connection_fields, read_task
from anabranch.work.sql.text import DUCKDB

MISSING = "duckdb needs the package duckdb: pip install anabranch[duckdb]"

_EXCERPT = "\nLINE "
_PLACES = ("database", "path", "dsn", "connection", "db_path")
_TIDY = frozenset({"SELECT", "WITH", "VALUES", "FROM", "INSERT", "UPDATE", "DELETE", "MERGE"})
_CHANGES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "CREATE", "COPY"})
_KINDS = {
    "ConstraintException": ("db_constraint", False),
    "TransactionException": ("db_deadlock", True),
    "ConnectionException": ("db_connection", True),
    "IOException": ("db_connection", True),
    "HTTPException": ("connection", True),
    "PermissionException": ("storage_access", False),
    "OutOfMemoryException": ("storage_quota", False),
    "InvalidInputException": ("config", False),
}


class DuckDb:
    def __init__(self, options: SqlOptions | None = None) -> None:
        self._options = options or SqlOptions()
        self._blocking: Blocking | None = None
        self._files: OpenFiles | None = None

    async def perform(self, task: Task) -> Answer:
        try:
            work = read_task(task.inputs, DUCKDB)
            path = place(task.inputs)
            read_only = inputs.flag(task.inputs.get("read_only", False), "read_only")
        except InputError as error:
            return misconfigured(error)
        try:
            duckdb: Any = sys.modules.get("duckdb") or await asyncio.to_thread(driver)
        except ImportError:
            return fault("config", MISSING)
        try:
            return await self._performed(path, read_only, work, _secret(work))
        except InputError as error:
            return misconfigured(error)
        except duckdb.Error as error:  # the file could not be opened
            return _fault(error, path, None)
        except TimeoutError:
            limit = f"{work.timeout_seconds:g}"
            return fault("db_timeout", f"the commands took longer than {limit} s", code="TIMEOUT")

    async def _performed(self, path: str, read_only: bool, work: SqlTask, secret: bool) -> Answer:
        if self._blocking is None or self._files is None:
            self._blocking = Blocking(self._options.threads)
            self._files = OpenFiles(self._blocking.run_to_the_end, self._options.file_keep_seconds)
        tidy = all(command.statement.verb in _TIDY for command in work.commands)
        await self._blocking.run_to_the_end(partial(refuse_own_store, path, work, None))
        shared = path != ":memory:"  # there every task has a database of its own
        session = partial(_session, path, work, self._options, secret)
        if not shared:
            return await self._blocking.run(partial(session, None), work.timeout_seconds)
        async with self._files.use(path, read_only, tidy=tidy) as connection:
            return await self._blocking.run(partial(session, connection), work.timeout_seconds)

    async def close(self) -> None:
        if self._files is not None and self._blocking is not None:
            await self._files.close()
            await self._blocking.close()


def driver() -> Any:
    """duckdb, imported when first needed; that takes a tenth of a second."""
    return importlib.import_module("duckdb")


def place(given: Any) -> str:
    """The file of a task."""
    fields = connection_fields(given, _PLACES)
    if len(fields) > 1:
        raise InputError(f"a duckdb task takes one database; it has {' and '.join(fields)}")
    return inputs.text(next(iter(fields.values())), "database") if fields else ":memory:"


def _session(
    path: str, work: SqlTask, options: SqlOptions, secret: bool, connection: Any, halt: Halt
) -> Answer:
    duckdb = driver()
    collector = Collector(options)
    if connection is None:
        connection = duckdb.connect(path)
    try:
        _run(connection, work, collector, halt)
        return succeeded(collector.result())
    except TooMuch as error:
        return fault("result", str(error), code="TOO_MANY_ROWS", details={"command": collector.at})
    except duckdb.Error as error:
        halt.check()
        return _fault(error, path, collector.at, secret)
    finally:
        halt.release()
        connection.close()  # what was not committed is undone


def _run(connection: Any, work: SqlTask, collector: Collector, halt: Halt) -> None:
    halt.watch(connection.interrupt)
    if not work.autocommit:
        connection.execute("BEGIN TRANSACTION")
    for command in work.commands:
        halt.check()
        _execute(connection, command, collector)
    if not work.autocommit:
        halt.check()
        connection.execute("COMMIT")


def _execute(connection: Any, command: Command, collector: Collector) -> None:
    verb = command.statement.verb
    connection.execute(command.statement.text, command.params)
    columns = [column[0] for column in connection.description or ()]
    if verb in _CHANGES and columns == ["Count"]:  # how DuckDB says how many rows it changed
        row = connection.fetchone()
        changed = int(row[0]) if row else 0
        collector.add(None, changed, f"{verb} {changed}")
        return
    table = collector.table(columns)
    while rows := connection.fetchmany(CHUNK):
        table.take(rows)
    collector.add(table if columns else None, 0, f"{verb} {len(table.rows)}")


def _message(error: Exception, secret: bool) -> str:
    """What DuckDB says. Its excerpt of the statement may begin or end in the middle of a secret."""
    text = str(error).strip()
    return text.partition(_EXCERPT)[0].strip() if secret else text


def _secret(work: SqlTask) -> bool:
    scope = given_to_work()
    texts = [command.statement.text for command in work.commands]
    return scope is not None and any(map(scope.holds_secret, texts))


def _fault(error: Exception, path: str, command: int | None, secret: bool = False) -> Answer:
    name = type(error).__name__
    kind, retryable = _KINDS.get(name, ("db_error", False))
    return fault(
        kind,
        f"duckdb {path}: {_message(error, secret)}",
        code=f"DUCKDB_{name.removesuffix('Exception').upper()}",
        retryable=retryable,
        details=None if command is None else {"command": command},
    )

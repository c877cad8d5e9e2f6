"""The kind `duckdb`: commands on a DuckDB file or in memory, in one transaction.

The file is `database` (or `path`, `dsn`, `connection`); without one the database is in memory and
empty in every task. `read_only: true` opens a file that others read too. Needs the extra `duckdb`.

DuckDB runs in a process of its own (see `duckdb_process.py` for the reason), never in the engine's.
"""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import Any

from anabranch.errors import InputError
from anabranch.kernel.values import Answer, succeeded
from anabranch.work.faults import Unavailable, fault, misconfigured
from anabranch.work.kind_options import SqlOptions
from anabranch.work.kinds import inputs
from anabranch.work.kinds.script_sources import ScriptSources
from anabranch.work.kinds.threads import Threads
from anabranch.work.port import Task
from anabranch.work.secrets.redaction import given_to_work
from anabranch.work.sql.duckdb_channel import Channel, ProcessLost
from anabranch.work.sql.duckdb_session import DuckDbReply
from anabranch.work.sql.named_files import DuckDbAccess, duckdb_access, why_refused
from anabranch.work.sql.rows import ResultTooLarge
from anabranch.work.sql.task import SqlTask, connection_fields, read_task_aside
from anabranch.work.sql.text import DUCKDB
from anabranch.work.sql.whole_folders import KnownFolders

MISSING = "duckdb needs the package duckdb: pip install anabranch[duckdb]"

_EXCERPT = "\nLINE "
_PLACES = ("database", "path", "dsn", "connection", "db_path")
_THREADS = 2
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
    def __init__(
        self, options: SqlOptions | None = None, scripts: ScriptSources | None = None
    ) -> None:
        self._options = options or SqlOptions()
        self._scripts = scripts or ScriptSources()
        self._folders = KnownFolders(self._options.files, self._options.file_keep_seconds)
        self._threads: Threads | None = None
        self._channel: Channel | None = None

    async def perform(self, task: Task) -> Answer:
        try:
            work = await read_task_aside(await self._scripts.with_sql(task), DUCKDB)
            path = place(task.inputs)
            read_only = inputs.flag(task.inputs.get("read_only", False), "read_only")
            channel, access = await self.channel_for(path, work)
            reply = await ask(
                channel,
                **access.fields,
                read_only=read_only,
                commands=[
                    (one.statement.verb, one.statement.text, one.params) for one in work.commands
                ],
                autocommit=work.autocommit,
                timeout_seconds=work.timeout_seconds,
            )
        except InputError as error:
            return misconfigured(error)
        return answer_of(reply, path, work, access.hint)

    async def channel_for(self, path: str, work: SqlTask) -> tuple[Channel, DuckDbAccess]:
        """The way to the process for DuckDB, and what the work may reach there."""
        if importlib.util.find_spec("duckdb") is None:
            raise Unavailable(MISSING, fault("config", MISSING))
        if self._threads is None or self._channel is None:
            self._threads = Threads(_THREADS)
            self._channel = Channel(self._options, self._threads)
        look = partial(duckdb_access, path, work, self._options.files, self._folders)
        return self._channel, await self._threads.run(look)

    async def close(self) -> None:
        if self._threads is not None and self._channel is not None:
            await self._channel.close()
            await self._threads.close()


async def ask(channel: Channel, **request: Any) -> DuckDbReply:
    """What the process says; `Unavailable` where there is none."""
    try:
        return await channel.ask(**request)
    except ProcessLost as error:
        answer = fault("db_connection", str(error), code="DUCKDB_PROCESS")
        raise Unavailable(str(error), answer) from None
    except OSError as error:
        words = f"no process for DuckDB could be started: {error}"
        raise Unavailable(words, fault("db_connection", words)) from None


def place(given: Any) -> str:
    """The file of a task."""
    fields = connection_fields(given, _PLACES)
    if len(fields) > 1:
        raise InputError(f"a duckdb task takes one database; it has {' and '.join(fields)}")
    return inputs.text(next(iter(fields.values())), "database") if fields else ":memory:"


def answer_of(reply: DuckDbReply, path: str, work: SqlTask, hint: str) -> Answer:
    if reply.unexpected:
        raise RuntimeError(reply.unexpected)
    details = None if reply.at is None else {"command": reply.at}
    if not reply.error:
        return succeeded(reply.result)
    if reply.error == ResultTooLarge.__name__:
        return fault("result", reply.message, code="TOO_MANY_ROWS", details=details)
    if reply.error == "TimeoutError":
        limit = f"{work.timeout_seconds:g}"
        return fault("db_timeout", f"the commands took longer than {limit} s", code="TIMEOUT")
    kind, retryable = _KINDS.get(reply.error, ("db_error", False))
    message = _message(reply.message, _secret(work))
    if reply.error == "PermissionException":
        message = why_refused(message, hint)
    return fault(
        kind,
        f"duckdb {path}: {message}",
        code=f"DUCKDB_{reply.error.removesuffix('Exception').upper()}",
        retryable=retryable,
        details=details,
    )


def _message(text: str, secret: bool) -> str:
    """What DuckDB says. Its excerpt of the statement may begin or end in the middle of a secret."""
    return text.partition(_EXCERPT)[0].strip() if secret else text


def _secret(work: SqlTask) -> bool:
    scope = given_to_work()
    texts = [command.statement.text for command in work.commands]
    return scope is not None and any(map(scope.holds_secret, texts))

"""The kind `postgres`: commands on a PostgreSQL server, in one transaction.

The place is `dsn` (or `connection`), or `host`, `port`, `user`, `password`, `dbname` (`database`),
also from `auth`. Connections are kept and reset between tasks. Stopping a task cancels its
statement on the server. As whom a task logs in on a server: `postgres_login.py`. Needs the extra
`postgres`.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from anabranch import files
from anabranch.errors import InputError
from anabranch.kernel.values import Answer, succeeded
from anabranch.work.faults import fault, misconfigured
from anabranch.work.file_policy import FilePolicy
from anabranch.work.kind_options import SqlOptions
from anabranch.work.kinds import inputs
from anabranch.work.kinds.script_sources import ScriptSources
from anabranch.work.libraries import load, load_aside
from anabranch.work.network.received_bytes import COUNTS, bound_steps
from anabranch.work.port import Task
from anabranch.work.secrets.redaction import Redactor
from anabranch.work.sql.pool import Pool
from anabranch.work.sql.postgres_login import of_the_task_alone, refuse_store
from anabranch.work.sql.rows import CHUNK, Collector, ResultTooLarge, Table
from anabranch.work.sql.task import SqlCommand, SqlTask, connection_fields, read_task_aside
from anabranch.work.sql.text import POSTGRES
from anabranch.work.time_limit import time_limit
from anabranch.work.values.served_json import JsonRefused
from anabranch.work.values.served_values import convert_rows, keep_json_as_it_comes

_SPELLED = 2  # bytes for one of a result, where PostgreSQL writes it out
_MORE_BYTES = 1024 * 1024  # notices, descriptions and the like
POOLS_KEPT = 64  # of the addresses used last
NOT_JSON = "what the server sent for JSON cannot be read"
MISSING = "postgres needs the package psycopg: pip install anabranch[postgres]"

_FIELDS = {
    **{name: name for name in ("host", "port", "user", "password", "dbname", "sslmode")},
    "database": "dbname",
    "username": "user",
    "db_name": "dbname",
    "hostname": "host",
}
#: Parts of an address that libpq opens files for.
_FILES = frozenset({"passfile", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslcrldir"})
#: Those that no definition names: one is written, with the keys of the connection, and the other
#: may name further files.
_REFUSED = ("sslkeylogfile", "servicefile")
_NAMES = ("dsn", "connection", "connection_string", *_FIELDS)
_NUMBERED = re.compile(r"\$[1-9]")
_KINDS = {  # by code, then by its class
    "40001": ("db_deadlock", True),
    "40P01": ("db_deadlock", True),
    "57014": ("db_timeout", True),
    "55P03": ("db_timeout", True),
    "25P03": ("db_timeout", True),
    "42501": ("auth", False),
    "53100": ("storage_quota", False),
    "57P01": ("db_connection", True),
    "57P02": ("db_connection", True),
    "57P03": ("db_connection", True),
    "23": ("db_constraint", False),
    "08": ("db_connection", True),
    "53": ("db_connection", True),
    "28": ("auth", False),
    "3D": ("db_connection", False),
    "40": ("db_deadlock", True),
}


class Postgres:
    def __init__(
        self, options: SqlOptions | None = None, scripts: ScriptSources | None = None
    ) -> None:
        self.options = options or SqlOptions()
        self._scripts = scripts or ScriptSources()
        self._pools: OrderedDict[str, Pool] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._bounded: Any = None

    async def perform(self, task: Task) -> Answer:
        try:
            work = await read_task_aside(await self._scripts.with_sql(task), POSTGRES)
            psycopg = await load_aside("psycopg")
            address = await address_of(psycopg, task.inputs, self.options)
        except ImportError:
            return fault("config", MISSING)
        except InputError as error:
            return misconfigured(error)
        where = PostgresAddress(psycopg, address)
        collector = Collector(self.options)
        try:
            async with (
                time_limit(work.timeout_seconds),
                self.pool(psycopg, address).connection() as connection,
            ):
                await _run(psycopg, connection, work, collector)
            return succeeded(collector.result())
        except InputError as error:
            return misconfigured(error)
        except ResultTooLarge as error:
            at = {"command": collector.at}
            return fault("result", str(error), code="TOO_MANY_ROWS", details=at)
        except JsonRefused as error:
            at = {"command": collector.at}
            return fault("parse", f"{where}: {NOT_JSON}: {error}", details=at)
        except psycopg.Error as error:
            return fault_for(error, where, collector.at)
        except TimeoutError:
            message = f"{where}: the commands took longer than {work.timeout_seconds:g} s"
            return fault("db_timeout", message, code="TIMEOUT")

    async def close(self) -> None:
        pools, self._pools = self._pools, OrderedDict()
        for pool in pools.values():
            await pool.close()
        if self._closing:
            await asyncio.wait(tuple(self._closing))

    def _connections(self, psycopg: Any) -> Any:
        if not COUNTS:
            return psycopg.AsyncConnection
        if self._bounded is None:
            self._bounded = _bounded_connections(psycopg, self.options.result_bytes)
        return self._bounded

    def pool(self, psycopg: Any, address: str) -> Pool:
        pool = self._pools.get(address)
        if pool is None:

            async def connect() -> Any:
                opening = self._connections(psycopg).connect
                connection = await opening(address, prepare_threshold=None, autocommit=True)
                keep_json_as_it_comes(connection)
                if self.options.login_of_machine:
                    return connection
                try:
                    await refuse_store(connection)
                except BaseException:
                    await connection.close()
                    raise
                return connection

            pool = Pool(connect, self.options.connections, self.options.idle_seconds)
            self._pools[address] = pool
            if len(self._pools) > POOLS_KEPT:  # addresses come and go with the passwords in them
                _, unused = self._pools.popitem(last=False)
                closing = asyncio.get_running_loop().create_task(unused.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
        self._pools.move_to_end(address)
        return pool


def _bounded_connections(psycopg: Any, result_bytes: int) -> Any:
    """Connections that are sent no more than a result may have before it is counted: libpq keeps an
    answer whole, or so many rows as were asked for, and one row may be a gigabyte."""
    most = _SPELLED * result_bytes + _MORE_BYTES

    class BoundedConnection(psycopg.AsyncConnection):  # type: ignore[misc]
        async def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
            bounded = bound_steps(gen, self.pgconn.socket, most, self._give_up)
            return await super().wait(bounded, *args, **kwargs)

        def _give_up(self) -> None:
            self.pgconn.finish()
            raise ResultTooLarge(
                f"an answer has more than {result_bytes:,} bytes (setting sql_result_bytes); "
                "select fewer or smaller rows"
            )

    return BoundedConnection


async def address_of(psycopg: Any, given: Mapping[str, Any], options: SqlOptions) -> str:
    """The address of a task; the files that libpq opens for it are those that may be named."""
    parts = _parts(psycopg, given, options.connect_seconds)
    if _FILES & parts.keys():
        parts = await files.in_thread(partial(_with_files, parts, options.files), "the file")
    if not options.login_of_machine:
        parts = of_the_task_alone(psycopg, parts)
    return str(psycopg.conninfo.make_conninfo("", **parts))


def _with_files(parts: dict[str, str], allowed: FilePolicy) -> dict[str, str]:
    found = dict(parts)
    for name in _FILES & parts.keys():
        if not (name == "sslrootcert" and parts[name] == "system"):
            found[name] = allowed.resolve(parts[name])
    if ":" in found.get("sslkey", ""):  # of this libpq would load the library before the colon
        raise InputError("sslkey is a file without a colon in its name")
    return found


def conninfo(psycopg: Any, given: Mapping[str, Any], connect_seconds: float) -> str:
    """The address as libpq writes it. Messages repeat none of it: it may hold a password."""
    return str(psycopg.conninfo.make_conninfo("", **_parts(psycopg, given, connect_seconds)))


def _parts(psycopg: Any, given: Mapping[str, Any], connect_seconds: float) -> dict[str, str]:
    fields = connection_fields(given, _NAMES)
    texts = [fields.pop(name) for name in _NAMES[:3] if name in fields]
    base = inputs.text(texts[0], "dsn") if texts else ""
    try:
        parts = psycopg.conninfo.conninfo_to_dict(base)
    except psycopg.Error:
        raise InputError("dsn is not a PostgreSQL address (postgresql://user@host/name)") from None
    for name in _REFUSED:
        if parts.get(name):
            raise InputError(f"dsn: a definition does not set {name}")
    parts |= {_FIELDS[name]: inputs.scalar(value, name) for name, value in fields.items()}
    if not parts.keys() - {"password"}:  # nobody is told a password by chance
        raise InputError("a postgres task needs dsn, or host and dbname (also from auth)")
    parts.setdefault("connect_timeout", str(int(connect_seconds)))
    parts.setdefault("application_name", "anabranch")
    return {name: str(value) for name, value in parts.items()}


class PostgresAddress:
    """The address for messages."""

    def __init__(self, psycopg: Any, address: str) -> None:
        parts = psycopg.conninfo.conninfo_to_dict(address)
        self._passwords = Redactor.of_job()  # short ones are in any text: stars would tell them
        for name in ("password", "sslpassword"):
            self._passwords.learn(str(parts.get(name) or ""))
        host, port = parts.get("host") or "localhost", parts.get("port")
        self._text = f"postgres {host}{f':{port}' if port else ''}/{parts.get('dbname', '')}"

    def __str__(self) -> str:
        return self._text

    def clean(self, text: str) -> str:
        return self._passwords.text(text)


async def _run(psycopg: Any, connection: Any, work: SqlTask, collector: Collector) -> None:
    await connection.set_autocommit(work.autocommit)
    for command in work.commands:
        await _execute(psycopg, connection, command, collector)
    if not work.autocommit:
        await connection.commit()


async def _execute(
    psycopg: Any, connection: Any, command: SqlCommand, collector: Collector
) -> None:
    params = adapted(command.params)
    text, verb = command.statement.text, command.statement.verb
    cursor = _cursor(psycopg, connection, text, params)
    if command.statement.reads:
        # As it comes from the server, so that a limit is met before memory is full.
        size = CHUNK if psycopg.capabilities.has_stream_chunked() else 1
        async with aclosing(cursor.stream(text, params, size=size)) as rows:
            table = await _streamed(rows, cursor, collector)
        if table is None:
            table = collector.table(await _columns(psycopg, connection, text, params))
        collector.add(table, 0, f"{verb} {len(table.rows)}")
        return
    await cursor.execute(text, params)
    given = None if cursor.description is None else await _taken(None, cursor, collector, [])
    while given is not None and (chunk := await cursor.fetchmany(CHUNK)):
        await _taken(given, cursor, collector, chunk)
    collector.add(given, cursor.rowcount, cursor.statusmessage or verb)


def _cursor(psycopg: Any, connection: Any, text: str, params: Any) -> Any:
    """For placeholders of the driver (`%s`), or for those of the database itself (`$1`)."""
    if isinstance(params, list) and "%s" not in text and _NUMBERED.search(text):
        return psycopg.AsyncRawCursor(connection)
    return connection.cursor()


async def _streamed(rows: AsyncIterator[Any], cursor: Any, collector: Collector) -> Table | None:
    """The rows, or None: of no rows at all the driver does not tell the columns."""
    table: Table | None = None
    chunk: list[Any] = []
    async for row in rows:
        chunk.append(row)
        if len(chunk) >= CHUNK:
            table = await _taken(table, cursor, collector, chunk)
            chunk = []
    return await _taken(table, cursor, collector, chunk) if chunk else table


async def _columns(psycopg: Any, connection: Any, text: str, params: Any) -> list[str]:
    """The columns of a query that gave no rows, asked for without running it again."""
    with suppress(psycopg.Error):
        async with connection.transaction():  # a savepoint: if it fails, nothing is lost
            wrapped = f"SELECT * FROM (\n{text}\n) AS q LIMIT 0"
            cursor = _cursor(psycopg, connection, wrapped, params)
            await cursor.execute(wrapped, params)
            return [column.name for column in cursor.description or ()]
    return []


async def _taken(table: Table | None, cursor: Any, collector: Collector, rows: list[Any]) -> Table:
    if table is None:
        table = collector.table([column.name for column in cursor.description or ()])
    await convert_rows(table.take_weighed, rows)
    return table


def adapted(params: Any) -> Any:
    """Mappings become jsonb; a list stays an array."""
    if params is None:
        return None
    jsonb = load("psycopg.types.json").Jsonb
    if isinstance(params, dict):
        return {
            key: jsonb(value) if isinstance(value, Mapping) else value
            for key, value in params.items()
        }
    return [jsonb(value) if isinstance(value, Mapping) else value for value in params]


def fault_for(error: Any, where: PostgresAddress, command: int | None) -> Answer:
    state = getattr(error, "sqlstate", None) or ""
    kind, retryable = _kind(error, state)
    diagnosis = getattr(error, "diag", None)
    known = {
        name: where.clean(str(value))
        for name, key in _DIAGNOSIS.items()
        if (value := getattr(diagnosis, key, None)) is not None
    }
    at = {} if command is None else {"command": command}
    details: dict[str, Any] = {**at, **known}
    if state:
        details |= {"pg_code": state, "sqlstate": state}
    message = known.pop("primary", None) or where.clean(str(error)).strip()
    hint = " (set autocommit: true)" if state == "25001" else ""
    return fault(
        kind,
        f"{where}: {message}{hint}",
        code=f"PG_{state}" if state else "",
        retryable=retryable,
        details=details,
    )


_DIAGNOSIS = {
    "primary": "message_primary",
    "detail": "message_detail",
    "hint": "message_hint",
    "constraint": "constraint_name",
    "table": "table_name",
    "column": "column_name",
    "position": "statement_position",
}


#: What libpq says, without a code, of a login that failed.
_NOT_LET_IN = ("authentication failed", "no password supplied", "authentication method requirement")


def _kind(error: Any, state: str) -> tuple[str, bool]:
    if state:
        return _KINDS.get(state) or _KINDS.get(state[:2]) or ("db_error", False)
    if type(error).__name__ in ("ProgrammingError", "DataError", "NotSupportedError"):
        return "config", False  # found by the driver before anything was sent
    text = str(error)
    if any(words in text for words in _NOT_LET_IN):
        return "auth", False
    return "db_connection", "does not exist" not in text

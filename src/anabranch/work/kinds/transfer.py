"""The kind `transfer`: rows of a query, or records of a call, into a table of another database.

    source     tool: sqlite | postgres | duckdb, the place and `auth` as of that kind, query, params
               tool: http, url and so on as of that kind; data_path: where the records are
    target     tool: sqlite | postgres | duckdb, its place; table, or a query for each row
    mapping    column of the target: field of the source; without it all fields, by their names
    mode       append (default), replace, upsert; key: the columns an upsert goes by
    chunk_size rows that are under way at a time

Rows are read and written a chunk at a time, and written in one transaction: all of them or none. An
execution that is lost after its commit is done again, so that only `replace` and `upsert` leave the
same behind however often they run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from anabranch import files
from anabranch.errors import InputError
from anabranch.kernel.values import Answer, succeeded
from anabranch.work.faults import Unavailable, fault, misconfigured
from anabranch.work.kinds import inputs
from anabranch.work.kinds.switched_off import why_off
from anabranch.work.port import Performer, Task
from anabranch.work.secrets.redaction import brief
from anabranch.work.sql import duckdb, sqlite
from anabranch.work.sql.flows import (
    Flowing,
    Insertion,
    Mode,
    Row,
    RowReader,
    column_name,
    portable,
    table_name,
)
from anabranch.work.sql.task import Params
from anabranch.work.sql.text import FLAVOURS, split, take_apart
from anabranch.work.time_limit import time_limit

CHUNK = 1_000
CHUNK_MAX = 10_000
#: Each may hold two connections of one pool: some must be left for who waits for its second.
AT_ONCE = 8
_PLACES = {"sqlite": sqlite.place, "duckdb": duckdb.place}
_KINDS = {"postgresql": "postgres"}
_MODES: Mapping[str, Mode] = {
    **dict.fromkeys(("append", "insert"), "append"),
    **dict.fromkeys(("replace", "overwrite", "truncate"), "replace"),
    **dict.fromkeys(("upsert", "merge"), "upsert"),
}
_CALL = (
    *("url", "endpoint", "method", "headers", "params", "body", "json", "form", "auth"),
    *("timeout", "verify_ssl", "follow_redirects"),
)


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a task asks for."""

    source: Mapping[str, Any]
    source_kind: str
    target: Mapping[str, Any]
    target_kind: str
    mapping: Mapping[str, str]
    mode: Mode
    key: tuple[str, ...]
    chunk_size: int
    timeout_seconds: float | None

    @property
    def shown(self) -> dict[str, Any]:
        return {
            "direction": f"{self.source_kind}_to_{self.target_kind}",
            "source_type": self.source_kind,
            "target_type": self.target_kind,
            "mode": "custom" if self.target.get("query") is not None else self.mode,
            "target_table": self.target.get("table") or "custom_query",
        }


class Transfer:
    """Performs transfers through the databases of the SQL kinds."""

    def __init__(
        self,
        databases: Mapping[str, Flowing],
        http: Performer | None = None,
        off: frozenset[str] = frozenset(),
    ) -> None:
        self._databases = databases
        self._http = http
        self._off = off
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def perform(self, task: Task) -> Answer:
        try:
            plan = _read(task.inputs)
            for kind in (plan.source_kind, plan.target_kind):
                if kind in self._off:
                    return fault("config", why_off(kind), code="KIND_OFF")
            await files.in_thread(partial(_refuse_one_file, plan), "the database")
            async with self._slots, time_limit(plan.timeout_seconds):
                return await self._transferred(plan, task)
        except InputError as error:
            return misconfigured(error)
        except TimeoutError:
            limit = f"{plan.timeout_seconds:g}"
            return fault("db_timeout", f"the transfer took longer than {limit} s", code="TIMEOUT")

    async def _transferred(self, plan: _Plan, task: Task) -> Answer:
        rows = chunks = 0
        async with self._reading(plan, task) as reading:
            fields, columns = _columns(plan, reading.columns)
            into = await take_apart(plan.target.get("query"), _insertion, plan, columns)
            database = self._databases[plan.target_kind]
            async with database.writing(plan.target, into) as writing:
                while found := await reading.chunk(plan.chunk_size):
                    await writing.write([[row[at] for at in fields] for row in found])
                    rows += len(found)
                    chunks += 1
                await writing.commit()
        counted = {"rows_transferred": rows, "chunks_processed": chunks, "columns": columns}
        return succeeded({"status": "success", **plan.shown, **counted})

    def _reading(self, plan: _Plan, task: Task) -> AbstractAsyncContextManager[RowReader]:
        if plan.source_kind == "http":
            return self._called(plan, task)
        return self._queried(plan)

    @asynccontextmanager
    async def _queried(self, plan: _Plan) -> AsyncIterator[RowReader]:
        text, kind = plan.source.get("query"), plan.source_kind
        query = await take_apart(text, _query, text, kind)
        params: Params = plan.source.get("params")
        async with self._databases[kind].reading(plan.source, query, params) as reading:
            yield reading

    @asynccontextmanager
    async def _called(self, plan: _Plan, task: Task) -> AsyncIterator[RowReader]:
        if self._http is None:
            raise InputError("source.tool http cannot be used here")
        call = {name: plan.source[name] for name in _CALL if plan.source.get(name) is not None}
        asked = msgspec.structs.replace(task, kind="http", inputs=call)
        answer = await self._http.perform(asked)
        assert isinstance(answer, Answer)
        if answer.status != "ok":
            raise Unavailable("the records could not be fetched", answer)
        yield _Records(_records(answer.result["data"], plan.source.get("data_path")), plan.mapping)


class _Records:
    """Records of a call; a field may be a path such as `address.city`."""

    def __init__(self, records: list[Mapping[str, Any]], mapping: Mapping[str, str]) -> None:
        known = dict.fromkeys(name for record in records for name in record)
        self._fields = list(dict.fromkeys(mapping.values())) if mapping else list(known)
        self._records = records
        self._at = 0

    @property
    def columns(self) -> list[str]:
        return self._fields

    async def chunk(self, size: int) -> list[Row]:
        part = self._records[self._at : self._at + size]
        self._at += len(part)
        return [[portable(_field(record, name)) for name in self._fields] for record in part]


def _records(data: Any, path: Any) -> list[Mapping[str, Any]]:
    for part in inputs.text(path, "source.data_path").split(".") if path is not None else ():
        if not isinstance(data, Mapping) or part not in data:
            raise InputError(f"source.data_path: the answer has no {part!r} there")
        data = data[part]
    found = data if isinstance(data, list) else [data]
    for record in found:
        if not isinstance(record, Mapping):
            raise InputError(f"source: a record must be a mapping, not {brief(record)}")
    return found


def _field(record: Mapping[str, Any], name: str) -> Any:
    if name in record:
        return record[name]
    value: Any = record
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


# -- reading the task ------------------------------------------------------------------------


def _read(given: Mapping[str, Any]) -> _Plan:
    source, target = _side(given, "source"), _side(given, "target")
    mapping = inputs.mapping(given.get("mapping", target.get("mapping")), "mapping")
    key = given.get("key", target.get("key"))
    keys = key if isinstance(key, list) else [] if key is None else [key]
    mode = given.get("mode", target.get("mode")) or "append"
    if mode not in _MODES:
        raise InputError(f"mode must be append, replace or upsert, not {brief(mode)}")
    plan = _Plan(
        source=source,
        source_kind=_kind(source, "source", (*FLAVOURS, "http")),
        target=target,
        target_kind=_kind(target, "target", (*FLAVOURS,)),
        mapping={
            column: inputs.text(name, f"mapping.{column}") for column, name in mapping.items()
        },
        mode=_MODES[mode],
        key=tuple(inputs.text(each, "key") for each in keys),
        chunk_size=_size(given.get("chunk_size")),
        timeout_seconds=inputs.timeout(given),
    )
    if (target.get("table") is None) == (target.get("query") is None):
        raise InputError("target takes either table or query")
    return plan


def _side(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    if given.get(name) is None:
        raise InputError(f"a transfer needs {name}")
    return inputs.mapping(given[name], name)


def _kind(side: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    word = side.get("tool", side.get("kind", side.get("type")))
    kind = _KINDS.get(str(word).lower(), str(word).lower())
    if kind not in known:
        raise InputError(f"{name}.tool must be one of {', '.join(known)}, not {brief(word)}")
    return kind


def _size(value: Any) -> int:
    if value is None:
        return CHUNK
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= CHUNK_MAX:
        limit = f"a whole number from 1 to {CHUNK_MAX:,}"
        raise InputError(f"chunk_size must be {limit}, not {brief(value)}")
    return value


def _query(value: Any, kind: str) -> str:
    if value is None:
        raise InputError("source.query: say which rows to read")
    statements = split(inputs.text(value, "source.query"), FLAVOURS[kind])
    if len(statements) != 1 or not statements[0].reads:
        raise InputError("source.query must be one statement that reads")
    return statements[0].text


def _columns(plan: _Plan, found: list[str]) -> tuple[list[int], list[str]]:
    """Which fields of a row are written, and the columns they go to."""
    if not plan.mapping:
        return list(range(len(found))), found
    for column, name in plan.mapping.items():
        if name not in found:
            raise InputError(
                f"mapping.{column}: the source has no {name!r}; it has {', '.join(found)}"
            )
    return [found.index(name) for name in plan.mapping.values()], list(plan.mapping)


def _insertion(plan: _Plan, columns: list[str]) -> Insertion:
    if plan.target.get("query") is not None:
        statements = split(
            inputs.text(plan.target["query"], "target.query"), FLAVOURS[plan.target_kind]
        )
        if len(statements) != 1:
            raise InputError("target.query must be one statement, done once for each row")
        return Insertion(statement=statements[0].text)
    table = table_name(inputs.text(plan.target["table"], "target.table"))
    if not columns:  # nobody answered with a record
        return Insertion(table=table, columns=(), mode=plan.mode)
    key = plan.key or (columns[0],)
    if missing := [name for name in key if name not in columns]:
        raise InputError(f"key: {missing[0]!r} is none of the columns {', '.join(columns)}")
    return Insertion(
        table=table,
        columns=tuple(map(column_name, columns)),
        mode=plan.mode,
        key=tuple(map(column_name, key)),
    )


def _refuse_one_file(plan: _Plan) -> None:
    """Reading and writing one file at the same time would wait for itself for ever."""
    place = _PLACES.get(plan.source_kind)
    if place is None or plan.source_kind != plan.target_kind:
        return
    one, other = (os.path.realpath(place(side)) for side in (plan.source, plan.target))
    if one == other:
        raise InputError(
            f"source and target are one file ({one}): write a {plan.source_kind} task with "
            "INSERT INTO … SELECT"
        )

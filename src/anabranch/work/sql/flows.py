"""Rows on their way from one database to another: a chunk at a time, in values that all know.

A database reads and writes rows as lists. Values are null, true and false, numbers, texts, bytes,
and lists and mappings of these. What a driver has another type for becomes text that the others
read again: dates in ISO 8601, decimals digit for digit, intervals as a number of seconds. All rows
are written in one transaction: a transfer that fails has changed nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import date, datetime, time, timedelta
from typing import Any, Literal, Protocol

import msgspec

from anabranch.errors import InputError
from anabranch.work.sql.task import Params
from anabranch.work.values.served_values import ServedJson

Row = list[Any]
Mode = Literal["append", "replace", "upsert"]

_PLAIN = frozenset({str, bool, float, bytes, type(None)})
_NAME = r'(?:[^\W\d][\w$]*|"(?:[^"]|"")+")'
_TABLE = re.compile(rf"{_NAME}(?:\.{_NAME}){{0,2}}")


class RowReader(Protocol):
    """The rows of a query."""

    @property
    def columns(self) -> list[str]: ...

    async def chunk(self, size: int) -> list[Row]:
        """Some more of them; none at the end."""
        ...


class RowWriter(Protocol):
    """A transaction that takes rows."""

    async def write(self, rows: list[Row]) -> None: ...

    async def commit(self) -> None: ...


class Insertion(msgspec.Struct, frozen=True, kw_only=True):
    """Where rows go: into columns of a table, or into a statement of the author's own."""

    table: str = ""
    columns: tuple[str, ...] = ()  # as they are written in SQL
    mode: Mode = "append"
    key: tuple[str, ...] = ()
    statement: str = ""

    @property
    def empties(self) -> str:
        return f"DELETE FROM {self.table}" if self.mode == "replace" else ""

    def text(self, mark: str) -> str:
        """The statement for one row, with these placeholders."""
        if self.statement:
            return self.statement
        marks = ", ".join([mark] * len(self.columns))
        return f"{self.head} VALUES ({marks}){self._conflict()}"

    @property
    def head(self) -> str:
        return f"INSERT INTO {self.table} ({', '.join(self.columns)})"

    def _conflict(self) -> str:
        if self.mode != "upsert":
            return ""
        others = [name for name in self.columns if name not in self.key]
        changes = ", ".join(f"{name} = excluded.{name}" for name in others)
        what = f"UPDATE SET {changes}" if changes else "NOTHING"
        return f" ON CONFLICT ({', '.join(self.key)}) DO {what}"


class Flowing(Protocol):
    """A database that rows can be read from and written to."""

    def reading(
        self, given: Mapping[str, Any], query: str, params: Params
    ) -> AbstractAsyncContextManager[RowReader]: ...

    def writing(
        self, given: Mapping[str, Any], into: Insertion
    ) -> AbstractAsyncContextManager[RowWriter]: ...


def table_name(text: str) -> str:
    """A name that can stand in a statement as it is; parts may be in double quotes."""
    if not _TABLE.fullmatch(text):
        raise InputError(
            f"target.table must be the name of a table such as public.orders, not {text[:60]!r}; "
            "put parts with other letters in double quotes"
        )
    return text


def column_name(text: str) -> str:
    escaped = text.replace('"', '""')
    return f'"{escaped}"'


def portable_rows(rows: Sequence[Sequence[Any]]) -> list[Row]:
    return [[portable(value) for value in row] for row in rows]


def portable(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, ServedJson):
        return portable(value.build())
    if isinstance(value, Mapping):
        return {str(key): portable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [portable(item) for item in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return f"{value.total_seconds()} seconds"
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return str(value)


def as_json(value: Any) -> Any:
    """For databases without lists and mappings: their text."""
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    return value

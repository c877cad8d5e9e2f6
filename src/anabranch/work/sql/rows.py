"""Rows as JSON, and the result of a SQL task.

    {command_0: {status, rows, row_count, columns, message}, …, rows, row_count}

`rows` and `row_count` at the top are those of the last statement that gave rows, or of the last one
at all. A row is a mapping; a column name that comes twice gets a number. What JSON has no form for:

    Decimal             a number when that is exact, otherwise text
    whole numbers       beyond 64 bits as text
    NaN, Infinity       text
    date, time          ISO 8601 text; an interval is a number of seconds
    bytes               base64 text
    UUID, address …     text
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NoReturn

import msgspec

from anabranch.work.kind_options import SqlOptions
from anabranch.work.values.served_json import CONTAINERS_MAX
from anabranch.work.values.served_values import ServedJson, weigh_json

CHUNK = 500
CHUNK_BYTES = 1024 * 1024
_OF_PART = 8  # bytes that a part of a list takes, whatever it is
_encode = msgspec.json.Encoder().encode


class ResultTooLarge(Exception):
    """The rows go beyond a limit; the message names it."""


class Collector:
    """Takes the rows of a task's statements as they come, and counts."""

    def __init__(self, options: SqlOptions) -> None:
        self._options = options
        self._rows = 0
        self._bytes = 0
        self._containers = 0
        self._results: list[dict[str, Any]] = []

    @property
    def at(self) -> int:
        """The number of the statement that is being run."""
        return len(self._results)

    def table(self, columns: Sequence[str]) -> Table:
        return Table(self, unique(columns))

    def add(self, table: Table | None, row_count: int, message: str) -> None:
        """A statement is done. `row_count` counts rows given, or else rows changed."""
        rows = [] if table is None else table.rows
        self._results.append(
            {
                "status": "success",
                "rows": rows,
                "row_count": len(rows) if table is not None else max(row_count, 0),
                "columns": [] if table is None else table.columns,
                "message": message,
            }
        )

    def weigh(self, rows: Sequence[Sequence[Any]]) -> None:
        """What is JSON in them, before anything is built of it."""
        size, containers = weigh_json(rows)
        self._containers += containers
        if self._bytes + size > self._options.result_bytes:
            self._refuse_bytes()
        if self._containers > CONTAINERS_MAX:
            raise ResultTooLarge(
                f"the JSON in the rows has more than {CONTAINERS_MAX:,} lists and objects; "
                "select fewer, or loop over the query as a collection"
            )

    def count(self, rows: list[dict[str, Any]]) -> None:
        self._rows += len(rows)
        self._bytes += len(_encode(rows))
        if self._rows > self._options.rows_max:
            raise ResultTooLarge(
                f"more than {self._options.rows_max:,} rows (setting sql_rows_max); "
                "select fewer, or loop over the query as a collection"
            )
        if self._bytes > self._options.result_bytes:
            self._refuse_bytes()

    def _refuse_bytes(self) -> NoReturn:
        raise ResultTooLarge(
            f"the rows have more than {self._options.result_bytes:,} bytes "
            "(setting sql_result_bytes); select fewer, or loop over the query as a collection"
        )

    def result(self) -> dict[str, Any]:
        named = {f"command_{index}": each for index, each in enumerate(self._results)}
        telling = [each for each in self._results if each["columns"]] or self._results
        last = telling[-1] if telling else {"rows": [], "row_count": 0}
        return {**named, "rows": last["rows"], "row_count": last["row_count"]}


class Table:
    """The rows of one statement."""

    def __init__(self, collector: Collector, columns: list[str]) -> None:
        self._collector = collector
        self.columns = columns
        self.rows: list[dict[str, Any]] = []

    def take(self, rows: Iterable[Sequence[Any]]) -> None:
        """Some more rows; `ResultTooLarge` when that is one too many."""
        columns = self.columns
        made = [dict(zip(columns, map(json_safe, row), strict=True)) for row in rows]
        self._collector.count(made)
        self.rows += made

    def take_weighed(self, rows: Sequence[Sequence[Any]]) -> None:
        """The same of a server that may have sent any JSON."""
        self._collector.weigh(rows)
        self.take(rows)


def next_rows(cursor: Iterator[Sequence[Any]], count: int) -> list[Sequence[Any]]:
    """Some more rows, at most so many, and no more once they are large: nothing counts rows before
    they are here. None are left where there are none."""
    rows = list[Sequence[Any]]()
    size = 0
    while len(rows) < count and size < CHUNK_BYTES:
        row = next(cursor, None)
        if row is None:
            break
        rows.append(row)
        size += length_of(row)
    return rows


def length_of(values: Iterable[Any]) -> int:
    """The letters and bytes in them, also in lists and mappings, which count for themselves."""
    length = 0
    for value in values:
        if isinstance(value, str | bytes):
            length += len(value)
        elif isinstance(value, Mapping):
            length += _OF_PART * len(value) + length_of(value.keys()) + length_of(value.values())
        elif isinstance(value, list | tuple):
            length += _OF_PART * len(value) + length_of(value)
    return length


def unique(names: Sequence[str]) -> list[str]:
    """The names, with numbers for those that come again: a, a_2, a_3."""
    seen: set[str] = set()
    made = []
    for name in names:
        free, number = name, 2
        while free in seen:
            free, number = f"{name}_{number}", number + 1
        seen.add(free)
        made.append(free)
    return made


def json_safe(value: Any) -> Any:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int:
        return value if -(2**63) <= value < 2**64 else str(value)
    if kind is float:
        return value if math.isfinite(value) else str(value)
    return _converted(value)


def _converted(value: Any) -> Any:
    if isinstance(value, ServedJson):
        return json_safe(value.build())
    if isinstance(value, Mapping):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_safe(item) for item in value]
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return str(value)


def _number(value: Decimal) -> int | float | str:
    if not value.is_finite():
        return str(value)
    if value == value.to_integral_value() and abs(value) < 2**63:
        return int(value)
    near = float(value)
    return near if Decimal(repr(near)) == value else str(value)

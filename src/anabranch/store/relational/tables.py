"""The tables of relational stores, and how one is read from its first row to its last.

Columns that only one database has are not listed: where a row of the log stands among those of
other runs (a position in SQLite, a partition and a number in PostgreSQL), and how far webhooks have
looked. Both databases order texts by their bytes, so the rows of a table come in the same order
from each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from anabranch.store.relational.connection import Row

ROWS_AT_ONCE = 1000
BYTES_AT_ONCE = 8 * 1024 * 1024  # of values of any size; a single row may be larger


class Table(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    key: tuple[str, ...]  # a unique index with these columns in this order
    columns: tuple[str, ...]
    large: tuple[str, ...] = ()  # columns whose values may have any size
    flags: tuple[str, ...] = ()  # 0 or 1 in SQLite, boolean in PostgreSQL
    counter: str = ""  # the column whose values are given out once and for all
    placed: bool = False  # in PostgreSQL, rows say in which partition their run is

    def key_of(self, row: Row) -> Row:
        return tuple(row[self.columns.index(name)] for name in self.key)


def _table(
    name: str,
    key: str,
    columns: str,
    *,
    large: str = "",
    flags: str = "",
    counter: str = "",
    placed: bool = False,
) -> Table:
    """The names of columns stand in one text."""
    return Table(
        name=name,
        key=tuple(key.split()),
        columns=tuple(columns.split()),
        large=tuple(large.split()),
        flags=tuple(flags.split()),
        counter=counter,
        placed=placed,
    )


LOG = _table("log", "run last_seq", "run last_seq count at events", large="events")
HEADS = _table(
    "heads",
    "run",
    "run definition name dialect status seq created_at updated_at next_wake labels parent origin "
    "finished problems reason",
    flags="finished",
    placed=True,
)
PAYLOADS = _table("payloads", "sha256", "sha256 content", large="content")
DEFINITIONS = _table(
    "definitions",
    "fingerprint",
    "fingerprint dialect name source origin created_at",
    large="source",
)
HOOKS = _table(
    "hooks",
    "id",
    "id url secret kinds labels dialect name enabled created_at",
    flags="enabled",
)

#: Every table but the log, in an order in which none needs a later one.
TABLES = (
    DEFINITIONS,
    PAYLOADS,
    _table("holds", "sha256 run scope", "sha256 run scope until"),
    HEADS,
    _table("run_labels", "label labelled_at labelled_run", "label labelled_at labelled_run"),
    _table("snapshots", "run", "run seq state", large="state"),
    _table("sealed", "run key", "run key value", large="value"),
    _table(
        "mailbox",
        "id",
        "id run body posted_at answer",
        large="body answer",
        counter="id",
        placed=True,
    ),
    _table(
        "tokens",
        "id",
        "id digest name scopes created_at expires_at last_used_at revoked_at pools",
    ),
    _table(
        "audit", "number", "number at actor action subject outcome address detail", counter="number"
    ),
    _table(
        "idempotency",
        "actor key",
        "actor key body holder expires_at status answer",
        large="answer",
    ),
    HOOKS,
    _table(
        "deliveries",
        "hook run seq",
        "hook run seq kind body found_at state attempts due last_at last_status last_error",
        large="body",
    ),
    _table(
        "credentials",
        "name",
        "name type fields sealed key_id version description created_at created_by updated_at "
        "updated_by",
    ),
    _table(
        "catalog",
        "id",
        "id path version fingerprint name dialect created_at created_by",
        counter="id",
    ),
    _table("session_numbers", "owner number", "owner number run"),
    _table(
        "grants",
        "id",
        "id rid scope grantee owner rights enc_dek expires_at is_owner ref_addr session",
        counter="id",
    ),
    _table(
        "work_logs",
        "run number",
        "run number job attempt step first_line lines start size at pieces",
        large="pieces",
    ),
    _table("admissions", "run key", "run key run_limit when_full priority asked_at admitted_at"),
    _table("named_records", "family name", "family name version body due updated_at", large="body"),
)
EVERY_TABLE = (*TABLES, LOG)
STREAMS = _table(
    "streams",
    "stream",
    "stream family seq state created_at updated_at open wake group_name",
    large="state",
)
STREAM_EVENTS = _table(
    "stream_events", "stream last_seq", "stream last_seq count at events", large="events"
)
#: The state of a node, which a database that several servers share does not keep.
NODE_TABLES = (STREAMS, STREAM_EVENTS)


class TableReader(ABC):
    """Reads whole tables in the order of their keys, a page at a time: memory stays bounded."""

    shown: str  # the store, for people
    tables: Sequence[Table] = EVERY_TABLE  # that it has
    rows_at_once = ROWS_AT_ONCE
    bytes_at_once = BYTES_AT_ONCE

    @abstractmethod
    def ask(self, statement: str, given: Sequence[Any] = ()) -> list[Row]:
        """The rows that a statement finds; `?` stands for a value."""

    def count(self, table: str) -> int:
        ((found,),) = self.ask(f"SELECT count(*) FROM {table}")
        return int(found)

    def pages(self, table: Table, after: Row | None = None) -> Iterator[list[Row]]:
        while True:
            rows = self.page(table, after)
            if not rows:
                return
            yield rows
            after = table.key_of(rows[-1])

    def rows(self, table: Table) -> Iterator[Row]:
        for page in self.pages(table):
            yield from page

    def page(self, table: Table, after: Row | None) -> list[Row]:
        """The rows after the one with this key: as many as come at once, and at least one."""
        key, marks = ", ".join(table.key), ", ".join("?" * len(table.key))
        conditions, given = [], list(after or ())
        if after is not None:
            conditions.append(f"({key}) > ({marks})")
        if table.large:
            last = self._last_that_fits(table, key, conditions, given)
            if last is None:
                return []
            conditions.append(f"({key}) <= ({marks})")
            given += last
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        columns = ", ".join(table.columns)
        statement = f"SELECT {columns} FROM {table.name}{where} ORDER BY {key}"
        rows = self.ask(f"{statement} LIMIT {self.rows_at_once}", given)
        return [self._plain(table, row) for row in rows]

    def _last_that_fits(
        self, table: Table, key: str, conditions: list[str], given: list[Any]
    ) -> Row | None:
        """The key of the last row of a page. The lengths are known without reading the values."""
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        sizes = " + ".join(f"coalesce(length({name}), 0)" for name in table.large)
        statement = f"SELECT {key}, {sizes} FROM {table.name}{where} ORDER BY {key}"
        rows = self.ask(f"{statement} LIMIT {self.rows_at_once}", given)
        return fitting(rows, self.bytes_at_once)

    def _plain(self, table: Table, row: Row) -> Row:
        """The row as every database has it."""
        if not table.flags:
            return row
        flags = zip(table.columns, row, strict=True)
        return tuple(int(value) if name in table.flags else value for name, value in flags)


def fitting(sized: Sequence[Row], most: int) -> Row | None:
    """Of rows that end with their size: the last one, without its size, that still fits."""
    room, last = most, None
    for *key, size in sized:
        room -= int(size)
        if room < 0 and last is not None:
            break
        last = tuple(key)
    return last

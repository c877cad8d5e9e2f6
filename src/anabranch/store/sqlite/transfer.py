"""A SQLite file as one end of a copy: read as it is, or made.

The source is owned like by an engine, and inside a transaction that lets no one write: commands
that would write to it wait, and then say that it is busy. The target is owned, too.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from anabranch.errors import UnusableStore
from anabranch.store.relational.connection import Row
from anabranch.store.relational.errors import COPYING, CREATE, UNFINISHED_COPY
from anabranch.store.relational.plan import Numbers
from anabranch.store.relational.tables import (
    EVERY_TABLE,
    HOOKS,
    LOG,
    NODE_TABLES,
    Table,
    fitting,
)
from anabranch.store.relational.transfer import Source, Target, not_empty
from anabranch.store.sqlite.file import (
    MIGRATIONS,
    STATEMENTS,
    Ownership,
    open_reader,
    open_writer,
    prepare,
    reporting,
    schema_of,
)
from anabranch.store.sqlite.held_file import hold, size_of

OWNER = "a copy of the store"


class _File:
    """The file, its lock and its connection, from `__init__` to `close`."""

    db: sqlite3.Connection
    tables: Sequence[Table] = (*EVERY_TABLE, *NODE_TABLES)

    def __init__(self, path: Path, *, create: bool) -> None:
        self.path = path
        self.shown = self.identity = str(path)
        self.partitions = 1
        self._held = hold(path, create=create)
        self._lock = Ownership(self._held)

    def ask(self, statement: str, given: Sequence[Any] = ()) -> list[Row]:
        with reporting(self.path):
            return self.db.execute(statement, given).fetchall()

    def close(self) -> None:
        with suppress(AttributeError):  # it could not be opened
            self.db.close()
        self._lock.release()
        self._held.let_go()


class SqliteSource(_File, Source):
    def __init__(self, path: str) -> None:
        super().__init__(Path(os.path.realpath(path)), create=False)
        try:
            prepare(self._held, create=False)
            self._lock.acquire(OWNER)
            self.db = open_reader(self.path)
            with reporting(self.path):
                self.db.execute("PRAGMA query_only = OFF")  # SQLite lets no reader lock writers out
                self.db.execute("BEGIN IMMEDIATE")
                self.db.execute("PRAGMA query_only = ON")
        except BaseException:
            self.close()
            raise

    def ends(self) -> Numbers:
        return {0: self._given_out(LOG)}

    def cursors(self) -> dict[str, Numbers]:
        return {hook: {0: cursor} for hook, cursor in self.ask("SELECT id, cursor FROM hooks")}

    def log_page(self, partition: int, after: int, upto: int) -> tuple[list[Row], int]:  # noqa: ARG002
        within = "FROM log WHERE position > ? AND position <= ? ORDER BY position"
        sizes = f"SELECT position, length(events) {within} LIMIT {self.rows_at_once}"
        last = fitting(self.ask(sizes, (after, upto)), self.bytes_at_once)
        if last is None:
            return [], after
        columns = ", ".join(LOG.columns)
        return self.ask(f"SELECT {columns} {within}", (after, last[0])), last[0]

    def counter(self, table: Table) -> int:
        return self._given_out(table)

    def epochs(self) -> int:
        return 0

    def _given_out(self, table: Table) -> int:
        found = self.ask("SELECT seq FROM sqlite_sequence WHERE name = ?", (table.name,))
        return int(found[0][0]) if found else 0


class SqliteTarget(_File, Target):
    def __init__(self, path: str, source: str) -> None:
        """What it is to be the copy of is said in it; refuses a file with anything else in it."""
        place = Path(os.path.realpath(path))
        there = _is_unfinished(place)
        super().__init__(place, create=True)
        try:
            if not there:
                prepare(self._held, create=True)
            self._lock.acquire(OWNER)
            self.db = open_writer(self.path, "FULL")
            if not there:
                self._mark(source)
            ((last,),) = self.ask("SELECT coalesce(max(position), 0) FROM log")
        except BaseException:
            self.close()
            raise
        self.numbers = {0: int(last)}

    def _mark(self, source: str) -> None:
        with self.transaction():
            self.require_empty()
            self.db.execute(CREATE)
            self.say("source", source)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with reporting(self.path):
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.db.execute("COMMIT")
            except BaseException:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise

    def put(self, table: Table, rows: Sequence[Row], places: Sequence[int]) -> None:  # noqa: ARG002
        columns, given = list(table.columns), rows
        if table is HOOKS:  # where it goes on is known when the log is copied
            columns, given = [*columns, "cursor"], [(*row, 0) for row in rows]
        self._insert(table.name, columns, given)

    def put_log(self, rows: Sequence[Row], places: Sequence[int]) -> None:  # noqa: ARG002
        first = self.numbers[0] + 1
        numbered = [(number, *row) for number, row in enumerate(rows, first)]
        self._insert(LOG.name, ["position", *LOG.columns], numbered)
        self.numbers[0] += len(rows)

    def _insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        marks = ", ".join("?" * len(columns))
        self.db.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)

    def put_cursors(self, hook: str, partitions: Collection[int]) -> None:  # noqa: ARG002
        self.db.execute("UPDATE hooks SET cursor = ? WHERE id = ?", (self.numbers[0], hook))

    def put_numbers(self) -> None:
        """SQLite knows the last position by itself."""

    def put_counter(self, table: Table, last: int) -> None:
        self.db.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table.name,))
        insert = "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)"
        self.db.execute(insert, (table.name, last))

    def put_delivery(self, fields: Mapping[str, Any]) -> None:
        self.db.execute(STATEMENTS["add_delivery"], fields)

    def put_audit(self, fields: Mapping[str, Any]) -> None:
        self.db.execute(STATEMENTS["add_audit"], fields)

    def places(self, runs: Collection[str]) -> dict[str, int]:
        return dict.fromkeys(runs, 0)

    def said(self, part: str) -> str | None:
        found = self.ask(f"SELECT said FROM {COPYING} WHERE part = ?", (part,))
        return str(found[0][0]) if found else None

    def say(self, part: str, said: str) -> None:
        statement = (
            f"INSERT INTO {COPYING} (part, said) VALUES (?, ?) "
            "ON CONFLICT (part) DO UPDATE SET said = excluded.said"
        )
        self.db.execute(statement, (part, said))

    def drop_mark(self) -> None:
        self.db.execute(f"DROP TABLE {COPYING}")


def _is_unfinished(path: Path) -> bool:
    """Whether a copy was begun there; what is something else, and not empty, is refused."""
    if not size_of(path):
        return False
    try:
        version = schema_of(path)
    except UnusableStore as error:
        if error.code != UNFINISHED_COPY:
            raise
        return True
    if version and version < len(MIGRATIONS):  # preparing it would change it
        raise not_empty(str(path), ["tables of an older version"])
    return False

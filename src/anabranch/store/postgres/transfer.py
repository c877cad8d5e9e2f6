"""A PostgreSQL schema as one end of a copy: read as it is, or made.

The source is read in one transaction that locks its tables against changes; when the session ends,
however it ends, the locks are gone and nothing was written. Refused is what a server uses.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import psycopg
from psycopg import sql

from anabranch.errors import StoreError, StoreInUse, UnusableStore
from anabranch.store.postgres import schema
from anabranch.store.postgres.address import Address, identity_of, read_address
from anabranch.store.postgres.connections import DRIVER_ERRORS, Plain, connect, in_driver_form
from anabranch.store.postgres.errors import translate
from anabranch.store.relational.connection import Row
from anabranch.store.relational.errors import COPYING, CREATE, UNFINISHED_COPY
from anabranch.store.relational.plan import Numbers
from anabranch.store.relational.tables import LOG, Table, TableReader, fitting
from anabranch.store.relational.transfer import Source, Target
from anabranch.store.statements import load_statements

STATEMENTS = in_driver_form(load_statements("postgres"))


def connect_for_long(address: Address) -> Plain:
    """A connection for statements and transactions that may take their time."""
    db = connect(address)
    try:
        for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
            db.execute("SELECT set_config(%s, '0', false)", (name,))
    except psycopg.Error as error:
        db.close()
        raise translate(error, address.shown) from None
    return db


class PostgresTables(TableReader):
    """The tables of a schema over one connection."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.shown = address.shown
        self.identity = identity_of(address)
        self.db = connect_for_long(address)

    def close(self) -> None:
        self.db.close()

    def ask(self, statement: str, given: Sequence[Any] = ()) -> list[Row]:
        with self.reporting():
            found = self.db.execute(statement.replace("?", "%s"), given)
            return found.fetchall()

    def named(self, name: str, given: Mapping[str, Any] | None = None) -> list[Row]:
        """A statement of our files."""
        with self.reporting():
            cursor = self.db.execute(STATEMENTS[name], given)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def reporting(self) -> Iterator[None]:
        try:
            yield
        except DRIVER_ERRORS as error:
            raise translate(error, self.shown) from error

    def require_unused(self) -> None:
        """Raises while a server has a good lease."""
        names = [str(name) for (name,) in self.named("live_servers")]
        if names:
            raise StoreInUse(
                f"store {self.shown} is in use by {', '.join(names[:5])}: stop its servers first, "
                "or wait until the leases of those that were killed are over"
            )

    def places(self, runs: Collection[str]) -> dict[str, int]:
        given = {"runs": msgspec.json.encode(list(runs)).decode()}
        return dict(self.named("where_runs_are", given))


class PostgresSource(PostgresTables, Source):
    def __init__(self, text: str) -> None:
        super().__init__(read_address(text))
        try:
            self.partitions = schema.prepare(self.db, self.address, create=False, partitions=None)
            self.require_unused()
            with self.reporting():
                self.db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            self.named("lock_against_changes")
            self.require_unused()  # of this moment: the first look was for those that are busy
        except BaseException:
            self.close()
            raise

    def ends(self) -> Numbers:
        return dict(self.named("positions"))

    def cursors(self) -> dict[str, Numbers]:
        found: dict[str, Numbers] = {}
        for hook, partition, position in self.named("all_cursors"):
            numbers = found.setdefault(hook, {})
            if partition is not None:
                numbers[partition] = position
        return found

    def log_page(self, partition: int, after: int, upto: int) -> tuple[list[Row], int]:
        within = "FROM log WHERE partition = ? AND number > ? AND number <= ? ORDER BY number"
        sizes = f"SELECT number, length(events) {within} LIMIT {self.rows_at_once}"
        last = fitting(self.ask(sizes, (partition, after, upto)), self.bytes_at_once)
        if last is None:
            return [], after
        columns = ", ".join(LOG.columns)
        rows = self.ask(f"SELECT {columns} {within}", (partition, after, last[0]))
        return rows, last[0]

    def counter(self, table: Table) -> int:
        ((sequence,),) = self.ask(
            "SELECT pg_get_serial_sequence(?, ?)", (table.name, table.counter)
        )
        ((last, used),) = self.ask(f"SELECT last_value, is_called FROM {sequence}")
        return int(last) if used else 0

    def epochs(self) -> int:
        ((epochs,),) = self.named("epochs")
        return int(epochs)


class PostgresTarget(PostgresTables, Target):
    def __init__(self, text: str, source: str, partitions: int | None = None) -> None:
        """What it is to be the copy of is said in it; refuses a schema with anything else in it."""
        super().__init__(read_address(text))
        try:
            self._prepare(partitions)
            self._take_alone()
            self.require_unused()
            if not schema.is_unfinished(self.db):
                self._mark(source)
            ((self.partitions,),) = self.ask("SELECT partitions FROM cluster")
            last: Numbers = dict(self.named("last_numbers"))
        except BaseException:
            self.close()
            raise
        self.numbers = {each: last.get(each, 0) for each in range(self.partitions)}

    def _prepare(self, partitions: int | None) -> None:
        """What an earlier copy has begun is as it should be."""
        try:
            schema.prepare(self.db, self.address, create=True, partitions=partitions)
        except UnusableStore as error:
            if error.code != UNFINISHED_COPY:
                raise

    def _take_alone(self) -> None:
        """One copy at a time; the lock ends with the session, a little after its process."""
        key = zlib.crc32(f"anabranch copy {self.address.schema}".encode())
        try:
            self.ask("SELECT pg_advisory_lock(?)", (key,))
        except StoreError as error:
            if error.code != "store_busy":
                raise
            words = f"another copy to {self.shown} is being made: wait for its end"
            raise StoreInUse(words) from None

    def _mark(self, source: str) -> None:
        with self.transaction():
            self.named("lock_against_servers")
            self.require_unused()
            self.require_empty()
            self.db.execute(CREATE)
            self.say("source", source)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self.reporting(), self.db.transaction():
            yield

    def put(self, table: Table, rows: Sequence[Row], places: Sequence[int]) -> None:
        columns = list(table.columns)
        flags = [columns.index(name) for name in table.flags]
        given: list[Sequence[Any]] = [list(row) for row in rows] if flags else list(rows)
        for row in given if flags else ():
            for flag in flags:
                row[flag] = bool(row[flag])  # type: ignore[index]
        if table.placed:
            columns.append("partition")
            given = [(*row, place) for row, place in zip(given, places, strict=True)]
        self._copy_in(table.name, columns, given)

    def put_log(self, rows: Sequence[Row], places: Sequence[int]) -> None:
        given = []
        for row, place in zip(rows, places, strict=True):
            self.numbers[place] += 1
            given.append((place, self.numbers[place], *row))
        self._copy_in(LOG.name, ["partition", "number", *LOG.columns], given)

    def _copy_in(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        into = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), names)
        with self.reporting(), self.db.cursor().copy(into) as copy:
            for row in rows:
                copy.write_row(row)

    def put_cursors(self, hook: str, partitions: Collection[int]) -> None:
        given = list(partitions)
        numbers = [self.numbers[each] for each in given]
        self.named("put_cursors", {"hook": hook, "partitions": given, "numbers": numbers})

    def put_numbers(self) -> None:
        self.named("partitions_end_with_their_rows")

    def put_counter(self, table: Table, last: int) -> None:
        if last:
            given = {"table": table.name, "column": table.counter, "last": last}
            self.named("set_counter", given)

    def put_delivery(self, fields: Mapping[str, Any]) -> None:
        self.named("add_delivery", fields)

    def put_audit(self, fields: Mapping[str, Any]) -> None:
        self.named("add_audit", fields)

    def said(self, part: str) -> str | None:
        found = self.named("said", {"part": part})
        return str(found[0][0]) if found else None

    def say(self, part: str, said: str) -> None:
        self.named("say", {"part": part, "said": said})

    def drop_mark(self) -> None:
        self.named("lock_against_servers")
        self.require_unused()
        with self.reporting():
            self.db.execute(f"DROP TABLE {COPYING}")

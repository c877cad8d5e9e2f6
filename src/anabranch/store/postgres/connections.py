"""Connections to a PostgreSQL server: one that writes, a few that read, none of them trusted.

A connection that was lost is thrown away. A read is repeated on a fresh one, once; a write is not:
whoever wrote must find out what became of it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import Empty, LifoQueue
from threading import Lock, Semaphore
from typing import Any, TypeVar

import psycopg
from psycopg import Connection, sql
from psycopg.rows import tuple_row

from anabranch.errors import StoreError
from anabranch.store.outages import READ_ONLY
from anabranch.store.postgres.address import Address
from anabranch.store.postgres.errors import SETTING, not_connected, translate

OLDEST = 14  # major version that is known to work
READERS_MAX = 4
WAIT_SECONDS = 60.0  # for a connection that others read with
REFUSED_SECONDS = 0.3  # for so long after one was refused no other is asked for
#: What the driver raises for values that PostgreSQL cannot hold, beside its own errors.
DRIVER_ERRORS = (psycopg.Error, UnicodeEncodeError, OverflowError)
_PARAMETER = re.compile(r"(?<![:\w]):(\w+)")
ENCODING = "UTF8"  # of the database, and of what is sent: batches are bytes to the driver
SESSION = {
    "statement_timeout": "60s",
    "lock_timeout": "15s",
    "idle_in_transaction_session_timeout": "30s",
    "default_transaction_isolation": "read committed",  # who waited for a lock sees what is new
    "timezone": "UTC",
    "client_min_messages": "warning",
}
#: A process that is stopped inside a transaction keeps partitions locked. It must lose them before
#: its lease has ended, or no other server could claim them.
WRITER = {"idle_in_transaction_session_timeout": "4s"}
#: A peer that vanished without a word is noticed within a quarter of a minute.
_KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "connect_timeout": 5,
}

Plain = Connection[tuple[Any, ...]]
T = TypeVar("T")


def in_driver_form(statements: Mapping[str, str]) -> dict[str, str]:
    """`:name` as psycopg wants it; statements that take arrays have their `%s` already."""
    return {
        name: text if "%s" in text else _PARAMETER.sub(r"%(\1)s", text.replace("%", "%%"))
        for name, text in statements.items()
    }


def connect(
    address: Address, *, writable: bool = False, settings: Mapping[str, str] | None = None
) -> Plain:
    """`writable` refuses a replica, `settings` are those of the session beside `SESSION`."""
    try:
        db = psycopg.connect(
            address.conninfo,
            autocommit=True,
            row_factory=tuple_row,
            application_name="anabranch",
            client_encoding=ENCODING,
            **_KEEPALIVE,  # type: ignore[arg-type]
        )
    except psycopg.Error as error:
        raise not_connected(error, address.shown) from None
    try:
        require_version(db.info.server_version, address)
        require_encoding(db.info.parameter_status("server_encoding") or "", address)
        _begin_session(db, {**SESSION, **(settings or {}), "search_path": address.schema})
        if writable:
            _require_primary(db, address)
    except BaseException as error:
        db.close()
        if isinstance(error, psycopg.Error):
            raise translate(error, address.shown) from None
        raise
    return db


def _begin_session(db: Plain, chosen: Mapping[str, str]) -> None:
    each = [sql.SQL("set_config({}, {}, false)").format(*pair) for pair in chosen.items()]
    db.execute(sql.SQL("SELECT {}").format(sql.SQL(", ").join(each)))


def require_version(server_version: int, address: Address) -> None:
    major = server_version // 10_000
    if major < OLDEST:
        raise StoreError(
            f"store {address.shown}: the server is PostgreSQL {major}; {OLDEST} or newer is needed "
            f"({SETTING})",
            code="store_too_old",
        )


def require_encoding(encoding: str, address: Address) -> None:
    if encoding != ENCODING:
        raise StoreError(
            f"store {address.shown}: the database has the encoding {encoding}, which cannot hold "
            f"every text; {ENCODING} is needed. Create one with CREATE DATABASE … ENCODING "
            f"'{ENCODING}' TEMPLATE template0, and name it in {SETTING}",
            code="store_encoding",
        )


def _require_primary(db: Plain, address: Address) -> None:
    """Raises where nothing could be written: with several hosts every new connection may lead to
    another server, and a replica may not have what was committed a moment ago."""
    row = db.execute(
        "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'"
    ).fetchone()
    replica, read_only = row or (False, False)
    if replica or read_only:
        why = "is a replica" if replica else "is set to read-only (default_transaction_read_only)"
        raise StoreError(
            f"store {address.shown}: the server {why} and only takes reads. Name the primary in "
            f"{SETTING}; with several hosts, add target_session_attrs=read-write",
            code=READ_ONLY,
        )


class Connections:
    """Bounded: who finds no reader free waits for one."""

    def __init__(
        self, address: Address, *, writable: bool = True, readers_max: int = READERS_MAX
    ) -> None:
        self.address = address
        self._writable = writable
        self._idle: LifoQueue[Plain] = LifoQueue()
        self._room = Semaphore(readers_max)
        self._writer: Plain | None = None
        self._writer_lost = False  # perhaps: others were
        self._refused: tuple[float, StoreError] | None = None  # until when, and why
        self.writing = Lock()
        self.closed = False

    @contextmanager
    def writer(self) -> Iterator[Plain]:
        """For one caller at a time. What was not committed when the block raises is rolled back."""
        with self.writing:
            self.require_open()
            if self._writer_lost:
                self.drop_writer()
            db = self._writer
            if db is None or db.closed:
                db = self._writer = self._connect(WRITER)
                # With statements of its own the driver says DEALLOCATE ALL after every rollback,
                # and the prepared statements of turns would be gone.
                db.prepare_threshold = None
            try:
                yield db
            except BaseException as error:
                self._tidy(db)
                if isinstance(error, DRIVER_ERRORS):
                    told = translate(error, self.address.shown)
                    if told.code == READ_ONLY:  # the primary may be another server by now
                        self.drop_writer()
                    raise told from error
                raise

    def _tidy(self, db: Plain) -> None:
        with suppress(psycopg.Error):
            if not db.closed:
                db.rollback()
        if db.closed or db.broken:
            self.drop_writer()

    def drop_writer(self) -> None:
        """The next one that writes gets a fresh connection."""
        self._writer_lost = False
        if self._writer is not None:
            with suppress(psycopg.Error):
                self._writer.close()
            self._writer = None

    def read(self, statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        with self._place():
            db, rows = self._repeated(lambda db: db.execute(statement, parameters).fetchall())
            self._put_back(db)
            return rows

    @contextmanager
    def view(self) -> Iterator[Plain]:
        """For reading: all statements in the block see the same state."""
        with self._place():
            begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
            db, _ = self._repeated(lambda db: db.execute(begin))
            try:
                yield db
                db.execute("COMMIT")
            except DRIVER_ERRORS as error:
                raise translate(error, self.address.shown) from error
            finally:
                self._put_back(db)

    @contextmanager
    def _place(self) -> Iterator[None]:
        self.require_open()
        if not self._room.acquire(timeout=WAIT_SECONDS):
            raise StoreError(
                f"store {self.address.shown}: all connections for reading are in use. Try again.",
                code="store_busy",
            )
        try:
            yield
        finally:
            self._room.release()

    def _repeated(self, work: Callable[[Plain], T]) -> tuple[Plain, T]:
        """The connection and what the work gave on it. One that was lost since its last use shows
        that only when it is used."""
        with suppress(Empty):
            used = self._idle.get_nowait()
            try:
                return self._tried(used, work)
            except StoreError:
                if not used.closed:
                    raise
                self._drop_idle()  # what was lost with it, perhaps
                self._writer_lost = True
        return self._tried(self._connect(), work)

    def _connect(self, settings: Mapping[str, str] | None = None) -> Plain:
        """Many that find the server away do not all wait for it, one after the other."""
        if self._refused is not None and time.monotonic() < self._refused[0]:
            raise StoreError(self._refused[1].message, code=self._refused[1].code)
        try:
            db = connect(self.address, writable=self._writable, settings=settings)
        except StoreError as error:
            self._refused = time.monotonic() + REFUSED_SECONDS, error
            raise
        self._refused = None
        return db

    def _tried(self, db: Plain, work: Callable[[Plain], T]) -> tuple[Plain, T]:
        try:
            return db, work(db)
        except BaseException as error:
            self._put_back(db)
            if isinstance(error, DRIVER_ERRORS):
                raise translate(error, self.address.shown) from error
            raise

    def _put_back(self, db: Plain) -> None:
        """Who stopped half-way has left a transaction open."""
        with suppress(psycopg.Error):
            if not db.closed and db.info.transaction_status != 0:
                db.rollback()
        if db.closed or db.broken or self.closed:
            with suppress(psycopg.Error):
                db.close()
            return
        self._idle.put(db)

    def _drop_idle(self) -> None:
        with suppress(Empty):
            while True:
                with suppress(psycopg.Error):
                    self._idle.get_nowait().close()

    def require_open(self) -> None:
        if self.closed:
            raise StoreError(f"store {self.address.shown} is closed", code="store_closed")

    def close(self) -> None:
        with self.writing:
            self.closed = True
            self.drop_writer()
        self._drop_idle()

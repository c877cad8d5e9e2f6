"""The store in one SQLite file: what a single machine needs, durable and without a server.

Everything that writes goes through one connection and is serialised by a lock. Reads go through
another and need not wait for a commit in progress; those of threads beside an event loop through a
third: they may take long, and the loop must not wait for them. Other processes read beside the
engine and reach it through the mailbox; only one engine at a time owns the file (`acquire`).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    suppress,
)
from pathlib import Path
from threading import Lock, get_ident
from typing import Any, Literal

from anabranch.errors import StoreError, UnusableStore
from anabranch.store.ports import Batch, Space
from anabranch.store.relational.commits import Fold
from anabranch.store.relational.connection import Row
from anabranch.store.relational.rows import glob_word, lenient_text
from anabranch.store.relational.store import RelationalStore
from anabranch.store.sqlite import commits, space
from anabranch.store.sqlite.errors import translate
from anabranch.store.sqlite.file import (
    STATEMENTS,
    Ownership,
    open_reader,
    open_writer,
    prepare,
    wiping,
)
from anabranch.store.sqlite.file_watch import FileWatch
from anabranch.store.sqlite.held_file import hold
from anabranch.store.sqlite.saved_copy import save_copy
from anabranch.store.sqlite.streams import SqliteStreams
from anabranch.store.work_log_ports import LogRow, LogTrim

Synchronous = Literal["FULL", "NORMAL"]

# What the driver raises for values that SQLite cannot hold, beside its own errors.
_DRIVER_ERRORS = (sqlite3.Error, OverflowError, UnicodeEncodeError)


class _Reading:
    """A connection that reads, for one thread at a time."""

    def __init__(self, db: sqlite3.Connection) -> None:
        db.text_factory = lenient_text
        self.db, self.lock = db, Lock()


class _Block(ExitStack):
    """What one thread writes together. Its transaction begins with its first write, so that nobody
    waits for what it thinks about before; it wipes from the first write on that asks for it."""

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__()
        self.db = db
        self._thread = get_ident()
        self._wipes = False

    @property
    def is_mine(self) -> bool:
        return self._thread == get_ident()

    def begin(self, *, wipe: bool) -> None:
        if wipe and not self._wipes:
            self._wipes = True
            self.enter_context(wiping(self.db, sealing=False, unsealing=True))
        if not self.db.in_transaction:
            self.db.execute("BEGIN IMMEDIATE")


class SqliteStore(RelationalStore):
    """`synchronous="NORMAL"` gives up the newest commits, never the order, when power fails.

    With `read_only` nothing can be written, and the file must exist.
    """

    sql = STATEMENTS
    pattern_of_letters = staticmethod(glob_word)
    _all_rows = -1

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "FULL",
        read_only: bool = False,
    ) -> None:
        if synchronous not in ("FULL", "NORMAL"):
            raise StoreError(f"synchronous is FULL or NORMAL, not {synchronous!r}")
        # Every name of the file leads to the same lock.
        self._path = path = Path(os.path.realpath(path))
        self._held = hold(path, create=not read_only)
        try:
            prepare(self._held, create=not read_only)
            self._open(synchronous, read_only=read_only)
        except BaseException:
            self._held.let_go()
            raise
        if self._writer is not None:  # which a block of writes reads through
            self._writer.text_factory = lenient_text
        self._held.guard()
        self._watch = FileWatch(self._held)
        self._lock = Ownership(self._held)
        self.node_streams = SqliteStreams(self._rows, self._transaction)
        self._synchronous = synchronous
        self._writing = Lock()
        self._block: _Block | None = None  # of the thread whose writes are one at present
        self._log_thread = 0  # the one that writes what work printed
        self._seen_version = -1
        self._found_version = -1  # by the last look; that of the last `changed` is the one above
        self._look_wanted = False  # whoever writes at present looks for news afterwards
        self._closed = False
        self._acquired = False  # at some time

    def _open(self, synchronous: Synchronous, *, read_only: bool) -> None:
        self._writer = None if read_only else open_writer(self._path, synchronous)
        self._home = get_ident()  # the thread of the event loop, where there is one
        self._far: _Reading | None = None
        self._opening = Lock()
        try:
            self._near = _Reading(open_reader(self._path))
        except BaseException:
            if self._writer is not None:
                self._writer.close()
            raise

    # Space

    def give_back(self, most: int) -> Space:
        with self._write() as db:
            return space.give_back(db, most)

    def compact(self) -> tuple[int, int]:
        """Rebuild the file without unused space: its bytes before and after."""
        with self._write() as db:
            return space.compact(db)

    def probe_write(self) -> None:
        if self._held.damage is not None:
            raise self._held.damage
        with self._transaction() as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            db.execute("SAVEPOINT probe")
            db.execute(self.sql["probe_room"])
            db.execute("ROLLBACK TO probe")
            db.execute(f"PRAGMA user_version = {version}")  # the same, but a page is written

    def changed(self) -> bool:
        # On the connection that writes: it alone does not count our own commits as news.
        db = self._writer or self._near.db
        lock = self._writing if self._writer else self._near.lock
        self._check_open()
        self._watch.look()
        if lock.acquire(blocking=False):
            try:
                self._check_open()
                self._look_for_news(db)
            except _DRIVER_ERRORS as error:
                raise translate(error, self._path) from error
            finally:
                lock.release()
        else:  # a commit is in progress; nobody waits for it, the next look is told
            self._look_wanted = True
        posted, self._posted = self._posted, False
        before, self._seen_version = self._seen_version, self._found_version
        return posted or before != self._seen_version

    def _look_for_news(self, db: sqlite3.Connection) -> None:
        self._look_wanted = False
        (self._found_version,) = db.execute("PRAGMA data_version").fetchone()

    # Store

    def acquire(self, owner: str) -> None:
        self._check_open()
        self._check_writable()
        self._lock.acquire(owner)
        self._acquired = True

    def release(self) -> None:
        self._lock.release()

    def owner(self) -> str | None:
        self._check_open()
        return self._lock.owner()

    def statistics(self) -> Mapping[str, Any]:
        files = (self._path, self._path.with_name(self._path.name + "-wal"))
        size = sum(file.stat().st_size for file in files if file.exists())
        return {**self._counts(), "bytes": size}

    @property
    def path(self) -> Path:
        """The file, as others may want to put something beside it."""
        return self._path

    def close(self) -> None:
        with self._opening, self._near.lock, self._writing, self._far_lock():
            if not self._closed:
                self._closed = True
                self._close_connections()
                self._lock.release()
                self._held.let_go()

    def _far_lock(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._far is None else self._far.lock

    def _close_connections(self) -> None:
        if self._watch.lost is None:  # otherwise SQLite must not move its log into that file
            self._held.unguard()
        elif self._acquired and self._writer is not None:
            save_copy(self._writer, self._path)
        self._near.db.close()
        if self._far is not None:
            self._far.db.close()
        if self._writer is not None:
            self._writer.close()

    # What work printed

    def append_logs(self, rows: Sequence[LogRow], trims: Sequence[LogTrim] = ()) -> None:
        """Without waiting for the disk: the next commit of a turn does that, for these as well."""
        with self._unsynchronised():
            super().append_logs(rows, trims)

    @contextmanager
    def _unsynchronised(self) -> Iterator[None]:
        """Of the thread that writes logs, until the block ends; others write as they are meant to:
        a pragma counts for the transactions that begin after it."""
        self._log_thread = get_ident()
        try:
            yield
        finally:
            self._log_thread = 0

    # Plumbing

    def _write_all(self, fold: Fold, batch: Batch) -> bool:
        with self._write() as db, wiping(db, bool(batch.sealed), bool(batch.unsealed)):
            db.execute("BEGIN IMMEDIATE")
            fits = commits.write(db, fold, batch)
            db.execute("COMMIT" if fits else "ROLLBACK")
            return fits

    @contextmanager
    def _transaction(self, *, wipe: bool = False) -> Iterator[sqlite3.Connection]:
        """All of it or nothing; whoever rolls back inside has changed their mind. With `wipe`, what
        it frees is overwritten."""
        if (block := self._own_block()) is not None:
            with self._telling():
                block.begin(wipe=wipe)
                yield block.db
            return
        with self._write() as db, wiping(db, sealing=False, unsealing=wipe), self._speed(db):
            db.execute("BEGIN IMMEDIATE")
            yield db
            if db.in_transaction:
                db.execute("COMMIT")

    @contextmanager
    def _speed(self, db: sqlite3.Connection) -> Iterator[None]:
        """How long a transaction waits for the disk."""
        if self._log_thread != get_ident() or self._synchronous != "FULL":
            yield
            return
        db.execute("PRAGMA synchronous = NORMAL")
        try:
            yield
        finally:
            if db.in_transaction:  # the pragma has no effect before its end
                db.execute("ROLLBACK")
            db.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def together(self, *, wipe: bool = False) -> Iterator[None]:
        if self._own_block() is not None:
            with self._transaction(wipe=wipe):
                yield
            return
        with self._write() as db, _Block(db) as block:
            self._block = block
            try:
                if wipe:
                    block.begin(wipe=True)
                yield
            finally:
                self._block = None
            if db.in_transaction:
                db.execute("COMMIT")

    def _own_block(self) -> _Block | None:
        """The block of `together` that this thread is in."""
        block = self._block
        return block if block is not None and block.is_mine else None

    def _rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Row]:
        if self._block is not None:
            with self._read() as db:
                return db.execute(statement, parameters).fetchall()
        reading = self._near if get_ident() == self._home else self._reading()
        with reading.lock:  # as `_read` does, for most of what is read
            self._check_open()
            try:
                return reading.db.execute(statement, parameters).fetchall()
            except _DRIVER_ERRORS as error:
                raise self._told(error) from error

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        self._check_writable()
        assert self._writer is not None
        with self._writing:
            self._check_open()
            try:
                self._watch.before_write()
                yield self._writer
                self._watch.after_write()
                if self._look_wanted:
                    self._look_for_news(self._writer)
            except BaseException as error:
                if self._writer.in_transaction:
                    with suppress(sqlite3.Error):  # the first error is the one to tell
                        self._writer.execute("ROLLBACK")
                if isinstance(error, _DRIVER_ERRORS):
                    raise self._told(error) from error
                raise

    @contextmanager
    def _view(self) -> Iterator[sqlite3.Connection]:
        with self._read() as db:
            if db.in_transaction:  # that of a block of writes
                yield db
                return
            db.execute("BEGIN")
            try:
                yield db
            finally:
                db.execute("COMMIT")

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        block = self._own_block()
        if block is not None and block.db.in_transaction:  # who writes reads what was written
            with self._telling():
                yield block.db
            return
        reading = self._reading()
        with reading.lock, self._telling():
            self._check_open()
            yield reading.db

    def _reading(self) -> _Reading:
        """That of this thread. One in which a loop stands still, as while it takes a turn, reads as
        the loop does."""
        if get_ident() == self._home or asyncio._get_running_loop() is not None:
            return self._near
        with self._opening:
            self._check_open()
            if self._far is None:
                self._far = _Reading(open_reader(self._path))
            return self._far

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Errors of the driver leave as errors of the store."""
        try:
            yield
        except _DRIVER_ERRORS as error:
            raise self._told(error) from error

    def _told(self, error: Exception) -> StoreError:
        said = translate(error, self._path)
        if isinstance(said, UnusableStore):
            self._held.damage = self._held.damage or said
        return said

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"store {self._path} is closed", code="store_closed")

    def _check_writable(self) -> None:
        if self._writer is None:
            raise StoreError(
                f"store {self._path} was opened for reading only", code="store_read_only"
            )

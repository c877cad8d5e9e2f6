"""The store in one SQLite file: what a single machine needs, durable and without a server.

Two connections: everything that writes goes through one and is serialised by a lock, reads go
through the other and need not wait for a commit in progress. Other processes read beside the
engine and reach it through the mailbox; only one engine at a time owns the file (`acquire`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, get_ident
from typing import Any, Literal

import msgspec

from anabranch.errors import Conflict, StoreError, UnusableStore
from anabranch.store.checks import check_payloads, checked_payload
from anabranch.store.ports import (
    Batch,
    Definition,
    DefinitionCard,
    DefinitionFilter,
    Forgotten,
    Head,
    HeadFilter,
    Hold,
    Message,
    Record,
    Space,
    StateSnapshot,
    Tail,
)
from anabranch.store.sqlite import commits, retention, space
from anabranch.store.sqlite.access import SqliteAccess
from anabranch.store.sqlite.catalog import SqliteCatalog
from anabranch.store.sqlite.credentials import SqliteCredentials
from anabranch.store.sqlite.errors import CONSTRAINT, translate
from anabranch.store.sqlite.file import (
    STATEMENTS,
    Ownership,
    open_reader,
    open_writer,
    prepare,
    wiping,
)
from anabranch.store.sqlite.file_watch import FileWatch
from anabranch.store.sqlite.grants import SqliteGrants
from anabranch.store.sqlite.held_file import hold
from anabranch.store.sqlite.hooks import SqliteHooks
from anabranch.store.sqlite.rows import (
    card_of,
    conditions_of,
    definition_of,
    head_of,
    lenient_text,
    message_of,
)
from anabranch.store.sqlite.saved_copy import save_copy
from anabranch.store.sqlite.session_numbers import SqliteSessionNumbers

Synchronous = Literal["FULL", "NORMAL"]

_RUNS_AT_ONCE = 2000
# What the driver raises for values that SQLite cannot hold, beside its own errors.
_DRIVER_ERRORS = (sqlite3.Error, OverflowError, UnicodeEncodeError)


class SqliteStore(
    SqliteCatalog, SqliteCredentials, SqliteHooks, SqliteAccess, SqliteSessionNumbers, SqliteGrants
):
    """`synchronous="NORMAL"` gives up the newest commits, never the order, when power fails.

    With `read_only` nothing can be written, and the file must exist.
    """

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
        self._reader.text_factory = lenient_text
        self._held.guard()
        self._watch = FileWatch(self._held)
        self._lock = Ownership(self._held)
        self._writing = Lock()
        self._reading = Lock()
        self._joining = 0  # the thread whose writes are one at present
        self._posted = True  # what was posted before us counts as news
        self._seen_version = -1
        self._closed = False
        self._acquired = False  # at some time

    def _open(self, synchronous: Synchronous, *, read_only: bool) -> None:
        self._writer = None if read_only else open_writer(self._path, synchronous)
        try:
            self._reader = open_reader(self._path)
        except BaseException:
            if self._writer is not None:
                self._writer.close()
            raise

    # Journal

    def commit(self, batch: Batch) -> None:
        if not _writes(batch):
            return
        check_payloads(batch.payloads)
        fold = commits.Fold(batch)
        refused: StoreError | None = None
        try:
            if fold.sound and self._write_all(fold, batch):
                return
        except StoreError as error:
            if error.code != CONSTRAINT:
                raise
            refused = error
        reason = commits.explain(batch, self.head, self.message)
        raise reason or refused or Conflict("another writer was first; nothing was written")

    def read(self, run: str, after: int = 0, limit: int | None = None) -> list[Record]:
        most = -1 if limit is None else max(limit, 0)  # below zero is SQLite's word for all
        rows = self._rows(STATEMENTS["read"], {"run": run, "after": after, "limit": most})
        return [Record(*row) for row in rows]

    def weight(self, run: str, after: int, limit: int) -> tuple[int, int]:
        parameters = {"run": run, "after": after, "limit": max(limit, 0)}
        ((rows, size),) = self._rows(STATEMENTS["weight_of_log"], parameters)
        return rows, size

    def read_many(self, runs: Sequence[str]) -> Mapping[str, Tail]:
        found: dict[str, Tail] = {run: (None, []) for run in runs}
        wanted = list(found)
        for start in range(0, len(wanted), _RUNS_AT_ONCE):
            self._read_some(wanted[start : start + _RUNS_AT_ONCE], found)
        return found

    def _read_some(self, runs: list[str], found: dict[str, Tail]) -> None:
        parameters = {"runs": msgspec.json.encode(runs).decode()}
        with self._read() as db:
            # One view of both tables: a snapshot replaced in between would hide rows.
            db.execute("BEGIN")
            try:
                for run, seq, state in db.execute(STATEMENTS["read_snapshots"], parameters):
                    found[run] = (StateSnapshot(seq, state), [])
                for run, *record in db.execute(STATEMENTS["read_tails"], parameters):
                    found[run][1].append(Record(*record))
            finally:
                db.execute("COMMIT")

    # Heads

    def head(self, run: str) -> Head | None:
        rows = self._rows(STATEMENTS["head"], {"run": run})
        return head_of(rows[0]) if rows else None

    def heads(self, wanted: HeadFilter) -> list[Head]:
        conditions = conditions_of(wanted)
        parts = [STATEMENTS["list"], *(STATEMENTS[f"list_{name}"] for name in conditions)]
        parameters: dict[str, Any] = {"limit": max(wanted.limit, 0)}
        for values in conditions.values():
            parameters |= values
        rows = self._rows("\n".join([*parts, STATEMENTS["list_order"]]), parameters)
        return [head_of(row) for row in rows]

    def unfinished(self, after: str = "", limit: int = 1000) -> list[Head]:
        parameters = {"after": after, "limit": max(limit, 0)}
        return [head_of(row) for row in self._rows(STATEMENTS["unfinished"], parameters)]

    def due(self, now: int, limit: int = 1000) -> list[Head]:
        parameters = {"now": now, "limit": max(limit, 0)}
        return [head_of(row) for row in self._rows(STATEMENTS["due"], parameters)]

    # Definitions

    def put_definition(self, definition: Definition) -> None:
        self._execute(STATEMENTS["put_definition"], msgspec.structs.asdict(definition))

    def definition(self, fingerprint: str) -> Definition | None:
        rows = self._rows(STATEMENTS["definition"], {"fingerprint": fingerprint})
        return definition_of(rows[0]) if rows else None

    def definitions(self, wanted: DefinitionFilter) -> list[DefinitionCard]:
        parts = [STATEMENTS["list_definitions"]]
        parameters: dict[str, Any] = {"limit": max(wanted.limit, 0)}
        for name in ("name", "dialect"):
            if (value := getattr(wanted, name)) is not None:
                parts.append(STATEMENTS[f"list_{name}"])
                parameters[name] = value
        if wanted.before is not None:
            parts.append(STATEMENTS["list_definitions_before"])
            parameters |= {"before_at": wanted.before[0], "before": wanted.before[1]}
        rows = self._rows("\n".join([*parts, STATEMENTS["list_definitions_order"]]), parameters)
        return [card_of(row) for row in rows]

    # Payloads

    def put_payload(self, sha256: str, content: bytes, hold: Hold | None = None) -> None:
        check_payloads({sha256: content})
        with self._transaction() as db:
            db.execute(STATEMENTS["put_payload"], {"sha256": sha256, "content": content})
            if hold is not None:
                retention.write_holds(db, [hold])

    def payload(self, sha256: str) -> bytes | None:
        rows = self._rows(STATEMENTS["payload"], {"sha256": sha256})
        return checked_payload(sha256, rows[0][0]) if rows else None

    def holds_payload(self, sha256: str, runs: Sequence[str]) -> bool:
        given = {"sha256": sha256, "runs": msgspec.json.encode(runs).decode()}
        return bool(self._rows(STATEMENTS["holds_payload"], given))

    # Retention

    def expire(self, now: int, limit: int = 1000) -> int:
        keys = self._rows(STATEMENTS["over"], {"now": now, "limit": max(limit, 0)})
        if not keys:
            return 0
        with self._transaction() as db:  # asked again: somebody may have wanted one meanwhile
            keys = db.execute(STATEMENTS["over"], {"now": now, "limit": limit}).fetchall()
            return retention.drop(db, keys)[0]

    def forget(self, runs: Sequence[str], *, dry_run: bool = False) -> Forgotten:
        with self._transaction() as db:
            forgotten = retention.forget(db, runs)
            if dry_run:
                db.execute("ROLLBACK")
        return forgotten

    def give_back(self, most: int) -> Space:
        with self._write() as db:
            return space.give_back(db, most)

    def compact(self) -> tuple[int, int]:
        """Rebuild the file without unused space: its bytes before and after."""
        with self._write() as db:
            return space.compact(db)

    # Seals

    def sealed(self, run: str) -> Mapping[str, bytes]:
        return dict(self._rows(STATEMENTS["sealed"], {"run": run}))

    # Mailbox

    def post(self, run: str, body: bytes, now: int) -> int:
        message_id = self._execute(STATEMENTS["post"], {"run": run, "body": body, "now": now})
        self._posted = True
        return message_id

    def unanswered(self, limit: int = 100) -> list[Message]:
        rows = self._rows(STATEMENTS["unanswered"], {"limit": max(limit, 0)})
        return [message_of(row) for row in rows]

    def message(self, message_id: int) -> Message | None:
        rows = self._rows(STATEMENTS["message"], {"id": message_id})
        return message_of(rows[0]) if rows else None

    def changed(self) -> bool:
        # On the connection that writes: it alone does not count our own commits as news.
        db, lock = self._writer or self._reader, self._writing if self._writer else self._reading
        self._check_open()
        self._watch.look()
        posted, self._posted = self._posted, False
        if not lock.acquire(blocking=False):
            return True  # a commit is in progress; nobody waits for it to learn this
        try:
            self._check_open()
            (version,) = db.execute("PRAGMA data_version").fetchone()
        except _DRIVER_ERRORS as error:
            raise translate(error, self._path) from error
        finally:
            lock.release()
        before, self._seen_version = self._seen_version, version
        return posted or version != before

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
        runs = self._rows(STATEMENTS["count_runs"], {})
        ((records, snapshots, definitions, payloads, holds, messages, unanswered),) = self._rows(
            STATEMENTS["count_rows"], {}
        )
        by_status: dict[str, int] = {}
        for status, _, count, _ in runs:
            by_status[status] = by_status.get(status, 0) + count
        files = (self._path, self._path.with_name(self._path.name + "-wal"))
        return {
            "runs": by_status,
            "unfinished": sum(count for _, finished, count, _ in runs if not finished),
            "events": sum(events for *_, events in runs),
            "records": records,
            "snapshots": snapshots,
            "definitions": definitions,
            "payloads": payloads,
            "holds": holds,
            "messages": messages,
            "unanswered": unanswered,
            "bytes": sum(file.stat().st_size for file in files if file.exists()),
        }

    @property
    def path(self) -> Path:
        """The file, as others may want to put something beside it."""
        return self._path

    def close(self) -> None:
        with self._reading, self._writing:
            if not self._closed:
                self._closed = True
                self._close_connections()
                self._lock.release()
                self._held.let_go()

    def _close_connections(self) -> None:
        if self._watch.lost is None:  # otherwise SQLite must not move its log into that file
            self._held.unguard()
        elif self._acquired and self._writer is not None:
            save_copy(self._writer, self._path)
        self._reader.close()
        if self._writer is not None:
            self._writer.close()

    # Plumbing

    def _write_all(self, fold: commits.Fold, batch: Batch) -> bool:
        with self._write() as db, wiping(db, bool(batch.sealed), bool(batch.unsealed)):
            db.execute("BEGIN IMMEDIATE")
            fits = commits.write(db, fold, batch)
            db.execute("COMMIT" if fits else "ROLLBACK")
            return fits

    @contextmanager
    def _transaction(self, *, wipe: bool = False) -> Iterator[sqlite3.Connection]:
        """All of it or nothing; whoever rolls back inside has changed their mind. With `wipe`, what
        it frees is overwritten."""
        if self._joining == get_ident():
            assert self._writer is not None
            yield self._writer
            return
        with self._write() as db, wiping(db, sealing=False, unsealing=wipe):
            db.execute("BEGIN IMMEDIATE")
            yield db
            if db.in_transaction:
                db.execute("COMMIT")

    @contextmanager
    def together(self, *, wipe: bool = False) -> Iterator[None]:
        with self._transaction(wipe=wipe):
            self._joining = get_ident()
            try:
                yield
            finally:
                self._joining = 0

    def _execute(self, statement: str, parameters: Mapping[str, Any]) -> int:
        with self._write() as db:
            return db.execute(statement, parameters).lastrowid or 0

    def _rows(self, statement: str, parameters: Mapping[str, Any]) -> list[commits.Row]:
        with self._read() as db:
            return db.execute(statement, parameters).fetchall()

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
            except BaseException as error:
                if self._writer.in_transaction:
                    with suppress(sqlite3.Error):  # the first error is the one to tell
                        self._writer.execute("ROLLBACK")
                if isinstance(error, _DRIVER_ERRORS):
                    raise self._told(error) from error
                raise

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self._reading:
            self._check_open()
            try:
                yield self._reader
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


def _writes(batch: Batch) -> bool:
    """Whether there is anything in it."""
    parts = (batch.commits, batch.payloads, batch.answers, batch.holds, batch.ended, batch.unsealed)
    return any(parts)

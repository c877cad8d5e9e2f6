"""The SQLite file of a catalog: its tables, its transactions, and who else may have it open.

Several processes use one file: the module that keeps it, and the command line. Every change is one
transaction that has the write lock from its beginning; one that waits for it longer than
`BUSY_SECONDS` fails, and nothing has changed. Who looks waits for nobody who writes.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anabranch.errors import InputError, StoreError

APPLICATION_ID = 0x414E4F43  # "ANOC", in the header of every file of ours
VERSION = 1
BUSY_SECONDS = 10.0
_LEAST_BYTES = 512  # of a SQLite file
_NO_FILE = ("", ":memory:")

_TABLES = """
CREATE TABLE offers (
    offer_id             TEXT PRIMARY KEY,
    source               TEXT NOT NULL CHECK (source IN ('local', 'observed')),
    trust_level          TEXT NOT NULL
                         CHECK (trust_level IN ('local', 'explicit', 'federation', 'untrusted')),
    provider             TEXT NOT NULL,
    provider_node        TEXT NOT NULL,
    service_type         TEXT NOT NULL,
    amount               INTEGER NOT NULL,
    sequence             INTEGER NOT NULL,
    withdrawn            INTEGER NOT NULL CHECK (withdrawn IN (0, 1)),
    expires_at           INTEGER NOT NULL,
    source_node_id       TEXT NOT NULL,
    relay_origin_node_id TEXT NOT NULL,
    relay_hops           INTEGER NOT NULL CHECK (relay_hops BETWEEN 0 AND 3),
    do_not_forward       INTEGER NOT NULL CHECK (do_not_forward IN (0, 1)),
    observed_at          INTEGER NOT NULL,
    agora_record_id      TEXT NOT NULL,
    body                 BLOB NOT NULL,
    CHECK ((source = 'local') = (trust_level = 'local'))
);
CREATE INDEX offers_by_service ON offers
    (service_type, source, amount, offer_id, withdrawn, expires_at)
    WHERE trust_level <> 'untrusted';
CREATE INDEX offers_by_provider ON offers
    (provider, source, amount, offer_id, withdrawn, expires_at) WHERE trust_level <> 'untrusted';
CREATE INDEX offers_by_node ON offers
    (provider_node, source, amount, offer_id, withdrawn, expires_at)
    WHERE trust_level <> 'untrusted';
CREATE INDEX offers_by_price ON offers
    (source, amount, offer_id, withdrawn, expires_at) WHERE trust_level <> 'untrusted';
CREATE INDEX offers_unseen ON offers (observed_at, offer_id) WHERE trust_level = 'untrusted';
CREATE INDEX offers_by_end ON offers (expires_at, offer_id) WHERE source = 'observed';

CREATE TABLE trust_facts (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    participant TEXT NOT NULL,
    fact        TEXT NOT NULL CHECK (fact IN ('added', 'removed')),
    at          INTEGER NOT NULL,
    said_by     TEXT NOT NULL,
    note        TEXT NOT NULL
);
CREATE INDEX trust_facts_by_participant ON trust_facts (participant, number);

CREATE TABLE sources (
    node_id    TEXT PRIMARY KEY,
    synced_at  INTEGER NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('ok', 'partial', 'failed')),
    reason     TEXT NOT NULL,
    stored     INTEGER NOT NULL,
    stale      INTEGER NOT NULL,
    rejected   INTEGER NOT NULL
);

CREATE TABLE replay_cursors (
    file     TEXT PRIMARY KEY,
    position INTEGER NOT NULL CHECK (position >= 0),
    head     TEXT NOT NULL,
    stored   INTEGER NOT NULL,
    stale    INTEGER NOT NULL,
    rejected INTEGER NOT NULL,
    ignored  INTEGER NOT NULL,
    at       INTEGER NOT NULL
);

CREATE TABLE diagnostics (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    origin  TEXT NOT NULL,
    subject TEXT NOT NULL,
    code    TEXT NOT NULL,
    message TEXT NOT NULL
);
"""

#: Also in a file of an earlier version, which goes on without it.
_BY_AGE = """
CREATE INDEX IF NOT EXISTS offers_by_age ON offers (observed_at, offer_id)
    WHERE source = 'observed'
"""


class CatalogFile:
    """Two connections, one to write and one to look, that several threads of a process may use one
    after the other. What has no file has one connection for both."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._lock = self._looking = threading.RLock()
        self._db = self._reader = _opened(self.path)
        if self.path not in _NO_FILE:
            self._looking = threading.RLock()
            self._reader = _connected(self.path)
            self._reader.execute("PRAGMA query_only = ON")

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it, or nothing."""
        with self._lock, self._reporting():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def look(self) -> Iterator[sqlite3.Connection]:
        """Reading; what is read in one statement was there at one instant."""
        with self._looking, self._reporting():
            yield self._reader

    def close(self) -> None:
        with self._looking:
            self._reader.close()
        with self._lock:
            self._db.close()

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}", code="catalog_file") from None


def _opened(path: str) -> sqlite3.Connection:
    with suppress(OSError, ValueError):
        if 0 < os.stat(path).st_size < _LEAST_BYTES:  # which SQLite would take for an empty one
            raise InputError(f"{path} is no catalog of offers", code="catalog_file")
    db = _connected(path)
    try:
        _prepare(db, path)
    except sqlite3.DatabaseError as error:
        db.close()
        raise InputError(f"{path} is no catalog of offers: {error}", code="catalog_file") from None
    except BaseException:
        db.close()
        raise
    return db


def _connected(path: str) -> sqlite3.Connection:
    try:
        db = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise InputError(f"{path} cannot be opened: {error}", code="catalog_file") from None
    db.row_factory = sqlite3.Row
    return db


def _prepare(db: sqlite3.Connection, path: str) -> None:
    """Nothing is written into a file that is not ours."""
    db.execute("BEGIN")  # all three as they were at one instant
    application, version, tables = _header(db)
    db.execute("COMMIT")
    if (application, version) != (APPLICATION_ID, VERSION):
        _require_new(path, application, version, tables)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("BEGIN IMMEDIATE")
    if _header(db)[2] == 0:  # no other process has made them meanwhile
        for statement in _TABLES.split(";\n"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute(_BY_AGE)
    db.execute("COMMIT")


def _header(db: sqlite3.Connection) -> tuple[int, int, int]:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return application, version, tables


def _require_new(path: str, application: int, version: int, tables: int) -> None:
    if application == APPLICATION_ID:
        message = f"{path} has version {version} of the catalog, and this program version {VERSION}"
        raise InputError(message, code="catalog_version")
    if application or version or tables:
        message = f"{path} is a SQLite file of another program; name another one"
        raise InputError(message, code="catalog_file")

"""Opening a SQLite file: whose it is, whether it is sound, and bringing its schema up to date.

Nothing is written before the file is known to be ours. The first look reads the header as bytes,
through the descriptor that this process keeps of it (see `held_file`); the second asks SQLite, in a
way that leaves the directory as it was found.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from anabranch.errors import StoreError, StoreInUse, UnusableStore
from anabranch.store.access_ports import AuditEntry
from anabranch.store.relational.errors import COPYING, SOURCE, unfinished_copy
from anabranch.store.sqlite.errors import translate
from anabranch.store.sqlite.file_lock import FileLock
from anabranch.store.sqlite.held_file import HeldFile, hold
from anabranch.store.sqlite.migrate import migrate, pragma
from anabranch.store.statements import load_migrations, load_statements
from anabranch.store_files import APPLICATION_ID

BUSY_SECONDS = 10.0
MIGRATIONS = load_migrations("sqlite")
STATEMENTS = load_statements("sqlite")
TABLES = frozenset(
    {"log", "heads", "snapshots", "definitions", "payloads", "mailbox", "sealed"}
    | {"tokens", "audit", "idempotency", "hooks", "deliveries"}
    | {"work_logs", "run_labels"}
)

# A checkpoint costs some milliseconds and falls on one commit. At 4,000 pages (16 MB) that is one
# commit in many hundreds; a smaller limit stalls more often and copies hot pages again and again,
# and checkpointing from a second thread measured no better.
CHECKPOINT_PAGES = 4000
WAL_BYTES_KEPT = 64 * 1024 * 1024
PAGE_BYTES = 4096

_ALONE = "ro&immutable=1"  # nobody else has the file open: no locks and no side files
NAMELESS = "an engine whose lock file was removed"
_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_PAUSE_SECONDS = 0.01
_USER_VERSION_AT = 60
_APPLICATION_ID_AT = 68


class Ownership:
    """That one engine owns the store: by a file beside it that says who, and by the inode itself.

    The file can be removed, and goes by name; the lock on the inode cannot, and says nothing.
    """

    def __init__(self, held: HeldFile) -> None:
        self._held = held
        self._file = lock_of(held.path)

    def acquire(self, owner: str) -> None:
        self._file.acquire(owner)
        if not self._held.own():
            self._file.release()
            raise StoreInUse(
                f"{self._held.path} is in use by {NAMELESS}: stop that engine first, or send it "
                "your request instead of starting a second one (--server URL, if it serves)"
            )

    def release(self) -> None:
        if self._file.held:
            self._held.disown()
            self._file.release()

    def owner(self) -> str | None:
        return self._file.owner() or (NAMELESS if self._held.owned() else None)


@contextmanager
def reporting(path: Path) -> Iterator[None]:
    """Errors of the driver leave as errors of the store."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path) from error


def prepare(held: HeldFile, *, create: bool, audit: AuditEntry | None = None) -> None:
    """Make sure that there is a sound file with our schema, or say what is there instead. The line
    is written in the transaction that changes the schema, if one does."""
    path = held.path
    with reporting(path):
        version = _version(held) if os.fstat(held.descriptor).st_size else 0
        if version < len(MIGRATIONS) and not create:
            raise UnusableStore(
                f"{path} has schema {version}, this program needs {len(MIGRATIONS)}: open it once "
                "for writing, which upgrades it (`anabranch store migrate`)"
            )
        if version < len(MIGRATIONS):
            _bring_up_to_date(held, version, audit)


def upgrade(path: Path, audit: AuditEntry) -> None:
    """Bring the schema of a file that is there up to date."""
    held = hold(path, create=False)
    try:
        prepare(held, create=True, audit=audit)
    finally:
        held.let_go()


def lock_of(path: Path) -> FileLock:
    """The file beside a store that says who owns it."""
    return FileLock(path.with_name(path.name + ".lock"))


def schema_of(path: Path) -> int:
    """The schema version of a store, however old; any other file is refused, untouched."""
    held = hold(path, create=False)
    try:
        with reporting(path):
            return _version(held)
    finally:
        held.let_go()


def open_writer(path: Path, synchronous: str) -> sqlite3.Connection:
    """The connection for everything that writes; refuses what cannot be written durably."""
    with reporting(path):
        db = _connect(path, "rw")
        try:
            _set_up_writer(db, path, synchronous)
        except BaseException:
            db.close()
            raise
        return db


def open_reader(path: Path) -> sqlite3.Connection:
    with reporting(path):
        # Not mode=ro: such a connection cannot tidy up, and would leave its side files behind.
        db = _connect(path, "rw")
        db.execute("PRAGMA query_only = ON")
        return db


@contextmanager
def wiping(db: sqlite3.Connection, sealing: bool, unsealing: bool) -> Iterator[None]:
    """Around a transaction with secrets in it: what it frees is overwritten with zeros.

    Overwriting costs writes, so it is on for these transactions alone. The write-ahead log still
    has the pages as they were; it is emptied afterwards, at once if nobody is reading just then,
    else by a later transaction of this kind or when the file is closed.
    """
    if not (sealing or unsealing):
        yield
        return
    db.execute("PRAGMA secure_delete = ON")
    try:
        yield
    finally:
        db.execute("PRAGMA secure_delete = OFF")
    if unsealing:
        db.execute("PRAGMA busy_timeout = 0")
        try:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
        finally:
            db.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    db = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA cell_size_check = ON")
        db.execute("PRAGMA cache_size = -4096")  # the first that reads the file
    except BaseException:
        db.close()
        raise
    return db


def _set_up_writer(db: sqlite3.Connection, path: Path, synchronous: str) -> None:
    if _switch_to_log(db) != "wal":
        raise StoreError(
            f"store {path} cannot keep a write-ahead log here: use a local disk, and see that no "
            "other program holds the file",
            code="store_no_wal",
        )
    db.execute(f"PRAGMA synchronous = {synchronous}")
    db.execute("PRAGMA fullfsync = ON")  # only macOS: there a plain sync stops at the disk's cache
    db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
    db.execute("PRAGMA secure_delete = OFF")
    db.execute(
        "BEGIN IMMEDIATE"
    )  # a file we may not write is found out here, not in the first turn
    db.execute("ROLLBACK")


def _switch_to_log(db: sqlite3.Connection) -> str:
    """SQLite does not wait here by itself when several processes open a new file at once."""
    for _ in range(int(BUSY_SECONDS / _PAUSE_SECONDS)):
        try:
            (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return str(mode)
    return "locked by others"


def _version(held: HeldFile) -> int:
    """The schema version of a file of ours; any other file is refused, untouched."""
    path = held.path
    _look_at_header(held)
    if held.in_use:  # by this process, which has looked at it
        return _look(path, "rw")
    how, before = _how_to_look(path), path.stat()
    try:
        return _look(path, how)
    except (sqlite3.Error, UnusableStore):
        after = path.stat()
        unchanged = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        if how != _ALONE or (unchanged and _how_to_look(path) == _ALONE):
            raise
    return _look(path, "rw")  # somebody was writing it just then: look again, and wait for them


def _how_to_look(path: Path) -> str:
    """The way of opening that changes nothing, neither the file nor what stands beside it."""
    if path.with_name(path.name + "-wal").exists():
        return "ro"  # the last writable connection would move this log into the file
    if path.with_name(path.name + "-journal").exists():
        return (
            "rw"  # our creation of the file was interrupted: nothing is known before it is undone
        )
    return _ALONE


def _look(path: Path, how: str) -> int:
    with closing(_connect(path, how)) as db:
        return _look_inside(db, path)


def _look_at_header(held: HeldFile) -> None:
    path = held.path
    try:  # the size first: whoever creates the file may write all of it meanwhile, this page first
        size = os.fstat(held.descriptor).st_size
        header = os.pread(held.descriptor, _HEADER_BYTES, 0)
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error.strerror}", code="store_cannot_open"
        ) from error
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise UnusableStore(
            f"{path} is not a SQLite database, or its header is damaged. It was left untouched: "
            "name another file, or restore this one from a backup."
        )
    application = int.from_bytes(header[_APPLICATION_ID_AT : _APPLICATION_ID_AT + 4], "big")
    version = int.from_bytes(header[_USER_VERSION_AT : _USER_VERSION_AT + 4], "big")
    if not application and not version and size <= PAGE_BYTES:
        return  # perhaps ours, and being created just now: SQLite is asked what is in it
    _check_identity(path, application=application, version=version)


def _look_inside(db: sqlite3.Connection, path: Path) -> int:
    version = pragma(db, "user_version")
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not version and not tables:
        return 0  # its creation was interrupted and has been rolled back
    _check_identity(path, application=pragma(db, "application_id"), version=version)
    if COPYING in tables:
        (source,) = db.execute(SOURCE).fetchone() or ("another store",)
        raise unfinished_copy(str(path), str(source))
    if version == len(MIGRATIONS):
        if not tables >= TABLES:
            missing = ", ".join(sorted(TABLES - tables))
            raise UnusableStore(
                f"{path} claims to be an Anabranch store but lacks the tables {missing}. It was "
                "left untouched: restore it from a backup, or name another file."
            )
        db.execute(STATEMENTS["glance"]).fetchone()
    return version


def _check_identity(path: Path, *, application: int, version: int) -> None:
    if application != APPLICATION_ID:
        raise UnusableStore(
            f"{path} is a SQLite database of another program. It was left untouched: "
            "name another file for the store."
        )
    if version > len(MIGRATIONS):
        raise UnusableStore(
            f"{path} was written by a newer Anabranch (schema {version}, this one knows "
            f"{len(MIGRATIONS)}). It was left untouched: upgrade Anabranch, or name another file."
        )


def _bring_up_to_date(held: HeldFile, version: int, audit: AuditEntry | None) -> None:
    """Create the schema or upgrade it; nobody may be at work in a file that is upgraded."""
    if not version:
        _create_or_upgrade(held.path, audit)
        return
    lock = Ownership(held)
    lock.acquire("an upgrade of the schema")
    try:
        _create_or_upgrade(held.path, audit)
    finally:
        lock.release()


def _create_or_upgrade(path: Path, audit: AuditEntry | None) -> None:
    with closing(_connect(path, "rwc")) as db:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of new files; see sqlite_space
        migrate(db, MIGRATIONS, str(path), lambda: _add_audit(db, audit))


def _add_audit(db: sqlite3.Connection, audit: AuditEntry | None) -> None:
    if audit is not None:
        db.execute(STATEMENTS["add_audit"], msgspec.structs.asdict(audit))

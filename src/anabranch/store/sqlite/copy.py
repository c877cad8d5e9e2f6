"""Copies of a store that others are writing to, and a copy in the place of a store.

Everything goes through a connection and SQLite's own backup interface: a file that is copied byte
by byte while somebody commits is no store. The source is read in one transaction: a copy shows one
moment however long it takes, and a busy writer cannot make it begin again and again.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp

import msgspec

from anabranch.errors import InputError, StoreError, StoreInUse, UnusableStore
from anabranch.store.private_file import PRIVATE
from anabranch.store.sqlite.file import (
    Ownership,
    lock_of,
    open_reader,
    open_writer,
    reporting,
    schema_of,
)
from anabranch.store.sqlite.held_file import hold, size_of
from anabranch.store_files import APPLICATION_ID

PAGES_AT_ONCE = 1024
SIDE_FILES = ("-wal", "-shm", "-journal")
_PROBLEMS_SHOWN = 10
# Where SQLite locks: whoever has the file open in WAL mode holds a shared lock in here.
_LOCK_BYTES_AT = 0x40000000
_LOCK_BYTES = 512

#: Called with the pages that are done and how many there are; may raise to give up.
Progress = Callable[[int, int], None]


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy holds."""

    path: str
    bytes: int
    runs: int
    last_change_at: int | None  # the instant of the newest change to a run


class Restored(Copy, frozen=True, kw_only=True):
    kept_as: str  # where the store is now that was in its place; "" when there was none
    tokens_valid_again: list[str] | None  # revoked since the backup; None: nobody can tell


def backup(store: Path, target: Path, progress: Progress, *, force: bool = False) -> Copy:
    """Put a copy of the store at `target`: whole, checked and on the disk, or not at all."""
    store = Path(os.path.realpath(store))
    _require_free(target, store, force)
    schema_of(store)
    with (
        closing(open_reader(store)) as source,
        reporting(store),
        _one_moment(source),
        _copied_beside(target, source, progress) as made,
    ):
        found = _contents(made)
        _place(made, target, force)
    return msgspec.structs.replace(found, path=str(target))


def restore(source_path: Path, store: Path, progress: Progress) -> Restored:
    """Put the content of a backup in the place of a store that no engine owns."""
    store = Path(os.path.realpath(store))
    if source_path.exists() and store.exists() and source_path.samefile(store):
        raise InputError(f"{source_path} is the store itself: name a backup of it", code="usage")
    size_of(store)  # refuses what is no file, and a directory that is not there
    schema_of(source_path)
    if _of_another_program(store):
        raise UnusableStore(
            f"{store} is a SQLite database of another program. It was left untouched: "
            "name another file for the store."
        )
    with (
        _owning(store, "a restore from a backup"),
        closing(open_reader(source_path)) as source,
        _one_moment(source),
    ):
        with reporting(source_path):
            _require_intact(source, source_path)
        return _restored(source, store, progress)


@contextmanager
def _owning(store: Path, what: str) -> Iterator[None]:
    """No engine begins on the store meanwhile; raises `StoreInUse` where there is one."""
    held = hold(store, create=False) if size_of(store) else None
    try:
        lock = Ownership(held) if held is not None else lock_of(store)
        lock.acquire(what)
        try:
            yield
        finally:
            lock.release()
    finally:
        if held is not None:
            held.let_go()


def _restored(source: sqlite3.Connection, store: Path, progress: Progress) -> Restored:
    kept = _unused(store.with_name(f"{store.name}.before-restore-{_stamp()}"))
    revoked = _copied_aside(store, kept)
    if revoked is not None:
        with reporting(store):
            _overwrite(source, store, progress)
    else:  # there is none, or SQLite cannot read it any more
        _replace_file(source, store, kept, progress)
    with reporting(store):
        found, valid = _contents(store), _tokens(store, "revoked_at IS NULL")
    return Restored(
        path=str(store),
        kept_as=str(kept) if kept.exists() else "",
        tokens_valid_again=None if revoked is None else sorted(revoked & valid),
        bytes=found.bytes,
        runs=found.runs,
        last_change_at=found.last_change_at,
    )


# -- the source ------------------------------------------------------------------------------


@contextmanager
def _one_moment(db: sqlite3.Connection) -> Iterator[None]:
    """Everything that is read inside is of the moment at which this begins."""
    db.execute("BEGIN")
    try:
        db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
        yield
    finally:
        db.execute("ROLLBACK")


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, progress: Progress) -> None:
    def told(_status: int, remaining: int, total: int) -> None:
        progress(total - remaining, total)

    source.backup(target, pages=PAGES_AT_ONCE, progress=told)


def _require_intact(db: sqlite3.Connection, path: Path, how: str = "integrity_check") -> None:
    rows = db.execute(f"PRAGMA {how}({_PROBLEMS_SHOWN})").fetchall()
    found = [str(row[0]) for row in rows if row[0] != "ok"]
    if found:
        said = "; ".join(" ".join(line.split()) for line in found)
        raise UnusableStore(f"{path} is damaged: {said:.400}. Nothing was changed.")


def _of_another_program(path: Path) -> bool:
    """Looked at in a way that takes no lock and makes no file. What SQLite cannot read is no
    sound database of anybody."""
    if not size_of(path):
        return False
    address = f"{path.as_uri()}?mode=ro&immutable=1"
    with suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True)) as db:
        (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        (application,) = db.execute("PRAGMA application_id").fetchone()
        return bool(tables) and application != APPLICATION_ID
    return False


def _contents(path: Path) -> Copy:
    with closing(open_reader(path)) as db:
        runs, last = db.execute("SELECT count(*), max(updated_at) FROM heads").fetchone()
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    return Copy(path=str(path), bytes=pages * size, runs=runs, last_change_at=last)


def _tokens(path: Path, condition: str) -> frozenset[str]:
    statement = f"SELECT id FROM tokens WHERE {condition}"
    # An error: its schema is older than tokens.
    with closing(open_reader(path)) as db, suppress(sqlite3.OperationalError):
        return frozenset(token for (token,) in db.execute(statement))
    return frozenset()


# -- a file of its own -----------------------------------------------------------------------


@contextmanager
def _copied_beside(target: Path, source: sqlite3.Connection, progress: Progress) -> Iterator[Path]:
    """A checked copy in one file, on the disk, beside the target; removed if still there."""
    try:
        descriptor, name = mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise StoreError(
            f"cannot write beside {target}: {error.strerror}", code="store_cannot_open"
        ) from error
    os.fchmod(descriptor, PRIVATE)
    os.close(descriptor)
    made = Path(name)
    try:
        with reporting(made):
            _write_copy(made, source, progress)
        yield made
    finally:
        for suffix in ("", *SIDE_FILES):
            made.with_name(made.name + suffix).unlink(missing_ok=True)


def _write_copy(made: Path, source: sqlite3.Connection, progress: Progress) -> None:
    with closing(sqlite3.connect(made, isolation_level=None)) as copy:
        copy.execute("PRAGMA synchronous = OFF")  # synced as a whole, below
        _copy(source, copy, progress)
    with closing(sqlite3.connect(made, isolation_level=None)) as copy:
        copy.execute("PRAGMA journal_mode = DELETE").fetchone()  # one file, without a log beside it
        _require_intact(copy, made, "quick_check")
    _sync(made)


def _place(made: Path, target: Path, force: bool) -> None:
    try:
        if force:
            os.replace(made, target)
        else:
            _place_new(made, target)
        _sync(target.parent)
    except FileExistsError:
        raise _is_there(target) from None
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror}", code="store_io") from error


def _place_new(made: Path, target: Path) -> None:
    """The name is taken first, which fails where there is a file meanwhile: a rename would not."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE))
    os.replace(made, target)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_free(target: Path, store: Path, force: bool) -> None:
    """Before anything is copied. A store that somebody uses is never overwritten."""
    if not size_of(target) and not target.exists():
        return
    if store.exists() and target.samefile(store):
        raise InputError(f"{target} is the store itself: name another file", code="usage")
    if not force:
        raise _is_there(target)
    if lock_of(Path(os.path.realpath(target))).owner() or any(
        target.with_name(target.name + suffix).exists() for suffix in SIDE_FILES
    ):
        raise StoreInUse(
            f"{target} is a database in use: it is not overwritten, also not with --force. Name "
            "another file."
        )


def _is_there(target: Path) -> InputError:
    return InputError(
        f"{target} is there already: name another file, or say --force to replace it",
        code="file_exists",
    )


# -- in the place of a store -----------------------------------------------------------------


def _copied_aside(store: Path, kept: Path) -> frozenset[str] | None:
    """Keep the store under another name; its revoked tokens. None: there is none to be read."""
    if not size_of(store):
        return None
    try:
        with (
            closing(_open_untouched(store)) as old,
            reporting(store),
            _one_moment(old),
            closing(_new_private(kept)) as copy,
        ):
            _copy(old, copy, lambda _done, _total: None)
            copy.execute("PRAGMA journal_mode = DELETE").fetchone()
        _sync(kept)
        _sync(kept.parent)
        with reporting(store):
            return _tokens(store, "revoked_at IS NOT NULL")
    except (UnusableStore, sqlite3.DatabaseError):
        for suffix in ("", *SIDE_FILES):
            kept.with_name(kept.name + suffix).unlink(missing_ok=True)
        return None


def _open_untouched(path: Path) -> sqlite3.Connection:
    """Closing the last connection that may write removes the log, also one of a file that cannot
    be read any more and whose log is all there is of it."""
    return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)


def _new_private(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE))
    return sqlite3.connect(path, isolation_level=None)


def _overwrite(source: sqlite3.Connection, store: Path, progress: Progress) -> None:
    """In one transaction of the file that is there: whoever reads it sees the old or the new, and
    no file is pulled away under them."""
    with closing(open_writer(store, "FULL")) as target:
        _copy(source, target, progress)
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _replace_file(source: sqlite3.Connection, store: Path, kept: Path, progress: Progress) -> None:
    """For a file that SQLite cannot open. Its log goes with it: beside another file it would be
    taken for the log of that one."""
    with _copied_beside(store, source, progress) as made, _nobody_inside(store):
        try:
            for suffix in ("", *SIDE_FILES):
                old = store.with_name(store.name + suffix)
                if old.exists():
                    old.rename(kept.with_name(kept.name + suffix))
            made.rename(store)
            _sync(store.parent)
        except OSError as error:
            raise StoreError(
                f"cannot replace {store}: {error.strerror}", code="store_io"
            ) from error


@contextmanager
def _nobody_inside(store: Path) -> Iterator[None]:
    """Raises when another process has the file open; keeps others out meanwhile."""
    try:
        descriptor = os.open(store, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    except OSError as error:
        raise StoreError(f"cannot open {store}: {error.strerror}", code="store_io") from error
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_BYTES, _LOCK_BYTES_AT)
        except OSError:
            raise StoreInUse(
                f"another process has {store} open: end it first, then restore again"
            ) from None
        yield
    finally:
        os.close(descriptor)


def _stamp() -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def _unused(path: Path) -> Path:
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free

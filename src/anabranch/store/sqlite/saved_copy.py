"""The last copy of a store whose files were taken away, from the process that still has them open.

A file that was removed is there until the last descriptor of it is closed. So before an engine
that has lost its files lets go of them, it writes what it can still read to a file beside the old.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

log = logging.getLogger("anabranch.store")


def save_copy(db: sqlite3.Connection, path: Path) -> Path | None:
    """Where the copy is; None when there is none. Whatever goes wrong is logged, not raised."""
    target = path.with_name(f"{path.name}.saved-{os.getpid()}")
    try:
        _require_room(db, path.parent)
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            _write(db, target)
        except BaseException:
            with suppress(OSError):
                target.unlink()
            raise
    except (sqlite3.Error, OSError) as error:
        log.error("of the store %s that was lost no copy could be saved: %s", path, error)
        return None
    log.error("everything that was acknowledged in the store %s is saved as %s", path, target)
    return target


def _write(db: sqlite3.Connection, target: Path) -> None:
    with closing(sqlite3.connect(target)) as copy:
        db.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log
        (sound,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        if sound != "ok":
            raise sqlite3.DatabaseError(f"it is damaged ({sound})")


def _require_room(db: sqlite3.Connection, folder: Path) -> None:
    ((pages,), (page,)) = (
        db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
    )
    import shutil  # few copies are saved, and it loads all that compresses

    free = shutil.disk_usage(folder).free
    if pages * page > free:
        raise OSError(f"it needs {pages * page:,} bytes and {free:,} are free")

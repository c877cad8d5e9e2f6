"""Stores of Anabranch and copies of them, as their main file says.

What lies beside a database of SQLite under its name (`-wal`, `-shm`, `-journal`) is a part of it:
SQLite believes it, and shows pages of a log in place of those of the main file. So the main file is
asked alone, and whatever would be beside a store is as private as the store.

It is read by SQLite, as a file that cannot change: that neither needs a lock nor, where a task of
this process has the file open, takes its locks away, as opening and closing it otherwise would.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing, suppress
from urllib.parse import quote

from anabranch.store_files import APPLICATION_ID, is_store_file


def holds_store(path: str) -> bool:
    """Whether that is a store or a copy of one, whatever lies beside it, also one that nobody has
    open or that was cut short."""
    with suppress(OSError, ValueError):
        about = os.stat(path, follow_symlinks=False)
        if is_store_file(about):
            return True
        return stat.S_ISREG(about.st_mode) and _application_id(path) == APPLICATION_ID
    return False


def _application_id(path: str) -> int:
    """Of what is no database: none."""
    address = f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1"
    with suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True)) as database:
        database.execute("PRAGMA writable_schema = ON")  # shows what is left of one cut short
        (found,) = database.execute("PRAGMA application_id").fetchone()
        return int(found)
    return 0

"""SQLite's error codes as our errors, each with the next step for the reader.

By code, never by text: texts change with the library.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from anabranch.errors import StoreError, UnusableStore
from anabranch.store.relational.errors import CONSTRAINT

_PRIMARY = 0xFF  # the low byte of an extended code is the kind of error

# kind → (code for machines, what to do)
_ADVICE = {
    sqlite3.SQLITE_BUSY: (
        "store_busy",
        "another process kept it locked for too long. Look for a long write or a backup tool; "
        "then try again.",
    ),
    sqlite3.SQLITE_FULL: (
        "store_full",
        "the disk is full. Nothing of this write was stored; free some space and try again.",
    ),
    sqlite3.SQLITE_READONLY: (
        "store_read_only",
        "it cannot be written. Check the permissions of the file and of its directory.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "store_cannot_open",
        "it cannot be opened. Check the path and the permissions of the file and its directory.",
    ),
    sqlite3.SQLITE_IOERR: (
        "store_io",
        "the disk reported an error. Check the disk and the system's log before going on.",
    ),
    sqlite3.SQLITE_TOOBIG: (
        "store_too_big",
        "a value is larger than SQLite can hold (1 GB). Keep such content outside the store.",
    ),
    sqlite3.SQLITE_CONSTRAINT: (
        CONSTRAINT,
        "a value breaks a rule of the schema. Nothing was written; this is a bug: report it.",
    ),
}
_ADVICE[sqlite3.SQLITE_LOCKED] = _ADVICE[sqlite3.SQLITE_BUSY]
_ADVICE[sqlite3.SQLITE_PERM] = _ADVICE[sqlite3.SQLITE_READONLY]
_ADVICE[sqlite3.SQLITE_AUTH] = _ADVICE[sqlite3.SQLITE_READONLY]

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def translate(error: Exception, path: Path) -> StoreError:
    """What a caller of the store is told about an error of the driver."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # the driver itself refuses: the value has no place in SQLite
        return StoreError(
            f"store {path}: a value cannot be stored ({error}); nothing was written",
            code="store_value",
        )
    kind = code & _PRIMARY
    name = getattr(error, "sqlite_errorname", "")
    if kind in _DAMAGED:
        return UnusableStore(
            f"{path} is damaged ({name}): {error}. Restore it from a backup, or save what can be "
            f"read with the sqlite3 program's .recover command."
        )
    if kind in _ADVICE:
        machine_code, advice = _ADVICE[kind]
        return StoreError(f"store {path}: {advice} ({name}: {error})", code=machine_code)
    return StoreError(f"store {path}: unexpected error {name}: {error}")

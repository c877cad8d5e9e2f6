"""Unused space in the file of a store: given back in short steps, or all at once by a rebuild.

New stores keep the books that `incremental_vacuum` needs; those of older versions get them with a
rebuild. In WAL mode the file itself becomes shorter with the next checkpoint.
"""

from __future__ import annotations

import sqlite3

from anabranch.store.ports import Space

_INCREMENTAL = 2


def give_back(db: sqlite3.Connection, most: int) -> Space:
    """One transaction of its own; a writer beside it waits for no more than `most` bytes."""
    page, free = _pragma(db, "page_size"), _pragma(db, "freelist_count")
    if _pragma(db, "auto_vacuum") != _INCREMENTAL:
        return Space(unused=free * page, in_steps=False)
    if not free:
        return Space()
    before = _pragma(db, "page_count")
    # It frees one page a row, and its rows have no columns: the driver's `execute` would stop after
    # the first. A script is run to its end.
    db.executescript(f"PRAGMA incremental_vacuum({max(1, most // page)})")
    left = _pragma(db, "freelist_count")
    if not left:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return Space(given_back=(before - _pragma(db, "page_count")) * page, unused=left * page)


def compact(db: sqlite3.Connection) -> tuple[int, int]:
    """Rebuild the file; its bytes before and after. Takes as much room again while it lasts."""
    page = _pragma(db, "page_size")
    before = _pragma(db, "page_count")
    db.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
    db.execute("VACUUM")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return before * page, _pragma(db, "page_count") * page


def _pragma(db: sqlite3.Connection, name: str) -> int:
    (value,) = db.execute(f"PRAGMA {name}").fetchone()
    return int(value)

"""Deleting what is not needed any more from a SQLite store, inside a transaction of the caller."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from anabranch.store.ports import Batch, Forgotten, Hold
from anabranch.store.sqlite.file import STATEMENTS
from anabranch.store.statements import positional

_HOLD = positional(STATEMENTS["hold"], ("sha256", "run", "scope", "until"))
_DROP = positional(STATEMENTS["drop_hold"], ("sha256", "run", "scope"))
_FORGET = ("forget_log", "forget_snapshots", "forget_messages", "forget_heads")

Key = tuple[str, str, str]  # sha256, run, scope


def write_holds(db: sqlite3.Connection, holds: Iterable[Hold]) -> None:
    db.executemany(_HOLD, [msgspec.structs.astuple(hold) for hold in holds])


def write_ends(db: sqlite3.Connection, batch: Batch) -> None:
    """Runs that end in this batch let go of what they held."""
    rows = [{"run": run, "now": now, "until": end} for run, (now, end) in batch.ended.items()]
    db.executemany(STATEMENTS["end_steps"], rows)
    db.executemany(STATEMENTS["end_execution"], rows)


def drop(db: sqlite3.Connection, keys: Sequence[Key]) -> tuple[int, int]:
    """Drop holds, and the payloads they were the last on: how many, and their bytes."""
    db.executemany(_DROP, keys)
    hashes = {"hashes": _json({sha256 for sha256, _, _ in keys})}
    count, size = db.execute(STATEMENTS["unheld"], hashes).fetchone()
    db.execute(STATEMENTS["drop_unheld"], hashes)
    return count, size


def forget(db: sqlite3.Connection, runs: Sequence[str]) -> Forgotten:
    """Delete those of the runs that have finished."""
    wanted = {"runs": _json(set(runs))}
    finished = [run for (run,) in db.execute(STATEMENTS["finished_of"], wanted)]
    gone = {"runs": _json(finished)}
    payloads, size = drop(db, db.execute(STATEMENTS["held_by"], gone).fetchall())
    size += sum(db.execute(STATEMENTS["weight"], gone).fetchone())
    for name in _FORGET:
        db.execute(STATEMENTS[name], gone)
    return Forgotten(len(finished), payloads, size)


def _json(texts: Iterable[str]) -> str:
    return msgspec.json.encode(sorted(texts)).decode()

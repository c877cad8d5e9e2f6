"""Ways to damage the rows of one run in a store, each as a disk or a hand at the file would."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

Damage = tuple[str, tuple[object, ...]]

#: name → (statement with the run as its last parameter, its other parameters)
DAMAGES: dict[str, Damage] = {
    "truncated row": (
        "UPDATE log SET events = substr(events, 1, length(events) / 2) WHERE run = ?",
        (),
    ),
    "no JSON": ("UPDATE log SET events = x'93a4ff00' WHERE run = ?", ()),
    "not UTF-8": ("UPDATE log SET events = CAST('[[\"' || x'ff' AS BLOB) WHERE run = ?", ()),
    "unknown event": ("UPDATE log SET events = ? WHERE run = ?", (b'[["run.dreamt", 1]]',)),
    "wrong sequence": ("UPDATE log SET last_seq = last_seq + 7 WHERE run = ?", ()),
    "wrong count": ("UPDATE log SET count = count + 1, last_seq = last_seq + 1 WHERE run = ?", ()),
    "no log": ("DELETE FROM log WHERE run = ?", ()),
    "head ahead of its log": ("UPDATE heads SET seq = seq + 1 WHERE run = ?", ()),
    "unknown status": ("UPDATE heads SET status = ? WHERE run = ?", ("dreaming",)),
    "status no text": ("UPDATE heads SET status = CAST(x'ff80' AS TEXT) WHERE run = ?", ()),
    "labels no JSON": ("UPDATE heads SET labels = '{\"a\"}' WHERE run = ?", ()),
    "snapshot garbage": (
        "INSERT OR REPLACE INTO snapshots (seq, state, run) VALUES (1, x'00ff', ?)",
        (),
    ),
    "snapshot of another moment": (
        "INSERT OR REPLACE INTO snapshots (seq, state, run) VALUES (1, ?, ?)",
        (b'{"run": "other", "seq": 9}',),
    ),
}


def damage(path: Path, run: str, how: str) -> None:
    statement, values = DAMAGES[how]
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute(statement, (*values, run)).rowcount > 0, how

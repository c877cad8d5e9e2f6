"""Deleting what is not needed any more, inside a transaction of the caller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from anabranch.store.ports import Batch, Forgotten, Hold
from anabranch.store.relational.connection import Connection, Row
from anabranch.store.relational.rows import label_rows, labels_in

_FORGET = (
    *("forget_log", "forget_snapshots", "forget_messages", "forget_heads", "forget_work_logs"),
    "forget_places",
)

Key = tuple[str, str, str]  # sha256, run, scope
Statements = Mapping[str, str]


def write_holds(db: Connection, sql: Statements, holds: Iterable[Hold]) -> None:
    db.executemany(sql["hold"], [msgspec.structs.asdict(hold) for hold in holds])


def write_ends(db: Connection, sql: Statements, batch: Batch) -> None:
    """Runs that end in this batch let go of what they held."""
    rows = [{"run": run, "now": now, "until": end} for run, (now, end) in batch.ended.items()]
    db.executemany(sql["end_steps"], rows)
    db.executemany(sql["end_execution"], rows)


def drop(db: Connection, sql: Statements, keys: Sequence[Key]) -> tuple[int, int]:
    """Drop holds, and the payloads they were the last on: how many, and their bytes."""
    names = ("sha256", "run", "scope")
    db.executemany(sql["drop_hold"], [dict(zip(names, key, strict=True)) for key in keys])
    hashes = {"hashes": _json({sha256 for sha256, _, _ in keys})}
    count, size = db.execute(sql["unheld"], hashes).fetchone()
    db.execute(sql["drop_unheld"], hashes)
    return count, size


def forget(db: Connection, sql: Statements, runs: Sequence[str]) -> Forgotten:
    """Delete those of the runs that have finished."""
    wanted = {"runs": _json(set(runs))}
    finished = [run for (run,) in db.execute(sql["finished_of"], wanted).fetchall()]
    gone = {"runs": _json(finished)}
    payloads, size = drop(db, sql, db.execute(sql["held_by"], gone).fetchall())
    size += sum(db.execute(sql["weight"], gone).fetchone())
    size += db.execute(sql["weight_of_logs"], gone).fetchone()[0]
    labelled = db.execute(sql["labels_of"], gone).fetchall()
    db.executemany(sql["forget_label"], [each for row in labelled for each in _labels(row)])
    for name in _FORGET:
        db.execute(sql[name], gone)
    return Forgotten(len(finished), payloads, size)


def _labels(row: Row) -> Iterator[dict[str, Any]]:
    run, created_at, stored = row
    for each in label_rows(run, created_at, labels_in(stored)):
        yield dict(zip(("label", "labelled_at", "labelled_run"), each, strict=True))


def _json(texts: Iterable[str]) -> str:
    return msgspec.json.encode(sorted(texts)).decode()

"""Bringing the schema of a file up to date, in one transaction that says how long it takes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from anabranch.store.relational.rows import label_numbers, labels_in
from anabranch.store.statements import Progress
from anabranch.store_files import APPLICATION_ID

_STEPS_BETWEEN_CALLS = 1_000_000  # of SQLite's machine: some milliseconds


def migrate(
    db: sqlite3.Connection,
    migrations: Sequence[str],
    shown: str = "",
    add: Callable[[], None] = lambda: None,
) -> None:
    """Apply what is missing and `add` to it, all of it or nothing; another process may have been
    faster."""
    db.execute("BEGIN IMMEDIATE")
    version = pragma(db, "user_version")
    with _told(db, Progress(shown, version, len(migrations))):
        for migration in migrations[version:]:
            for statement in _statements(migration):
                db.execute(statement)
    if version < len(migrations):
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {len(migrations)}")
        add()
    db.execute("COMMIT")


@contextmanager
def _told(db: sqlite3.Connection, progress: Progress) -> Iterator[None]:
    """Says now and then that it goes on. The functions that migrations call are there meanwhile."""

    def numbers(stored: str) -> str:
        progress.runs += 1
        return msgspec.json.encode(label_numbers(labels_in(stored))).decode()

    db.create_function("label_numbers", 1, numbers, deterministic=True)
    db.set_progress_handler(progress.tell, _STEPS_BETWEEN_CALLS)
    try:
        yield
    finally:
        db.set_progress_handler(None, 0)
        db.create_function("label_numbers", 1, None)


def pragma(db: sqlite3.Connection, name: str) -> int:
    (value,) = db.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def _statements(script: str) -> Iterator[str]:
    """Each starts on a line of its own. (`executescript` would leave the transaction.)"""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        raise ValueError(f"a migration ends inside a statement: {statement}")

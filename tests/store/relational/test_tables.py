"""What the description of the tables leaves out is left out on purpose: a new table or column must
be copied, or be one that every database makes by itself."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from anabranch.store.relational.tables import EVERY_TABLE, NODE_TABLES, Table
from anabranch.store.sqlite.store import SqliteStore

psycopg: Any = pytest.importorskip("psycopg")

#: Servers and what they own; who is signed in at a page; how far webhooks are, which is translated.
NOT_COPIED = {
    "cluster", "servers", "partitions", "hook_cursors", "browser_sessions", "sqlite_sequence",
}  # fmt: skip
MADE_ANEW = {
    "log": {"position", "partition", "number"},
    "heads": {"partition"},
    "mailbox": {"partition", "nonce"},
    "hooks": {"cursor"},
}


def left_out(found: dict[str, set[str]], tables: Sequence[Table]) -> dict[str, set[str]]:
    described = {table.name: set(table.columns) for table in tables}
    assert described.keys() <= found.keys()
    forgotten = {
        name: columns - described.get(name, set()) - MADE_ANEW.get(name, set())
        for name, columns in found.items()
        if name not in NOT_COPIED
    }
    return {name: columns for name, columns in forgotten.items() if columns}


def test_every_column_of_a_file_is_copied_or_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as db:
        query = "SELECT name FROM sqlite_schema WHERE type = 'table'"
        names = [name for (name,) in db.execute(query)]
        found = {
            name: {row[1] for row in db.execute(f"PRAGMA table_info({name})")} for name in names
        }
    assert left_out(found, (*EVERY_TABLE, *NODE_TABLES)) == {}


def test_every_column_on_postgresql_is_copied_or_made_anew(postgres: str) -> None:
    from anabranch.store.postgres.store import PostgresStore

    name = f"tables_{secrets.token_hex(6)}"
    joint = "&" if "?" in postgres else "?"
    PostgresStore(f"{postgres}{joint}schema={name}", partitions=1).close()
    query = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s"
    found: dict[str, set[str]] = {}
    with psycopg.connect(postgres) as db:
        for table, column in db.execute(query, (name,)):
            found.setdefault(table, set()).add(column)
    assert left_out(found, EVERY_TABLE) == {}

"""The schema, how it is reached, and how the hot statements use it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import StoreInUse, UnusableStore
from anabranch.store import statements
from anabranch.store.ports import HeadFilter
from anabranch.store.sqlite import file
from anabranch.store.sqlite import migrate as migrating
from anabranch.store.sqlite.file import MIGRATIONS, STATEMENTS, TABLES
from anabranch.store.sqlite.migrate import migrate
from anabranch.store.sqlite.store import SqliteStore
from anabranch.store_files import APPLICATION_ID
from anabranch.testing.store_suite.samples import a_batch, a_commit, a_head, refused
from anabranch.testing.store_suite.streams import a_stream

SECOND = """
-- What a next release might bring.
ALTER TABLE heads ADD COLUMN region TEXT NOT NULL DEFAULT 'a;b';
CREATE INDEX heads_region ON heads (region) WHERE finished = 0;
"""


def memory() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None)


def shape(db: sqlite3.Connection) -> dict[str, Any]:
    """Tables, columns, keys and indexes; not the text they were written in."""
    names = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    found: dict[str, Any] = {"version": db.execute("PRAGMA user_version").fetchone()}
    for (table,) in names:
        indexes = db.execute(f"PRAGMA index_list({table})").fetchall()
        found[table] = {
            "kind": db.execute(f"PRAGMA table_list({table})").fetchall(),
            "columns": db.execute(f"PRAGMA table_xinfo({table})").fetchall(),
            "indexes": sorted(index[1:] for index in indexes),
            "keys": {i[1]: db.execute(f"PRAGMA index_xinfo({i[1]})").fetchall() for i in indexes},
        }
    partial = "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
    return {
        **found,
        "where": {name: sql.partition("WHERE")[2] for name, sql in db.execute(partial)},
    }


@pytest.mark.parametrize("migrations", [MIGRATIONS, [*MIGRATIONS, SECOND]], ids=["ours", "next"])
def test_upgrading_reaches_the_same_schema_as_installing(migrations: list[str]) -> None:
    with closing(memory()) as upgraded, closing(memory()) as installed:
        for number in range(1, len(migrations) + 1):
            migrate(upgraded, migrations[:number])
        migrate(installed, migrations)
        assert shape(upgraded) == shape(installed)
        assert set(shape(installed)) >= TABLES


def test_an_upgrade_keeps_the_log_and_gives_its_rows_positions_in_their_order() -> None:
    rows = [("r2", 1, 1, 5, b"[0]"), ("r1", 2, 2, 6, b"[0,1]"), ("r2", 2, 1, 7, b"[2]")]
    with closing(memory()) as db:
        migrate(db, MIGRATIONS[:5])
        db.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?)", rows)
        migrate(db, MIGRATIONS)
        found = db.execute("SELECT position, run, last_seq, count, at, events FROM log")
        assert found.fetchall() == [(n, *row) for n, row in enumerate(rows, 1)]
        assert db.execute(STATEMENTS["positions"]).fetchone() == (0, 3)


def test_a_migration_that_fails_leaves_the_schema_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        migrate(db, MIGRATIONS)
        before = shape(db)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        with pytest.raises(sqlite3.OperationalError):
            migrate(db, [*MIGRATIONS, "CREATE TABLE extra (a);\nCREATE TABLE heads (a);"])
        db.rollback()
        assert shape(db) == before


def test_an_older_file_is_upgraded_with_its_content_unless_somebody_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    with closing(SqliteStore(path)) as old:
        old.acquire("the old engine")
        old.commit(a_batch(a_commit("r1", 1)))
        monkeypatch.setattr(file, "MIGRATIONS", [*MIGRATIONS, SECOND])
        with refused(StoreInUse, "the old engine"):
            SqliteStore(path)
    with refused(UnusableStore, "open it once for writing"):
        SqliteStore(path, read_only=True)
    with closing(SqliteStore(path)) as new:
        assert new.head("r1") == a_head("r1", 1)
        assert new.owner() is None
    monkeypatch.undo()
    with refused(UnusableStore, "newer Anabranch"):
        SqliteStore(path)


def test_a_file_says_whose_it_is_and_keeps_a_durable_log(tmp_path: Path) -> None:
    for number, (synchronous, level) in enumerate((("FULL", 2), ("NORMAL", 1))):
        path = tmp_path / f"{number}.db"
        with closing(SqliteStore(path, synchronous=synchronous)) as store:  # type: ignore[arg-type]
            assert store._writer is not None
            assert store._writer.execute("PRAGMA synchronous").fetchone() == (level,)
            assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        header = path.read_bytes()[:100]
        assert int.from_bytes(header[68:72], "big") == APPLICATION_ID
        assert int.from_bytes(header[60:64], "big") == len(MIGRATIONS)


def plan(statement: str, parameters: Mapping[str, Any] | None = None) -> str:
    names = dict.fromkeys(statements.parameters(statement))
    rows = explaining().execute(f"EXPLAIN QUERY PLAN {statement}", parameters or names)
    return "\n".join(detail for *_, detail in rows)


@cache
def explaining() -> sqlite3.Connection:
    """One database for all plans: nothing is written into it."""
    db = memory()
    migrate(db, MIGRATIONS)
    return db


@pytest.mark.parametrize(
    ("name", "uses"),
    [
        ("due", "USING INDEX heads_due (next_wake>? AND next_wake<?)"),
        ("unfinished", "USING INDEX heads_unfinished (run>?)"),
        ("head", "USING INDEX sqlite_autoindex_heads_1 (run=?)"),
        ("read", "USING INDEX sqlite_autoindex_log_1 (run=? AND last_seq>?)"),
        ("read_tails", "SEARCH log USING INDEX sqlite_autoindex_log_1 (run=? AND last_seq>?)"),
        ("read_snapshots", "SEARCH snapshots USING INDEX sqlite_autoindex_snapshots_1 (run=?)"),
        ("unanswered", "USING INDEX mailbox_unanswered"),
        ("feed", "USING INTEGER PRIMARY KEY (rowid>?)"),
        ("due_deliveries", "USING INDEX deliveries_due (hook=? AND due>? AND due<?)"),
        ("settle_delivery", "sqlite_autoindex_deliveries_1 (hook=? AND run=? AND seq=?)"),
        ("move_head", "USING INDEX sqlite_autoindex_heads_1 (run=?)"),
        ("finish_head", "USING INDEX sqlite_autoindex_heads_1 (run=?)"),
        ("answer_message", "USING INTEGER PRIMARY KEY (rowid=?)"),
        ("move_stream", "USING INDEX sqlite_autoindex_streams_1 (stream=?)"),
        ("turn_stream", "USING INDEX sqlite_autoindex_streams_1 (stream=?)"),
        ("stream_events", "sqlite_autoindex_stream_events_1 (stream=? AND last_seq>?)"),
        ("record", "USING PRIMARY KEY (family=? AND name=?)"),
        ("records", "USING PRIMARY KEY (family=? AND name>?)"),
        ("due_records", "USING INDEX named_records_due (family=? AND due<?)"),
        ("change_records", "SEARCH named_records USING PRIMARY KEY (family=? AND name=?)"),
        ("open_streams", "USING INDEX streams_open (stream>?)"),
        ("stream_names", "USING COVERING INDEX sqlite_autoindex_streams_1 (stream>?)"),
        ("closed_streams", "USING INDEX streams_closed (family=? AND updated_at<?)"),
    ],
)
def test_a_hot_statement_is_served_by_its_index(name: str, uses: str) -> None:
    found = plan(STATEMENTS[name])
    assert uses in found
    if name not in ("read_tails", "read_snapshots"):  # these sort a few rows per run they ask for
        assert "TEMP B-TREE" not in found
    assert not [line for line in found.splitlines() if line.startswith("SCAN") and "heads" in line]


@pytest.mark.parametrize(
    ("conditions", "uses"),
    [
        ([], "SCAN heads USING INDEX heads_newest"),
        (["before"], "USING INDEX heads_newest ((created_at,run)<(?,?))"),
        (["statuses", "dialect", "labels"], "SCAN heads USING INDEX heads_newest"),
        (["parent"], "USING INDEX heads_children (parent=?)"),
        (["parent", "name"], "USING INDEX heads_children (parent=?)"),
        (["name"], "USING INDEX heads_of_name (name=?)"),
        (["statuses", "name", "before"], "heads_of_name (name=? AND (created_at,run)<(?,?))"),
        (["name", "created_after"], "USING INDEX heads_of_name (name=? AND created_at>?)"),
        (["not_redriven"], "heads_of_origin (origin=?)"),
        (["run_prefix"], "USING INDEX sqlite_autoindex_heads_1 (run>? AND run<?)"),
    ],
)
def test_a_listing_is_served_by_the_best_index(conditions: list[str], uses: str) -> None:
    parts = ["list", *(f"list_{name}" for name in conditions), "list_order"]
    found = plan("\n".join(STATEMENTS[part] for part in parts))
    assert uses in found
    assert "TEMP B-TREE" not in found or "run_prefix" in conditions


@pytest.mark.parametrize("conditions", [["labels"], ["labels", "name", "before", "statuses"]])
def test_a_listing_by_label_reads_its_runs_in_order(conditions: list[str]) -> None:
    parts = ["labelled", *(f"list_{name}" for name in conditions), "labelled_order"]
    found = plan("\n".join(STATEMENTS[part] for part in parts))
    assert "SEARCH run_labels USING PRIMARY KEY (label=? AND labelled_at>?" in found
    assert "SEARCH heads USING INDEX sqlite_autoindex_heads_1 (run=?)" in found
    assert "TEMP B-TREE" not in found


def test_labels_come_and_go_with_the_heads_of_runs(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        labels = {"tenant": "x", "": "\x00"}
        store.commit(a_batch(a_commit("r1", 1, labels=labels), a_commit("r2", 1)))
        store.commit(a_batch(a_commit("r3", 1, labels={"tenant": "x"}, finished=True)))
        rows = "SELECT labelled_run FROM run_labels ORDER BY 1"
        assert store._rows(rows, {}) == [("r1",), ("r1",), ("r3",)]
        store.forget(["r1", "r2", "r3"])
        assert store._rows(rows, {}) == [("r1",), ("r1",)]
        store.commit(a_batch(a_commit("r1", 2, labels=labels, finished=True)))
        assert store._rows(rows, {}) == [("r1",), ("r1",)]
        store.forget(["r1"])
        assert store._rows(rows, {}) == []


def test_runs_of_an_older_file_are_found_by_label_once_it_is_upgraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store.db"
    with closing(SqliteStore(path)) as store:
        store.commit(a_batch(a_commit("r1", 1, labels={"a": "b", "c": "d"}), a_commit("r2", 1)))
        store.commit(a_batch(a_commit("r3", 1, labels={"a": "b"})))
        before = store._rows("SELECT * FROM run_labels", {})
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE run_labels")
        db.execute("DROP INDEX heads_of_name")
        db.execute("DROP INDEX heads_of_origin")
        db.execute("UPDATE heads SET labels = '{damaged}' WHERE run = 'r2'")
        db.execute("PRAGMA user_version = 16")
        db.commit()
    monkeypatch.setattr(statements, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(migrating, "_STEPS_BETWEEN_CALLS", 1)
    with closing(SqliteStore(path)) as store:
        assert store._rows("SELECT * FROM run_labels", {}) == before
        assert [head.run for head in store.heads(HeadFilter(labels={"a": "b"}))] == ["r3", "r1"]
    assert f"store {path}: its schema is being brought from version 16 to" in caplog.text
    assert "3 labelled runs" in caplog.text


@pytest.mark.parametrize(
    ("conditions", "uses"),
    [
        ([], "USING INDEX streams_newest (family=?)"),
        (["before"], "USING INDEX streams_newest (family=? AND (created_at,stream)<(?,?))"),
        (["closed"], "USING INDEX streams_newest (family=?)"),
        (["open"], "USING INDEX streams_open_newest (family=?)"),
        (["group"], "USING INDEX streams_group_newest (family=? AND group_name=?)"),
        (
            ["group", "closed", "before"],
            "USING INDEX streams_group_newest (family=? AND group_name",
        ),
    ],
)
def test_a_listing_of_streams_is_served_by_the_best_index(conditions: list[str], uses: str) -> None:
    parts = ["list_streams", *(f"list_streams_{name}" for name in conditions), "list_streams_order"]
    found = plan("\n".join(STATEMENTS[part] for part in parts))
    assert uses in found
    assert "TEMP B-TREE" not in found


def test_the_schema_itself_refuses_what_would_break_an_invariant(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        store.commit(a_batch(a_commit("r1", 2, 2), streams=[a_stream("s")]))
    with closing(sqlite3.connect(tmp_path / "store.db")) as db:
        log = "INSERT INTO log (run, last_seq, count, at, events) VALUES"
        for wrong in (
            f"{log} ('r1', 2, 1, 0, x'')",
            f"{log} ('r2', 1, 2, 0, x'')",
            f"{log} ('r2', 0, 0, 0, x'')",
            f"{log} ('r2', 1, 1, 0, 'text')",
            "UPDATE heads SET finished = 2",
            "UPDATE heads SET seq = 0",
            "UPDATE heads SET labels = 'none'",
            "UPDATE heads SET run = ''",
            "UPDATE heads SET status = NULL",
            "UPDATE heads SET next_wake = 'soon'",
            "INSERT INTO payloads VALUES ('short', x'')",
            "UPDATE streams SET seq = 0",
            "UPDATE streams SET open = 2",
            "UPDATE streams SET family = ''",
            "INSERT INTO stream_events VALUES ('s', 1, 1, 0, x'')",
            "INSERT INTO stream_events VALUES ('s', 2, 3, 0, x'')",
        ):
            with pytest.raises(sqlite3.IntegrityError):
                db.execute(wrong)


def test_every_statement_is_named_once_and_runs(tmp_path: Path) -> None:
    fragments = {name for name in STATEMENTS if name.startswith("list_") or "_order" in name}
    for name, statement in STATEMENTS.items():
        if name not in fragments:
            assert plan(statement) or "INSERT" in statement, name
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        store.heads(
            HeadFilter(
                statuses=["a"],
                dialect="b",
                name="c",
                labels={"d": "e"},
                run_prefix="f",
                parent="g",
                before=(1, "h"),
            )
        )


def test_the_order_of_bound_values_is_checked() -> None:
    assert statements.positional("SELECT :a, :b, '10:30'", ["a", "b"]) == "SELECT ?, ?, '10:30'"
    with pytest.raises(ValueError, match="takes"):
        statements.positional("SELECT :b, :a", ["a", "b"])


def test_two_statements_of_one_name_and_gaps_in_the_migrations_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "HERE", tmp_path)
    (tmp_path / "sql" / "x").mkdir(parents=True)
    (tmp_path / "sql" / "x" / "a.sql").write_text("-- name: one\nSELECT 1\n-- name: one\nSELECT 2")
    with pytest.raises(ValueError, match="namesake"):
        statements.load_statements("x")
    (tmp_path / "migrations" / "x").mkdir(parents=True)
    (tmp_path / "migrations" / "x" / "0002_second.sql").write_text("SELECT 1;")
    with pytest.raises(ValueError, match="numbered"):
        statements.load_migrations("x")

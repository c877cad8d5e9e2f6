"""SQLite runs in the process of the engine: statements do there what is listed, and no more."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest

from anabranch.work.sql.guard.sqlite_guard import harden
from anabranch.work.sql.guard.sqlite_words import FUNCTIONS, PRAGMAS, READ_PRAGMAS

from ..test_files_allowed import playbook, results, settings_of
from .databases import Database

#: What reaches beyond the connection, gives or takes addresses, or damages the file.
REFUSED = (
    "SELECT hex(fts3_tokenizer('simple')) AS a",
    "SELECT FTS3_TOKENIZER('evil', x'4141414141414141') AS a",
    "SELECT load_extension('x.so') AS a",
    "SELECT sqlite_log(1, 'x') AS a",
    "SELECT hard_heap_limit AS a FROM pragma_hard_heap_limit",
    "PRAGMA hard_heap_limit=2000000000",
    "PRAGMA main.hard_heap_limit(2000000000)",
    "PRAGMA soft_heap_limit=2000000000",
    "PRAGMA Temp_Store_Directory='.'",
    "PRAGMA data_store_directory='.'",
    "PRAGMA writable_schema=ON",
    "PRAGMA schema_version=''",
    "PRAGMA mmap_size=1000000",
    "PRAGMA unknown_to_us",
    "CREATE VIRTUAL TABLE x USING dbstat",
    "CREATE VIEW x AS SELECT fts3_tokenizer('simple') AS a; SELECT a FROM x",
    "CREATE TABLE x (a); CREATE TRIGGER y AFTER INSERT ON x BEGIN SELECT load_extension('x'); END; "
    "INSERT INTO x VALUES (1)",
)
WORDS = ("runs in the process of the engine", "unsafe use")  # the latter are SQLite's own
#: What authors write, in one transaction.
IN_USE = """
    CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, price REAL DEFAULT 1.5, doc TEXT);
    CREATE TEMP TABLE kept AS SELECT 1 AS a;
    CREATE TEMP VIEW shown AS SELECT a FROM kept;
    CREATE UNIQUE INDEX by_a ON t (lower(a));
    CREATE TABLE seen (a);
    CREATE TRIGGER note AFTER INSERT ON t BEGIN INSERT INTO seen VALUES (new.a); END;
    CREATE VIEW long AS SELECT a FROM t WHERE length(a) > 2;
    SAVEPOINT here;
    INSERT INTO t (a, doc) VALUES ('one', json_object('n', json_array(1, 2))), ('two', '{"n": []}')
        ON CONFLICT DO NOTHING RETURNING id;
    RELEASE here;
    UPDATE t SET doc = json_set(doc, '$.m', 1), price = round(price * 2, 1) WHERE a LIKE 'o%';
    SELECT doc ->> '$.m' AS m, sum(price) OVER (ORDER BY id) AS s, row_number() OVER () AS n FROM t;
    WITH RECURSIVE x (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x WHERE n < 9)
        SELECT group_concat(n), avg(n), max(n), date('now'), strftime('%s', 'now') FROM x;
    SELECT value FROM t, json_each(t.doc, '$.n');
    ALTER TABLE t RENAME COLUMN price TO cost;
    ALTER TABLE t ADD COLUMN more;
    ALTER TABLE t DROP COLUMN more;
    ALTER TABLE seen RENAME TO noted;
    CREATE VIRTUAL TABLE texts USING fts5 (body);
    INSERT INTO texts VALUES ('running water'), ('still water');
    SELECT highlight(texts, 0, '[', ']'), bm25(texts) FROM texts WHERE texts MATCH 'water';
    INSERT INTO texts (texts) VALUES ('optimize');
    CREATE VIRTUAL TABLE old USING fts4 (body, tokenize=porter);
    INSERT INTO old VALUES ('running water');
    SELECT snippet(old), offsets(old), hex(matchinfo(old)) FROM old WHERE old MATCH 'run';
    CREATE VIRTUAL TABLE boxes USING rtree (id, low, high);
    INSERT INTO boxes VALUES (1, 2, 3);
    DELETE FROM boxes WHERE low < 9;
    ANALYZE;
    REINDEX;
    EXPLAIN QUERY PLAN SELECT * FROM t WHERE lower(a) = 'one';
    PRAGMA user_version = 7;
    PRAGMA table_info(t);
    SELECT name FROM pragma_table_info('t') UNION SELECT name FROM pragma_index_list('t');
    PRAGMA integrity_check;
    PRAGMA foreign_key_check;
    DROP TRIGGER note; DROP VIEW long; DROP INDEX by_a; DROP TABLE texts; DROP TABLE kept;
    SELECT count(*) AS n FROM noted
"""
#: And outside of one.
ALONE = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA synchronous=NORMAL",
    "PRAGMA busy_timeout=100",
    "PRAGMA cache_size=-2000",
    "PRAGMA mmap_size",
    "CREATE TABLE u AS SELECT 1 AS a",
    "VACUUM",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "PRAGMA optimize",
    "ATTACH 'second.db' AS second",
    "CREATE TABLE IF NOT EXISTS second.t (a)",
    "DETACH second",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("own.db", "target.db"):
        database = sqlite3.connect(name)
        database.execute("CREATE TABLE t AS SELECT 1 AS a")
        database.commit()
        database.close()
    return tmp_path


def ways(query: str) -> list[dict[str, Any]]:
    """All that execute a query of an author's."""
    source = {"tool": "sqlite", "database": "own.db", "query": query}
    target = {"tool": "sqlite", "database": "target.db", "table": "t"}
    loop = {"in": {"sql": {"database": "own.db", "query": query, "key": "a"}}, "iterator": "row"}
    return [
        playbook({"kind": "sqlite", "database": ":memory:", "query": query}),
        playbook({"kind": "sqlite", "database": "own.db", "query": query}),
        playbook({"kind": "transfer", "source": source, "target": target}),
        playbook({"kind": "noop"}, step={"loop": loop}),
    ]


def test_what_reaches_beyond_the_connection_is_refused_wherever_a_query_stands(
    folder: Path,
) -> None:
    asked = [(query, way) for query in REFUSED for way in ways(query)]
    ended = asyncio.run(results(settings_of(folder), [way for _, way in asked], at_once=True))
    for (query, way), (status, said) in zip(asked, ended, strict=True):
        assert status == "failed", (query, way)
        whole = way["workflow"][0]["tool"]["kind"] == "sqlite"  # others take one SELECT
        assert not whole or any(word in said for word in WORDS), (query, said)
    after = sqlite3.connect(":memory:")
    assert after.execute("PRAGMA hard_heap_limit").fetchone() == (0,)
    assert after.execute("PRAGMA soft_heap_limit").fetchone() == (0,)


def test_what_authors_write_is_done_as_before(folder: Path) -> None:
    database = Database("sqlite", {"database": "new.db"})
    done = database.query(IN_USE)
    assert done.status == "ok", done
    assert done.result["rows"] == [{"n": 2}]
    alone = database.query("; ".join(ALONE), autocommit=True)
    assert alone.status == "ok", alone


def test_what_this_sqlite_can_do_is_allowed_but_for_what_stands_here() -> None:
    """A newer SQLite shows here what it brings: it is to be listed, or named below."""
    database = sqlite3.connect(":memory:")
    functions = {name for (name,) in database.execute("SELECT name FROM pragma_function_list")}
    pragmas = {name for (name,) in database.execute("SELECT name FROM pragma_pragma_list")}
    refused = {"fts3_tokenizer", "load_extension", "sqlite_log", "fts5", "rtreenode", "rtreedepth"}
    assert not refused & FUNCTIONS
    assert functions - FUNCTIONS - refused == set()
    for_the_process = {"hard_heap_limit", "soft_heap_limit", "temp_store_directory"}
    for_the_process |= {"data_store_directory"}
    assert pragmas - PRAGMAS - READ_PRAGMAS - for_the_process == set()


def test_sqlite_itself_is_told_where_python_can_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 has `setconfig`; older ones leave it to the guard alone."""
    told = dict[int, bool]()

    class Connection:
        def setconfig(self, switch: int, value: bool) -> None:
            told[switch] = value

    switches = {"DEFENSIVE": 1010, "ENABLE_FTS3_TOKENIZER": 1004, "ENABLE_LOAD_EXTENSION": 1005}
    for name, number in switches.items():
        monkeypatch.setattr(sqlite3, f"SQLITE_DBCONFIG_{name}", number, raising=False)
    harden(cast(sqlite3.Connection, Connection()))
    assert told == {1010: True, 1004: False, 1005: False}
    harden(cast(sqlite3.Connection, object()))

"""A copy of a store is neither read nor changed, whatever an author puts beside it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anabranch.settings import Settings
from anabranch.store_files import APPLICATION_ID, SIDES
from anabranch.work.file_policy import FileNotAllowed, FilePolicy
from anabranch.work.store_copies import holds_store

from .test_files_allowed import naming, playbook, results, settings_of

CANARY = "canary-4711"
WRITER = "import sqlite3; sqlite3.connect('mine.db', timeout=0).execute('BEGIN IMMEDIATE')"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one that is allowed, with the copy of a store that nobody has open, `monday.db`, and a
    database of the engine, `sent.db`."""
    inside = tmp_path / "in"
    inside.mkdir()
    monkeypatch.chdir(inside)
    for name in ("monday.db", "sent.db", "mine.db"):
        make_database(name, APPLICATION_ID if name == "monday.db" else 0)
    return inside


def make_database(name: str, application_id: int) -> None:
    database = sqlite3.connect(name)
    database.execute(f"PRAGMA application_id = {application_id}")
    database.execute(f"CREATE TABLE t AS SELECT '{CANARY}' AS a")
    database.commit()
    database.close()


def log_that_says_it_is_no_store(database: str) -> bytes:
    """A write-ahead log with the first page of the database, but for its application id."""
    page = bytearray(Path(database).read_bytes())
    size = struct.unpack(">H", page[16:18])[0]
    pages, page = len(page) // size, page[:size]
    page[68:72] = bytes(4)
    page[18] = page[19] = 2  # it has a log
    head = struct.pack(">6I", 0x377F0683, 3007000, size, 0, 1, 2)
    sums = checksums(head, (0, 0))
    frame = struct.pack(">2I", 1, pages)
    ends = checksums(bytes(page), checksums(frame, sums))
    salts = struct.pack(">2I", 1, 2)
    return head + struct.pack(">2I", *sums) + frame + salts + struct.pack(">2I", *ends) + page


def checksums(data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    one, two = sums
    for first, second in struct.iter_unpack(">2I", data):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


SOURCE = {"tool": "sqlite", "database": ":memory:", "query": "SELECT 1 AS a"}
READERS: list[dict[str, Any]] = [
    {"kind": "sqlite", "database": "NAME", "query": "SELECT a FROM t"},
    {"kind": "sqlite", "database": "file:NAME?mode=ro", "query": "SELECT a FROM t"},
    {"kind": "sqlite", "database": ":memory:", "query": "ATTACH 'NAME' AS x; SELECT a FROM x.t"},
    {"kind": "sqlite", "database": "mine.db", "query": "VACUUM INTO 'NAME'"},
    {
        "kind": "transfer",
        "source": {"tool": "sqlite", "database": "NAME", "query": "SELECT a FROM t"},
        "target": {"tool": "sqlite", "database": "mine.db", "table": "t"},
    },
    {
        "kind": "transfer",
        "source": SOURCE,
        "target": {"tool": "sqlite", "database": "NAME", "table": "t"},
    },
]
WRITERS: list[dict[str, Any]] = [
    {"kind": "artifact", "action": "put", "data": "mine", "uri": "NAME"},
    {"kind": "artifact", "action": "get", "uri": "NAME"},
    {"kind": "sqlite", "database": "NAME", "query": "CREATE TABLE IF NOT EXISTS u (a)"},
    {"kind": "sqlite", "database": ":memory:", "query": "ATTACH 'NAME' AS x"},
    {"kind": "duckdb", "query": "COPY (SELECT 'mine' AS a) TO 'NAME' (USE_TMP_FILE false)"},
    {"kind": "duckdb", "query": "COPY (SELECT 'mine' AS a) TO 'NAME'"},
    {"kind": "duckdb", "query": "ATTACH 'NAME' AS x; CREATE TABLE x.t AS SELECT 1"},
    {"kind": "duckdb", "database": "NAME", "query": "CREATE TABLE t AS SELECT 1"},
]


def all_fail(folder: Path, tools: list[dict[str, Any]], allowed: str = "") -> None:
    """And nothing in the folder changes."""
    before = {place: place.read_bytes() for place in folder.iterdir()}
    settings = Settings(
        store=str(folder / "runs.db"),
        chain_sent=str(folder / "sent.db"),
        files_allowed=allowed or str(folder),
    )
    ended = asyncio.run(results(settings, [playbook(tool) for tool in tools]))
    for tool, (status, said) in zip(tools, ended, strict=True):
        assert status == "failed", tool
        assert CANARY not in said, tool
    made = {place: place.read_bytes() for place in folder.iterdir() if "runs.db" not in place.name}
    assert made == before


def test_a_copy_is_known_whatever_a_log_beside_it_says(folder: Path) -> None:
    Path("monday.db-wal").write_bytes(log_that_says_it_is_no_store("monday.db"))
    Path("mine.db-wal").write_bytes(log_that_says_it_is_no_store("mine.db"))
    believed = sqlite3.connect("file:mine.db?mode=ro", uri=True)
    assert believed.execute("PRAGMA journal_mode").fetchone() == ("wal",), "the log is a sound one"
    believed.close()
    for left in ("mine.db-wal", "mine.db-shm"):
        Path(left).unlink(missing_ok=True)
    all_fail(folder, [naming(tool, "monday.db") for tool in READERS])


@pytest.mark.parametrize("database", ["monday.db", "sent.db"])
def test_nothing_is_put_beside_a_copy_nor_beside_a_database_of_the_engine(
    folder: Path, database: str
) -> None:
    pytest.importorskip("duckdb")
    all_fail(folder, [naming(tool, database + side) for side in SIDES for tool in WRITERS])


def test_an_engine_that_allows_every_folder_puts_nothing_there_either(folder: Path) -> None:
    pytest.importorskip("duckdb")
    names = ("monday.db-wal", "sent.db-journal")
    tools = [naming(tool, name) for name in names for tool in WRITERS]
    all_fail(folder, tools, allowed="any")


def test_a_copy_is_not_written_over(folder: Path) -> None:
    policy = FilePolicy(roots=(str(folder),))
    for name in ("monday.db", "./monday.db"):
        with pytest.raises(FileNotAllowed, match="a copy of one"):
            policy.write(name, b"gone")
    policy.write("mine.db", b"gone")
    assert Path("mine.db").read_bytes() == b"gone"
    assert holds_store("monday.db")


def test_a_copy_that_was_cut_short_is_known(folder: Path) -> None:
    whole = Path("monday.db").read_bytes()
    for size in (100, 511, 4097, len(whole) - 1):
        Path("cut.db").write_bytes(whole[:size])
        assert holds_store("cut.db"), size
    for name in ("mine.db", "nowhere.db", "."):
        assert not holds_store(name), name


def test_looking_at_a_database_leaves_a_task_its_locks(folder: Path) -> None:
    task = sqlite3.connect("mine.db", isolation_level=None)
    task.execute("BEGIN IMMEDIATE")
    assert not holds_store(os.path.abspath("mine.db"))
    other = subprocess.run([sys.executable, "-c", WRITER], capture_output=True, text=True)
    task.close()
    assert "database is locked" in other.stderr


def test_what_lies_beside_a_database_of_an_author_is_theirs(folder: Path) -> None:
    put = {"kind": "artifact", "action": "put", "data": "mine", "uri": "NAME"}
    names = ("notes.db-wal", "mine.db-journal", "table-wal")
    ended = asyncio.run(results(settings_of(folder), [playbook(naming(put, n)) for n in names]))
    assert [status for status, _ in ended] == ["completed"] * len(names)

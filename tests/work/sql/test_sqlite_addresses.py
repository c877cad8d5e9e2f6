"""An address `file:…` is read once, by us: SQLite is given one that we write."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.work.file_policy import FilePolicy
from anabranch.work.sql.named_files import MEMORY, resolve_sqlite

from ..test_files_allowed import playbook, results, settings_of

READ = "SELECT * FROM t"
CLAIM = "UPDATE t SET a = :frame RETURNING a"
WRITE = "CREATE TABLE IF NOT EXISTS new (a)"
#: What SQLite, which ends a text at its first NUL, reads otherwise than whoever looks at it first.
OPTIONS = (
    "mode=memory&mode%00x=ro",
    "mode=memory&mode%00x=rw",
    "mode=memory&mode%00x=rwc",
    "mode=memory&vfs%00x=unix-none&mode%00=rwc",
    "mode%00x=rwc",
    "mode=memory&mode=rwc",
    "mode=rw&mode=memory",
    "mode=memory&m%6fde=rwc",
    "mode=memory&vfs=unix-none",
    "vfs=memdb",
    "vfs=unix-dotfile",
    "nolock=1",
    "psow=0",
    "cache=shared&mode=memory",
    "mode=memory;mode=rwc",
    "mode",
    "mode=",
    "MODE=memory",
    "&",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one that is allowed; a database of somebody else lies in `out` beside it."""
    inside, out = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    out.mkdir()
    monkeypatch.chdir(inside)
    for place in (out / "other.db", inside / "own.db", inside / "a b?ü.db"):
        make_database(place)
    (inside / "link.db").symlink_to("../out/other.db")
    return inside


def make_database(place: Path) -> None:
    database = sqlite3.connect(place)
    database.execute("CREATE TABLE t AS SELECT 'canary-4711' AS a")
    database.commit()
    database.close()


def ways(address: str, query: str) -> list[dict[str, Any]]:
    """All that take the place of a SQLite file."""
    side = {"tool": "sqlite", "database": address}
    memory = {"tool": "sqlite", "database": "target.db"}
    tools: list[dict[str, Any]] = [
        {"kind": "sqlite", "database": address, "query": query},
        {"kind": "sqlite", "database": f"sqlite:///{address}", "query": query},
        {"kind": "sqlite", "database": MEMORY, "query": f"ATTACH '{address}' AS x; {query}"},
        {
            "kind": "sqlite",
            "database": MEMORY,
            "commands": f"ATTACH :file AS x; {query}",
            "params": {"file": address},
        },
        {
            "kind": "transfer",
            "source": {**side, "query": READ},
            "target": {**memory, "table": "t"},
        },
        {
            "kind": "transfer",
            "source": {"tool": "sqlite", "database": "own.db", "query": READ},
            "target": {**side, "table": "t"},
        },
    ]
    database = {"kind": "sqlite", "database": address, "key": "a"}
    loops = [
        {"in": {"sql": {**database, "query": READ}}, "iterator": "row"},
        {"in": {"claim": {**database, "command": CLAIM}}, "iterator": "row"},
    ]
    noop = {"kind": "noop"}
    return [playbook(one) for one in tools] + [
        playbook(noop, step={"loop": loop}) for loop in loops
    ]


def test_no_option_of_an_address_leads_out_of_the_folders(folder: Path) -> None:
    out = folder.parent / "out"
    before = (out / "other.db").read_bytes()
    asked = [
        (options, definition)
        for options in OPTIONS
        for definition in (
            *ways(f"file:{out}/other.db?{options}", READ),
            *ways(f"file:{out}/new.db?{options}", WRITE),
            *ways(f"file:own.db?{options}", READ),  # in the folder it is refused as well
        )
    ]
    definitions = [definition for _, definition in asked]
    ended = asyncio.run(results(settings_of(folder), definitions, at_once=True))
    for (options, definition), (status, said) in zip(asked, ended, strict=True):
        assert status == "failed", (options, definition)
        assert "address" in said, (options, definition, said)
        assert "canary" not in said, (options, definition)
    assert os.listdir(out) == ["other.db"]
    assert (out / "other.db").read_bytes() == before


@pytest.mark.parametrize(
    ("address", "opened"),
    [
        ("own.db", "IN/own.db"),
        ("file:own.db", "file:IN/own.db"),
        ("file:own.db?mode=ro", "file:IN/own.db?mode=ro"),
        ("file:own.db?mode=rwc&immutable=1#x", "file:IN/own.db?mode=rwc&immutable=1"),
        ("file:a%20b%3F%C3%BC.db", "file:IN/a%20b%3F%C3%BC.db"),
        ("file:///anywhere/else?mode=memory", MEMORY),
        ("file::memory:", MEMORY),
        ("file:?mode=memory", MEMORY),
        (MEMORY, MEMORY),
    ],
)
def test_sqlite_is_given_an_address_that_we_wrote(folder: Path, address: str, opened: str) -> None:
    policy = FilePolicy(roots=(str(folder),))
    assert resolve_sqlite(address, policy) == opened.replace("IN", str(folder))


@pytest.mark.parametrize(
    "path", ["a%00.db", "a%zz.db", "a%f", "a%ff.db", "//host/own.db", "a%0a.db", "../out/other.db"]
)
def test_a_path_that_could_be_read_in_two_ways_is_refused(folder: Path, path: str) -> None:
    with pytest.raises(InputError):
        resolve_sqlite(f"file:{path}", FilePolicy(roots=(str(folder),)))


def test_addresses_are_of_use(folder: Path) -> None:
    tools: list[dict[str, Any]] = [
        {"kind": "sqlite", "database": "file:own.db?mode=ro", "query": READ},
        {"kind": "sqlite", "database": "file:x?mode=memory", "query": WRITE},
        {"kind": "sqlite", "database": MEMORY, "query": f"ATTACH 'own.db' AS x; {READ}"},
    ]
    ended = asyncio.run(results(settings_of(folder), [playbook(tool) for tool in tools]))
    assert [status for status, _ in ended] == ["completed"] * len(tools), ended
    read_only = {"kind": "sqlite", "database": "file:own.db?mode=ro", "query": WRITE}
    [(_, said)] = asyncio.run(results(settings_of(folder), [playbook(read_only)]))
    assert "readonly" in said

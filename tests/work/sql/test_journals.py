"""What lies beside a SQLite database leads it to no file of others."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest

from ..test_files_allowed import playbook, results, settings_of

MAGIC = bytes.fromhex("d9d505f920a163d7")
PAGE_BYTES = 4096
READ = "SELECT a FROM t"


def journal_that_names(path: Path | str) -> bytes:
    """As SQLite leaves it when it is killed in a transaction over several files."""
    name = os.fsencode(path)
    checksum = sum(byte if byte < 128 else byte - 256 for byte in name) & 0xFFFFFFFF
    numbers = (0, 0, os.path.getsize("one.db") // PAGE_BYTES, 512, PAGE_BYTES)
    head = (MAGIC + struct.pack(">5I", *numbers)).ljust(512, b"\0")  # the database is as it was
    end = len(name).to_bytes(4, "big") + checksum.to_bytes(4, "big") + MAGIC
    return head + bytes(4) + name + end


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    inside, out = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    out.mkdir()
    monkeypatch.chdir(inside)
    for name in ("one.db", "two.db"):
        database = sqlite3.connect(name)
        database.execute("CREATE TABLE t AS SELECT 1 AS a")
        database.commit()
        database.close()
    with sqlite3.connect("copies.db") as copies:
        copies.execute("CREATE TABLE copies (a)")
    copies.close()
    (out / "theirs-mj0000009AB").write_text("theirs")
    (out / "other").write_text("theirs")
    (inside / "runs.db.key").write_text("key" * 20)
    (inside / "data.csv").write_text("mine")
    return inside


def opening(name: str) -> list[dict[str, Any]]:
    side = {"tool": "sqlite", "database": name, "query": READ}
    target = {"tool": "sqlite", "database": "copies.db", "table": "copies"}
    tools: list[dict[str, Any]] = [
        {"kind": "sqlite", "database": name, "query": READ},
        {"kind": "sqlite", "database": f"file:{name}?mode=rw", "query": READ},
        {"kind": "sqlite", "database": ":memory:", "query": f"ATTACH '{name}' AS x; {READ}"},
        {"kind": "transfer", "source": side, "target": target},
    ]
    return [playbook(tool) for tool in tools]


def test_a_journal_that_names_a_file_of_others_neither_opens_nor_removes_it(folder: Path) -> None:
    out = folder.parent / "out"
    victims = [out / "other", out / "theirs-mj0000009AB", folder / "runs.db.key"]
    victims += [folder / "data.csv", folder / "runs.db"]
    for victim in victims:
        Path("one.db-journal").write_bytes(journal_that_names(victim))
        ended = asyncio.run(results(settings_of(folder), opening("one.db")))
        assert [status for status, _ in ended] == ["failed"] * len(ended), victim
        assert victim.exists(), victim
    Path("all-mj0000009AB").write_bytes(os.fsencode(out / "other") + b"\0")
    Path("one.db-journal").write_bytes(journal_that_names(folder / "all-mj0000009AB"))
    for status, said in asyncio.run(results(settings_of(folder), opening("one.db"))):
        assert (status, "files_allowed" in said) == ("failed", True)


def test_what_a_transaction_over_several_files_left_is_still_undone(folder: Path) -> None:
    together = folder / "one.db-mj0000009AB"
    names = [f"{folder}/{name}.db-journal" for name in ("one", "two")]
    together.write_bytes(b"".join(os.fsencode(name) + b"\0" for name in names))
    for name in names:
        Path(name).write_bytes(journal_that_names(together))
    asked = [*opening("one.db"), *opening("two.db")]
    ended = asyncio.run(results(settings_of(folder), asked))
    assert [status for status, _ in ended] == ["completed"] * len(ended), ended
    assert not list(folder.glob("*-mj*"))
    assert not list(folder.glob("*.db-journal"))

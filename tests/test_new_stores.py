"""A store that the suite copies is the one that the product makes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tools.suite import new_stores

from anabranch.store.sqlite import file
from anabranch.store.sqlite.store import SqliteStore

HEADER = ("application_id", "user_version", "page_size", "auto_vacuum", "journal_mode")


def content_of(path: Path) -> list[object]:
    SqliteStore(path).close()
    with sqlite3.connect(path) as db:
        header = [db.execute(f"PRAGMA {name}").fetchone() for name in HEADER]
        return [header, *db.iterdump()]


def test_a_copied_store_is_one_that_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = []
    for number, make in enumerate((new_stores._copy_or_upgrade, new_stores._make_or_upgrade)):
        monkeypatch.setattr(file, "_create_or_upgrade", make)
        contents.append(content_of(tmp_path / f"{number}.db"))
    assert contents[0] == contents[1]
    assert len(contents[0]) > 50

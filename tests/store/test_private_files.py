"""What a store keeps is for its owner alone, whatever the umask; a wider mode is left alone."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.store.private_file import exposure
from anabranch.store.sqlite.store import SqliteStore
from anabranch.testing.store_suite.samples import a_batch, a_commit
from anabranch.work.chain.sent import SentFile


@pytest.fixture(autouse=True)
def wide_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def test_a_new_store_its_log_its_index_and_its_lock_are_private(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "s.db")) as store:
        store.acquire("me")
        store.commit(a_batch(a_commit("r1", 1)))
        assert modes(tmp_path) == dict.fromkeys(
            ("s.db", "s.db-wal", "s.db-shm", "s.db.lock"), 0o600
        )
        assert exposure(tmp_path / "s.db") == ""


def test_the_record_of_what_was_sent_is_private(tmp_path: Path) -> None:
    assert asyncio.run(SentFile(tmp_path / "s.db.sent").find("scope", "key")) is None
    assert modes(tmp_path) == {"s.db.sent": 0o600}


def test_a_store_that_its_owner_opened_to_a_group_stays_open_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    SqliteStore(path).close()
    path.chmod(0o640)
    with closing(SqliteStore(path)) as store:
        store.acquire("me")
        store.commit(a_batch(a_commit("r1", 1)))
        assert set(modes(tmp_path).values()) == {0o640}
    assert "0640" in exposure(path)
    assert "chmod 600" in exposure(path)

"""A backup is one moment of a live store, whole or not there; a restore loses nothing."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.errors import InputError, NotFound, StoreError, StoreInUse, UnusableStore
from anabranch.store.ports import HeadFilter
from anabranch.store.sqlite import copy
from anabranch.store.sqlite.copy import backup, restore
from anabranch.store.sqlite.file import MIGRATIONS
from anabranch.store.sqlite.store import SqliteStore
from anabranch.store_files import APPLICATION_ID
from anabranch.testing.store_suite.samples import a_batch, a_commit, sha256


def quietly(_done: int, _total: int) -> None:
    """Progress that nobody looks at."""


def runs_in(path: Path) -> set[str]:
    with closing(SqliteStore(path, read_only=True)) as store:
        return {head.run for head in store.heads(HeadFilter(limit=10_000))}


def put_runs(store: SqliteStore, *names: str) -> None:
    store.commit(a_batch(*(a_commit(name, 1) for name in names)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "runs.db"
    with closing(SqliteStore(made)) as store:
        put_runs(store, *(f"r{n:03}" for n in range(50)))
        content = os.urandom(200_000)
        store.put_payload(sha256(content), content)
    return made


# -- backup ----------------------------------------------------------------------------------


def test_a_backup_shows_one_moment_of_a_store_that_is_written_all_the_time(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit after every page: without a transaction of its own the copy would begin again."""
    monkeypatch.setattr(copy, "PAGES_AT_ONCE", 1)
    before = runs_in(path)
    seen: list[int] = []
    with closing(SqliteStore(path)) as store:

        def commits(done: int, _total: int) -> None:
            seen.append(done)
            assert len(seen) < 1000, "it begins again and again"
            put_runs(store, f"later{len(seen)}")

        made = backup(path, tmp_path / "copy.db", commits)
        assert len(runs_in(path)) == len(before) + len(seen)
    assert seen == sorted(set(seen))  # never back to the beginning
    assert made.runs == len(before)
    assert runs_in(tmp_path / "copy.db") == before


def test_a_backup_is_one_private_file_and_leaves_no_others(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    before = os.umask(0)
    try:
        with closing(SqliteStore(path)):  # its log stands beside it
            backup(path, folder / "copy.db", quietly)
    finally:
        os.umask(before)
    (copy,) = folder.iterdir()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with closing(sqlite3.connect(copy)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_file_that_is_there_is_replaced_only_by_force(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("mine")
    with pytest.raises(InputError, match="--force"):
        backup(path, target, quietly)
    assert target.read_text() == "mine"
    backup(path, target, quietly, force=True)
    assert runs_in(target) == runs_in(path)


def test_a_backup_never_overwrites_the_store_or_one_in_use(path: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the store itself"):
        backup(path, path, quietly, force=True)
    os.link(path, tmp_path / "hard.db")
    with pytest.raises(InputError, match="the store itself"):
        backup(path, tmp_path / "hard.db", quietly, force=True)
    other = tmp_path / "other.db"
    with closing(SqliteStore(other)) as store:
        store.acquire("somebody")
        with pytest.raises(StoreInUse, match="in use"):
            backup(path, other, quietly, force=True)


def test_a_backup_that_is_given_up_leaves_nothing_behind(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()

    def gives_up(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backup(path, folder / "copy.db", gives_up)
    assert list(folder.iterdir()) == []


def test_there_is_no_backup_of_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        backup(tmp_path / "none.db", tmp_path / "copy.db", quietly)
    (tmp_path / "text.db").write_text("x" * 5000)
    with pytest.raises(UnusableStore):
        backup(tmp_path / "text.db", tmp_path / "copy.db", quietly)
    assert not (tmp_path / "copy.db").exists()


# -- restore ---------------------------------------------------------------------------------


def test_a_restore_brings_the_backup_back_and_keeps_what_was_there(
    path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    backup(path, copy, quietly)
    with closing(SqliteStore(path)) as store:
        put_runs(store, "later")
    done = restore(copy, path, quietly)
    assert "later" not in runs_in(path)
    assert "later" in runs_in(Path(done.kept_as))
    assert runs_in(copy) == runs_in(path)
    with closing(SqliteStore(path)) as store:
        put_runs(store, "afterwards")  # it can be written as any store


def test_who_reads_the_store_meanwhile_sees_the_restored_runs(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    backup(path, copy, quietly)
    with closing(SqliteStore(path)) as store:
        put_runs(store, "later")
    with closing(SqliteStore(path, read_only=True)) as reader:
        assert reader.head("later") is not None
        restore(copy, path, quietly)
        assert reader.head("later") is None
    assert runs_in(path) == runs_in(copy)


def test_a_store_that_an_engine_owns_is_not_restored(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    backup(path, copy, quietly)
    with closing(SqliteStore(path)) as store:
        store.acquire("an engine")
        put_runs(store, "later")
        with pytest.raises(StoreInUse, match="an engine"):
            restore(copy, path, quietly)
        assert store.head("later") is not None
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy.db", "runs.db"]


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE customers (name TEXT)")


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
        db.execute("CREATE TABLE log (x)")


def text(path: Path) -> None:
    path.write_text("no database\n" * 500)


def damaged(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        put_runs(store, *(f"d{n:04}" for n in range(400)))
    with path.open("r+b") as file:  # in the middle: what is looked at first is sound
        file.seek(path.stat().st_size // 8192 * 4096)
        file.write(b"\xff" * 4096)


@pytest.mark.parametrize("make", [foreign, newer, text, damaged], ids=lambda f: f.__name__)
def test_what_is_no_sound_backup_is_refused_and_the_store_is_as_it_was(
    make: Callable[[Path], None], path: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.db"
    make(bad)
    before = path.read_bytes()
    with pytest.raises(UnusableStore):
        restore(bad, path, quietly)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*before-restore*"))
    with pytest.raises(NotFound):
        restore(tmp_path / "none.db", path, quietly)


def test_the_database_of_another_program_is_not_replaced(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    foreign(other)
    before = other.read_bytes()
    with pytest.raises(UnusableStore, match="another program"):
        restore(path, other, quietly)
    assert other.read_bytes() == before


@pytest.mark.parametrize("how", ["garbage", "truncated", "missing"])
def test_a_store_that_cannot_be_opened_is_replaced_with_its_log(
    how: str, path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    backup(path, copy, quietly)
    stale = b"the log of the store that was here"
    path.with_name("runs.db-wal").write_bytes(stale)
    if how == "garbage":
        path.write_bytes(b"\x00" * 20_000)
    elif how == "truncated":
        os.truncate(path, 4096 * 2)
    else:
        path.unlink()
    done = restore(copy, path, quietly)
    assert runs_in(path) == runs_in(copy)
    assert done.tokens_valid_again is None
    if how == "missing":
        assert done.kept_as == ""
    else:
        assert Path(done.kept_as).exists()
        assert Path(f"{done.kept_as}-wal").read_bytes() == stale
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_store_cannot_be_restored_from_itself_or_to_nowhere(path: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the store itself"):
        restore(path, path, quietly)
    with pytest.raises(StoreError, match="no directory"):
        restore(path, tmp_path / "no" / "store.db", quietly)

"""The files of a store that is open: its locks stay, and what happens to the files is noticed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from anabranch.errors import InputError, StoreError, StoreInUse, UnusableStore
from anabranch.store.sqlite.store import SqliteStore
from anabranch.store_files import is_store_file, refuse_store_file
from anabranch.testing.store_suite.samples import a_batch, a_commit, a_head, refused

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/locks and OFD locks")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(path)
    opened.acquire("engine")
    opened.commit(a_batch(a_commit("r1", 1)))
    yield opened
    opened.close()


def locks(path: Path, kind: str = "POSIX") -> int:
    """How many locks of this kind are on the file. The kernel lists the locks of all processes page
    by page, and may skip one while others come and go: the list is read until it says one thing."""
    about = path.stat()
    place = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"

    def listed() -> int:
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return sum(kind in line and place in line for line in lines)

    seen = [listed(), listed(), listed()]
    while len(set(seen[-3:])) > 1:
        seen.append(listed())
    return seen[-1]


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def others(path: Path, program: str = "") -> str:
    """Another process opens the store, looks into it and closes it."""
    told = program or (
        "import sys; from anabranch.store.sqlite.store import SqliteStore\n"
        "store = SqliteStore(sys.argv[1]); head = store.head('r1'); store.close(); print(head.seq)"
    )
    done = subprocess.run(
        [sys.executable, "-c", told, str(path)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


THEIRS = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("CREATE TABLE theirs AS SELECT 1")
db.close()
"""
SOUND = """
import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute("PRAGMA integrity_check").fetchone()[0])
"""


# -- locks -------------------------------------------------------------------------------------


@linux
def test_further_handles_of_a_process_leave_its_locks_where_they_are(
    path: Path, store: SqliteStore
) -> None:
    before = locks(path), locks(beside(path, "-shm"))
    assert before[0] >= 1
    for read_only in (True, False, True):
        SqliteStore(path, read_only=read_only).close()
        assert (locks(path), locks(beside(path, "-shm"))) == before


@linux
def test_a_store_that_could_not_be_opened_leaves_the_locks_of_the_process(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = locks(path)

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("no")

    monkeypatch.setattr("anabranch.store.sqlite.store.open_reader", fail)
    with pytest.raises(sqlite3.OperationalError):
        SqliteStore(path)
    assert locks(path) == before


@linux
def test_a_library_that_opens_the_file_does_not_cost_the_store_its_log(
    path: Path, store: SqliteStore
) -> None:
    """Not through us: but whatever else runs in this process may do that."""
    for suffix in ("", "-shm"):
        beside(path, suffix).open("rb").close()
    assert locks(path) == 0
    assert others(path) == "1"
    assert beside(path, "-wal").exists()
    store.commit(a_batch(a_commit("r1", 2)))
    assert others(path) == "2"


def test_the_last_handle_tidies_up_and_leaves_one_file(path: Path, store: SqliteStore) -> None:
    SqliteStore(path, read_only=True).close()
    store.close()
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]


@linux
def test_a_forked_process_keeps_neither_locks_nor_ownership(path: Path) -> None:
    program = """
import os, signal, sys, time
from anabranch.store.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1])
store.acquire("parent")
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    arguments = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.wait()
        try:
            with closing(SqliteStore(path)) as store:
                store.acquire("we")
        finally:
            os.kill(child, 9)


# -- one engine per inode ----------------------------------------------------------------------


@linux
def test_an_engine_does_not_start_because_somebody_removed_the_lock_file(path: Path) -> None:
    program = """
import sys
from anabranch.store.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1])
store.acquire("the other engine")
print("owned", flush=True)
sys.stdin.read()
"""
    arguments = [sys.executable, "-c", program, str(path)]
    with (
        subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
        closing(SqliteStore(path)) as store,
    ):
        assert other.stdout is not None
        assert other.stdout.readline() == b"owned\n"
        beside(path, ".lock").unlink()
        assert store.owner() == "an engine whose lock file was removed"
        with refused(StoreInUse, str(path), "whose lock file was removed", "stop that engine"):
            store.acquire("we")
        assert not beside(path, ".lock").exists()


@linux
def test_an_engine_does_not_start_in_this_process_either(path: Path, store: SqliteStore) -> None:
    beside(path, ".lock").unlink()
    with closing(SqliteStore(path)) as other, refused(StoreInUse, "lock file was removed"):
        other.acquire("we")
    store.release()
    with closing(SqliteStore(path)) as other:
        other.acquire("we")


@pytest.mark.parametrize("read_only", [True, False])
def test_a_store_with_a_second_name_is_not_opened(
    path: Path, store: SqliteStore, read_only: bool
) -> None:
    """By the other name SQLite would not see the log, and write one of its own."""
    other = path.with_name("other.db")
    other.hardlink_to(path)
    for name in (other, path):
        with refused(UnusableStore, "2 names (hard links)", "samefile"):
            SqliteStore(name, read_only=read_only)
    store.commit(a_batch(a_commit("r1", 2)))  # who has it open already goes on
    other.unlink()
    SqliteStore(path, read_only=read_only).close()
    assert sorted(file.name for file in path.parent.glob("other*")) == []


def test_who_stops_does_not_remove_the_lock_file_of_another(path: Path, store: SqliteStore) -> None:
    lock = beside(path, ".lock")
    lock.unlink()
    lock.write_text("theirs")
    store.release()
    assert lock.read_text() == "theirs"


# -- the files on disk -------------------------------------------------------------------------


def overwritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(4096))


def replaced(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    copy.replace(path)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)


HARM: dict[str, tuple[Callable[[Path], object], str]] = {
    "database removed": (lambda path: path.unlink(), "store.db is gone"),
    "database moved": (lambda path: path.rename(path.with_name("away.db")), "store.db is gone"),
    "database replaced": (replaced, "store.db was replaced"),
    "database cut": (cut, "store.db was cut short"),
    "database overwritten": (overwritten, "the header of"),
    "log removed": (lambda path: beside(path, "-wal").unlink(), "store.db-wal is gone"),
    "log replaced": (lambda path: replaced(beside(path, "-wal")), "store.db-wal was replaced"),
    "log emptied": (lambda path: os.truncate(beside(path, "-wal"), 0), "lost its beginning"),
    "log cut": (lambda path: cut(beside(path, "-wal")), "store.db-wal was cut short"),
    "shared memory removed": (lambda path: beside(path, "-shm").unlink(), "store.db-shm is gone"),
}


def wait_until_settled(path: Path) -> None:
    """From then on names and header are only looked at after a change."""
    while (
        time.time_ns() - max(path.stat().st_mtime_ns, path.parent.stat().st_mtime_ns) < 200 * 10**6
    ):
        time.sleep(0.02)


@pytest.mark.parametrize("settled", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("harm", HARM)
def test_a_write_is_not_acknowledged_once_the_files_are_not_those_on_disk(
    path: Path, store: SqliteStore, harm: str, settled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.store.sqlite.file_watch._PATIENCE_SECONDS", 0.1)
    if settled:
        wait_until_settled(path)
        store.commit(a_batch(a_commit("r2", 1)))
    do, words = HARM[harm]
    do(path)
    with refused(StoreError, str(path), words, "Nothing was acknowledged"):
        store.commit(a_batch(a_commit("r1", 2)))
    for write in (lambda: store.post("r1", b"{}", 1), store.probe_write, store.changed):
        with refused(StoreError, words):
            write()


@pytest.mark.parametrize("harm", sorted(set(HARM) - {"log emptied", "log cut"}))
def test_an_idle_engine_notices_too(
    path: Path, store: SqliteStore, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.store.sqlite.file_watch._PATIENCE_SECONDS", 0.1)
    do, words = HARM[harm]
    do(path)
    with refused(StoreError, words):
        store.changed()


@pytest.mark.parametrize("cut_off", [False, True])
def test_a_checkpoint_that_a_reader_holds_up_is_no_damage(
    path: Path, store: SqliteStore, cut_off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves a header of more pages than the file has: the last ones wait in the log."""
    monkeypatch.setattr("anabranch.store.sqlite.file_watch._PATIENCE_SECONDS", 0.0)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.execute("BEGIN")
        db.execute("CREATE TABLE filler (content)")
        db.executemany("INSERT INTO filler VALUES (?)", [("a" * 100,)] * 9_999)
        db.execute("COMMIT")
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM filler").fetchone()
            db.execute("UPDATE filler SET content = ? WHERE rowid > 9000", ("b" * 100,))
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            header = subprocess.run(["head", "-c", "32", path], capture_output=True, check=True)
            pages = int.from_bytes(header.stdout[28:32], "big")
            assert path.stat().st_size < pages * 4096
            if cut_off:
                cut(path)
                with refused(StoreError, "store.db was cut short"):
                    store.changed()
                return
            store.changed()
            store.commit(a_batch(a_commit("r1", 2)))
            store.changed()


@pytest.mark.parametrize("harm", ["database removed", "database replaced", "log removed"])
def test_an_engine_that_lost_its_files_saves_what_was_acknowledged(
    path: Path, store: SqliteStore, harm: str
) -> None:
    store.commit(a_batch(a_commit("r1", 2)))
    HARM[harm][0](path)
    with suppress(StoreError):
        store.commit(a_batch(a_commit("r2", 1)))
    store.release()
    store.close()
    (saved,) = path.parent.glob("store.db.saved-*")
    with closing(SqliteStore(saved)) as copy:
        assert copy.head("r1") == a_head("r1", 2)


def test_no_copy_is_saved_of_a_file_that_cannot_be_read(path: Path, store: SqliteStore) -> None:
    path.write_bytes(b"")
    overwritten(path)
    with suppress(StoreError):
        store.changed()
    store.close()
    assert list(path.parent.glob("*saved*")) == []


@linux
def test_a_log_that_was_lost_is_not_moved_into_a_file_that_others_use_now(
    path: Path, store: SqliteStore
) -> None:
    for suffix in ("-wal", "-shm"):
        beside(path, suffix).unlink()
    with suppress(StoreError):
        store.changed()
    others(path, THEIRS)
    before = path.read_bytes()
    store.close()
    assert path.read_bytes() == before
    assert others(path, SOUND) == "ok"


def test_what_sqlite_does_to_its_files_is_no_harm(path: Path, store: SqliteStore) -> None:
    """Checkpoints that empty the log, here and elsewhere, and a file that shrinks."""
    shrink = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("VACUUM")
print(db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())
"""
    for last in range(2, 40):
        store.commit(a_batch(a_commit("r1", last, snapshot=bytes(50_000))))
        if last % 10 == 0:
            others(path, shrink)
            assert store.changed()
    store.forget(["r1"])
    assert store.head("r1") == a_head("r1", 39)


# -- files that others may not open ------------------------------------------------------------


def test_the_files_of_an_open_store_are_refused_by_every_name(
    path: Path, store: SqliteStore
) -> None:
    links = path.parent / "links"
    links.mkdir()
    for suffix in ("", "-wal", "-shm", ".lock"):
        file = beside(path, suffix)
        soft, hard = links / f"soft{suffix}", links / f"hard{suffix}"
        soft.symlink_to(file)
        hard.hardlink_to(file)
        for name in (file, soft, hard, os.path.relpath(file)):
            with refused(InputError, str(name), "name another file"):
                refuse_store_file(name)
        assert is_store_file(hard.stat())
    with refused(InputError, "-journal"):
        refuse_store_file(f"{path}-journal")
    refuse_store_file(path.parent / "anything.db")
    refuse_store_file("with\0nul")
    shutil.rmtree(links)
    store.close()
    refuse_store_file(path)

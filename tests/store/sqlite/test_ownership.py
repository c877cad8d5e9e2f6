"""One engine per file, whatever happens to the process that holds it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from socket import gethostname

import pytest

from anabranch.errors import StoreError, StoreInUse
from anabranch.store.sqlite import file_lock
from anabranch.store.sqlite.file_lock import FileLock
from anabranch.store.sqlite.store import SqliteStore
from anabranch.testing.store_suite.samples import refused

HOLD = """
import subprocess, sys
from anabranch.store.sqlite.file_lock import FileLock
from anabranch.store.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1])
store.acquire("the other engine")
child = subprocess.Popen(["sleep", "30"]) if sys.argv[2:] == ["with-a-child"] else None
print(child.pid if child else 0, flush=True)
sys.stdin.read()
"""


@contextmanager
def another_engine(path: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """An engine in another process, and the process id of a program it has started (or 0)."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def test_a_second_engine_learns_who_holds_the_store_and_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with another_engine(path) as (process, _), closing(SqliteStore(path)) as store:
        holder = f"the other engine (pid {process.pid} on {gethostname()})"
        assert store.owner() == holder
        with refused(StoreInUse, str(path), holder, "stop that engine"):
            store.acquire("we")
        assert store.owner() == holder


def test_a_killed_engine_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with another_engine(path) as (process, _), closing(SqliteStore(path)) as store:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert store.owner() is None
        store.acquire("we")
        assert (store.owner() or "").startswith("we (")


def test_a_program_started_by_the_engine_does_not_inherit_the_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with another_engine(path, "with-a-child") as (process, child):
        try:
            process.send_signal(signal.SIGKILL)
            process.wait()
            with closing(SqliteStore(path)) as store:
                store.acquire("we")
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_forked_process_does_not_inherit_the_store(tmp_path: Path) -> None:
    """Without exec the close-on-exec flag is not enough."""
    program = """
import os, signal, sys, time
from anabranch.store.sqlite.file_lock import FileLock
from pathlib import Path
lock = FileLock(Path(sys.argv[1]))
lock.acquire("parent")
child = os.fork()
if child == 0:
    time.sleep(30)
    os._exit(0)
time.sleep(0.2)
print(child, lock.owner().split()[0], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    arguments = [sys.executable, "-c", program, str(tmp_path / "store.db.lock")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child, holder = process.stdout.readline().split()
        process.wait()
        try:
            assert holder == "parent"
            with closing(SqliteStore(tmp_path / "store.db")) as store:
                store.acquire("we")
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_every_name_of_a_file_leads_to_the_same_owner(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "store.db")
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        store.acquire("we")
        with closing(SqliteStore(tmp_path / "link.db")) as other, refused(StoreInUse, "we"):
            other.acquire("they")


def test_release_leaves_no_lock_file_behind(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        store.acquire("we")
        assert (tmp_path / "store.db.lock").exists()
        store.release()
        assert not (tmp_path / "store.db.lock").exists()
        store.acquire("we again")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["store.db"]


def test_asking_for_the_owner_never_keeps_an_engine_from_starting(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    done = threading.Event()

    def ask() -> None:
        with closing(SqliteStore(path)) as other:
            while not done.is_set():
                other.owner()

    with closing(SqliteStore(path)) as store:
        curious = [threading.Thread(target=ask) for _ in range(2)]
        for thread in curious:
            thread.start()
        try:
            for _ in range(100):
                store.acquire("we")
                store.release()
        finally:
            done.set()
            for thread in curious:
                thread.join()


def test_of_many_engines_that_start_at_once_one_wins(tmp_path: Path) -> None:
    path, won = tmp_path / "store.db", []
    stores = [SqliteStore(path) for _ in range(8)]
    start = threading.Barrier(len(stores))

    def run(store: SqliteStore) -> None:
        start.wait()
        try:
            store.acquire("an engine")
        except StoreInUse:
            return
        won.append(store)

    threads = [threading.Thread(target=run, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert len(won) == 1


def test_who_locks_a_lock_file_that_was_just_removed_does_not_own_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (FileLock(tmp_path / "store.db.lock") for _ in range(3))
    first.acquire("the first")
    lock = file_lock._lock

    def overtaken(descriptor: int, kind: int) -> bool:
        """Between opening and locking, the owner leaves and another engine takes over."""
        monkeypatch.undo()
        first.release()
        third.acquire("the third")
        return lock(descriptor, kind)

    monkeypatch.setattr(file_lock, "_lock", overtaken)
    with refused(StoreInUse, "the third"):
        second.acquire("the second")
    third.release()


def test_a_reader_cannot_become_the_engine(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "store.db").close()
    with (
        closing(SqliteStore(tmp_path / "store.db", read_only=True)) as store,
        refused(StoreError, "reading only"),
    ):
        store.acquire("we")

"""Threads and processes side by side on one file."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from anabranch.errors import Conflict, StoreError
from anabranch.store.sqlite.file import CHECKPOINT_PAGES
from anabranch.store.sqlite.store import SqliteStore
from anabranch.testing.store_suite.samples import NOW, a_batch, a_commit, a_head, refused
from hangs import HANG_SECONDS


def python(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


def output(process: subprocess.Popen[str]) -> str:
    try:
        text, _ = process.communicate(timeout=HANG_SECONDS)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0
    return text


def test_processes_that_create_the_same_file_at_once_share_it(tmp_path: Path) -> None:
    program = """
import sys
from anabranch.store.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1])
store.post("r1", b"{}", 1)
store.close()
"""
    processes = [python(program, tmp_path / "store.db") for _ in range(4)]
    with ThreadPoolExecutor(
        4
    ) as pool:  # each of them is waited for, whatever becomes of the others
        list(pool.map(output, processes))
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        assert [message.id for message in store.unanswered()] == [1, 2, 3, 4]


def test_threads_that_create_the_same_file_at_once_share_it(tmp_path: Path) -> None:
    for attempt in range(10):
        path = tmp_path / f"{attempt}.db"
        start = threading.Barrier(4)

        def post(path: Path = path, start: threading.Barrier = start) -> int:
            start.wait()
            with closing(SqliteStore(path)) as store:
                return store.post("r1", b"{}", NOW)

        with ThreadPoolExecutor(4) as pool:
            numbers = [future.result() for future in [pool.submit(post) for _ in range(4)]]
        assert sorted(numbers) == [1, 2, 3, 4]


def test_a_file_that_another_program_creates_between_two_looks_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first page is there, and has no name yet; then the rest is written."""
    path, whole, look = tmp_path / "store.db", tmp_path / "whole.db", os.pread
    with closing(sqlite3.connect(path)) as db:
        db.execute("VACUUM")
    SqliteStore(whole).close()

    def look_and_write(descriptor: int, count: int, offset: int) -> bytes:
        seen = look(descriptor, count, offset)
        monkeypatch.undo()
        path.write_bytes(whole.read_bytes())
        return seen

    monkeypatch.setattr(os, "pread", look_and_write)
    with closing(SqliteStore(path)) as store:
        assert store.post("r1", b"{}", NOW) == 1


def test_a_reader_in_another_process_follows_the_engine(tmp_path: Path) -> None:
    program = """
import sys
from anabranch.store.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1], read_only=True)
print(store.changed(), store.changed(), flush=True)
seq = 0
while seq < 200:
    if store.changed():
        seq = store.head("r1").seq
        assert [r.first_seq for r in store.read("r1")][:seq] == list(range(1, seq + 1))
print(store.owner().split()[0])
store.close()
"""
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        store.acquire("engine")
        store.commit(a_batch(a_commit("r1", 1)))
        reader = python(program, tmp_path / "store.db")
        assert reader.stdout is not None
        assert reader.stdout.readline() == "True False\n"
        for last in range(2, 201):
            store.commit(a_batch(a_commit("r1", last)))
        assert output(reader) == "engine\n"


def test_a_request_posted_by_another_process_is_answered(tmp_path: Path) -> None:
    program = """
import sys
from anabranch.store.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1])
number = store.post("r1", b'"pause"', 5)
while store.message(number).answer is None:
    pass
print(store.message(number).answer.decode())
store.close()
"""
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        client = python(program, tmp_path / "store.db")
        while not (waiting := store.unanswered()):
            pass
        assert store.changed()
        (message,) = waiting
        assert (message.run, message.body, message.posted_at) == ("r1", b'"pause"', 5)
        store.commit(a_batch(a_commit("r1", 1), answers={message.id: b'"paused"'}))
        assert output(client) == '"paused"\n'


def test_reads_and_the_look_for_news_do_not_wait_for_a_commit_in_progress(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> int:
        begun.set()
        go_on.wait(HANG_SECONDS)
        return 0

    with closing(SqliteStore(tmp_path / "store.db")) as store:
        store.commit(a_batch(a_commit("r1", 1)))
        store.changed()
        with closing(SqliteStore(tmp_path / "store.db")) as other:
            other.post("r1", b"{}", NOW)
        assert store._writer is not None
        store._writer.set_progress_handler(hold, 1)
        writer = threading.Thread(target=store.commit, args=(a_batch(a_commit("r1", 2)),))
        writer.start()
        try:
            assert begun.wait(HANG_SECONDS)
            assert store.head("r1") == a_head("r1", 1)
            assert len(store.read("r1")) == 1
            assert not store.changed(), "nobody waits for the commit to learn this"
            assert writer.is_alive()
        finally:
            go_on.set()
            writer.join()
        assert store.changed(), "what another one wrote is told at the next look"
        assert not store.changed()
        assert store.head("r1") == a_head("r1", 2)


def test_threads_take_turns_and_lose_nothing(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "store.db", synchronous="NORMAL")) as store:

        def work(run: str) -> None:
            for last in range(1, 51):
                store.commit(a_batch(a_commit(run, last)))
                assert store.head(run) == a_head(run, last)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, ["a", "b", "c", "d"]))
        assert store.statistics()["records"] == 200


def test_threads_that_race_for_one_run_move_it_once_each_time(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "store.db", synchronous="NORMAL")) as store:

        def race(last: int) -> int:
            try:
                store.commit(a_batch(a_commit("r1", last)))
            except Conflict:
                return 0
            return 1

        for last in range(1, 20):
            with ThreadPoolExecutor(3) as pool:
                assert sum(pool.map(race, [last] * 3)) == 1


def test_the_write_ahead_log_stays_bounded(tmp_path: Path) -> None:
    path, bound = tmp_path / "store.db", 2 * CHECKPOINT_PAGES * 4096
    with closing(SqliteStore(path, synchronous="NORMAL")) as store:
        written = 0
        for last in range(1, 46):
            commits = [replace(a_commit(f"r{n}", last), events=bytes(8000)) for n in range(150)]
            store.commit(a_batch(*commits))
            written += 150 * 8000
        assert written > bound > path.with_name("store.db-wal").stat().st_size
    assert not path.with_name("store.db-wal").exists()


def test_a_writer_elsewhere_is_waited_for_a_while_and_then_named(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(SqliteStore(path)) as store, closing(sqlite3.connect(path)) as other:
        assert store._writer is not None
        store._writer.execute("PRAGMA busy_timeout = 20")
        other.execute("BEGIN IMMEDIATE")
        with refused(StoreError, "locked", "store.db"):
            store.commit(a_batch(a_commit("r1", 1)))
        assert store.head("r1") is None
        other.rollback()
        store.commit(a_batch(a_commit("r1", 1)))

"""When the disk, a value or the process itself fails: a clear error, and whole batches only."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import StoreError, UnusableStore
from anabranch.store.ports import Batch
from anabranch.store.sqlite.errors import translate
from anabranch.store.sqlite.store import SqliteStore
from anabranch.testing.store_suite.samples import NOW, a_batch, a_commit, a_head, refused, sha256


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "store.db")) as opened:
        opened.commit(a_batch(a_commit("r1", 1)))
        yield opened


def writer_of(store: SqliteStore) -> sqlite3.Connection:
    assert store._writer is not None
    return store._writer


def test_a_full_disk_keeps_nothing_of_the_batch_and_the_store_goes_on(store: SqliteStore) -> None:
    (pages,) = writer_of(store).execute("PRAGMA page_count").fetchone()
    writer_of(store).execute(f"PRAGMA max_page_count = {pages + 3}")
    content = bytes(100_000)
    with refused(StoreError, "disk is full", "store.db"):
        store.commit(a_batch(a_commit("r1", 2), payloads={sha256(content): content}))
    assert store.head("r1") == a_head("r1", 1)
    with refused(StoreError, "disk is full"):
        store.put_payload(sha256(content), content)
    writer_of(store).execute("PRAGMA max_page_count = 1000000")
    store.commit(a_batch(a_commit("r1", 2), payloads={sha256(content): content}))
    assert store.payload(sha256(content)) == content


@pytest.mark.parametrize(
    "change",
    [{"next_wake": 2**63}, {"status": "\ud800"}, {"name": object()}, {"status": None}],
    ids=["too large", "not text", "no such type", "missing"],
)
def test_a_value_that_cannot_be_stored_is_refused_with_the_whole_batch(
    change: dict[str, Any], store: SqliteStore
) -> None:
    with refused(StoreError, "store.db", "othing was written"):
        store.commit(a_batch(a_commit("r2", 1), a_commit("r1", 2, **change)))
    assert store.head("r2") is None
    assert store.head("r1") == a_head("r1", 1)
    store.commit(a_batch(a_commit("r1", 2)))


def test_an_interrupted_commit_leaves_no_transaction_open(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> bool:
        writer_of(store).execute("UPDATE heads SET status = 'half'")
        raise KeyboardInterrupt

    monkeypatch.setattr("anabranch.store.sqlite.commits.write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.commit(a_batch(a_commit("r1", 2)))
    monkeypatch.undo()
    assert store.head("r1") == a_head("r1", 1)
    store.commit(a_batch(a_commit("r1", 2)))


def test_a_reader_writes_nothing(store: SqliteStore, tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "store.db", read_only=True)) as reader:
        for write in (
            lambda: reader.commit(a_batch(a_commit("r1", 2))),
            lambda: reader.post("r1", b"{}", NOW),
            lambda: reader.put_payload(sha256(b"p"), b"p"),
        ):
            with refused(StoreError, "reading only"):
                write()
        assert reader.head("r1") == a_head("r1", 1)
        reader.commit(Batch())


def test_an_unknown_durability_is_refused(tmp_path: Path) -> None:
    with refused(StoreError, "FULL or NORMAL"):
        SqliteStore(tmp_path / "store.db", synchronous="OFF")  # type: ignore[arg-type]
    assert not (tmp_path / "store.db").exists()


@pytest.mark.parametrize(
    ("number", "name", "kind", "code"),
    [
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "SQLITE_BUSY_SNAPSHOT", StoreError, "store_busy"),
        (sqlite3.SQLITE_LOCKED, "SQLITE_LOCKED", StoreError, "store_busy"),
        (sqlite3.SQLITE_FULL, "SQLITE_FULL", StoreError, "store_full"),
        (sqlite3.SQLITE_IOERR_FSYNC, "SQLITE_IOERR_FSYNC", StoreError, "store_io"),
        (sqlite3.SQLITE_READONLY, "SQLITE_READONLY", StoreError, "store_read_only"),
        (sqlite3.SQLITE_CANTOPEN, "SQLITE_CANTOPEN", StoreError, "store_cannot_open"),
        (sqlite3.SQLITE_TOOBIG, "SQLITE_TOOBIG", StoreError, "store_too_big"),
        (sqlite3.SQLITE_CORRUPT_VTAB, "SQLITE_CORRUPT_VTAB", UnusableStore, "unusable_store"),
        (sqlite3.SQLITE_NOTADB, "SQLITE_NOTADB", UnusableStore, "unusable_store"),
        (sqlite3.SQLITE_ERROR, "SQLITE_ERROR", StoreError, "store"),
    ],
)
def test_errors_of_the_driver_are_told_apart_by_their_code(
    number: int, name: str, kind: type[StoreError], code: str
) -> None:
    error = sqlite3.OperationalError("words that may change")
    error.sqlite_errorcode, error.sqlite_errorname = number, name
    found = translate(error, Path("/data/store.db"))
    assert (type(found), found.code) == (kind, code)
    assert "/data/store.db" in found.message
    assert name in found.message


COMMIT_UNTIL_KILLED = """
import sys
from anabranch.store.sqlite.store import SqliteStore
from anabranch.testing.store_suite.samples import a_batch, a_commit, sha256
store = SqliteStore(sys.argv[1])
store.acquire("engine")
last = store.head("a").seq if store.head("a") else 0
while True:
    last += 1
    content = b"%d" % last
    number = store.post("a", content, last)
    store.commit(
        a_batch(
            *(a_commit(run, last, snapshot=content) for run in "abcdefgh"),
            payloads={sha256(content): content},
            answers={number: content},
        )
    )
    print(last, flush=True)
"""


def test_a_killed_engine_leaves_whole_batches_and_every_confirmed_one(tmp_path: Path) -> None:
    path, dice, confirmed = tmp_path / "store.db", random.Random(5), 0
    for _ in range(3):
        arguments = [sys.executable, "-c", COMMIT_UNTIL_KILLED, str(path)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(10)]
            time.sleep(dice.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.read().splitlines()
        confirmed = int(lines[-1])
        with closing(SqliteStore(path)) as store:
            last = check_whole(store)
            assert last >= confirmed
    assert confirmed >= 30


def check_whole(store: SqliteStore) -> int:
    first = store.head("a")
    assert first is not None
    for run in "abcdefgh":
        head = store.head(run)
        assert head is not None
        assert head.seq == first.seq
        assert [record.first_seq for record in store.read(run)] == list(range(1, head.seq + 1))
    content = b"%d" % first.seq
    assert store.payload(sha256(content)) == content
    answered = [m for n in range(1, first.seq + 9) if (m := store.message(n)) and m.answer]
    assert [message.body for message in answered] == [b"%d" % n for n in range(1, first.seq + 1)]
    return first.seq

"""A file that is not a sound store of ours is refused with a reason and left exactly as it was."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from anabranch.errors import NotFound, StoreError, UnusableStore
from anabranch.store.sqlite.file import MIGRATIONS
from anabranch.store.sqlite.store import SqliteStore
from anabranch.store_files import APPLICATION_ID
from anabranch.testing.store_suite.samples import a_batch, a_commit, a_head, refused, sha256


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file()}


@contextmanager
def untouched(directory: Path, *, but: str = "") -> Iterator[None]:
    before = contents(directory)
    yield
    after = contents(directory)
    assert sorted(after) == sorted(before)
    assert {n for n in after if n != but and after[n] != before[n]} == set()


def a_store(path: Path, runs: int = 3, events: int = 2) -> None:
    with closing(SqliteStore(path)) as store:
        store.commit(a_batch(*(a_commit(f"r{n:04}", events, events) for n in range(runs))))


def foreign(path: Path, *pragmas: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        for pragma in pragmas:
            db.execute(f"PRAGMA {pragma}")
        db.execute("CREATE TABLE customers (name TEXT)")
        db.execute("INSERT INTO customers VALUES ('somebody')")
        db.commit()


def overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def text(path: Path) -> None:
    path.write_text("name: not a database\n" * 100)


def short(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\x00")


def zeros(path: Path) -> None:
    path.write_bytes(bytes(8192))


def another_program(path: Path) -> None:
    foreign(path)


def another_program_with_a_log(path: Path) -> None:
    foreign(path, "journal_mode = WAL")


def another_application_id(path: Path) -> None:
    foreign(path, "application_id = 1234", "user_version = 1")


def without_our_tables(path: Path) -> None:
    foreign(path, f"application_id = {APPLICATION_ID}", f"user_version = {len(MIGRATIONS)}")


def newer(path: Path) -> None:
    a_store(path)
    overwrite(path, 60, (len(MIGRATIONS) + 1).to_bytes(4, "big"))


def damaged_magic(path: Path) -> None:
    a_store(path)
    overwrite(path, 3, b"X")


def damaged_page_size(path: Path) -> None:
    a_store(path)
    overwrite(path, 16, b"\x12\x34")


def truncated(path: Path) -> None:
    a_store(path, runs=200)
    os.truncate(path, path.stat().st_size - 3 * 4096)


def damaged_schema(path: Path) -> None:
    a_store(path)
    overwrite(path, 100, b"\xff" * 64)


def damaged_root_pages(path: Path) -> None:
    a_store(path)
    overwrite(path, 4096, b"\xff" * 4096 * 5)


CASES: list[tuple[Callable[[Path], None], str]] = [
    (text, "not a SQLite database"),
    (short, "not a SQLite database"),
    (zeros, "not a SQLite database"),
    (damaged_magic, "not a SQLite database"),
    (another_program, "another program"),
    (another_program_with_a_log, "another program"),
    (another_application_id, "another program"),
    (without_our_tables, "lacks the tables"),
    (newer, "newer Anabranch"),
    (damaged_page_size, "damaged"),
    (truncated, "damaged"),
    (damaged_schema, "damaged"),
    (damaged_root_pages, "damaged"),
]


@pytest.mark.parametrize("read_only", [False, True], ids=["writing", "reading"])
@pytest.mark.parametrize(("make", "words"), CASES, ids=[make.__name__ for make, _ in CASES])
def test_an_unusable_file_is_refused_and_left_untouched(
    make: Callable[[Path], None], words: str, read_only: bool, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    make(path)
    with untouched(tmp_path), refused(UnusableStore, str(path), words):
        SqliteStore(path, read_only=read_only)


def test_a_newer_schema_that_still_stands_in_the_log_is_not_moved_into_the_file(
    tmp_path: Path,
) -> None:
    original, path = tmp_path / "a" / "store.db", tmp_path / "b" / "store.db"
    original.parent.mkdir()
    a_store(original)
    with closing(sqlite3.connect(original)) as db:
        db.execute("PRAGMA user_version = 99")
        db.commit()
        shutil.copytree(original.parent, path.parent)  # as a crash would leave it
    assert (path.parent / "store.db-wal").stat().st_size > 0
    # SQLite rebuilds the index of the log whenever it looks; the file and the log hold the data.
    with untouched(path.parent, but="store.db-shm"), refused(UnusableStore, "newer", "99"):
        SqliteStore(path)


def test_one_damaged_page_is_reported_by_the_read_that_meets_it_and_by_no_other(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    runs = [f"r{n:04}" for n in range(300)]
    marks = {run: f"the only event of {run} ".encode() * 20 for run in runs}
    with closing(SqliteStore(path)) as store:
        store.commit(
            a_batch(
                *(
                    msgspec.structs.replace(a_commit(run, 1), events=b'["%b"]' % marks[run])
                    for run in runs
                )
            )
        )
    content = path.read_bytes()
    page = content.index(marks["r0150"]) // 4096  # where the log of this run lies
    there = content[page * 4096 : (page + 1) * 4096]
    hurt = [run for run in runs if marks[run] in there]
    overwrite(path, page * 4096, b"\xff" * 4096)
    assert 2 <= len(hurt) < 20
    first, last = runs.index(hurt[0]), runs.index(hurt[-1])
    beside = {runs[first - 1], runs[last + 1]}  # to see where their log ends may take a look there
    with untouched(tmp_path), closing(SqliteStore(path)) as store:
        for run in runs:
            if run in hurt:
                with refused(UnusableStore, str(path), "damaged", "backup"):
                    store.read(run)
            elif run not in beside:
                assert [record.events for record in store.read(run)] == [b'["%b"]' % marks[run]]
        with refused(UnusableStore, "damaged"):
            store.read_many(runs)


def test_a_payload_that_no_longer_matches_its_hash_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(SqliteStore(path)) as store:
        store.put_payload(sha256(b"right"), b"right")
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE payloads SET content = x'00'")
            db.commit()
        with refused(UnusableStore, sha256(b"right")):
            store.payload(sha256(b"right"))


@pytest.mark.parametrize("read_only", [False, True])
def test_a_path_that_cannot_hold_a_store_is_named(read_only: bool, tmp_path: Path) -> None:
    with refused(StoreError, "no directory", str(tmp_path / "missing")):
        SqliteStore(tmp_path / "missing" / "store.db", read_only=read_only)
    with refused(StoreError, "a directory", str(tmp_path)):
        SqliteStore(tmp_path, read_only=read_only)
    with refused(StoreError, "not an ordinary file"):
        SqliteStore("/dev/null", read_only=read_only)
    (tmp_path / "file").write_text("")
    with refused(StoreError, "file/store.db"):
        SqliteStore(tmp_path / "file" / "store.db", read_only=read_only)


def test_a_reader_creates_nothing(tmp_path: Path) -> None:
    with untouched(tmp_path), refused(NotFound, "store.db"):
        SqliteStore(tmp_path / "store.db", read_only=True)
    (tmp_path / "store.db").touch()
    with untouched(tmp_path), refused(NotFound, "store.db"):
        SqliteStore(tmp_path / "store.db", read_only=True)
    a_store(tmp_path / "store.db")
    with untouched(tmp_path), closing(SqliteStore(tmp_path / "store.db", read_only=True)) as store:
        assert store.head("r0001") == a_head("r0001", 2)


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch()
    a_store(path)
    assert contents(tmp_path).keys() == {"store.db"}


@pytest.mark.parametrize("name", ["with space.db", "50%?.db", "#1.db", ":memory:", "ünï.db"])
def test_any_file_name_will_do(name: str, tmp_path: Path) -> None:
    a_store(tmp_path / name)
    assert contents(tmp_path).keys() == {name}


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that an ordinary user can reach; permissions do not bind the administrator."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    try:
        os.seteuid(65534)
    except OSError:
        pytest.skip("cannot become an ordinary user here")
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_directory_without_write_permission_is_reported(public: Path) -> None:
    public.chmod(0o555)
    with as_ordinary_user(), refused(StoreError, "permissions", "store.db"):
        SqliteStore(public / "store.db")


def test_a_file_without_write_permission_is_reported(public: Path) -> None:
    path = public / "store.db"
    a_store(path)
    path.chmod(0o444)
    public.chmod(0o555)
    before = path.read_bytes()
    with as_ordinary_user(), refused(StoreError, "permissions", "store.db"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_file_that_may_not_be_read_is_reported(public: Path) -> None:
    path = public / "store.db"
    a_store(path)
    path.chmod(0o000)
    with as_ordinary_user(), refused(StoreError, "Permission denied", "store.db"):
        SqliteStore(path)


@pytest.mark.skipif(sys.platform != "linux", reason="the descriptors of a process are listed there")
def test_a_file_that_cannot_be_opened_is_not_left_open(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    with path.open("r+b") as file:
        file.seek(16)
        file.write(b"\x00\x03")  # no size of a page
    with pytest.raises(UnusableStore) as kept:  # with its frames, and what they have opened
        SqliteStore(path)
    links = [os.path.realpath(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd")]
    assert str(path) not in links, kept

"""The state of a node in a store: checked with the rest, copied to a file, to nothing shared."""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.errors import StoreError
from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.stores.check import StoreReport, check_store
from anabranch.operations.stores.copy import copy_store
from anabranch.operations.stores.opening import inspect_store
from anabranch.store.ports import Batch
from anabranch.store.sqlite.store import SqliteStore
from anabranch.store.stream_ports import StreamCard, StreamEvents
from anabranch.testing.store_suite.samples import a_batch, a_commit, refused
from anabranch.testing.store_suite.streams import a_stream

from .filled import settings_of

STREAMS = 30


def quietly(_what: str, _done: int, _total: int) -> None:
    """Progress that no one looks at."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "node.db"
    with closing(SqliteStore(path)) as store:
        first = [a_stream(f"s/{n:02}", 2, 2, open=n % 2 == 0, group="g") for n in range(STREAMS)]
        store.commit(Batch(streams=first))
        store.commit(Batch(streams=[a_stream("s/00", 3, open=True, wake=7)]))
    return path


def state_of(path: Path) -> list[tuple[StreamCard | None, list[StreamEvents]]]:
    with closing(SqliteStore(path, read_only=True)) as store:
        streams = store.node_streams
        assert streams is not None
        names = streams.stream_names()
        return [(streams.stream(name), streams.stream_events(name)) for name in names]


def checked(path: Path) -> StoreReport:
    with inspect_store(settings_of(path)) as inspection:
        return check_store(inspection, compiler(), quietly)


def test_the_state_of_a_node_is_copied_from_file_to_file(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    report = copy_store(settings_of(""), str(path), str(target), quietly)
    assert state_of(target) == state_of(path)
    assert {one.table: one.rows for one in report.tables if one.rows} == {
        "streams": STREAMS,
        "stream_events": STREAMS + 1,
    }
    assert report.check.streams == STREAMS


def test_a_file_with_the_state_of_a_node_is_not_empty(path: Path, tmp_path: Path) -> None:
    source = tmp_path / "other.db"
    with closing(SqliteStore(source)) as store:
        store.commit(a_batch(a_commit("r1", 1)))
    with pytest.raises(StoreError, match="not empty") as caught:
        copy_store(settings_of(""), str(source), str(path), quietly)
    assert caught.value.code == "store_not_empty"


def test_a_database_that_servers_share_takes_no_copy_of_a_node(path: Path, postgres: str) -> None:
    schema = f"node_{secrets.token_hex(6)}"
    address = f"{postgres}{'&' if '?' in postgres else '?'}schema={schema}"
    with refused(StoreError, "state of a node", "Copy it to a file"):
        copy_store(settings_of(""), str(path), address, quietly)
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres) as db:
        query = "SELECT count(*) FROM information_schema.schemata WHERE schema_name = %s"
        assert db.execute(query, (schema,)).fetchone() == (0,), "nothing was made"


def test_a_file_without_a_node_is_copied_to_such_a_database(tmp_path: Path, postgres: str) -> None:
    source, back = tmp_path / "plain.db", tmp_path / "back.db"
    SqliteStore(source).close()
    joint = "&" if "?" in postgres else "?"
    address = f"{postgres}{joint}schema=plain_{secrets.token_hex(6)}"
    assert copy_store(settings_of(""), str(source), address, quietly).check.sound
    assert copy_store(settings_of(""), address, str(back), quietly).check.sound


def test_a_sound_state_is_found_sound(path: Path) -> None:
    report = checked(path)
    assert report.problems == []
    assert report.streams == STREAMS


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("DELETE FROM stream_events WHERE stream = 's/00' AND last_seq = 2",
         "s/00 has events 3 to 3 where event 1 is expected"),
        ("DELETE FROM stream_events WHERE stream = 's/00' AND last_seq = 3",
         "s/00 ends at event 2, and its card says 3"),
        ("UPDATE streams SET seq = 9 WHERE stream = 's/07'",
         "s/07 ends at event 2, and its card says 9"),
        ("DELETE FROM streams WHERE stream = 's/07'", "s/07 has events and no card"),
        ("UPDATE streams SET state = x'7b' WHERE stream = 's/07'", "state cannot be read"),
        ("UPDATE stream_events SET events = x'7b' WHERE stream = 's/07'", "cannot be read"),
        ("UPDATE stream_events SET events = '[1]' WHERE stream = 's/07'",
         "s/07 has 1 events in the row of events 1 to 2"),
    ],
)  # fmt: skip
def test_what_was_changed_in_a_stream_is_found(path: Path, change: str, said: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(change.replace("'[1]'", "CAST('[1]' AS BLOB)"))
    (problem,) = checked(path).problems
    assert problem.part == "stream"
    assert said in problem.message

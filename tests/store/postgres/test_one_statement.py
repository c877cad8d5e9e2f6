"""A turn is one statement, whose parts find their rows by a key however large the tables are."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg import generators, pq

from anabranch.errors import Conflict
from anabranch.store.ports import Batch, Commit, Hold
from anabranch.store.postgres.one_statement import FEW_ROWS, _fits
from anabranch.store.postgres.store import PostgresStore
from anabranch.testing.store_suite.samples import NOW, a_commit, sha256

RUNS = [f"run-{number}" for number in range(2 * FEW_ROWS)]


@pytest.fixture
def store(postgres: str, request: pytest.FixtureRequest) -> Iterator[PostgresStore]:
    address = f"{postgres}{'&' if '?' in postgres else '?'}schema={request.node.name[:60]}"
    made = PostgresStore(address, partitions=128)
    made.acquire("test")
    yield made
    made.close()


def plans(store: PostgresStore) -> list[str]:
    """Of what is prepared at present, as the server carries it out."""
    with store._connections.writer() as db:
        found = []
        for plan, name in store._statement._sessions[db].names.items():
            given = b",".join([b"NULL"] * len(plan.types))
            rows: list[Any] = db.execute(
                b"EXPLAIN EXECUTE " + name + b"(" + given + b")"
            ).fetchall()
            found.append("\n".join(line for (line,) in rows))
        return found


def test_rows_are_found_by_a_key_on_an_empty_store_and_on_a_full_one(store: PostgresStore) -> None:
    def write(seq: int, **more: Any) -> None:
        commits: list[Commit] = [a_commit(run, seq, finished=seq == 3) for run in RUNS]
        store.commit(Batch(commits=commits, **more))

    write(1, holds=[Hold("0" * 64, run, "step") for run in RUNS])
    write(2)
    messages = [store.post(run, b"{}", NOW) for run in RUNS[:3]]
    answers = dict.fromkeys(messages, b"{}")
    write(3, answers=answers, ended=dict.fromkeys(RUNS, (NOW, NOW)))
    for plan in plans(store):
        assert "Seq Scan" not in plan
        assert "_unfinished" not in plan
        assert "_unanswered" not in plan


def test_what_was_planned_for_small_tables_is_planned_anew(store: PostgresStore) -> None:
    store.commit(Batch(commits=[a_commit("first", 1)]))
    with store._connections.writer() as db:
        session = store._statement._sessions[db]
    before = set(session.names.values())
    for run in RUNS:
        store.commit(Batch(commits=[a_commit(run, 1)]))
    assert before.isdisjoint(session.names.values())
    assert store.head(RUNS[-1]) is not None


def test_the_settings_of_the_planner_outlive_a_first_batch_that_is_refused(
    store: PostgresStore,
) -> None:
    content = b"content"
    payloads = {sha256(content): content}
    with pytest.raises(Conflict):
        store.commit(Batch(commits=[a_commit("run", 2)], payloads=payloads))
    with store._connections.writer() as db:
        assert db.execute("SHOW enable_seqscan").fetchone() == ("off",)


def test_what_is_prepared_outlives_a_batch_that_is_refused(store: PostgresStore) -> None:
    """The driver prepares what it is given often, and drops everything after a rollback."""
    payloads = {sha256(b"content"): b"content"}
    for _ in range(10):
        store.post("run", b"{}", NOW)
    store.commit(Batch(commits=[a_commit("run", 1)], payloads=payloads))
    with pytest.raises(Conflict):
        store.commit(Batch(commits=[a_commit("run", 1)], payloads=payloads))
    store.commit(Batch(commits=[a_commit("other", 1)], payloads=payloads))
    assert store.head("other") is not None


class Result(NamedTuple):
    status: pq.ExecStatus

    def get_error_message(self) -> str:
        return "terminating connection due to administrator command"


@pytest.mark.parametrize(
    "found", [(), (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.FATAL_ERROR)], ids=["nothing", "both"]
)
def test_a_server_that_goes_behind_its_answer_has_hung_up(
    found: tuple[pq.ExecStatus, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What became of the commit is not known then; whoever owns the run looks into the log."""
    db: Any = SimpleNamespace(pgconn=None, closed=False, wait=lambda given: given)
    results = [Result(status) for status in found]
    monkeypatch.setattr(generators, "execute", lambda _connection: results)
    with pytest.raises(psycopg.OperationalError) as caught:
        _fits(db)
    assert caught.value.sqlstate is None  # as of any connection that is lost

"""Connections are pooled and bounded: however many read, a store has no more than it may."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from anabranch.errors import StoreError
from anabranch.store.outages import AWAY, READ_ONLY, passes
from anabranch.store.ports import Batch, HeadFilter
from anabranch.store.postgres import connections as connections_module
from anabranch.store.postgres.connections import READERS_MAX
from anabranch.store.postgres.store import PostgresStore
from anabranch.testing.store_suite.samples import a_commit
from hangs import HANG_SECONDS
from postgres_proxy import CommitProxy
from postgres_server import PostgresServer

#: The writer, the lease and the notifications beside the readers; a listener where there is one.
MOST = READERS_MAX + 3
THREADS = 20
SHORTEST_LEASE_SECONDS = 5.0  # that docs/postgres.md calls sensible


def connections(server: PostgresServer) -> int:
    rows = server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'anabranch'")
    return int(rows[0][0])


def test_many_threads_share_few_connections_and_outlive_their_loss(server: PostgresServer) -> None:
    store = PostgresStore(server.uri(schema="pooled"), partitions=2)
    most, hung_up = 0, threading.Event()

    def read(number: int) -> int:
        """How many of its reads came through, at last one; those that are under way while the
        connections are lost, and while new ones are made, may not."""
        through = done = 0
        while not (through and done >= 5 and hung_up.is_set()):
            done += 1
            try:
                store.heads(HeadFilter(limit=5))
                store.read_many(["r1"])
                through += 1
            except StoreError as error:
                if error.code != "store_away":
                    raise
        return through

    try:
        store.acquire("test")
        store.commit(Batch(commits=[a_commit("r1", 1)]))
        with ThreadPoolExecutor(THREADS) as threads:
            reading = [threads.submit(read, number) for number in range(THREADS)]
            while not all(one.done() for one in reading):
                most = max(most, connections(server))
                if most > 2 and not hung_up.is_set() and server.terminate_others() > 0:
                    hung_up.set()
                time.sleep(0.01)
            assert all(one.result() > 0 for one in reading)
        assert most <= MOST
        second = Batch(commits=[a_commit("r1", 2)])
        try:
            store.commit(second)
        except StoreError as error:  # where no reader lost its own, the writer finds out first
            if error.code != "store_away":
                raise
            store.commit(second)
        head = store.head("r1")
        assert head is not None
        assert head.seq == 2
    finally:
        store.close()
    while connections(server):  # the server takes a moment to notice
        time.sleep(0.01)


def test_a_reader_that_waits_gets_the_place_of_a_connection_that_was_lost(
    server: PostgresServer,
) -> None:
    store = PostgresStore(server.uri(schema="waiting"), partitions=2)
    try:
        with ThreadPoolExecutor(READERS_MAX + 1) as threads:
            sleep = "SELECT pg_sleep(600)"
            taken = [threads.submit(store._rows, sleep, {}) for _ in range(READERS_MAX)]
            busy = (
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE application_name = 'anabranch' AND query LIKE '%pg_sleep%'"
            )
            while server.sql(busy) != [(READERS_MAX,)]:
                time.sleep(0.01)
            waiting = threads.submit(store.head, "r1")
            server.terminate_others()
            for one in taken:
                with pytest.raises(StoreError, match="connection"):
                    one.result()
            assert waiting.result() is None
    finally:
        store.close()


# -- sessions ----------------------------------------------------------------------------------

TEXT = "Zoë, 5 €, 東京"


def test_texts_are_kept_whatever_encoding_the_client_asks_for(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = server.uri(schema="texts", client_encoding="LATIN1")
    with monkeypatch.context() as patch:
        patch.setenv("PGCLIENTENCODING", "LATIN1")
        store = PostgresStore(address, partitions=2)
        store.acquire("test")
        store.commit(Batch(commits=[a_commit("r1", 1, name=TEXT)]))
        head = store.head("r1")
        store.close()
    assert head is not None
    assert head.name == TEXT
    assert server.sql("SELECT name FROM texts.heads") == [(TEXT,)]


def test_transactions_see_what_was_committed_while_they_waited_whatever_the_role_has_set(
    server: PostgresServer,
) -> None:
    address = server.uri(schema="isolated", options="-c default_transaction_isolation=serializable")
    store = PostgresStore(address, partitions=2)
    try:
        with store._connections.writer() as db:
            db.execute("BEGIN")
            assert db.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
    finally:
        store.close()


def test_a_process_that_is_stopped_inside_a_transaction_keeps_no_partition_locked(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be left alone by those that claim, long after the end of its lease."""
    name = "idle_in_transaction_session_timeout"
    asked = "SELECT setting::integer FROM pg_settings WHERE name = %s"
    with (
        closing(PostgresStore(server.uri(schema="idle"), partitions=2)) as store,
        store._connections.writer() as db,
    ):
        ((milliseconds,),) = db.execute(asked, (name,)).fetchall()
        assert 0 < milliseconds < SHORTEST_LEASE_SECONDS * 1000
    monkeypatch.setitem(connections_module.WRITER, name, "200ms")
    with closing(PostgresStore(server.uri(schema="idle"))) as store:
        free = "SELECT count(*) FROM (SELECT 1 FROM idle.partitions FOR UPDATE SKIP LOCKED) AS rows"

        def stand_still() -> None:
            with store._transaction() as db:
                db.execute("SELECT 1 FROM partitions FOR UPDATE")
                while server.sql(free) != [(2,)]:
                    time.sleep(0.01)

        assert outage(stand_still) == AWAY


# -- several hosts -----------------------------------------------------------------------------


def test_a_connection_that_leads_to_a_replica_is_an_outage_that_passes(
    server: PostgresServer,
) -> None:
    """What a replica has may be older than what was committed: a server neither reads its runs
    there nor finds out there what became of a commit."""
    proxy = CommitProxy(server.socket)
    address = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?schema=hosts&sslmode=disable"
    store = PostgresStore(address, partitions=2)
    looking = PostgresStore(address, read_only=True)
    second = Batch(commits=[a_commit("r1", 2)])
    try:
        store.cluster.join("one", "", 600)
        store.cluster.claim(2)
        store.commit(Batch(commits=[a_commit("r1", 1)]))
        with server.standby() as standby:
            proxy.lead_to(str(server.folder / f".s.PGSQL.{standby.partition('port=')[2]}"))
            assert outage(lambda: store.head("r1")) == READ_ONLY
            assert outage(store.cluster.partition_records) == READ_ONLY
            assert outage(lambda: store.commit(second)) == AWAY  # what became of it?
            assert outage(lambda: store.commit(second)) == READ_ONLY
            assert looking.head("r1") is not None
            proxy.lead_to(server.socket)
        until_usable(store)
        store.commit(second)
        head = store.head("r1")
        assert head is not None
        assert head.seq == 2
    finally:
        store.close()
        looking.close()
        proxy.close()


def outage(ask: Callable[[], object]) -> str:
    """The code of an error that passes."""
    with pytest.raises(StoreError) as refused:
        ask()
    assert passes(refused.value)
    return refused.value.code


def until_usable(store: PostgresStore) -> None:
    """For a moment after a refusal a store does not ask again."""
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        try:
            store.head("r1")
            return
        except StoreError as error:
            if not passes(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)

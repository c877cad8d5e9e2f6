"""The schema of a store: chosen by name, made once by however many, refused where it is newer; and
the rights that a server needs, with a role that has no others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from anabranch import Engine, Toolbox
from anabranch.errors import StoreError, UnusableStore
from anabranch.settings import Settings
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch, HeadFilter
from anabranch.store.postgres import schema
from anabranch.store.postgres.store import PostgresStore
from anabranch.testing.store_suite.samples import a_commit
from postgres_server import PostgresServer, running_postgres
from runtime.support import asking, run

#: What docs/postgres.md tells to run, as a superuser or as the owner of the database.
ROLES = """
CREATE ROLE anabranch_owner LOGIN;
CREATE ROLE anabranch_server LOGIN;
GRANT CONNECT, CREATE ON DATABASE {database} TO anabranch_owner;
GRANT CONNECT ON DATABASE {database} TO anabranch_server;
"""
#: After the owner has created or migrated the store.
RIGHTS = """
GRANT USAGE ON SCHEMA anabranch TO anabranch_server;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA anabranch TO anabranch_server;
ALTER DEFAULT PRIVILEGES IN SCHEMA anabranch
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO anabranch_server;
"""


def dump(server: PostgresServer, name: str) -> list[tuple[object, ...]]:
    """Tables, columns and the comment of a schema."""
    return server.sql(
        "SELECT table_name, column_name, data_type FROM information_schema.columns "
        f"WHERE table_schema = '{name}' UNION ALL SELECT 'comment', "
        f"obj_description('{name}'::regnamespace, 'pg_namespace'), '' ORDER BY 1, 2"
    )


def test_two_stores_live_in_two_schemas_of_one_database(server: PostgresServer) -> None:
    one, two = (PostgresStore(server.uri(schema=name), partitions=2) for name in ("one", "two"))
    try:
        one.commit(Batch(commits=[a_commit("r1", 1)]))
        assert one.head("r1") is not None
        assert two.head("r1") is None
        assert server.sql("SELECT count(*) FROM one.log, one.heads") == [(1,)]
    finally:
        one.close()
        two.close()


def test_servers_that_start_at_once_create_it_once(server: PostgresServer) -> None:
    together = Barrier(6)

    def opened(_: int) -> int:
        together.wait()
        store = PostgresStore(server.uri(schema="rush"), partitions=4)
        store.close()
        return store.partitions

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(opened, range(6))) == [4] * 6
    assert server.sql("SELECT count(*) FROM rush.partitions") == [(4,)]
    assert server.sql("SELECT count(*) FROM rush.cluster") == [(1,)]


def test_a_migration_that_fails_changes_nothing(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    PostgresStore(server.uri(schema="stays"), partitions=2).close()
    before = dump(server, "stays")
    broken = [*schema.MIGRATIONS, "CREATE TABLE more (n int); SELECT 1 / 0"]
    monkeypatch.setattr(schema, "MIGRATIONS", broken)
    with pytest.raises(StoreError):
        PostgresStore(server.uri(schema="stays"))
    assert dump(server, "stays") == before
    monkeypatch.setattr(
        schema, "MIGRATIONS", [*schema.MIGRATIONS[:-1], "CREATE TABLE more (n int)"]
    )
    PostgresStore(server.uri(schema="stays")).close()
    assert ("more", "n", "integer") in dump(server, "stays")


def test_runs_of_an_older_store_are_found_by_label_once_it_is_upgraded(
    server: PostgresServer,
) -> None:
    def found(label: str) -> list[str]:
        heads = store.heads(HeadFilter(labels={"a": label}))
        return [head.run for head in heads]

    store = PostgresStore(server.uri(schema="labelled"), partitions=2)
    commits = [a_commit("r1", 1, labels={"a": "b", "c": "d"}), a_commit("r2", 1)]
    store.commit(Batch(commits=[*commits, a_commit("r3", 1, labels={"a": "b"})]))
    store.close()
    rows = "SELECT * FROM labelled.run_labels ORDER BY 1, 2, 3"
    before = server.sql(rows)
    server.sql(
        "DROP TABLE labelled.run_labels",
        "DROP INDEX labelled.heads_of_name",
        "DROP INDEX labelled.heads_of_origin",
        "COMMENT ON SCHEMA labelled IS 'anabranch store, version 5'",
    )
    store = PostgresStore(server.uri(schema="labelled"))
    try:
        assert server.sql(rows) == before
        assert found("b") == ["r3", "r1"]
        assert found("x") == []
    finally:
        store.close()


def test_a_newer_schema_is_refused_and_nothing_changes(server: PostgresServer) -> None:
    PostgresStore(server.uri(schema="newer"), partitions=2).close()
    newer = len(schema.MIGRATIONS) + 1
    server.sql(f"COMMENT ON SCHEMA newer IS 'anabranch store, version {newer}'")
    before = dump(server, "newer")
    for read_only in (False, True):
        with pytest.raises(UnusableStore, match=f"schema version {newer}.*Nothing was changed"):
            PostgresStore(server.uri(schema="newer"), read_only=read_only)
    assert dump(server, "newer") == before


def test_an_older_server_will_do() -> None:
    """The oldest that the package brings."""
    with running_postgres(version=16) as older:
        store = PostgresStore(older.uri(), partitions=4)
        try:
            assert older.sql("SHOW server_version")[0][0].startswith("16")
            store.acquire("test")
            commits = [a_commit("r1", 1), a_commit("r2", 1)]
            store.commit(Batch(commits=commits))
            message = store.post("r1", b"{}", 1)
            store.commit(Batch(commits=[a_commit("r1", 2)], answers={message: b"{}"}))
            assert [head.seq for head in map(store.head, ("r1", "r2")) if head] == [2, 1]
        finally:
            store.close()


# -- the least rights --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain_server_role(server: PostgresServer) -> str:
    """The address for a role with the rights that the docs list, and no others."""
    server.sql("CREATE DATABASE runs", "REVOKE ALL ON DATABASE runs FROM PUBLIC")
    server.sql(ROLES.format(database="runs"), database="runs")
    owner = server.uri(user="anabranch_owner", database="runs")
    PostgresStore(owner, partitions=4).close()
    import psycopg

    with psycopg.connect(owner, autocommit=True) as db:
        db.execute(RIGHTS)
    return server.uri(user="anabranch_server", database="runs")


def test_a_role_with_the_documented_rights_carries_out_runs(plain_server_role: str) -> None:
    """Two servers: leases, messages, notifications, payloads, a run with a question."""

    async def work() -> None:
        chosen = Settings(store=plain_server_role, grace_seconds=0.0)
        async with (
            Engine(settings=chosen, toolbox=Toolbox()) as one,
            Engine(settings=chosen, toolbox=Toolbox()) as two,
        ):
            for engine, other in ((one, two), (two, one)):
                name = await engine.start(asking(), {"much": "x" * 200_000}, allow_extra_input=True)
                await engine.wait(name, standing=True)
                await other.decide(name, "ask", "fulfil")
                assert (await other.wait(name)).status == "completed"

    run(work())


def test_a_role_with_the_documented_rights_does_everything_a_store_does(
    plain_server_role: str,
) -> None:
    store = PostgresStore(plain_server_role)
    model = MemoryStore()
    try:
        for one in (store, model):
            one.acquire("test")
            one.commit(Batch(commits=[a_commit("rights", 1)], payloads={}))
            one.commit(Batch(commits=[a_commit("rights", 2, finished=True)]))
            one.add_audit([])
            one.expire(2**40)
            assert one.forget(["rights"]).runs == 1
            one.release()
        store.probe_write()
        assert store.statistics()["bytes"] > 0
    finally:
        store.close()


def test_a_role_with_the_documented_rights_can_change_no_table(
    server: PostgresServer, plain_server_role: str
) -> None:
    import psycopg

    with psycopg.connect(plain_server_role, autocommit=True) as db:
        for statement in (
            "CREATE TABLE anabranch.mine (n int)",
            "DROP TABLE anabranch.log",
            "TRUNCATE anabranch.log",
            "CREATE SCHEMA mine",
            "ALTER TABLE anabranch.heads ADD COLUMN mine int",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                db.execute(statement)

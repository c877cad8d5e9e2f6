"""A connection that is lost at a COMMIT: the engine finds out what became of it.

At every commit of a run in turn, before the server hears of it, after it has committed, and while
nobody knows. The log is the same as without faults, and every step is carried out once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from itertools import count
from typing import Any, cast

import pytest

from anabranch import Engine
from anabranch.errors import Conflict, StoreError
from anabranch.store.postgres.store import PostgresStore
from anabranch.testing.store_suite.samples import a_batch, a_commit, refused
from hangs import HANG_SECONDS
from postgres_proxy import CommitProxy, Fault
from postgres_server import PostgresServer
from runtime.support import run

from .support import (
    ASKING,
    Tally,
    log_of,
    loop_of,
    new_schema,
    owned,
    patiently,
    rows_are_whole,
    settings,
    until,
)

pytestmark = pytest.mark.slow  # a server of its own, which is taken away

FAULTS: list[Fault] = ["before", "after", "late"]


async def one_run(engine: Engine, tally: Tally) -> str:
    before = tally.calls["count"]
    name: str = await patiently(lambda: engine.start(ASKING))
    await patiently(lambda: engine.wait(name, standing=True))
    await patiently(lambda: engine.patch(name, {"n": 1}, reducer="sum"))
    await patiently(lambda: engine.decide(name, "ask", "fulfil"))
    ended = await patiently(lambda: engine.wait(name))
    assert ended.status == "completed"
    assert tally.calls["count"] - before == 2, "every step once"
    return name


@pytest.mark.parametrize("fault", FAULTS)
def test_a_connection_lost_at_any_commit_of_a_run_loses_nothing_and_repeats_nothing(
    server: PostgresServer, proxy: CommitProxy, fault: Fault
) -> None:
    schema = new_schema()

    async def work() -> None:
        tally = Tally()
        uri = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"
        chosen = settings(uri, schema, server_lease_seconds=600.0)
        async with Engine(settings=chosen, toolbox=tally.toolbox) as engine:
            await one_run(engine, tally)  # its definition is stored with it
            proxy.arm(0, None)
            expected = log_of(engine, await one_run(engine, tally))
            for number in count(1):
                proxy.arm(number, fault)
                found = log_of(engine, await one_run(engine, tally))
                assert found == expected, f"{fault} commit {number}"
                if not proxy.lost:  # the run has fewer commits than that
                    break
            assert number > 4

    run(work())
    rows_are_whole(server, schema)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_commit_whose_end_was_not_seen_is_not_written_again_after_others_had_the_partition(
    server: PostgresServer, proxy: CommitProxy, fault: Fault
) -> None:
    """The server is stopped for longer than its lease, another one has all of its partitions and
    leaves, and the claim that the first one was about to make comes after that."""
    schema = new_schema()
    far = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?schema={schema}"
    near = f"{server.uri()}{'&' if '?' in server.uri() else '?'}schema={schema}"
    with (
        closing(PostgresStore(far, partitions=2)) as stopped,
        closing(PostgresStore(near)) as other,
    ):
        stopped.cluster.join("stopped", "", 0.05)
        stopped.cluster.claim(2)
        stopped.commit(a_batch(a_commit("run", 1)))
        batch = a_batch(a_commit("run", 2))
        proxy.arm(1, fault)
        with refused(StoreError):
            stopped.commit(batch)
        assert proxy.lost == 1
        other.cluster.join("other", "", 600.0)
        asyncio.run(until(lambda: other.cluster.claim(2) or len(other.cluster.owned) == 2))
        before = len(other.read("run"))
        other.cluster.leave()
        assert stopped.cluster.claim(2) == []
        with refused(Conflict, "does not own partition"):
            stopped.commit(batch)
        assert len(other.read("run")) == before


@pytest.mark.parametrize("fault", FAULTS)
def test_a_message_to_another_server_is_taken_once_where_its_commit_is_not_seen(
    server: PostgresServer, proxy: CommitProxy, fault: Fault
) -> None:
    """One engine behind the proxy speaks to a run of the other: both commits of it are lost."""
    schema = new_schema()

    async def work() -> None:
        tally = Tally()
        far = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"
        here = settings(server.uri(), schema, store_partitions=1)
        there = settings(far, schema, store_partitions=1)
        async with (
            Engine(settings=here, toolbox=tally.toolbox) as owner,
            Engine(settings=there, toolbox=tally.toolbox) as other,
        ):
            name = await owner.start(ASKING)
            await owner.wait(name, standing=True)
            await until(lambda: owner.read.store.head(name))
            for _ in range(3):
                proxy.arm(1, fault)
                await patiently(lambda: other.patch(name, {"n": 1}, reducer="sum"))
                assert proxy.lost == 1
            assert owner.read.state(name).ctx == {"n": 3}
            await asyncio.gather(owner.cancel(name), return_exceptions=True)

    run(work())


@pytest.mark.parametrize("fault", FAULTS)
def test_a_message_whose_commit_was_lost_with_the_store_is_said_once_when_it_is_back(
    server: PostgresServer, proxy: CommitProxy, fault: Fault
) -> None:
    """A client that was told to try again would have it done twice."""
    schema = new_schema()

    async def work() -> None:
        tally = Tally()
        far = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"
        here = settings(server.uri(), schema, store_partitions=1)
        there = settings(far, schema, store_partitions=1)
        async with (
            Engine(settings=here, toolbox=tally.toolbox) as owner,
            Engine(settings=there, toolbox=tally.toolbox) as other,
        ):
            name = await owner.start(ASKING)
            await owner.wait(name, standing=True)
            await until(lambda: owner.read.store.head(name))
            proxy.cut_off = True
            proxy.arm(1, fault)
            patch = partial(other.patch, name, {"n": 1}, reducer="sum")
            saying = asyncio.create_task(patiently(patch))
            connections = cast(PostgresStore, other.read.store)._connections
            await until(lambda: proxy.lost and connections._refused)
            proxy.cut_off = proxy.refuse = False
            await saying
            await until(lambda: not owner.read.store.unanswered())
            assert owner.read.state(name).ctx == {"n": 1}

    run(work())


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_is_replaced_before_it_learns_what_became_of_a_commit_tells_what_the_log_says(
    server: PostgresServer, proxy: CommitProxy, fault: Fault
) -> None:
    """Written or not, the caller is told that it was said, and it is in the log once."""
    schema = new_schema()

    async def work() -> None:
        tally = Tally()
        far = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"
        there = settings(far, schema, server_lease_seconds=1.5)
        here = settings(server.uri(), schema, server_lease_seconds=1.5)
        async with Engine(settings=there, toolbox=tally.toolbox) as one:
            name = await one.start(ASKING)
            await one.wait(name, standing=True)
            proxy.cut_off = True
            proxy.arm(1, fault)
            saying = asyncio.create_task(one.patch(name, {"n": 1}, reducer="sum"))
            await until(lambda: proxy.lost)
            proxy.drop_all()
            async with Engine(settings=here, toolbox=tally.toolbox) as two:
                await until(lambda: len(owned(two)) == 4)
                proxy.cut_off = proxy.refuse = False
                await saying
                assert two.read.state(name).ctx == {"n": 1}
                await until(lambda: len(owned(one)) == len(owned(two)) == 2)
                await patiently(lambda: one.decide(name, "ask", "fulfil"))
                assert (await two.wait(name)).status == "completed"
        assert tally.calls["count"] == 2

    run(work())
    rows_are_whole(server, schema)


def test_a_turn_that_could_not_read_the_store_did_not_happen(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is not in memory, and the store is away at the very moment it is loaded."""

    async def work() -> None:
        tally, inside, lost = Tally(), False, list[str]()
        async with Engine(settings=settings(server.uri()), toolbox=tally.toolbox) as engine:
            expected = log_of(engine, await one_run(engine, tally))
            core, store = loop_of(engine)._core, cast(PostgresStore, engine.read.store)
            turn, read = core.turn, store._connections.read

            def turned(now: int, *, ring: bool = True) -> Any:
                nonlocal inside
                inside = True
                try:
                    return turn(now, ring=ring)
                finally:
                    inside = False

            def reads(statement: str, given: Mapping[str, Any]) -> Any:
                if inside and len(lost) < 3:
                    lost.append(statement)
                    raise StoreError("the connection is lost", code="store_away")
                return read(statement, given)

            monkeypatch.setattr(core, "turn", turned)
            monkeypatch.setattr(store._connections, "read", reads)
            before = tally.calls["count"]
            name = await engine.start(ASKING)
            await engine.wait(name, standing=True)
            assert core.evict(2**50, 0) >= 1
            await engine.patch(name, {"n": 1}, reducer="sum")
            assert len(lost) == 3
            await engine.decide(name, "ask", "fulfil")
            assert (await engine.wait(name)).status == "completed"
            assert log_of(engine, name) == expected
            assert tally.calls["count"] - before == 2

    run(work())


def test_the_proxy_loses_connections_as_it_says(server: PostgresServer, proxy: CommitProxy) -> None:
    """The tests above would prove nothing otherwise."""
    import psycopg

    def insert(fault: Fault | None) -> tuple[bool, int]:
        server.sql("DROP TABLE IF EXISTS probe", "CREATE TABLE probe (n int)")
        proxy.arm(1, fault)
        address: Any = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"
        seen = True
        try:
            with psycopg.connect(address) as db:
                db.execute("INSERT INTO probe VALUES (1)")
        except psycopg.OperationalError:
            seen = False
        deadline = time.monotonic() + (HANG_SECONDS if fault == "late" else 0)
        while not (rows := server.sql("SELECT n FROM probe")) and time.monotonic() < deadline:
            time.sleep(0.05)
        return seen, len(rows)

    assert insert(None) == (True, 1)
    assert insert("before") == (False, 0)
    assert insert("after") == (False, 1)
    assert insert("late") == (False, 1)

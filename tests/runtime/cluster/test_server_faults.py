"""What PostgreSQL does to an engine: it restarts, dies, hangs up, refuses, is full, is away.

The engine holds still, says so once, and goes on: nothing is lost and nothing is done twice.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from anabranch import Engine
from anabranch.errors import AnabranchError
from postgres_proxy import CommitProxy
from postgres_server import PostgresServer, running_postgres
from runtime.support import playbook, run, step

from .support import (
    ASKING,
    PLAIN,
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

NEVER = 600.0  # seconds of a lease that does not end
HELD = playbook(step("long", "hold", "last"), step("last", "count"))
ONCE = "Nothing moves until the store takes writes again"


def restart(server: PostgresServer) -> None:
    server.stop()
    server.start()


def kill_nine(server: PostgresServer) -> None:
    server.kill()
    server.start()


def hang_up(server: PostgresServer) -> None:
    assert server.terminate_others() > 0


def cancel_statements(server: PostgresServer) -> None:
    """What `statement_timeout` does, at once: of every session, while the partitions are locked."""
    import psycopg

    ((schema,),) = server.sql(
        "SELECT nspname FROM pg_namespace WHERE nspname ~ '^s[0-9]+$' ORDER BY oid DESC LIMIT 1"
    )
    with psycopg.connect(server.uri()) as db:
        db.execute(f"LOCK TABLE {schema}.partitions IN EXCLUSIVE MODE")
        with psycopg.connect(server.uri(), autocommit=True) as other:
            cancelled = 0
            while not cancelled:
                ((cancelled,),) = other.execute(
                    "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity "
                    "WHERE application_name = 'anabranch' AND wait_event_type = 'Lock'"
                ).fetchall()
                time.sleep(0.01)
        db.rollback()


DISTURBANCES: list[Callable[[PostgresServer], None]] = [
    restart,
    kill_nine,
    hang_up,
    cancel_statements,
]


@pytest.mark.parametrize("disturb", DISTURBANCES)
def test_runs_go_on_and_every_step_is_done_once(
    server: PostgresServer,
    disturb: Callable[[PostgresServer], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    schema, tally, ended = new_schema(), Tally(), list[str]()
    stopping = False

    async def client(engine: Engine) -> None:
        while not stopping:
            name = await patiently(partial(engine.start, PLAIN))
            result = await patiently(partial(engine.wait, name))
            assert result.status == "completed"
            ended.append(name)

    async def work() -> None:
        nonlocal stopping
        chosen = settings(server.uri(), schema, server_lease_seconds=NEVER)
        async with Engine(settings=chosen, toolbox=tally.toolbox) as engine:
            clients = [asyncio.create_task(client(engine)) for _ in range(3)]
            await until(lambda: len(ended) > 3)
            await asyncio.to_thread(disturb, server)
            enough = len(ended) + 6
            await until(lambda: len(ended) >= enough or any(one.done() for one in clients))
            stopping = True
            await asyncio.gather(*clients)
            loop = loop_of(engine)
            assert loop.trouble is None
            assert loop.failure is None
            assert caplog.text.count(ONCE) == loop._writer.outage.count
            logs = [log_of(engine, name) for name in ended]
            assert all(log == logs[0] for log in logs)

    run(work())
    assert tally.calls["count"] == 2 * len(ended)
    rows_are_whole(server, schema)


def test_a_server_that_is_away_for_longer_than_the_lease_costs_no_work_where_nobody_took_it(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    tally, schema = Tally(), new_schema()

    async def work() -> None:
        tally.held.clear()
        chosen = settings(server.uri(), schema, server_lease_seconds=1.0)
        async with Engine(settings=chosen, toolbox=tally.toolbox) as engine:
            name = await engine.start(HELD)
            await until(lambda: tally.calls["hold"])
            await asyncio.to_thread(server.stop)
            await until(lambda: loop_of(engine).trouble)
            member = loop_of(engine).member
            assert member is not None
            await until(lambda: not member.membership.good)
            with pytest.raises(AnabranchError) as refused:
                await engine.patch(name, {"a": 1})
            assert refused.value.code == "store_away"
            tally.held.set()  # the work ends while nothing can be recorded
            await asyncio.to_thread(server.start)
            assert (await patiently(lambda: engine.wait(name))).status == "completed"
            kinds = [kind for kind, _ in log_of(engine, name)]
            assert "job.lost" not in kinds
            assert caplog.text.count(ONCE) == loop_of(engine)._writer.outage.count

    run(work())
    assert tally.calls == {"hold": 1, "count": 1}


def test_a_server_whose_partitions_were_taken_while_it_was_cut_off_writes_nothing_any_more(
    server: PostgresServer, proxy: CommitProxy
) -> None:
    """Its work reports to it while it is cut off, and again when it is back: neither counts."""
    schema, cut, free = new_schema(), Tally(), Tally()

    async def work() -> None:
        cut.held.clear()
        far = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"
        lease = 2.0
        there = settings(far, schema, server_lease_seconds=lease)
        here = settings(server.uri(), schema, server_lease_seconds=lease)
        async with Engine(settings=there, toolbox=cut.toolbox) as one:
            await until(lambda: len(owned(one)) == 4)
            names = [await one.start(HELD) for _ in range(4)]
            await until(lambda: cut.calls["hold"] == 4)
            proxy.refuse = True
            proxy.drop_all()
            async with Engine(settings=here, toolbox=free.toolbox) as two:
                for name in names:
                    assert (await two.wait(name)).status == "completed"
                logs = [log_of(two, name) for name in names]
                cut.held.set()
                proxy.refuse = False
                await until(lambda: loop_of(one).trouble is None and len(owned(one)) == 2)
                assert [log_of(two, name) for name in names] == logs
                again = await one.start(PLAIN)
                assert (await one.wait(again)).status == "completed"
                for kinds in ([kind for kind, _ in log] for log in logs):
                    assert kinds.count("job.lost") == 1
                    assert kinds.count("job.reported") == 2

    run(work())
    assert (cut.calls["hold"], free.calls["hold"]) == (4, 4)
    rows_are_whole(server, schema)


class SmallDisk:
    """Four megabytes for the log of a store; where nothing may be mounted, the error that the
    driver raises when a disk is full."""

    def __init__(self, server: PostgresServer, patch: pytest.MonkeyPatch) -> None:
        self._server = server
        self._patch = patch
        self._place = server.folder / "small"
        self._filler = self._place / "filler"
        self._place.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=777", "tmpfs", str(self._place)]
        refused = subprocess.run(mount, capture_output=True, check=False).returncode
        self.real = not (os.geteuid() or refused)

    def fill(self, schema: str) -> None:
        if not self.real:
            self._patch.setattr("anabranch.store.postgres.commits.begin", _disk_full)
            return
        space = self._place / "space"
        space.mkdir()
        self._server.give(space)
        self._server.sql(f"CREATE TABLESPACE small LOCATION '{space}'")
        self._server.sql(f"ALTER TABLE {schema}.log SET TABLESPACE small")
        with suppress(OSError), self._filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)

    def clear(self) -> None:
        self._patch.undo()
        self._filler.unlink(missing_ok=True)

    def remove(self) -> None:
        subprocess.run(["umount", "-l", str(self._place)], capture_output=True, check=False)


def _disk_full(*_given: object) -> None:
    import psycopg

    raise psycopg.errors.DiskFull("no space left on device")


def test_a_full_disk_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    schema, tally = new_schema(), Tally()
    large = {"much": os.urandom(25_000).hex()}

    async def work(server: PostgresServer, disk: SmallDisk) -> None:
        chosen = settings(server.uri(), schema, server_lease_seconds=NEVER)
        async with Engine(settings=chosen, toolbox=tally.toolbox) as engine:
            assert (await engine.wait(await engine.start(PLAIN))).status == "completed"
            disk.fill(schema)
            start = partial(engine.start, PLAIN, large, allow_extra_input=True)
            stuck = [asyncio.create_task(start()) for _ in range(8)]
            await until(lambda: loop_of(engine).trouble)
            trouble = loop_of(engine).trouble
            assert trouble is not None
            assert trouble.code == "store_full"
            assert any(not one.done() for one in stuck)
            disk.clear()
            for name in [await one for one in stuck]:
                assert (await engine.wait(name)).status == "completed"

    with running_postgres() as server:
        disk = SmallDisk(server, monkeypatch)
        try:
            run(work(server, disk))
        finally:
            disk.remove()
    assert tally.calls["count"] == 2 * 9


def test_an_engine_closes_while_the_server_is_away_and_the_next_one_goes_on(
    server: PostgresServer,
) -> None:
    schema, tally = new_schema(), Tally()

    async def work() -> None:
        chosen = settings(server.uri(), schema, server_lease_seconds=1.0)
        async with Engine(settings=chosen, toolbox=tally.toolbox) as engine:
            name = await engine.start(ASKING)
            await engine.wait(name, standing=True)
            await asyncio.to_thread(server.stop)
            await until(lambda: loop_of(engine).trouble)
        await asyncio.to_thread(server.start)
        async with Engine(settings=chosen, toolbox=tally.toolbox) as engine:
            await until(lambda: len(owned(engine)) == 4)
            await engine.decide(name, "ask", "fulfil")
            assert (await engine.wait(name)).status == "completed"

    run(work())
    assert tally.calls["count"] == 2

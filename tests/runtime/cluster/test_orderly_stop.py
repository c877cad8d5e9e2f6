"""A server that stops in order hands its runs over at once; what it does itself ends first."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from anabranch.kernel import events as e
from surfaces.worker.cluster import cluster_server, ended, schema_in, shared_out
from surfaces.worker.support import playbook, run, until

NAMED = playbook("""
  - step: here
    tool: {kind: shell, command: "echo x >> begun; until [ -e go ]; do sleep 0.05; done", cwd: "%s"}
""")
ASKED = playbook("  - {step: ask, tool: {kind: decision, ask: go on}}\n")


@pytest.fixture
def store(postgres: str) -> str:
    return schema_in(postgres)


def test_runs_without_work_move_at_once_and_those_with_work_when_it_is_done(
    store: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with cluster_server(store) as a, cluster_server(store, grace_seconds=600) as b:
            await shared_out([a, b])
            busy = await b.start(NAMED % tmp_path)
            idle = [await b.start(ASKED) for _ in range(10)]
            await until((tmp_path / "begun").exists)
            stopping = asyncio.ensure_future(b.server.stop())
            await until(lambda: a.partitions == 7)  # all but the one with work
            assert not a.owns(busy)
            assert sum(a.owns(one) for one in idle) >= 1
            assert not stopping.done()
            (tmp_path / "go").touch()
            await until(lambda: a.partitions == 8)
            await stopping
            await ended(a, busy)
            assert a.events(busy, e.JobLost) == []
            assert len(a.events(busy, e.JobReported)) == 1
            assert (tmp_path / "begun").read_text() == "x\n"

    run(scenario())


def test_work_that_outlasts_the_grace_is_handed_back_and_done_by_the_next_owner(
    store: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with cluster_server(store) as a, cluster_server(store, grace_seconds=0.2) as b:
            await shared_out([a, b])
            busy = await b.start(NAMED % tmp_path)
            await until((tmp_path / "begun").exists)
            await b.server.stop()
            (tmp_path / "go").touch()
            await ended(a, busy)
            (lost,) = a.events(busy, e.JobLost)
            assert (lost.reason, lost.counted) == ("the engine stopped", False)
            assert len(a.events(busy, e.JobReported)) == 1

    run(scenario())


def test_the_only_server_keeps_its_runs_until_its_work_is_done(store: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_server(store, grace_seconds=600) as a:
            busy = await a.start(NAMED % tmp_path)
            await until((tmp_path / "begun").exists)
            stopping = asyncio.ensure_future(a.server.stop())
            await asyncio.sleep(0.3)
            assert (a.partitions, a.owns(busy)) == (8, True)
            (tmp_path / "go").touch()
            await stopping
        async with cluster_server(store) as again:
            await ended(again, busy)
            assert again.events(busy, e.JobLost) == []

    run(scenario())

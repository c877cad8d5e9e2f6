"""A server that joins takes its share, first of all what has no work under way."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.kernel import events as e
from anabranch.runtime.cluster import membership
from surfaces.worker.cluster import ClusterServer, cluster_server, ended, schema_in, shared_out
from surfaces.worker.support import playbook, run, until

COMMAND = "echo x >> {{ workload.name }}; until [ -e go ]; do sleep 0.05; done"
HELD = playbook(
    f"""
  - step: here
    tool: {{kind: shell, command: "{COMMAND}", cwd: "%s"}}
""",
    workload="{name: x}",
)


@pytest.fixture
def store(postgres: str) -> str:
    return schema_in(postgres)


async def busy_in(server: ClusterServer, folder: Path, partitions: int) -> list[str]:
    """Runs at work in so many partitions of this server."""
    cluster = server.parts.store.cluster
    assert cluster is not None
    place = cluster.place
    runs: dict[int, str] = {}
    while len(runs) < partitions:
        run_id = server.parts.engine.new_run_id()
        if place(run_id) not in runs:
            name = f"begun{len(runs)}"
            runs[place(run_id)] = await server.parts.verbs.start(
                HELD % folder, {"name": name}, run=run_id
            )
            await until((folder / name).exists)
    return list(runs.values())


def test_work_under_way_stays_where_it_is_when_others_take_their_share(
    store: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with cluster_server(store) as a:
            busy = await busy_in(a, tmp_path, 4)
            async with cluster_server(store) as b:
                await shared_out([a, b])
                assert all(map(a.owns, busy))
                (tmp_path / "go").touch()
                for one in busy:
                    await ended(b, one)
                    assert a.events(one, e.JobLost) == []

    run(scenario())


def test_a_share_that_is_all_at_work_is_handed_over_after_a_while(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "BUSY_SECONDS", 0.2)

    async def scenario() -> None:
        async with cluster_server(store) as a:
            busy = await busy_in(a, tmp_path, 8)
            async with cluster_server(store) as b:
                await shared_out([a, b])
                (tmp_path / "go").touch()
                for one in busy:
                    await ended(b, one)
                    assert len(a.events(one, e.JobReported)) == 1
                assert sum(len(a.events(one, e.JobLost)) for one in busy) == 4

    run(scenario())

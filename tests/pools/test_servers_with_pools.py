"""Servers whose pool is on a cluster: what the work asks them, whom they refuse, and how runs move
between them. The cluster runs the real entry in threads of this process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

import pytest

from anabranch.errors import InputError
from anabranch.kernel import events as e
from anabranch.pools import backends
from anabranch.pools.address import PoolOptions
from anabranch.pools.assignment import decode_assignment
from anabranch.runtime.cluster import membership
from anabranch.runtime.recovery import SUBMITTER_ENDED
from in_loop import in_loop
from pools.local_cluster import LocalCluster
from pools.test_dispatcher import GATED, gate
from surfaces.worker.cluster import cluster_server, ended, schema_in, shared_out
from surfaces.worker.support import until

LARGE = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: large}
workflow:
  - {step: start, tool: {kind: python, code: "result = 'x' * 300_000"}, next: {arcs: [{step: b}]}}
  - step: b
    tool: {kind: python, input: {text: "{{ start }}"}, code: "result = {'copy': text + 'y'}"}
    spec: {pool: gpu}
    next: {arcs: [{step: c}]}
  - {step: c, tool: {kind: python, input: {b: "{{ b.copy }}"}, code: "result = len(b)"}}
"""


class NamedCluster(LocalCluster):
    """Found by the name of the host in the address."""

    made: ClassVar[dict[str, NamedCluster]] = {}

    def __init__(self, options: PoolOptions, **_limits: int) -> None:
        super().__init__(slots=16)  # all jobs of a test are out at once
        self.made[options.shown] = self


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> dict[str, NamedCluster]:
    monkeypatch.setattr(NamedCluster, "made", {})
    monkeypatch.setitem(backends._ENGINES, "dask", ("anabranch", __name__, "NamedCluster"))
    return NamedCluster.made


# -- one server ------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", ["no", "yes"])
@in_loop
async def test_the_work_asks_its_server_with_a_token_for_this_pool_that_ends_with_it(
    clusters: dict[str, NamedCluster], tmp_path: Path, tokens: str
) -> None:
    store = str(tmp_path / "store.db")
    async with cluster_server(store, pools="gpu=dask://one", require_tokens=tokens) as server:
        run = await server.start(LARGE)
        assert (await ended(server, run)).results["c"] == 300_001
        (blob,) = clusters["dask://one:8786"].blobs.values()
        given = decode_assignment(blob)
        assert given.values.mode == "server"
        assert given.values.url == server.url
        (token,) = server.server.access.tokens()
        assert (token.scopes, token.pools) == (("work",), ("gpu",))
        assert server.server.access.check(given.values.token).token == token.id
        assert given.values.token not in repr(given)
    async with cluster_server(store) as again:
        (token,) = again.server.access.tokens()
        assert again.server.access.state_of(token) == "revoked"


@in_loop
async def test_tokens_of_a_server_that_was_killed_are_revoked_by_the_next(
    clusters: dict[str, NamedCluster], tmp_path: Path
) -> None:
    store = str(tmp_path / "store.db")
    async with cluster_server(store, pools="gpu=dask://one") as server:
        clusters_here = server.parts._clusters
        assert clusters_here is not None
        clusters_here._tokens._made.clear()  # it never comes to that
    async with cluster_server(store, pools="gpu=dask://one") as server:
        states = [server.server.access.state_of(one) for one in server.server.access.tokens()]
        assert sorted(states) == ["active", "revoked"]
    assert clusters


@in_loop
async def test_workers_of_a_pool_on_a_cluster_are_refused(
    clusters: dict[str, NamedCluster],
) -> None:
    async with cluster_server(":memory:", pools="gpu=dask://one") as server:
        for path in ("claim", "wait"):
            status, said = await server.ask("POST", f"/pools/gpu/{path}", {"worker": "w1"})
            assert (status, said["code"]) == (409, "pool_on_cluster"), said
            assert "dask://one:8786" in said["detail"]
        status, said = await server.ask("POST", "/pools/cpu/claim", {"worker": "w1"})
        assert status == 200
        status, said = await server.ask("POST", "/pools/cpu/claim", {"worker": "cpu@dask:1"})
        assert status == 422
    assert clusters


@in_loop
async def test_a_pool_that_cannot_work_is_refused_before_anything_is_begun(
    clusters: dict[str, NamedCluster], tmp_path: Path
) -> None:
    for pools, said in (
        ("gpu=dask://one?tools=no.such.module", "no.such.module"),
        ("gpu=dask://one?values=nosuch://place", "nosuch"),
        ("gpu=ray:auto?queue=x", "queue"),
    ):
        with pytest.raises(InputError, match=said):
            async with cluster_server(str(tmp_path / "store.db"), pools=pools):
                pass
    assert not any(cluster.submitted for cluster in clusters.values())


# -- several servers -------------------------------------------------------------------------


@pytest.fixture
def store(postgres: str) -> str:
    return schema_in(postgres)


@in_loop
async def test_runs_that_move_are_withdrawn_by_the_old_server_and_submitted_by_the_new(
    clusters: dict[str, NamedCluster], store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "BUSY_SECONDS", 0.2)
    with gate() as held:
        async with cluster_server(store, pools="gpu=dask://one") as a:
            await until(lambda: a.partitions == 8)
            runs = [await a.start(GATED) for _ in range(16)]
            one = clusters["dask://one:8786"]
            await until(lambda: len(one.submitted) == 16)
            async with cluster_server(store, pools="gpu=dask://two") as b:
                await shared_out([a, b])
                moved = [run for run in runs if b.owns(run)]
                assert moved
                two = clusters["dask://two:8786"]
                await until(lambda: len(two.submitted) == len(moved))
                await until(lambda: len(one.queue) + len(one.running) == 16 - len(moved))
                held.open.set()
                for run in runs:
                    await ended(a, run)
                    lost = [(event.reason, event.counted) for event in a.events(run, e.JobLost)]
                    assert lost == ([(SUBMITTER_ENDED, False)] if run in moved else [])


@in_loop
async def test_a_server_that_stops_hands_back_what_its_cluster_has_not_done_in_time(
    clusters: dict[str, NamedCluster], store: str
) -> None:
    with gate() as held:
        async with cluster_server(store, pools="gpu=dask://one") as a:
            async with cluster_server(store, pools="gpu=dask://two", grace_seconds=0.4) as b:
                await shared_out([a, b])
                runs = [await b.start(GATED) for _ in range(12)]
                two = clusters["dask://two:8786"]
                await until(lambda: len(two.submitted) == 12)
            assert two.closed
            held.open.set()
            for run in runs:
                await ended(a, run)
                (lost,) = a.events(run, e.JobLost)
                assert (lost.reason, lost.counted) == ("its server stops", False)


@in_loop
async def test_what_ends_within_the_grace_of_a_server_that_stops_is_not_done_again(
    clusters: dict[str, NamedCluster], store: str
) -> None:
    with gate() as held:
        async with cluster_server(store, pools="gpu=dask://one") as a:
            async with cluster_server(store, pools="gpu=dask://two", grace_seconds=600) as b:
                await shared_out([a, b])
                run = await b.start(GATED)
                await until(lambda: held.entered == 1)
                stopping = asyncio.ensure_future(b.server.stop())
                await until(lambda: a.partitions == 7)  # all but the one with work
                held.open.set()
                await stopping
            await ended(a, run)
            assert a.events(run, e.JobLost) == []
            assert held.entered == 1
    assert clusters

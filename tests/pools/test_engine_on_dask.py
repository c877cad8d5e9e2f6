"""An engine whose pool is on a real Dask cluster: two workers, each a process with one slot."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.kernel import events as e
from anabranch.pools.pool_state import ClusterPoolState
from anabranch.runtime.live_run import history
from hangs import HANG_SECONDS
from in_loop import in_loop
from pools.clusters import DaskCluster
from seeds import SHARE

pytestmark = pytest.mark.soak  # every promise is also one of `pool_suite`, which is tested always

#: Shards that are out when a server is killed.
MANY = 10_000 if SHARE >= 1 else 200

LOOP = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: many}
workload: {count: 30, folder: ""}
workflow:
  - step: squares
    spec:
      pool: heavy
      loop_mode: fanout
      fanout: {shard_size: 3, max_concurrent: 10000, max_job_retries: 2, reducers: {sum: sum}}
    loop: {in: {range: "{{ workload.count }}"}, iterator: n}
    tool:
      kind: python
      args: {n: "{{ iter.n }}", folder: "{{ workload.folder }}"}
      code: |
        import os, time
        with open(f"{folder}/{n}", "a") as file:
            file.write("done\\n")
        while os.path.exists(f"{folder}/wait"):
            time.sleep(0.02)
        result = n * n
      spec:
        policy:
          rules:
            - {when: "{{ outcome.status == 'error' }}", then: {do: fail}}
            - {else: {then: {do: continue, set_shared: {sum: "{{ outcome.result }}"}}}}
    next: {arcs: [{step: report}]}
  - step: report
    tool: {kind: noop, result: {sum: "{{ squares.shared.sum }}", done: "{{ squares.succeeded }}"}}
"""


def expected(count: int) -> dict[str, int]:
    return {"sum": sum(n * n for n in range(count)), "done": count}


class Site:
    """An engine on the cluster, and a folder in which the work leaves traces."""

    def __init__(self, engine: anabranch.Engine, dask: DaskCluster, folder: Path) -> None:
        self.engine = engine
        self.dask = dask
        self.folder = folder

    def events(self, run: str, *kinds: type) -> list[Any]:
        found = [event for _, event in history(self.engine._open.store.read(run))]
        return [event for event in found if isinstance(event, kinds)]

    def state(self) -> ClusterPoolState:
        return self.engine._open.clusters[0].state()

    def begun(self) -> int:
        return sum(one.name != "wait" for one in self.folder.iterdir())

    async def ended(self, run: str) -> anabranch.RunResult:
        async with asyncio.timeout(HANG_SECONDS):
            return await self.engine.wait(run)

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            while not holds():
                await asyncio.sleep(0.02)


@asynccontextmanager
async def site(
    dask: DaskCluster, folder: Path, options: str = "", store: str = ":memory:"
) -> AsyncIterator[Site]:
    await asyncio.to_thread(dask.heal)
    pools = {"heavy": f"{dask.url}{options}"}
    settings = anabranch.Settings(grace_seconds=1.0)
    tools = anabranch.Toolbox()  # those of other tests are not on the workers
    async with anabranch.Engine(store, settings=settings, pools=pools, toolbox=tools) as engine:
        yield Site(engine, dask, folder)


@contextmanager
def waiting(folder: Path) -> Iterator[Path]:
    """Work waits until the file is gone."""
    gate = folder / "wait"
    gate.touch()
    try:
        yield gate
    finally:
        gate.unlink(missing_ok=True)


@in_loop
async def test_a_loop_comes_to_the_same_on_dask(dask: DaskCluster, tmp_path: Path) -> None:
    async with site(dask, tmp_path) as here:
        run = await here.engine.start(LOOP, {"folder": str(tmp_path)})
        ended = await here.ended(run)
        assert ended.result == expected(30), str(ended.failures)
        assert here.begun() == 30
        state = here.state()
        assert (state.state, state.slots, state.submitted, state.finished) == ("open", 2, 10, 10)


@in_loop
async def test_a_worker_that_is_killed_costs_its_shard_one_attempt_that_counts(
    dask: DaskCluster, tmp_path: Path
) -> None:
    with waiting(tmp_path) as gate:
        async with site(dask, tmp_path) as here:
            run = await here.engine.start(LOOP, {"folder": str(tmp_path)})
            await here.until(lambda: here.state().running == 2)
            (killed,) = [one for one in here.state().tickets if one.worker == "w1"]
            await asyncio.to_thread(dask.kill, "w1")
            await here.until(lambda: here.events(run, e.JobLost))
            gate.unlink()
            ended = await here.ended(run)
            assert ended.result == expected(30)
            (lost,) = here.events(run, e.JobLost)
            assert (lost.job, lost.attempt) == (killed.job, killed.attempt)
            assert lost.counted
            assert lost.worker
            assert "w1" in lost.reason


@in_loop
async def test_a_scheduler_that_is_restarted_costs_no_attempt(
    dask: DaskCluster, tmp_path: Path
) -> None:
    with waiting(tmp_path) as gate:
        async with site(dask, tmp_path) as here:
            run = await here.engine.start(LOOP, {"folder": str(tmp_path)})
            await here.until(lambda: here.begun() == 2)
            await asyncio.to_thread(dask.kill_scheduler)
            await here.until(lambda: here.state().state == "away")
            await here.until(lambda: not here.state().tickets)
            gate.unlink()
            await asyncio.to_thread(dask.heal)
            ended = await here.ended(run)
            assert ended.result == expected(30)
            lost = here.events(run, e.JobLost)
            assert lost
            assert not any(event.counted or event.worker for event in lost)


@in_loop
async def test_a_run_that_is_cancelled_leaves_nothing_on_the_cluster(
    dask: DaskCluster, tmp_path: Path
) -> None:
    with waiting(tmp_path):
        async with site(dask, tmp_path, "?grace=1&queue=2") as here:
            run = await here.engine.start(LOOP, {"folder": str(tmp_path)})
            await here.until(lambda: here.begun() == 2 and here.state().queued == 2)
            await here.engine.cancel(run)
            assert (await here.ended(run)).status == "cancelled"
            await here.until(lambda: not here.state().tickets)
            assert here.begun() == 2


SERVER = """
import asyncio, sys
import anabranch

async def main(url, store, folder, text, many):
    pools = {"heavy": f"{url}?queue={many}"}
    async with anabranch.Engine(store, pools=pools) as engine:
        given = {"folder": folder, "count": 3 * int(many)}
        await engine.start(open(text).read(), given, run="story")
        cluster = engine._open.clusters[0]
        while cluster.state(0).submitted < int(many):
            await asyncio.sleep(0.02)
        print("out", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@in_loop
async def test_a_server_that_is_killed_with_many_shards_out_loses_and_repeats_nothing(
    dask: DaskCluster, tmp_path: Path
) -> None:
    await asyncio.to_thread(dask.heal)
    folder, store, text = tmp_path / "done", tmp_path / "store.db", tmp_path / "many.yaml"
    folder.mkdir()
    text.write_text(LOOP)
    with waiting(folder) as gate:
        command = [sys.executable, "-c", SERVER]
        given = [dask.url, str(store), str(folder), str(text), str(MANY)]
        with subprocess.Popen([*command, *given], stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            line = await asyncio.to_thread(server.stdout.readline)
            assert line == "out\n"
            os.kill(server.pid, signal.SIGKILL)
        gate.unlink()
        async with site(dask, folder, f"?queue={MANY}", str(store)) as here:
            ended = await here.ended("story")
            assert ended.result == expected(3 * MANY)
            lost = here.events("story", e.JobLost)
            assert len(lost) == MANY
            assert {(event.reason, event.counted) for event in lost} == {
                ("the server that had submitted it has ended", False)
            }
            reported = [event.job for event in here.events("story", e.JobReported)]
            assert len(reported) == len(set(reported))

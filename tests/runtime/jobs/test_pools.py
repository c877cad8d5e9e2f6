"""The index of jobs that wait for workers elsewhere: fair, exact, and made anew from the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from anabranch.parts import Parts
from anabranch.runtime.jobs import pool_queues
from anabranch.runtime.jobs.pool_queues import POOLS_OF_WORKER, WORKERS_KEPT, Lease, PoolQueues
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.work.kinds.callables import Toolbox

from ..support import run

POOLED = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: pooled}
workflow:
  - step: far
    spec: {pool: gpu}
    tool: {kind: python, code: "result = 1"}
"""


def filled(*jobs: str) -> PoolQueues:
    """`run/job` of the pool `gpu`, in this order."""
    pools = PoolQueues()
    for at, name in enumerate(jobs, start=1):
        owner, _, job = name.partition("/")
        pools.add(owner, job, attempt=1, pool="gpu", since=at)
    return pools


def taken(pools: PoolQueues, most: int) -> list[str]:
    return [f"{ready.run}/{ready.job}" for ready in pools.take("gpu", most)]


def test_claims_go_round_the_runs_and_within_a_run_the_first_comes_first() -> None:
    pools = filled("a/1", "a/2", "a/3", "b/1", "c/1", "c/2")
    assert taken(pools, 4) == ["a/1", "b/1", "c/1", "a/2"]
    assert taken(pools, 10) == ["c/2", "a/3"]
    assert (taken(pools, 1), pools.waiting("gpu"), pools.oldest("gpu")) == ([], 0, 0)


def test_a_job_that_was_listed_twice_goes_out_once() -> None:
    pools = filled("a/1", "a/1")
    pools.add("a", "1", 2, "gpu", 9)
    assert pools.waiting("gpu") == 1
    assert [ready.attempt for ready in pools.take("gpu", 5)] == [2]


def test_what_is_lent_or_over_waits_no_more() -> None:
    pools = filled("a/1", "a/2", "b/1")
    pools.lend("a", "1", Lease("gpu", "w", 50))
    pools.drop("a", "2")
    pools.drop("a", "2")
    assert (pools.waiting("gpu"), pools.oldest("gpu")) == (1, 3)
    assert [key for key, _ in pools.leases()] == [("a", "1")]
    pools.forget({"b"})
    pools.drop("a", "1")
    assert (pools.waiting("gpu"), list(pools.leases())) == (0, [])


def test_only_the_last_workers_that_asked_are_remembered() -> None:
    pools = PoolQueues()
    for number in range(WORKERS_KEPT + 10):
        pools.saw("gpu", f"w{number}", number)
    assert len(pools.workers("gpu")) == WORKERS_KEPT
    assert "w0" not in pools.workers("gpu")
    assert (pools.asked("gpu"), pools.asked("other")) == (WORKERS_KEPT + 9, 0)


def test_of_a_worker_only_the_last_pools_that_it_asked_for_are_remembered() -> None:
    pools = PoolQueues()
    for number in range(POOLS_OF_WORKER + 10):
        pools.saw(f"p{number}", "w", number)
        pools.saw("gpu", "w", number)
    ((_, worker),) = pools.all_workers()
    assert len(worker.pools) == POOLS_OF_WORKER
    assert worker.pools.keys() >= {"gpu", f"p{POOLS_OF_WORKER + 9}"}
    assert "p0" not in worker.pools


def test_who_asked_for_which_pool_has_a_limit_over_all_pools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_queues, "ASKED_KEPT", 10)
    pools = PoolQueues()
    for number in range(30):
        pools.saw(f"p{number % 6}", f"w{number}", number)
    asked = {pool: list(pools.workers(pool)) for pool in pools.names()}
    assert sum(map(len, asked.values())) == 10
    assert "w29" in asked["p5"]
    assert "w0" not in asked["p0"]


class Untouched(dict[Any, Any]):
    """May be asked for one key, and not be gone through."""

    def values(self) -> NoReturn:
        raise AssertionError

    __iter__ = items = keys = values


def test_what_is_asked_of_one_pool_goes_through_no_leases_of_others() -> None:
    """A claim of a pool that nobody knows compared each known pool with each lease."""
    pools = PoolQueues()
    for number in range(5):
        pools.lend("a", str(number), Lease("gpu", "w", number))
        pools.lend("a", str(number), Lease("gpu", "w", number + 1))
    pools.lend("a", "0", Lease("cpu", "w", 9))
    pools.saw("idle", "w", 1)
    pools._leases = Untouched(pools._leases)
    assert pools.names() == ["cpu", "gpu", "idle"]
    assert [pools.used(name) for name in pools.names()] == [True, True, False]
    assert [key for key, _ in pools.leases_of("gpu")] == [("a", str(n)) for n in range(1, 5)]
    pools.drop("a", "0")
    assert pools.names() == ["gpu", "idle"]


@pytest.mark.parametrize(
    ("here", "pool", "outside"),
    [
        ("", "", False),
        ("", "gpu", True),
        ("gpu", "gpu", False),
        ("eu, gpu", "gpu", False),
        ("eu", "gpu", True),
        ("*", "gpu", False),
    ],
)
def test_the_engine_does_the_work_of_the_pools_it_is_told_to(
    here: str, pool: str, outside: bool
) -> None:
    assert PoolQueues(here).outside(pool) is outside


def test_as_many_are_woken_as_there_are_jobs() -> None:
    async def scenario() -> None:
        pools = PoolQueues()
        got: list[str] = []

        async def worker() -> None:
            while not pools.closed:
                await pools.wait("gpu", 20)
                got.extend(taken(pools, 1))

        workers = [asyncio.ensure_future(worker()) for _ in range(3)]
        await asyncio.sleep(0)
        for number in range(3):
            pools.add("a", str(number), 1, "gpu", 1)
        while len(got) < 3:
            await asyncio.sleep(0)
        assert got == ["a/0", "a/1", "a/2"]
        pools.close()
        await asyncio.gather(*workers)

    run(scenario())


def in_store(path: Path, work: Callable[[Parts], None], **given: str) -> None:
    """What an engine finds in the store when it comes up."""

    async def scenario() -> None:
        settings = Settings(store=str(path), **given)  # type: ignore[arg-type]
        store = open_store(settings)
        parts = Parts(store, settings, Toolbox())
        await parts.engine.open()
        try:
            if not store.unfinished():
                await parts.verbs.start(POOLED, run="one")
                await parts.verbs.start(POOLED, run="two")
                await parts.pools.claim("gpu", "w1", most=1, lease_seconds=30)
            work(parts)
            if given:
                assert (await parts.verbs.wait("two")).status == "completed"
        finally:
            await parts.close()
            store.close()

    run(scenario())


def test_an_engine_that_comes_up_knows_what_waits_and_who_has_what(tmp_path: Path) -> None:
    def look(parts: Parts) -> None:
        pools = parts.engine.pools
        assert (pools.names(), pools.waiting("gpu")) == (["gpu"], 1)
        (((name, job), lease),) = pools.leases()
        assert (name, job, lease.worker, lease.pool) == ("one", "1.0", "w1", "gpu")

    in_store(tmp_path / "store.db", look)
    in_store(tmp_path / "store.db", look)
    in_store(tmp_path / "store.db", lambda _parts: None, pools_here="gpu")

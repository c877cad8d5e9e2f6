"""Code on a Dask worker runs there, and in no process of the engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch.pools.backend import BackendUnfit, Finished, Lost, Unusable
from in_loop import in_loop
from pools.backend_suite import OpenPool, open_pool
from pools.clusters import DaskCluster
from pools.deeds_hostile import victims

pytestmark = pytest.mark.slow

ENTRY = "pools.deeds_hostile"
LARGE = 100_000
#: What is planted, and what becomes of its ticket.
PLANTS = [
    ("dask_answer", 0, Unusable | Lost),
    ("dask_answer", LARGE, Unusable | Lost),
    ("dask_error", 0, Unusable | Lost),
    ("dask_warning", 0, Finished),
    ("dask_progress", 0, Finished),
]


async def _plant_all(pool: OpenPool, folder: Path) -> None:
    for number, (plant, size, end) in enumerate(PLANTS):
        ticket = await pool.submit(plant, f"{plant}-{number}", folder=str(folder), size=size)
        assert isinstance(await pool.end(ticket), end), ticket
        await pool.settled()  # the connection is as it was


@in_loop
async def test_a_dask_worker_runs_nothing_where_its_answers_are_read(
    dask: DaskCluster, tmp_path: Path
) -> None:
    dask.heal()
    pool = await open_pool(dask.backend(entry=ENTRY))
    drivers = {os.getpid(), pool.backend.driver_pid}  # type: ignore[attr-defined]
    try:
        await _plant_all(pool, tmp_path)
        drivers.add(pool.backend.driver_pid)  # type: ignore[attr-defined]
    finally:
        await pool.close()
    assert victims(tmp_path).isdisjoint(drivers)


@pytest.mark.soak
@in_loop
async def test_a_dask_worker_runs_nothing_where_it_introduces_itself(
    dask: DaskCluster, tmp_path: Path
) -> None:
    dask.heal()
    for name in dask.names:
        dask.kill(name)
        dask.run_worker(name, environment={"HOSTILE_PROBE": str(tmp_path)})
    dask.wait_for(lambda counts: counts["workers"] == len(dask.names))
    backend = dask.backend(entry=ENTRY)
    try:
        with pytest.raises(BackendUnfit, match=r"names builtins\.exec"):
            await backend.open()
    finally:
        await backend.close()
        for name in dask.names:  # the next test has workers that are none
            dask.kill(name)
    assert victims(tmp_path) == set()

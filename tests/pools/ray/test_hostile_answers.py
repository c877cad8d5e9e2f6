"""Code in a Ray cluster runs there, and in no process of the engine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from anabranch.pools.backend import CameBack, Finished, Lost, WentAway
from in_loop import in_loop
from pools.backend_suite import open_pool
from pools.deeds_hostile import victims
from pools.ray.cluster import RayCluster

pytestmark = [pytest.mark.slow, pytest.mark.soak]


@in_loop
async def test_the_relay_of_a_ray_cluster_runs_nothing_where_its_answers_are_read(
    cluster: RayCluster, tmp_path: Path
) -> None:
    await asyncio.to_thread(cluster.heal)
    backend = cluster.backend(entry="pools.deeds_hostile")
    pool = await open_pool(backend)
    driver = backend.driver_pid
    try:
        await pool.submit("ray_answer", "hostile", folder=str(tmp_path))
        assert isinstance(await pool.end("hostile"), Lost)
        gone = await pool.said(WentAway)
        assert "names builtins.exec" in gone.reason
        await pool.said(CameBack)
        assert backend.driver_pid not in (0, driver)
        await pool.submit("echo", "after")
        assert isinstance(await pool.end("after"), Finished)
    finally:
        await pool.close()
    assert victims(tmp_path), "the relay was reached"
    assert victims(tmp_path).isdisjoint({os.getpid(), driver, backend.driver_pid})

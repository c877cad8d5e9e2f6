"""Ray keeps what every backend keeps, and a loop of an engine comes to the right sum on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pools.backend_suite import BackendSuite, KeptPool, in_loop_of_pool, lose_scheduler
from pools.pool_suite import PoolSuite
from pools.ray.cluster import RayCluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kept(cluster: RayCluster) -> Iterator[KeptPool]:
    with closing(KeptPool(cluster)) as kept:
        yield kept


class TestRayPools(PoolSuite):
    pass


class TestRay(BackendSuite):
    @in_loop_of_pool
    async def test_a_head_that_is_killed_has_lost_everything(
        self, kept: KeptPool, tmp_path: Path
    ) -> None:
        """The last test: nobody has to start it again. The next connection is opened elsewhere."""
        async with kept.pool() as pool:
            await lose_scheduler(kept.cluster, pool, tmp_path / "gate")

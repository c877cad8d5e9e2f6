"""Runs of an engine on a real Dask cluster."""

from __future__ import annotations

import pytest

from pools.clusters import DaskCluster
from pools.pool_suite import MorePoolSuite, PoolDeathsSuite, PoolSuite

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(dask: DaskCluster) -> DaskCluster:
    return dask


class TestDaskPools(PoolSuite):
    pass


@pytest.mark.soak
class TestMoreOfDaskPools(MorePoolSuite):
    pass


@pytest.mark.soak
class TestDaskPoolsThatDie(PoolDeathsSuite):
    pass

"""Runs of an engine on a real Dask cluster."""

from __future__ import annotations

import pytest

from pools.clusters import DaskCluster
from pools.pool_suite import PoolSuite

pytestmark = pytest.mark.slow


class TestDaskPools(PoolSuite):
    @pytest.fixture
    def cluster(self, dask: DaskCluster) -> DaskCluster:
        return dask

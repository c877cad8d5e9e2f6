"""Dask keeps what every backend keeps."""

from __future__ import annotations

import pytest

from pools.backend_suite import BackendSuite
from pools.clusters import DaskCluster

pytestmark = pytest.mark.slow


class TestDask(BackendSuite):
    @pytest.fixture
    def cluster(self, dask: DaskCluster) -> DaskCluster:
        return dask

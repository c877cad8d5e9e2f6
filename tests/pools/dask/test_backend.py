"""Dask keeps what every backend keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from pools.backend_suite import (
    BackendSuite,
    DeathsSuite,
    KeptPool,
    OwnPoolsSuite,
    RestartSuite,
)
from pools.clusters import DaskCluster

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(dask: DaskCluster) -> DaskCluster:
    return dask


@pytest.fixture(scope="module")
def kept(dask: DaskCluster) -> Iterator[KeptPool]:
    with closing(KeptPool(dask)) as kept:
        yield kept


class TestDask(BackendSuite):
    pass


@pytest.mark.soak
class TestDaskPoolsOfTheirOwn(OwnPoolsSuite):
    pass


@pytest.mark.soak
class TestDaskThatRestarts(RestartSuite):
    pass


@pytest.mark.soak
class TestDaskThatDies(DeathsSuite):
    pass

"""A Ray cluster that the processes of a test run share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pools.ray.cluster import NO_TOKEN, RayCluster, alone, shared_cluster


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for all processes of a test run."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="module")
def shared(run_folder: Path) -> Iterator[RayCluster]:
    """Engines of the tests and the processes that they connect ask for no token either."""
    pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch, shared_cluster(run_folder) as cluster:
        for name, value in NO_TOKEN.items():
            patch.setenv(name, value)
        yield cluster


@pytest.fixture
def cluster(shared: RayCluster, run_folder: Path) -> Iterator[RayCluster]:
    """For one test at a time in the whole test run; it may break it."""
    with alone(run_folder):
        yield shared

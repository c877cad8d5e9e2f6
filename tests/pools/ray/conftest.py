"""A Ray cluster for the tests of this folder, which may break it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from pools.ray.cluster import NO_TOKEN, ONE_NODE, TWO_NODES, RayCluster, ray_cluster


@pytest.fixture(scope="package")
def cluster() -> Iterator[RayCluster]:
    """Engines of the tests and the processes that they connect ask for no token either."""
    pytest.importorskip("ray")
    nodes = TWO_NODES if os.environ.get("ANABRANCH_SOAK") else ONE_NODE
    with pytest.MonkeyPatch.context() as patch, ray_cluster(nodes) as made:
        for name, value in NO_TOKEN.items():
            patch.setenv(name, value)
        yield made

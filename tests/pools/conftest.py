"""Entries for tests, one in this process and one in a process of its own; and a Dask cluster.

Failures inside the suite of the backends are explained like those of a test.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest

from anabranch.pools import worker_entry
from pools.clusters import DaskCluster, dask_cluster
from pools.entry_support import Entry, HereEntry, child_entry

pytest.register_assert_rewrite("pools.backend_suite", "pools.pool_suite")


@pytest.fixture(scope="package")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with dask_cluster(tmp_path_factory.mktemp("dask")) as made:
        yield made
    _collect_cut_connections()


def _collect_cut_connections() -> None:
    """A connection that Dask was making when its loop ended is closed by the collector, which warns
    of it; a busy machine has one now and then."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(autouse=True)
def _no_entry_is_left() -> Iterator[None]:
    """What a process keeps for its jobs has the callables and settings of the first of them, and
    the next test of this process may bring others."""
    yield
    worker_entry.close()


@pytest.fixture
def here() -> HereEntry:
    return HereEntry()


@pytest.fixture(scope="module")
def child() -> Iterator[Entry]:
    with child_entry() as entry:
        yield entry


@pytest.fixture(params=["here", "child"])
def entry(request: pytest.FixtureRequest) -> Entry:
    found: Entry = request.getfixturevalue(request.param)
    return found

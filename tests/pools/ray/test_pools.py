"""Runs of an engine on a real Ray cluster."""

from __future__ import annotations

import pytest

from pools.pool_suite import PoolSuite

pytestmark = pytest.mark.slow


class TestRayPools(PoolSuite):
    pass

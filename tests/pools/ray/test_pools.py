"""Runs of an engine on a real Ray cluster."""

from __future__ import annotations

import pytest

from pools.pool_suite import MorePoolSuite, PoolDeathsSuite

pytestmark = [pytest.mark.slow, pytest.mark.soak]


class TestMoreOfRayPools(MorePoolSuite):
    pass


class TestRayPoolsThatDie(PoolDeathsSuite):
    pass

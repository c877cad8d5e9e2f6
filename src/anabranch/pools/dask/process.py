"""A pool on Dask, as the engine has it: the client of Dask is in a driver, a process of its own."""

from __future__ import annotations

import os
import sys
from typing import Any

from anabranch.pools.address import PoolOptions
from anabranch.pools.backend import Capacity
from anabranch.pools.driver.backend import DriverBackend

INHERITED = "DASK_INTERNAL_INHERIT_CONFIG"  # a variable of Dask


class DaskProcess(DriverBackend):
    engine = "dask"
    module = "anabranch.pools.dask.driver"

    def __init__(self, options: PoolOptions, **more: Any) -> None:
        super().__init__(options, **more)
        self.environment = _configuration()

    async def capacity(self) -> Capacity:
        """Workers come and go, and the scheduler knows at once."""
        self._capacity = await self.look()
        return await super().capacity()

    def _worded(self, reason: str) -> str:
        return reason  # the connection says where it leads


def _configuration() -> dict[str, str]:
    """What a program has set for Dask in its own process."""
    dask = sys.modules.get("dask.config")
    if dask is None or INHERITED in os.environ:
        return {}
    return {INHERITED: dask.serialize(dask.global_config)}

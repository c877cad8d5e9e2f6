"""A pool on Dask, as the engine has it: the client of Dask is in a driver, a process of its own."""

from __future__ import annotations

import asyncio
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
    frame_bytes = 4_000_000

    def __init__(self, options: PoolOptions, **more: Any) -> None:
        super().__init__(options, **more)
        self.environment = _configuration()

    async def submit(self, ticket: str, blob: bytes) -> None:
        """Without waiting for the pipe: jobs that are given together are one graph to Dask, which
        keeps those in its queue and orders them by priority. What cannot be sent is told as lost,
        with the end of the driver."""
        self._add(ticket, blob)
        assert self._sending is not None
        self._sending.add_done_callback(_look_at_error)

    async def capacity(self) -> Capacity:
        """Workers come and go, and the scheduler knows at once."""
        self._capacity = await self.look()
        return await super().capacity()

    def _worded(self, reason: str) -> str:
        return reason  # the connection says where it leads


def _look_at_error(sending: asyncio.Future[None]) -> None:
    if not sending.cancelled():
        sending.exception()


def _configuration() -> dict[str, str]:
    """What a program has set for Dask in its own process."""
    dask = sys.modules.get("dask.config")
    if dask is None or INHERITED in os.environ:
        return {}
    return {INHERITED: dask.serialize(dask.global_config)}

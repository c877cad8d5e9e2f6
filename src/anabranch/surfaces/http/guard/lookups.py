"""Where tokens and sessions are read: in place, or beside the event loop where a database has them.

A database that does not answer holds up whoever asks it. So that this is never the event loop, and
with it health, leases and streams, requests wait for these reads in a few threads of their own;
others may be busy with the work of the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
THREADS = 4


class Lookups:
    """`shared`: the store is a database; else a hop to a thread would take longer than the read."""

    def __init__(self, *, shared: bool) -> None:
        self._pool = ThreadPoolExecutor(THREADS, "anabranch-access") if shared else None

    async def __call__(self, look: Callable[[], T]) -> T:
        if self._pool is None:
            return look()
        return await asyncio.get_running_loop().run_in_executor(self._pool, look)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)

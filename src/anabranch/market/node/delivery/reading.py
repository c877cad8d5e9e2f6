"""Large artifacts are read beside the event loop, a few at once.

One may hold thousands of values, and its sender nothing but a key of their own: those of whom this
node trusts do not wait behind them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LARGE = 16 * 1024  # characters
AT_ONCE = 2


class LargeReader:
    def __init__(self) -> None:
        self._places = {trusted: asyncio.Semaphore(AT_ONCE) for trusted in (False, True)}

    async def read(self, work: Callable[[], T], *, trusted: bool) -> T:
        async with self._places[trusted]:
            return await asyncio.get_running_loop().run_in_executor(None, work)

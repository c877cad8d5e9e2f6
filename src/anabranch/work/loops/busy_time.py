"""How long a piece of work takes by itself, where many share one event loop.

By the clock on the wall, each of ten shards that compute side by side takes ten times too long,
and whoever chooses the size of the next one by that chooses it ten times too small. So the time in
which the others kept the loop busy does not count; time spent waiting for the world does.
"""

from __future__ import annotations

import asyncio
import time
import types
from collections.abc import Coroutine, Generator
from typing import Any


class BusyMeter:
    """The seconds that timed work kept this event loop busy, all of it together."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0


class Stopwatch:
    """Times one piece of work; it may consist of several tasks."""

    __slots__ = ("_began", "_busy", "_meter", "_metered", "_unbroken")

    def __init__(self, meter: BusyMeter) -> None:
        self._meter = meter
        self._metered = meter.seconds
        self._began = time.perf_counter()
        self._busy = 0.0
        self._unbroken = 0.0

    @property
    def seconds(self) -> float:
        """From its start until now, less what others kept the loop busy meanwhile."""
        passed = time.perf_counter() - self._began
        others = self._meter.seconds - self._metered - self._busy
        return max(self._busy, passed - others)

    @property
    def unbroken(self) -> float:
        """For how long the work has kept the loop busy since it last waited for something."""
        return self._unbroken

    async def breathe(self) -> None:
        """Let the loop turn once."""
        await asyncio.sleep(0)
        self._unbroken = 0.0

    @types.coroutine
    def timed(self, work: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
        """Do the work, and note how long it keeps the loop busy."""
        value: Any = None
        error: BaseException | None = None
        while True:
            begin = time.perf_counter()
            try:
                waits_for = work.send(value) if error is None else work.throw(error)
            except StopIteration:
                return
            finally:
                taken = time.perf_counter() - begin
                self._busy += taken
                self._unbroken += taken
                self._meter.seconds += taken
            value = error = None
            self._unbroken = 0.0
            try:
                value = yield waits_for
            except BaseException as thrown:  # a cancel, for one: it is for the work to hear
                error = thrown

"""The clock port. Only the composition root picks the real one."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds since the epoch."""


class SystemClock:
    """The wall clock, except that inside one process it never runs backwards and never stops.

    When somebody sets the wall clock back, time goes on from where it was, so that timers are as
    late as they should be and no later.
    """

    def __init__(self) -> None:
        self._last = 0
        self._ticks = 0

    def now(self) -> int:
        wall = time.time_ns()
        ticks = time.monotonic_ns()  # read after the wall clock: a pause between cannot add up
        self._last = max(wall, self._last + ticks - self._ticks if self._last else 0)
        self._ticks = ticks
        return self._last // 1_000_000


class ManualClock:
    """A clock that stands still until somebody moves it."""

    def __init__(self, start: int = 0) -> None:
        self._now = start

    def now(self) -> int:
        return self._now

    def advance_to(self, at: int) -> None:
        self._now = max(self._now, at)

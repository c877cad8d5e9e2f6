"""The clock port. Only the composition root picks the real one."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds since the epoch."""
        ...


class SystemClock:
    """The wall clock, except that it never runs backwards inside one process."""

    def __init__(self) -> None:
        self._last = 0

    def now(self) -> int:
        self._last = max(self._last, time.time_ns() // 1_000_000)
        return self._last


class ManualClock:
    """A clock that stands still until somebody moves it."""

    def __init__(self, start: int = 0) -> None:
        self._now = start

    def now(self) -> int:
        return self._now

    def advance_to(self, at: int) -> None:
        self._now = max(self._now, at)

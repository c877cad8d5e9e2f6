"""Wakes an engine that rests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class AlarmClock:
    """One timer serves many rests: to make one for each costs more than to be woken in vain."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Be woken after that time, or sooner."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._ring)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._wake()

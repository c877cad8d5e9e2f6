"""How long a step waits for a chain whose node is away, and how often it asks meanwhile."""

from __future__ import annotations

import msgspec

_DOUBLINGS_MAX = 32


class Patience(msgspec.Struct, frozen=True):
    seconds: float = 3_600.0  # in all, for one step; 0 gives up at once
    first_ms: int = 1_000  # before the second try, doubled before each further one
    most_ms: int = 60_000

    def pause_ms(self, times: int, waited_ms: int) -> int:
        """How long to wait now, after so many waits that took so long in all; 0 gives up."""
        left = int(self.seconds * 1000) - waited_ms
        pause = self.first_ms << min(times, _DOUBLINGS_MAX)
        return max(0, min(pause, self.most_ms, left))

"""The brake of a dispatcher: what ends without a word of the work is not tried again at once.

A cluster that accepts jobs and begins none or drops them, one that is lost as soon as it has them,
a folder of values that cannot be written: such an end costs the job no attempt, so nothing but a
pause keeps it from going round. Each pause is twice as long as the last one, until work has come to
an end; after a pause a single job goes out, until it has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PAUSE_SECONDS_MAX = 600.0
LOST_SECONDS_MAX = 30.0  # where the cluster lost jobs: it says itself when it is there again
HITS_MAX = 30


class Brake:
    def __init__(self, released: Callable[[], None]) -> None:
        """`released` is called when a pause is over."""
        self._released = released
        self._hits = 0
        self._timer: asyncio.TimerHandle | None = None
        self.probing = False  # one job at a time

    @property
    def on(self) -> bool:
        return self._timer is not None

    def pull(self, first_seconds: float, most: float = PAUSE_SECONDS_MAX) -> float:
        """Pause; returns for how long. Pulled again meanwhile, nothing changes."""
        if self._timer is not None:
            return 0.0
        pause = min(first_seconds * float(2**self._hits), most)
        self._hits = min(self._hits + 1, HITS_MAX)
        self.probing = True
        self._timer = asyncio.get_running_loop().call_later(pause, self._over)
        return pause

    def _over(self) -> None:
        self._timer = None
        self._released()

    def begins(self) -> None:
        """A job has begun: others may go out."""
        self.probing = False

    def works(self) -> None:
        """A job has come to an answer: the next trouble is a new one."""
        self._hits = 0

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

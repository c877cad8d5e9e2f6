"""What an engine does that has slept: stopped by a signal, with its machine, or held up.

Nobody could be heard meanwhile. So a lease that ran out then gets a moment more, as after a
restart, and timers wait until what has already arrived was heard: work that ended in time is not
out of time because nobody looked. Whoever does not use the moment loses the job after all: a lease
is excused once, and again only after its worker has been heard of.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from anabranch.kernel import stimuli as s
from anabranch.kernel.jobs import DEFAULT_WORK
from anabranch.runtime.core import Core
from anabranch.runtime.recovery import GRACE_MS

log = logging.getLogger("anabranch.engine")

HELD_MS = 1000  # an engine that turns so much later than it should has slept
HEARING_SECONDS = 0.5  # how long timers wait then


class Suspension:
    def __init__(
        self, core: Core, turns_every_ms: int, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._core = core
        self._now = seconds
        self._longest_ms = turns_every_ms + HELD_MS
        self._hearing_until = 0.0  # on the monotonic clock; 0 for nobody to hear
        self._excused: dict[tuple[str, str], int] = {}  # (run, job) → until when

    def lets_ring(self, last: int, now: int) -> bool:
        """Whether timers may ring in this turn; `last` is when the engine turned before, 0 for
        never."""
        if last and now - last > self._longest_ms:
            self._wake_up(last, now)
        if not self._hearing_until:
            return True
        if self.hearing_seconds:
            return False
        self._hearing_until = 0.0
        return True

    def _wake_up(self, last: int, now: int) -> None:
        self._hearing_until = self._now() + HEARING_SECONDS
        count = self._excuse(now, now - last)
        if count:
            log.warning(
                "the engine was held up for %.1f s: %d leases get a moment more",
                (now - last) / 1000,
                count,
            )

    @property
    def hearing_seconds(self) -> float:
        """How long timers have to wait; 0 when they may ring."""
        return max(0.0, self._hearing_until - self._now())

    def _excuse(self, now: int, slept: int) -> int:
        """Those that ran out meanwhile, or will before a worker could be heard."""
        core, before = self._core, self._excused
        self._excused = {}
        near = now + min(slept, GRACE_MS)
        count = 0
        for (run, name), lease in core.pools.leases():
            live = core.live.get(run)
            job = live.state.jobs.get(name) if live is not None else None
            if live is None or job is None or job.phase != "running":
                continue
            if before.get((run, name)) == lease.until:
                self._excused[run, name] = lease.until
            elif lease.until < near:
                work = live.net.steps[job.step].work or DEFAULT_WORK
                until = max(lease.until, now + min(work.lease_ms, GRACE_MS))
                core.offer(run, s.JobExtend(name, job.attempt, until))
                self._excused[run, name] = until
                count += 1
        return count

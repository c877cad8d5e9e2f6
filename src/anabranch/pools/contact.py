"""Contact with the cluster of a pool: opened, lost and found again, with growing pauses.

A cluster that does not answer is asked again for as long as the engine lives; nothing is claimed
meanwhile, so jobs wait in the log. One that answers and cannot do our jobs is asked again as well,
less often: somebody may have changed it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from anabranch.clock import Clock
from anabranch.operations.read.on_clusters import counted, named
from anabranch.pools.backend import BackendAway, BackendUnfit, Capacity, PoolBackend
from anabranch.pools.pool_state import Contact

log = logging.getLogger("anabranch.pools")

RETRY_SECONDS = (0.5, 30.0)  # the first pause and the longest one
UNFIT_SECONDS = 60.0
LOOK_SECONDS = 2.0  # between two looks at the capacity
NOTHING = Capacity(slots=0, workers=0)


class ClusterContact:
    """Whether the cluster can be given jobs, and how many."""

    def __init__(
        self, pool: str, backend: PoolBackend, clock: Clock, changed: Callable[[], None]
    ) -> None:
        """`changed` is called when the state or the capacity is another one."""
        self._pool = pool
        self._backend = backend
        self._clock = clock
        self._changed = changed
        self.state: Contact = "connecting"
        self.since = clock.now()
        self.reason = ""
        self.capacity = NOTHING
        self._doubtful = False  # it is taken for away until it is asked and answers
        self._word = 0  # how often the state was said: who asks may be told too late

    @property
    def slots(self) -> int:
        """Jobs that the cluster can do at once; none without contact."""
        return self.capacity.slots if self.state == "open" else 0

    async def open(self) -> None:
        """Returns when the cluster is there and fit; tries until then."""
        pause, most = RETRY_SECONDS
        while True:
            try:
                self.capacity = await self._backend.open()
            except BackendUnfit as unfit:
                self.set("unfit", unfit.message)
                await asyncio.sleep(UNFIT_SECONDS)
            except BackendAway as away:
                self.set("away", away.message)
                await asyncio.sleep(pause)
                pause = min(2 * pause, most)
            except Exception as error:  # of a library: a cluster that answers something else
                log.exception("pool %r: its cluster cannot be opened", self._pool)
                self.set("away", f"{type(error).__name__}: {error}")
                await asyncio.sleep(most)
            else:
                self.set("open")
                return

    async def watch(self) -> None:
        """Look at the capacity from time to time, for as long as the engine lives."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self.state == "open":
                await self.look()
            elif self._doubtful:
                await self.came_back()

    def doubt(self, reason: str) -> None:
        """A job could not be given to it: it is away, until it says so itself or answers."""
        if self.state == "open":
            self.set("away", reason)
            self._doubtful = True

    async def came_back(self) -> None:
        """There is contact again: what the cluster has now is known before it is given jobs. One
        that does not say it is asked again."""
        word = self._word
        answered = await self.look()
        if word != self._word:
            return  # it has gone since, or is open
        if answered:
            self.set("open")
        else:
            self._doubtful = True

    async def look(self) -> bool:
        """Whether it answered."""
        try:
            capacity = await self._backend.capacity()
        except BackendAway as away:
            log.debug("pool %r: %s", self._pool, away.message)  # its events say so
            return False
        except Exception:
            log.exception("pool %r: its capacity is not known", self._pool)
            return False
        if capacity != self.capacity:
            if self.state == "open" and bool(capacity.slots) != bool(self.capacity.slots):
                log.info("pool %s: %s", self._pool, self._count(capacity))
            self.capacity = capacity
            self._changed()
        return True

    def set(self, state: Contact, reason: str = "") -> None:
        self._doubtful = False
        self._word += 1
        if (state, reason) == (self.state, self.reason):
            return
        if state != self.state:
            self.since = self._clock.now()
        if state == "away":
            self.capacity = msgspec.structs.replace(self.capacity, slots=0, workers=0)
        if state != self.state or state == "open":  # one that is away is away for many reasons
            level = logging.INFO if state == "open" and not reason else logging.WARNING
            log.log(level, "pool %s: %s", self._pool, self._words(state, reason))
        self.state, self.reason = state, reason
        self._changed()

    def _words(self, state: Contact, reason: str) -> str:
        """For the operator, who may not know what the state means for jobs."""
        name, has = named(self._backend.engine, self._backend.address), self.capacity
        match state:
            case "open" if reason:
                return f"{name} has trouble: {reason}"
            case "open":
                engine = f"{self._backend.engine.capitalize()} {has.version}".strip()
                return f"{name} is there: {engine}, {self._count(has)}"
            case "unfit":
                return f"{name} cannot do its jobs, which wait: {reason}"
            case _:
                return f"{name} is away, and jobs wait for it: {reason}"

    @staticmethod
    def _count(has: Capacity) -> str:
        if not has.slots:
            return "no worker, so jobs wait"
        return f"{counted(has.workers, 'worker')}, {counted(has.slots, 'job')} at once"

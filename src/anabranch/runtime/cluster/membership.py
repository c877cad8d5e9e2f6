"""Membership: which partitions of a shared store this engine owns, kept by a lease.

    join ─▶ extend the lease, claim up to the fair share, hand over what is above it ─▶ … ─▶ leave

The lease is counted by the clock of the store. Beside it the engine keeps its own idea of when the
lease ends, counted from before it asked for it, so never later than the store's: with it an engine
that was stopped for a while knows by itself that it may own nothing any more, and lets nothing out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence

from anabranch.errors import AnabranchError, Conflict, StoreError
from anabranch.runtime.cluster.lease_beat import LeaseBeat
from anabranch.runtime.outage import StoreOutage
from anabranch.store.cluster_ports import Cluster, ServerRecord

TICK_SECONDS = 1.0  # between two looks at the other servers
LEASE_SECONDS = 15.0
_BEATS = 5  # in the time of one lease
HELD_UP_LEASES = 8  # for so long the lease of an event loop that stands still is extended
PARTITIONS_AT_ONCE = 8  # that are brought into memory between two turns
BUSY_SECONDS = 5.0  # for which partitions with work under way are kept before they are handed over
_PART = "lease"  # of an engine, which notices that the store is away

log = logging.getLogger("anabranch.cluster")

Partitions = Collection[int]


def seconds_since_boot() -> float:
    """Goes on while the process, or the whole machine, is stopped."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def fair_share(servers: Sequence[ServerRecord], server: str, partitions: int) -> int:
    """How many partitions this server should own: no two servers differ by more than one.

    One that drains owns nothing, and neither does a command, which brings back its own runs alone.
    Where there are no others, each keeps what it owns and takes what no other does: nothing moves
    from one that is about to go to another that is.
    """
    alive = [one for one in servers if one.alive]
    names = sorted(one.id for one in alive if one.takes_share and not one.draining)
    if not names:
        return partitions - sum(one.partitions for one in alive if one.id != server)
    if server not in names:
        return 0
    whole, rest = divmod(partitions, len(names))
    return whole + (names.index(server) < rest)


class Membership:
    """`gained` brings the runs of partitions into memory, `give_up` puts them down (and calls
    `put_down` for these) and returns those of which nothing is left here; `busy` names those in
    which work is under way; `lost` is told when the others have removed this server, which then
    calls `rejoin`."""

    #: False: own partitions only while no server does, as a command does that runs one thing.
    takes_share = True

    def __init__(
        self,
        cluster: Cluster,
        *,
        name: str,
        url: str = "",
        lease_seconds: float = LEASE_SECONDS,
        gained: Callable[[Partitions], Awaitable[None]],
        give_up: Callable[[Partitions], Awaitable[Partitions]],
        lost: Callable[[], None],
        busy: Callable[[], Partitions] = tuple,
        seconds: Callable[[], float] = seconds_since_boot,
        beat_thread: bool = True,
    ) -> None:
        """Without `beat_thread` the event loop alone extends the lease, for simulations."""
        self._cluster = cluster
        self._name = name
        self._url = url
        self._lease_seconds = lease_seconds
        self._gained = gained
        self._give_up = give_up
        self._lost = lost
        self._busy = busy
        self._too_many_since: float | None = None
        self._now = seconds
        self._good_until = 0.0
        self._beat_at = 0.0
        self._loop_seen_at = 0.0  # the event loop was not held up then
        self._loop: asyncio.AbstractEventLoop | None = None
        self._joins = 0
        self._beat_thread = beat_thread
        self._thread: LeaseBeat | None = None
        self._away = False
        self._opened: dict[int, int] = {}  # partitions whose runs are in memory, with their epochs
        self._settling = asyncio.Lock()
        self.retiring = False  # this server is about to stop
        self._look = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.outage = StoreOutage()
        self.servers: Sequence[ServerRecord] = ()  # as they were at the last look

    @property
    def good(self) -> bool:
        """Whether the lease has not ended, by the engine's own clock."""
        return self.lease_left > 0

    @property
    def lease_left(self) -> float:
        """Seconds, by the engine's own clock; 0 when it has ended."""
        return max(0.0, self._good_until - self._now())

    async def open(self) -> None:
        await self._join()
        loop = self._loop = asyncio.get_running_loop()
        self._loop_seen_at = self._now()
        self._tasks = [loop.create_task(self._beat())]
        if self._beat_thread:
            self._thread = LeaseBeat(self.beat_beside, self._lease_seconds / _BEATS)
            self._thread.start()
        with contextlib.suppress(Conflict):  # the lease is lost again: the engine starts over
            await self.settle()
        self._tasks.append(loop.create_task(self._keep()))

    async def close(self) -> None:
        """Hand everything over at once, so that the others need not wait for the lease to end."""
        self.halt()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._thread is not None:
            await asyncio.to_thread(self._thread.stop)
        try:
            await asyncio.to_thread(self._cluster.leave)
        except StoreError as error:
            log.warning("the partitions stay this server's until its lease ends: %s", error.message)
        self.outage.ends(_PART)
        self._good_until = 0.0

    def halt(self) -> None:
        """Extend the lease no more: the engine has stopped, and others are to take its runs."""
        if self._thread is not None:
            self._thread.halt()
        for task in self._tasks:
            task.cancel()

    def hold_for(self, lease_seconds: float) -> None:
        """The lease was taken with the store as a whole, and is not extended."""
        self._good_until = self._now() + lease_seconds

    def look(self) -> None:
        """Something has changed in the cluster: settle now."""
        self._look.set()

    async def rejoin(self) -> None:
        """After everything was lost."""
        await self._join()
        self._away = False
        self.look()

    async def retire(self) -> None:
        """Begin to leave: take nothing more, and hand over what can be. The others count this
        server out before anything is handed over, or none of them would take it."""
        self.retiring = True
        try:
            await asyncio.to_thread(self._cluster.drain, self._cluster.server, draining=True)
            await self.settle()
        except StoreError as error:  # then the others wait until the lease has ended
            self.outage.begins(_PART, error)

    async def settle(self) -> None:
        """One step towards the fair share."""
        async with self._settling:
            await self._settle()

    async def _settle(self) -> None:
        if self._away or not await self._extend_if_due():
            return
        servers = self.servers = await asyncio.to_thread(self._cluster.servers)
        share = fair_share(servers, self._cluster.server, self._cluster.partitions)
        mine = sorted(self._cluster.owned)
        short = 0 if self.retiring else share - len(mine)
        wanted = max(short, self._unknown(servers))
        if wanted > 0:
            await asyncio.to_thread(self._cluster.claim, wanted)
        elif len(mine) > share:
            await self._hand_over(self._spare(mine, len(mine) - share))
        if len(mine) <= share:
            self._too_many_since = None
        await self._open()

    async def _open(self) -> None:
        """What was just taken, or could not be read when it was. A few partitions at a time: the
        runs of the first go on while the others are read."""
        epochs = {one: owned.epoch for one, owned in self._cluster.owned.items()}
        closed = sorted(one for one, epoch in epochs.items() if self._opened.get(one) != epoch)
        for first in range(0, len(closed), PARTITIONS_AT_ONCE):
            some = closed[first : first + PARTITIONS_AT_ONCE]
            await self._gained(some)
            self._opened.update((one, epochs[one]) for one in some)

    def _spare(self, mine: Sequence[int], count: int) -> Partitions:
        """Those without work under way: it would be cut off. The others follow after a while."""
        if self._too_many_since is None:
            self._too_many_since = self._now()
        busy = set(self._busy())
        if self._now() - self._too_many_since >= BUSY_SECONDS:
            return sorted(mine, key=lambda one: (one in busy, -one))[:count]
        return [one for one in reversed(mine) if one not in busy][:count]

    def _unknown(self, servers: Sequence[ServerRecord]) -> int:
        """How many partitions are this server's without its knowledge: the answer to a claim was
        lost. They are claimed again, and handed over if they are too many; or no server would
        have them in memory, and none could take them."""
        said = [one.partitions for one in servers if one.id == self._cluster.server]
        return sum(said) - len(self._cluster.owned)

    async def _hand_over(self, spare: Partitions) -> None:
        given_up = await self._give_up(spare) if spare else ()
        if given_up:
            await asyncio.to_thread(self._cluster.hand_over, given_up)

    def put_down(self, partitions: Partitions) -> None:
        """Their runs are not in memory any more. Where they cannot be handed over after all, they
        are opened again."""
        for one in partitions:
            self._opened.pop(one, None)

    async def confirm(self) -> bool:
        """Whether this server still owns what it did, where its lease may have ended."""
        return self.good or await self._extend()

    async def _join(self) -> None:
        asked = self._now()
        self._opened.clear()
        await asyncio.to_thread(
            self._cluster.join,
            self._name,
            self._url,
            self._lease_seconds,
            draining=not self.takes_share or self.retiring or self.drained,
            takes_share=self.takes_share,
        )
        self._good_until, self._beat_at = asked + self._lease_seconds, asked
        self._joins += 1

    @property
    def drained(self) -> bool:
        """Whether an operator had it drained at the last look: that outlives a lost lease."""
        return any(one.draining for one in self.servers if one.id == self._cluster.server)

    async def _extend_if_due(self) -> bool:
        """False when the others have removed this server."""
        joins = self._joins
        if self._due and not await self._extend():
            self._removed(joins)
            return False
        return True

    @property
    def _due(self) -> bool:
        return self._now() - self._beat_at >= self._lease_seconds / _BEATS

    def _removed(self, joins: int) -> None:
        """The others have removed this server, when it had joined so many times."""
        if joins == self._joins and not self._away:
            self._away = True
            self._lost()

    async def _extend(self) -> bool:
        return await asyncio.to_thread(self._extend_now)

    def _extend_now(self) -> bool:
        asked = self._now()
        if not self._cluster.extend_lease(self._lease_seconds):
            return False
        self._good_until, self._beat_at = asked + self._lease_seconds, asked
        return True

    def beat_beside(self) -> None:
        """Extend the lease from another thread, while the event loop is held up. One that stands
        still for good serves nobody: its partitions are then for the others."""
        held_up = self._now() - self._loop_seen_at
        if self._away or not self._due or held_up > HELD_UP_LEASES * self._lease_seconds:
            return
        joins = self._joins
        try:
            extended = self._extend_now()
        except StoreError:
            return  # the event loop finds out, and says so
        if not extended and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._removed, joins)

    async def _keep(self) -> None:
        while True:
            try:
                async with asyncio.timeout(TICK_SECONDS):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()
            await self._settle_once()

    async def _settle_once(self) -> None:
        """Whatever goes wrong, the next look may mend it: without a lease nothing would go on."""
        try:
            await self.settle()
        except StoreError as error:
            if not isinstance(error, Conflict):  # or else the engine starts over
                self.outage.begins(_PART, error)
        except AnabranchError:
            return  # the engine has stopped
        except Exception:
            log.exception("the partitions cannot be settled")
        else:
            self.outage.ends(_PART)

    async def _beat(self) -> None:
        """To bring the runs of many partitions into memory can take longer than a lease."""
        while True:
            await asyncio.sleep(self._lease_seconds / _BEATS)
            self._loop_seen_at = self._now()
            try:
                if not self._away:
                    await self._extend_if_due()
            except StoreError as error:
                self.outage.begins(_PART, error)

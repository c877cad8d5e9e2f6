"""An engine as one of several on a shared store: what it owns, puts down, and passes on.

The engine turns as it always does; what differs is which runs are its own. A partition that is
gained is recovered like a store that is opened; one that is handed over is put down between two
turns, when everything of it is durable. If the lease is lost, nothing in memory can be believed any
more: all of it is dropped, and the engine joins again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from anabranch.errors import AnabranchError, Conflict, StoreError
from anabranch.runtime.cluster.clocks import ServerClock
from anabranch.runtime.cluster.membership import LEASE_SECONDS, Membership, seconds_since_boot
from anabranch.runtime.cluster.remote_news import RemoteNews
from anabranch.runtime.cluster.remote_runs import RemoteRuns
from anabranch.runtime.core import Core
from anabranch.runtime.effects import Turned
from anabranch.runtime.jobs.executor import Executor
from anabranch.runtime.messages.codec import elsewhere
from anabranch.runtime.messages.subscribers import Subscribers
from anabranch.runtime.recovery import recover
from anabranch.store.cluster_ports import (
    LOG,
    MAIL,
    PARTITION_LOST,
    RECORDS,
    SERVERS,
    Cluster,
)
from anabranch.store.outages import AWAY, passes

log = logging.getLogger("anabranch.cluster")

HAND_OVER_SECONDS = 10.0  # for what can be handed over at once when an engine stops
LOOK_SECONDS = 0.1  # between two looks at what else can be, while its work ends


class BetweenTurns(Protocol):
    def __call__(self, act: Callable[[], None], *, early: bool = False) -> Awaitable[None]: ...


class ClusterMember:
    def __init__(
        self,
        cluster: Cluster,
        core: Core,
        executor: Executor,
        subscribers: Subscribers,
        now: Callable[[], int],
        between_turns: BetweenTurns,
        *,
        name: str,
        url: str,
        lease_seconds: float,
        seconds: Callable[[], float] | None = None,
    ) -> None:
        """`seconds` measures durations in the place of the clock of the system, for simulations."""
        self._cluster = cluster
        self._core = core
        self._executor = executor
        self._subscribers = subscribers
        self._now = now
        self._between_turns = between_turns
        self.remote = RemoteRuns(core.store, cluster, now)
        self.news = RemoteNews(core.store, cluster, self.remote, lambda: self._open)
        #: Partitions whose runs are in memory: a part of what the store says this server owns.
        self._open: set[int] = set()
        #: Awaited before partitions change hands: what is under way for their runs must end.
        self.before_hand_over: list[Callable[[], Awaitable[None]]] = []
        #: Runs that something is done for in this process beside the executor.
        self.also_at_work: list[Callable[[], Collection[str]]] = []
        self._only: set[str] | None = None  # the runs to bring back, of all
        self._lost = False
        #: Partitions that were taken, and lost with the lease, and how often that was.
        self.taken = self.dropped = self.leases_lost = 0
        self._wake: Callable[[], None] = lambda: None
        self._mail: Callable[[], None] = lambda: None
        self._stop_listening: Callable[[], None] = lambda: None
        self.membership = Membership(
            cluster,
            name=name,
            url=url,
            lease_seconds=lease_seconds,
            gained=self._gained,
            give_up=self._give_up,
            lost=self._lose,
            busy=self._busy,
            seconds=seconds or seconds_since_boot,
            beat_thread=seconds is None,
        )
        self.clock = ServerClock(cluster, now)
        core.here = self.here

    def here(self, run: str) -> bool:
        """Whether this engine owns the run, or the run that is to get this id."""
        return self._cluster.place(run) in self._open

    def would_own(self, run: str, parent: str | None) -> bool:
        """Whether a run that is about to begin is this engine's. Children live with their parents,
        and a parent's job begins them where the parent is."""
        if parent is not None:
            self._cluster.place_with(run, parent.partition("/")[0])
        else:
            self._cluster.place_root(run)
        if self._only is not None:
            self._only.add(run)
        return self.here(run)

    def would_own_root(self, run: str) -> bool:
        """The same for an id that was just made: no look at the store is needed."""
        return self._cluster.partition_of(run) in self._open

    @property
    def owned(self) -> int:
        """How many partitions have their runs in memory here."""
        return len(self._open)

    @property
    def handed_over(self) -> int:
        """Partitions that this engine put down in order."""
        return self.taken - self.dropped - len(self._open)

    def own_for_now(self) -> None:
        """The store was acquired as a whole, for a moment: nothing is brought back."""
        self._open = set(self._cluster.owned)
        self.membership.hold_for(LEASE_SECONDS)

    def keep_to(self, only: Collection[str] | None) -> None:
        """Bring back these runs alone, and own partitions only while no server does."""
        if only is None:
            return
        self._only = set(only)
        self.membership.takes_share = False

    def may_act_for(self, run: str) -> bool:
        """Whether this server may do something in the world for the run: its lease is good, too."""
        return not self._lost and self.membership.good and self.here(run)

    @property
    def owns_nothing(self) -> bool:
        return not self._open

    def require_lease(self) -> None:
        """Raises where the lease has ended: effects of this engine may not leave any more."""
        if self._lost or (self._open and not self.membership.good):
            raise self._lost_lease()

    async def confirm_lease(self) -> None:
        """The same, but a lease that has ended, because the store was away or this process stopped,
        is as good as before if no other server has taken anything meanwhile."""
        if self._lost or (self._open and not await self.membership.confirm()):
            raise self._lost_lease()

    def _lost_lease(self) -> Conflict:
        return Conflict(
            "the lease of this server on its partitions has ended; nothing leaves it",
            code=PARTITION_LOST,
        )

    def turn(self, now: int, *, ring: bool) -> Turned:
        """One that could not read all of what it needed did not happen, and nothing in memory can
        be believed any more: half of it may have been done."""
        with self._nothing_missed():
            return self._core.turn(now, ring=ring)

    @contextmanager
    def _nothing_missed(self) -> Iterator[None]:
        before = self._cluster.failed_reads
        try:
            yield
        except StoreError as error:
            if not passes(error):
                raise
        if self._cluster.failed_reads != before:
            raise Conflict(
                "the store was away during a turn; what it is made of is read again",
                code=PARTITION_LOST,
            )

    async def open(self, wake: Callable[[], None], mail: Callable[[], None]) -> None:
        """Join and own a share. `wake` lets the engine take a turn, `mail` is called when another
        process may have posted something."""
        loop = asyncio.get_running_loop()
        self._wake, self._mail = wake, mail

        def told(kinds: Collection[str]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._heard, kinds)

        await asyncio.to_thread(self.clock.require_usable)
        await self.membership.open()
        self._stop_listening = self._cluster.listen(told)

    async def reach_store(self) -> None:
        """Raises while the store is away."""
        await asyncio.to_thread(self._cluster.clock)

    def _heard(self, kinds: Collection[str]) -> None:
        if LOG in kinds:
            self.remote.heard()
        if SERVERS in kinds:
            self.membership.look()
        if MAIL in kinds and not self.owns_nothing:
            self._mail()
        if RECORDS in kinds:
            self._subscribers.records_changed()

    async def close(self) -> None:
        """The others get the partitions first of all."""
        self.news.close()
        await self.membership.close()
        await asyncio.to_thread(self._stop_listening)

    def abandon(self) -> None:
        """Without the event loop, which is over."""
        with contextlib.suppress(RuntimeError):  # of tasks that it has not ended
            self.membership.halt()
        self._stop_listening()

    async def retire(self) -> None:
        """This engine is about to stop and starts no more work: hand over at once every partition
        in which it does none, so that their runs go on."""
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS):
                await self.membership.retire()
        except TimeoutError:
            log.warning("the runs cannot be handed over now: others take them after the stop")

    async def while_work_ends(self, ending: Coroutine[Any, Any, None]) -> None:
        """The rest is handed over as its work ends, and not when all of it has ended."""
        waiting = asyncio.ensure_future(ending)
        while not waiting.done():
            await asyncio.wait({waiting}, timeout=LOOK_SECONDS)
            self.membership.look()
        await waiting

    async def rejoin(self) -> None:
        """After everything in memory was dropped."""
        await self._let_go()
        await self.membership.rejoin()
        self._lost = False

    def refuse_tickets(self) -> None:
        """What waits to be recorded never will be."""
        lost = AnabranchError(
            "the server lost its partitions before this was recorded; ask again",
            code=PARTITION_LOST,
        )
        self._subscribers.refuse_tickets(lost)

    # -- what changes ----------------------------------------------------------------------------

    async def _gained(self, partitions: Collection[int]) -> None:
        def bring_back() -> None:
            known = self._core.known
            self._open.update(partitions)
            try:
                with self._nothing_missed():
                    only = self._only_in(partitions)
                    moving = recover(self._core, self._now(), only, partitions=partitions)
            except StoreError as error:  # all of them again, when the store is back
                self._open.difference_update(partitions)
                self._put_down(self._core.known - known - self._beginning())
                if isinstance(error, Conflict):
                    raise StoreError(error.message, code=AWAY) from error
                raise
            self.taken += len(partitions)
            log.info("took %d partitions with %d moving runs", len(partitions), moving)

        await self._between_turns(bring_back, early=True)

    def _beginning(self) -> set[str]:
        """Runs that callers have opened, and whose start waits for a turn."""
        return {run for run, live in self._core.live.items() if not live.state.seq}

    async def _give_up(self, partitions: Collection[int]) -> Collection[int]:
        given = set(partitions)

        def put_down() -> None:
            if self.membership.retiring:  # what is done here ends first, within the grace of a stop
                given.difference_update(map(self._cluster.place, self._at_work()))
            # First of all, since the store may have to be asked, and be away.
            runs = [run for run in self._core.known if self._placed_in(run, given)]
            self._open.difference_update(given)
            self.membership.put_down(given)
            self._put_down(runs)
            if given:
                log.info("handed %d partitions over", len(given))

        await self._between_turns(put_down)
        await self._let_go()
        return sorted(given)

    def _busy(self) -> set[int]:
        return set(map(self._cluster.place, self._worked_for()))

    def _worked_for(self) -> set[str]:
        more = (run for runs in self.also_at_work for run in runs())
        return {*self._executor.runs, *more}

    def _at_work(self) -> set[str]:
        """Runs with work in this process, or with something that waits to be recorded."""
        return {*self._worked_for(), *self._core.runs_in_hand}

    async def _let_go(self) -> None:
        for act in self.before_hand_over:
            await act()

    def _lose(self) -> None:
        self._lost = True
        self._wake()

    def drop_all(self) -> None:
        """Nothing in memory may be believed: it may be ahead of the store, or behind another
        server's."""
        self.dropped += len(self._open)
        self.leases_lost += 1
        self._open.clear()
        self._put_down(list(self._core.known))
        self._core.forget_turn()
        log.warning("this server joins the cluster again and reads its runs anew")

    def _only_in(self, partitions: Collection[int]) -> list[str] | None:
        if self._only is None:
            return None
        return [run for run in self._only if self._cluster.place(run) in partitions]

    def _placed_in(self, run: str, partitions: set[int]) -> bool:
        return self._cluster.place(run) in partitions

    def _put_down(self, runs: Collection[str]) -> None:
        gone = set(runs)
        self._core.put_down(gone)
        self._executor.abandon(gone)
        self._subscribers.look_again(elsewhere)

"""The dispatcher of a pool: a worker inside the engine that has a whole cluster to do its jobs.

    claim (start and lease in the log) ─▶ submit ─▶ started, progress ─▶ report │ lose │ release

It claims jobs like any worker, under the name `pool@engine:server`, and gives each to the cluster
under a ticket. The log says what is out; what the cluster says about a ticket becomes a word about
the attempt that the ticket stands for.

Never more is out than the cluster has slots, and as many again in its queue. Jobs go out several at
a time, when about half of that queue is used up: their starts are one commit then, and they are one
message. Nothing is claimed while the cluster is away, so jobs wait where they are durable. A
cluster that refuses a job is away from that moment, whether it has said so or not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any

import msgspec

from anabranch.cancel import cancel_and_wait
from anabranch.errors import AnabranchError, NotFound, Refused
from anabranch.kernel import events as e
from anabranch.kernel.jobs import token_of
from anabranch.kernel.tracker import loop_id
from anabranch.kernel.values import failed
from anabranch.operations.read.on_clusters import counted
from anabranch.operations.workers.cancel_watch import CANCELLED, STOPPING, JobToStop
from anabranch.operations.workers.claims import CLAIM_MAX, Claimed
from anabranch.operations.workers.leases import NOBODY, LeaseClaim, LeaseHolder
from anabranch.operations.workers.worker_api import WorkerApi
from anabranch.pools.address import PoolOptions
from anabranch.pools.backend import (
    BackendAway,
    CameBack,
    Event,
    Finished,
    Lost,
    PoolBackend,
    Started,
    WentAway,
)
from anabranch.pools.contact import ClusterContact
from anabranch.pools.dispatch.brake import Brake
from anabranch.pools.dispatch.outcomes import Outcomes
from anabranch.pools.dispatch.reports import Reports
from anabranch.pools.dispatch.stopping import Stopper
from anabranch.pools.dispatch.tickets import StopOrder, Ticket, TicketBook, new_nonce
from anabranch.pools.pool_state import ClusterPoolState, OutTicket
from anabranch.pools.values.folder import FolderError
from anabranch.pools.values.packing import JobPacker
from anabranch.runtime.effects import DurableEvents
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.jobs.dispatchers import dispatcher_name
from anabranch.runtime.messages.codec import RunElsewhere
from anabranch.runtime.outage import AGAIN_SECONDS, waited_out

log = logging.getLogger("anabranch.pools")

TICKETS_SHOWN = 1000
QUEUE_LEAST = 8  # also for a few slots: shards that take a millisecond would leave them idle
#: Nobody but this process knows what is out, and the next one takes it back at once whatever the
#: lease says. So it only has to outlast a long pause of the process, and is seldom extended.
LEASE_SECONDS = 3600.0
PROGRESS_LEASE_SECONDS = 60.0  # as the work knows it: it tells its progress thrice as often
WAIT_SECONDS = 20.0  # for jobs to claim
LOOK_SECONDS = 5.0  # between two looks at what is out
STOP_SECONDS = 2.0  # of the grace at the end, for work that is told to stop
ALL_AT_ONCE = 1000  # leases that are extended together
SERVER_STOPS = "its server stops"


class PoolDispatcher:
    """One per pool with an engine."""

    def __init__(
        self,
        pool: PoolOptions,
        api: WorkerApi,
        backend: PoolBackend,
        *,
        engine: EngineLoop,
        packer: JobPacker,
        by: LeaseHolder = NOBODY,
        draw: Callable[[], str] = new_nonce,
    ) -> None:
        """`by` is the token that the work shows to a server; `draw` makes tickets unlike others."""
        self.pool = pool
        self._api = api
        self._backend = backend
        self._engine = engine
        self._clock = engine.clock
        self._packer = packer
        self._by = by
        self.worker = dispatcher_name(pool.name, backend.engine, engine.directory.own_id)
        self._changed = asyncio.Event()
        self._contact = ClusterContact(pool.name, backend, self._clock, self._changed.set)
        self._book = TicketBook(draw)
        self._reports = Reports(api)
        self._brake = Brake(self._try_again)
        self._outcomes = Outcomes(
            api,
            packer,
            self._book,
            self._reports,
            over=self._over,
            again=self._send_again,
            works=self._brake.works,
            trouble=self._in_trouble,
        )
        self._stopper = Stopper(backend, pool.grace_seconds, self._stopped)
        self._began_at = 0.0  # when the cluster last began a job, or had no slot for one
        self._closing = False
        self._claiming: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._small: set[asyncio.Task[Any]] = set()
        self._deafen: Callable[[], None] = lambda: None

    # -- life --------------------------------------------------------------------------------

    async def open(self) -> None:
        """Begin; does not wait for the cluster."""
        self._deafen = self._engine.listen(self._news)
        if self._engine.member is not None:
            self._engine.member.before_hand_over.append(self.let_go)
            self._engine.member.also_at_work.append(self._runs_at_work)
        loop = asyncio.get_running_loop()
        self._began_at = loop.time()
        for work in (
            self._listen,
            self._contact.watch,
            self._stopper.run,
            self._look_forever,
            self._packer.keep_swept,
        ):
            self._tasks.append(loop.create_task(self._kept_going(work)))
        self._claiming = loop.create_task(self._kept_going(self._claim))

    async def _kept_going(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A bug in one part must not end the pool, which nobody would notice."""
        while True:
            try:
                return await work()
            except Exception:
                log.exception("pool %r: a bug in the dispatcher", self.pool.name)
                await asyncio.sleep(AGAIN_SECONDS)

    async def _listen(self) -> None:
        """Open the cluster and hear what it says, for as long as the engine lives."""
        while True:
            await self._contact.open()
            try:
                async for batch in self._backend.events():
                    for event in batch:
                        self._hear(event)
                return
            except Exception as defect:  # of the backend: nobody knows what is out
                log.exception("pool %r: its cluster cannot be heard", self.pool.name)
                self._went_away(f"internal error: {defect!r}")
                self._lose_cut_off("its cluster could not be heard any more")
                await asyncio.sleep(AGAIN_SECONDS)

    def _runs_at_work(self) -> Collection[str]:
        return self._book.runs

    async def close(self, grace_seconds: float) -> None:
        """Take everything back within the grace: what is queued at once, what runs when it has not
        ended in time. The next server goes on from the last checkpoints."""
        if self._closing:
            return
        self._closing = True
        if self._claiming is not None:
            await cancel_and_wait(self._claiming, ignore=Exception)
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_seconds
        last = min(STOP_SECONDS, grace_seconds / 2)
        self._hand_back([one for one in self._book if not one.process], SERVER_STOPS)
        await self._until_empty(until - last)
        self._hand_back(list(self._book), SERVER_STOPS)
        await self._until_empty(until)
        for ticket in self._book:  # nobody has heard that they have stopped
            self._stopped(ticket, "")
        await self._all_said()
        self._deafen()
        self._brake.close()
        self._stopper.close()
        await cancel_and_wait(*self._tasks, *self._small, ignore=Exception)
        await self._backend.close()

    def _hand_back(self, tickets: Collection[Ticket], why: str) -> None:
        for ticket in tickets:
            if ticket.stop is None:
                self._stopper.order(ticket, StopOrder("hand_back", why))

    async def _until_empty(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        while len(self._book) and loop.time() < until:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(until - loop.time()):
                    await self._changed.wait()

    async def _all_said(self) -> None:
        await self._outcomes.said()
        while self._small:
            await asyncio.wait(list(self._small))

    def _begin_small(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._small.add(task)
        task.add_done_callback(self._small.discard)
        return task

    # -- what people see ---------------------------------------------------------------------

    def state(self, most: int = TICKETS_SHOWN) -> ClusterPoolState:
        """As it is now, with the oldest `most` tickets. Any thread may ask."""
        contact, book = self._contact, self._book
        return ClusterPoolState(
            pool=self.pool.name,
            engine=self.pool.engine,
            address=self.pool.shown,
            state=contact.state,
            since=contact.since,
            reason=contact.reason,
            version=contact.capacity.version,
            dashboard=contact.capacity.dashboard,
            workers=contact.capacity.workers,
            slots=contact.capacity.slots,
            queued=book.queued,
            running=book.running,
            tickets=[one.shown() for one in list(book)[:most]] if most else [],
            submitted=book.submitted,
            finished=book.finished,
            withdrawn=book.withdrawn,
            late=book.late,
            losses=dict(book.losses),
        )

    def find(self, run: str, job: str) -> OutTicket | None:
        """The ticket of a job that the cluster has; None where it has none."""
        ticket = self._book.find(run, job)
        return ticket.shown() if ticket is not None else None

    # -- claims ------------------------------------------------------------------------------

    def _room(self) -> int:
        """How many more jobs may go out now."""
        slots = self._contact.slots
        if self._closing or not slots or self._brake.on:
            return 0
        queue = max(slots, QUEUE_LEAST) if self.pool.queue is None else self.pool.queue
        room = slots + queue - len(self._book)
        if self._brake.probing:
            return min(room, 1 - self._book.queued)
        if len(self._book) > slots + min(slots, queue // 2):
            return 0  # the cluster has enough to do until more can go out together
        return room

    async def _claim(self) -> None:
        while not self._engine.pools.closed:
            self._changed.clear()
            if self._room() <= 0:
                await self._changed.wait()
                continue
            waiting = await self._api.wait(self.pool.name, self.worker, wait_seconds=WAIT_SECONDS)
            if waiting and self._room() > 0:
                some = self._begin_small(self._claim_some())
                await asyncio.shield(some)  # what has been started is not left half way

    async def _claim_some(self) -> None:
        try:
            claimed = await self._api.claim(
                self.pool.name,
                self.worker,
                most=min(self._room(), CLAIM_MAX),
                lease_seconds=LEASE_SECONDS,
                items="lists" if self._packer.lists_travel else False,
                by=self._by,
                queued=True,
            )
            await self._take(claimed)
        except AnabranchError as error:
            log.debug("pool %r: nothing can be claimed: %s", self.pool.name, error.message)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _take(self, claimed: Claimed) -> None:
        now, book = self._clock.now(), self._book
        names = {run: self._packer.names(shared) for run, shared in claimed.runs.items()}
        tickets = []
        for leased in claimed.tasks:
            out = LeaseClaim(leased.run, leased.job, leased.attempt, self.worker, self._by)
            told = msgspec.structs.replace(leased, lease_seconds=PROGRESS_LEASE_SECONDS)
            tickets.append(book.add(told, out, names[leased.run], now))
            self._look_at(tickets[-1])  # it may have been cancelled while it was packed
        await asyncio.gather(*map(self._send, tickets))

    # -- to the cluster ----------------------------------------------------------------------

    async def _send(self, ticket: Ticket) -> None:
        """Give it to the cluster. What keeps it from that is no fault of the work, or is its
        answer."""
        try:
            await self._submit(ticket)
        except (Refused, NotFound, RunElsewhere) as error:
            await self._not_packed(ticket, error)
        except BackendAway as away:
            self._contact.doubt(away.message)
            await self._outcomes.lost(ticket, away.message, worker=False)
        except FolderError as error:
            await self._outcomes.lost(ticket, error.message, worker=False, sort="values")
        except Exception as error:
            log.warning("ticket %s cannot be sent", ticket.name, exc_info=True)
            await self._cannot(ticket, f"{type(error).__name__}: {error}")

    async def _not_packed(self, ticket: Ticket, error: AnabranchError) -> None:
        """The engine has given it up; or something that it needs is gone."""
        if self._reports.order_of(ticket.out) is None:
            await self._cannot(ticket, error.message)
            return
        await self._reports.let_go(ticket.out)
        self._over(ticket)

    async def _cannot(self, ticket: Ticket, why: str) -> None:
        said = f"the job cannot be sent to the cluster: {why}"
        with suppress(AnabranchError):
            await self._reports.failed(ticket, failed("config", said, retryable=False))
        self._over(ticket)

    async def _submit(self, ticket: Ticket) -> None:
        blob = await waited_out(
            lambda: self._packer.pack(
                ticket.name, ticket.out, ticket.leased, ticket.names, ticket.asked
            )
        )
        if ticket.stop is not None or self._closing:
            self._stopped(ticket, "")
            return
        await self._backend.submit(ticket.name, blob)
        self._submitted(ticket)

    def _submitted(self, ticket: Ticket) -> None:
        ticket.since, ticket.sent = self._clock.now(), True
        self._book.submitted += 1
        if ticket.stop is not None:  # since it was packed
            self._stopper.withdraw(ticket)

    def _send_again(self, ticket: Ticket) -> None:
        self._look_at(ticket)
        self._begin_small(self._send(ticket))

    # -- from the cluster --------------------------------------------------------------------

    def _hear(self, event: Event) -> None:
        match event:
            case WentAway():
                self._went_away(event.reason)
            case CameBack():
                self._came_back()
            case Started():
                self._started(event)
            case _:
                ticket = self._book.get(event.ticket)
                if ticket is not None:
                    self._outcomes.heard(ticket, event)
                elif isinstance(event, Finished):
                    self._outcomes.late(event.ticket, event.worker, event.said)

    def _started(self, event: Started) -> None:
        ticket = self._book.get(event.ticket)
        if ticket is None:
            if self._book.was_here(event.ticket):
                self._stopper.stray(event.ticket)
            return
        if ticket.process and ticket.process != event.process:
            self._began_again(ticket, event)
            return
        self._book.began(ticket, event.worker, event.process, self._clock.now())
        if ticket.leased.timeout_seconds is not None:
            self._begin_small(self._reports.began(ticket))
        self._began_at = asyncio.get_running_loop().time()
        if self._brake.probing and not self._brake.on:
            self._brake.begins()
            self._contact.set("open")
            self._changed.set()

    def _began_again(self, ticket: Ticket, event: Started) -> None:
        """The cluster repeats by itself what it has lost. It is not asked to: the attempt is over,
        and the repetition is stopped."""
        reason = (
            f"its worker {ticket.worker} was lost; the cluster began it again on {event.worker}"
        )
        self._book.losses["rerun"] += 1
        self._book.began(ticket, event.worker, event.process, self._clock.now())
        self._begin_small(self._reports.lost(ticket, reason, worker=True))
        self._stopper.order(ticket, StopOrder("", reason))

    def _went_away(self, reason: str) -> None:
        self._packer.forget()
        for ticket in self._book:
            ticket.cut_off = ticket.sent
        self._contact.set("away", reason)

    def _came_back(self) -> None:
        """Perhaps it is another cluster: what was out is not there."""
        self._packer.forget()
        self._began_at = asyncio.get_running_loop().time()
        self._lose_cut_off("the contact with the cluster was lost")
        self._begin_small(self._contact.came_back())

    def _lose_cut_off(self, reason: str) -> None:
        """What the cluster has said is carried out; of all else nothing will be heard."""
        for ticket in self._book:
            if ticket.cut_off and not ticket.ending:
                self._outcomes.heard(ticket, Lost(ticket.name, reason, worker=False))

    def _over(self, ticket: Ticket) -> None:
        """The cluster no longer has it, or nobody waits for it."""
        if ticket.over:
            return
        self._packer.over(ticket.name)
        self._stopper.over(ticket)
        self._book.drop(ticket)
        self._changed.set()

    # -- what is to stop ---------------------------------------------------------------------

    def _news(self, news: DurableEvents) -> None:
        """Something of a run is durable: perhaps a job of it is to stop."""
        if not self._book.has_run(news.run):
            return
        for event in news.events:
            if isinstance(event, e.RunFinished):
                for ticket in self._book.of_run(news.run):
                    self._look_at(ticket)
            elif isinstance(event, e.RunPaused):
                waiting = [one for one in self._book.of_run(news.run) if not one.process]
                self._hand_back(waiting, "its run was paused")
            elif isinstance(event, e.LoopTuned):
                beyond = self._beyond_window(news.run, event)
                self._hand_back(beyond, "the window of its loop was narrowed")
            elif isinstance(event, STOPPING):
                found = self._book.find(news.run, event.job)
                if found is not None:
                    self._look_at(found)

    def _beyond_window(self, run: str, event: e.LoopTuned) -> list[Ticket]:
        """What lies in the queue of the cluster and should not, the newest first."""
        shards = [
            ticket
            for ticket in self._book.of_run(run)
            if ticket.stop is None and loop_id(token_of(ticket.leased.job)) == event.loop
        ]
        waiting = [ticket for ticket in reversed(shards) if not ticket.process]
        return waiting[: max(0, len(shards) - event.window)]

    def _look_at(self, ticket: Ticket) -> None:
        """Stop what the engine does not want any more."""
        if ticket.over or ticket.ending:
            return
        order = self._reports.order_of(ticket.out)
        if isinstance(order, JobToStop):
            says = "discharge" if order.code == CANCELLED else ""
            self._stopper.order(ticket, StopOrder(says, order.reason))
        elif order is not None:  # its run is another server's, which has taken the job back
            self._stopper.order(ticket, StopOrder("", "another server owns its run"))

    def _stopped(self, ticket: Ticket, deaf: str) -> None:
        """It was withdrawn before it began, or does not stop."""
        if ticket.over:
            return
        if deaf:
            self._book.losses["deaf"] += 1
            log.warning("pool %r: ticket %s: %s", self.pool.name, ticket.name, deaf)
        else:
            self._book.withdrawn += 1
        order = ticket.stop or StopOrder("hand_back", SERVER_STOPS)
        if order.says:
            self._begin_small(self._reports.released(ticket, order.reason))
        self._over(ticket)

    async def let_go(self) -> None:
        """Runs are another server's from now on: what is out for them is withdrawn."""
        for ticket in self._book:
            self._look_at(ticket)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self._stopper.settled()

    # -- now and then ------------------------------------------------------------------------

    async def _look_forever(self) -> None:
        pause = min(LOOK_SECONDS, self.pool.begin_seconds / 4)
        while True:
            await asyncio.sleep(pause)
            for ticket in self._book:
                self._look_at(ticket)
            try:
                await self._extend_leases()
            except AnabranchError as error:
                log.debug("pool %r: leases are not extended: %s", self.pool.name, error.message)
            self._require_begun()

    async def _extend_leases(self) -> None:
        """Those that are half over, all of them in a few turns of the engine."""
        now, half = self._clock.now(), int(LEASE_SECONDS * 500)
        due = [one for one in self._book if one.lease_until - now < half and one.stop is None]
        for start in range(0, len(due), ALL_AT_ONCE):
            await asyncio.gather(*map(self._extend, due[start : start + ALL_AT_ONCE]))

    async def _extend(self, ticket: Ticket) -> None:
        with suppress(Refused, NotFound, RunElsewhere):  # the next look says why
            beat = await self._api.heartbeat(ticket.out, lease_seconds=LEASE_SECONDS)
            ticket.lease_until = beat.lease_until

    def _require_begun(self) -> None:
        """A cluster that accepts jobs and begins none although it has slots is told apart from one
        that is busy. What waits there is taken back, and tried again later."""
        now = asyncio.get_running_loop().time()
        free = self._contact.slots - self._book.running
        queued = [one for one in self._book if one.sent and not one.process]
        if free <= 0 or not queued:
            self._began_at = now
            return
        if now - self._began_at < self.pool.begin_seconds or self._brake.on:
            return
        begin = self.pool.begin_seconds
        reason = (
            f"it accepted {counted(len(queued), 'job')} and has begun none for {begin:g} s, "
            f"although {free:,} of its {self._contact.slots:,} slots are free as far as this pool "
            "knows: other work may keep them busy, or no worker has the resources that the pool "
            "asks for"
        )
        self._book.losses["never_begun"] += len(queued)
        pause = self._brake.pull(begin)
        self._contact.set("unfit", f"{reason}; the jobs wait, the next try is in {pause:g} s")
        for ticket in queued:
            self._stopper.order(ticket, StopOrder("hand_back", f"the cluster: {reason}"))

    def _in_trouble(self, reason: str, most: float) -> None:
        """Something beside the work keeps jobs from being done."""
        pause = self._brake.pull(1.0, most)
        if pause and self._contact.state == "open":
            self._contact.set("open", f"{reason}; the next try is in {pause:g} s")

    def _try_again(self) -> None:
        """A pause is over."""
        self._began_at = asyncio.get_running_loop().time()
        if self._contact.state == "unfit":
            self._contact.set("open", "one job goes out to see whether the cluster begins it")
        self._changed.set()

"""The engine: turns, commits, effects, timers and messages, in one asyncio task.

    arrive ─▶ turn (compute) ─▶ batch (durable) ─▶ effects (jobs start and stop, replies, news)

A crash at any point is either "did not happen" or "will be sent again": nothing leaves before its
batch is durable, and whatever was out when an engine died is lost, recorded as such and sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from anabranch.clock import Clock
from anabranch.errors import AnabranchError, StoreError
from anabranch.ids import checked_run_id, new_run_id
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.runtime.admissions import RunAdmissions
from anabranch.runtime.between_turns import AlarmClock, BetweenTurns
from anabranch.runtime.child_runs import require_root
from anabranch.runtime.cluster.directory import ServerDirectory
from anabranch.runtime.core import Core, run_exists
from anabranch.runtime.defects import is_known, log_defect
from anabranch.runtime.effects import DurableEvents, Execute, Replied, Stop, Turned
from anabranch.runtime.housekeeping import Housekeeping
from anabranch.runtime.jobs.concurrency import job_queues_for
from anabranch.runtime.jobs.executor import Executor, SecretScope
from anabranch.runtime.jobs.pool_queues import PoolQueues
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.log_writer import LogWriter
from anabranch.runtime.messages.codec import ELSEWHERE, RunElsewhere
from anabranch.runtime.messages.followed_runs import FollowedRuns
from anabranch.runtime.messages.mailbox import Mailbox
from anabranch.runtime.messages.subscribers import Listener, Subscribers
from anabranch.runtime.metrics.engine_gauges import add_gauges, add_outage_metrics
from anabranch.runtime.nets import Nets
from anabranch.runtime.recovery import bring_back
from anabranch.runtime.run_limits import RunLimits
from anabranch.runtime.suspension import Suspension
from anabranch.runtime.values.offload import PayloadOffloader
from anabranch.runtime.values.read_rights import ReadRights
from anabranch.runtime.values.sealing import Said, sealed_keys, split
from anabranch.runtime.writer import Writer
from anabranch.settings import Settings
from anabranch.store.access_ports import RequestRecord
from anabranch.store.cluster_ports import PARTITION_LOST, Cluster
from anabranch.store.outages import passes
from anabranch.store.ports import Definition, Store
from anabranch.work.from_settings import log_limits
from anabranch.work.port import Performer

if TYPE_CHECKING:
    from anabranch.runtime.cluster.clocks import ServerClock
    from anabranch.runtime.cluster.failover import Failover
    from anabranch.runtime.cluster.member import ClusterMember
    from anabranch.runtime.cluster.remote_news import MovedListener
    from anabranch.runtime.slices import Slices

log = logging.getLogger("anabranch.engine")

SHARED_MAIL_SECONDS = 0.2  # between two looks at a mailbox whose notifications could be lost
TURNS_AT_ONCE = 8  # before the event loop gets its turn again


class EngineLoop:
    """Use it as an async context manager; it owns the store until it is closed."""

    draw_run_id = staticmethod(new_run_id)

    def __init__(
        self,
        store: Store,
        nets: Nets,
        performers: Mapping[str, Performer],
        *,
        clock: Clock,
        settings: Settings,
        owner: str = "anabranch",
        safe: SecretScope | None = None,
        rights: ReadRights | None = None,
        require: Callable[[Net, State | None], None] | None = None,
        seconds: Callable[[], float] | None = None,
    ) -> None:
        """`require` raises for a run that needs what is not here; `seconds` measures durations in
        the place of the clocks of the system, for simulations."""
        self.store = store
        self.nets = nets
        self.clock = clock
        self._settings = settings
        self._owner = owner
        self.directory = ServerDirectory(store.cluster, owner, settings.serve_advertise)
        job_queues = self.job_queues = job_queues_for(settings, performers)
        pools = PoolQueues(settings.pools_here)
        #: What the work of a run may read of what the store keeps.
        self.rights = rights or ReadRights(store, nets, pools.outside)
        self._core = Core(
            store,
            nets,
            job_queues,
            snapshot_every=settings.snapshot_every,
            retention_ms=int(settings.retention_days * 86_400_000),
            pools=pools,
            inline_bytes_max=settings.inline_bytes_max,
            value_bytes_max=settings.result_bytes_max,
            read_bytes_max=settings.expression_bytes_max,
            rights=self.rights,
            run_limits=RunLimits.of(settings),
        )
        self._core.on_defect = self._set_aside
        if require is not None:
            self._core.require = require
        self._safe = safe
        inline_max, result_max = settings.inline_bytes_max, settings.result_bytes_max
        self._light = PayloadOffloader(self._core.keep_payload, inline_max, result_max)
        self._executor = Executor(performers, self.offer, self.rights.content, safe, settings)
        self.logs = self._executor.logs = LogWriter(store, log_limits(settings))
        self.engine_metrics = self._core.engine_metrics
        self.logs.add_metrics(self.engine_metrics.registry)
        add_gauges(self._core, clock.now)
        self._writer = Writer(store, self.engine_metrics, seconds or time.perf_counter)
        self._wake = asyncio.Event()
        job_queues.watch_rooms(self._wake.set)
        self.subscribers = Subscribers()
        self._mailbox = Mailbox(self._core, self.subscribers.records_changed)
        self._mail_read_at, self._mail_seconds = 0, settings.poll_seconds
        self._between_turns = BetweenTurns(self._wake.set)
        self._admissions = RunAdmissions(self._core, clock.now, self._wake.set)
        add_outage_metrics(self._writer.outage, self.engine_metrics.registry)
        #: On a store that several servers share: what this engine owns of it.
        self.member: ClusterMember | None = None
        self._failover: Failover | None = None
        if store.cluster is not None:
            self._join(store.cluster, seconds)
        self._suspension = Suspension(
            self._core, int(settings.poll_seconds * 1000), seconds or time.monotonic
        )
        self._slices: Slices | None = None
        self._loop_task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._stopping = False
        self._alarm_clock = AlarmClock(self._wake.set)
        self._housekeeping = Housekeeping(self._core, int(settings.evict_after_seconds * 1000))
        self._followed = FollowedRuns(
            self._core, self.subscribers, clock, self.member, self._check_going
        )

    # -- life --------------------------------------------------------------------------------

    async def __aenter__(self) -> EngineLoop:
        await self.open()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def open(self, *, run_jobs: bool = True, only: Collection[str] | None = None) -> None:
        """Take the store, bring back what is unfinished (or `only` these), begin to turn. Without
        `run_jobs` the engine records what it is told and starts no work."""
        self._core.taking_work = self._core.reactions.has_crew = run_jobs
        if self.member is not None and run_jobs:
            self._admissions.start(only)
            await self._open_in_cluster(self.member, only)
            return
        self.store.acquire(self._owner)
        if self.member is not None:
            self.member.own_for_now()
        try:
            if run_jobs:
                self._admissions.start(only)
                beside = self._slices is not None
                await bring_back(self._core, self.clock.now(), only, beside_loop=beside)
        except BaseException:
            await self._admissions.close()
            self.store.release()
            raise
        self._loop_task = asyncio.get_running_loop().create_task(self._turn_forever())

    async def _open_in_cluster(self, member: ClusterMember, only: Collection[str] | None) -> None:
        """Partitions are recovered between turns; `only` some runs are left to servers, if any."""
        member.keep_to(only)
        self._loop_task = asyncio.get_running_loop().create_task(self._turn_forever())
        try:
            await member.open(self._wake.set, self._mail_has_come)
        except BaseException:
            await self.close(grace_seconds=0)
            raise

    def _mail_has_come(self) -> None:
        self._mail_read_at = 0
        self._wake.set()

    def _join(self, cluster: Cluster, seconds: Callable[[], float] | None) -> None:
        """Be one of several engines, once it is opened."""
        from anabranch.runtime.cluster.failover import Failover
        from anabranch.runtime.cluster.member import ClusterMember
        from anabranch.runtime.metrics.cluster_gauges import add_cluster_gauges

        member = self.member = ClusterMember(
            cluster,
            self._core,
            self._executor,
            self.subscribers,
            self.clock.now,
            self._do_between_turns,
            name=self._owner,
            url=self._settings.serve_advertise,
            lease_seconds=self._settings.server_lease_seconds,
            seconds=seconds,
        )
        failover = self._failover = Failover(
            member,
            self.store,
            self._writer,
            self._mailbox,
            self.subscribers,
            self._between_turns,
            lambda: self._stopping,
        )
        self._executor.cluster = cluster
        self._executor.may_act_for = self.logs.may_act_for = self.may_act_for
        self._writer.patient = True
        self._writer.confirm = failover.confirm_lease
        member.membership.outage = self._writer.outage
        # A server that posts tells so.
        self._mail_seconds = max(self._mail_seconds, SHARED_MAIL_SECONDS)
        add_cluster_gauges(member, self.engine_metrics.registry)

    async def hand_over(self) -> None:
        """Begin an orderly stop: start no more work. On a shared store, runs without work here are
        another server's when this returns; jobs that workers have stay with them."""
        self._core.taking_work = False
        if self.member is not None and self._loop_task is not None and self._failure is None:
            await self.member.retire()

    async def close(self, grace_seconds: float | None = None) -> None:
        """No new work, running work ends or is handed back, all of it recorded."""
        if self._loop_task is None:
            return
        await self.hand_over()
        await self._admissions.close()
        self._core.pools.close()
        grace = self._settings.grace_seconds if grace_seconds is None else grace_seconds
        ending = self._executor.finish(0 if self._failure else grace)
        await (ending if self.member is None else self.member.while_work_ends(ending))
        self._stopping = True
        self._writer.patient = False
        self._wake.set()
        with contextlib.suppress(BaseException):
            await self._loop_task
        self._loop_task = None
        if self._slices is not None:
            self._slices.close()
        self.subscribers.tell_all(self._gone())
        self._alarm_clock.cancel()
        self._writer.close()
        await asyncio.to_thread(self.logs.close)
        if self._failure is None:
            await self._housekeeping.finish(self.clock.now())
        if self.member is not None:
            await self.member.close()
        try:
            self.store.release()
        except StoreError as error:
            if self.member is None or not passes(error):
                raise
            log.warning("the store could not be released: %s", error.message)

    async def stopped(self) -> AnabranchError:
        """Returns when the engine turns no more, with the reason."""
        if self._loop_task is not None:
            await asyncio.wait([self._loop_task])
        return self._gone()

    # -- the loop ----------------------------------------------------------------------------

    async def _turn_forever(self) -> None:
        try:
            while not (self._stopping and not self._core.busy):
                await self._rest()
                try:
                    await self._some_turns()
                except StoreError as error:
                    if self._failover is None:
                        raise
                    await self._failover.get_over(error)
            await self._writer.drain()
        except BaseException as failure:
            self._fail(failure)
            raise

    async def _some_turns(self) -> None:
        if self.member is not None:
            await self.member.confirm_lease()
        between = self._between_turns
        if not (between.waiting and between.come_first(self._core.inbox)):
            for _ in range(TURNS_AT_ONCE):
                await self._turn_once()
                if between.waiting or not self._core.busy or self._core.worked_long:
                    break
        if between.waiting:
            await self._writer.drain()
            await between.carry_out(self._slices)
            self._mailbox.forget()  # there may be mail for other runs now
            self._mail_read_at = 0

    async def _do_between_turns(self, act: Callable[[], None], *, early: bool = False) -> None:
        """Do this when everything that was turned is durable; returns when it is done."""
        self._check_going()
        await self._between_turns.do(act, early=early)

    async def _turn_once(self) -> None:
        if self._writer.failed:
            await self._writer.drain()  # raises
        now = self.clock.now()
        if now - self._mail_read_at >= self._mail_seconds * 1000:
            self._mail_read_at = now
            if self.member is None:
                self._mailbox.read()
            else:  # the event loop does not wait for the network
                self._mailbox.take(await asyncio.to_thread(self._mailbox.look))
        ring = self._suspension.lets_ring(self.engine_metrics.turned_at, now)
        take = partial((self._failover or self._core).turn, now, ring=ring)
        turned = take() if self._slices is None else await self._slices.do(take)
        self.engine_metrics.turned(now)
        if not turned.empty:
            await self._writer.write(turned.batch, lambda: self._release(turned))
        if not self._writer.busy:  # or the store does not know yet what it will hold
            self._housekeeping.look(now)

    async def _rest(self) -> None:
        """Let others run; sleep until something arrives, is due, or a message may have come."""
        if self._core.busy or (self._stopping and not self._writer.busy):
            await asyncio.sleep(0)
            return
        timeout = self._settings.poll_seconds
        alarm = self._core.next_alarm()
        if alarm is not None:
            due = max(0.0, (alarm - self.clock.now()) / 1000)
            timeout = min(timeout, max(due, self._suspension.hearing_seconds))
        self._alarm_clock.set(timeout)
        self._wake.clear()
        await self._wake.wait()

    def _release(self, turned: Turned) -> None:
        """The batch is durable: now its effects may leave."""
        if self.member is not None:
            self.member.require_lease()
        for effect in turned.effects:
            match effect:
                case Execute():
                    self._executor.execute(self._core.live.get(effect.run), effect)
                case Stop():
                    self._executor.stop(effect)
                case DurableEvents():
                    self._publish(effect)
                    if effect.final is not None:
                        self._core.end_is_written(effect.run)
                        if self._safe is not None:
                            self._safe.release(effect.run)
                case Replied():
                    self.subscribers.reply(effect)
                case _:  # a place is sought, or left
                    self._admissions.note(effect)

    def _fail(self, failure: BaseException) -> None:
        """The store would not take a batch: memory is ahead of disk, so nothing may go on."""
        self._failure = failure
        if not isinstance(failure, asyncio.CancelledError):
            log.error("engine stopped: %s", failure if is_known(failure) else repr(failure))
        if self.member is not None:
            self.member.membership.halt()
        self._between_turns.refuse(self._gone())
        self.subscribers.tell_all(self._gone())

    def _gone(self) -> AnabranchError:
        """Why there is nobody to ask any more."""
        if self._failure is None:
            return AnabranchError("the engine is closed", code="engine_closed")
        why = str(self._failure) if is_known(self._failure) else repr(self._failure)
        return AnabranchError(f"the engine has stopped: {why}", code="engine_stopped")

    def _set_aside(self, run: str, defect: BaseException) -> None:
        """Nobody will hear of this run any more; its work is no longer wanted."""
        log_defect(run, defect)
        self._executor.abandon({run})
        self.subscribers.tell_of(run, lambda: self._core.aside(run))

    def _check_going(self) -> None:
        if self._failure is not None or self._loop_task is None:
            raise self._gone()

    # -- in ----------------------------------------------------------------------------------

    def offer(self, run: str, stimulus: s.Stimulus) -> None:
        """For the next turn of whoever owns the run; no reply is waited for."""
        self._core.offer(run, self._light.fit(run, stimulus))
        self._wake.set()

    async def hand_in(self, run: str, said: Said) -> None:
        """What a worker elsewhere says of its job; returns when it is durable."""
        if (live := self._core.live.get(run)) is not None:
            said = live.sealed.clean(said)
        await self.send(run, self._light.fit(run, said))

    async def send(
        self, run: str, stimulus: s.Stimulus, request: RequestRecord | None = None
    ) -> None:
        """Returns when the stimulus has taken effect durably, in one commit with what the request
        leaves; raises if it was refused, and nothing is left then."""
        self._check_going()
        if self._writer.outage.error is not None:
            raise self._writer.outage.error  # it would wait for as long as the store does
        if self.member is not None and not self.member.here(run):
            await self.member.remote.send(run, stimulus, request)
            return
        ticket, waiting = self.subscribers.ticket()
        self._core.offer(run, stimulus, ticket, request=request)
        self._wake.set()
        try:
            await waiting
        except AnabranchError as error:
            if self.member is None or error.code not in (ELSEWHERE, PARTITION_LOST):
                raise
            await self.member.remote.send(run, stimulus, request)

    # -- verbs -------------------------------------------------------------------------------

    async def start(
        self, definition: Definition, net: Net, start: s.Start | None = None, **given: Any
    ) -> str:
        """Begin a run; returns its id once it is durable. `given` are the fields of `Start`, and
        what the `request` leaves; another engine that has to begin the run writes no answer."""
        if self.member is not None and self.trouble is not None:
            raise self.trouble  # before the store is asked for anything
        chosen, request = given.pop("run", None), given.pop("request", None)
        run = self.new_run_id() if chosen is None else checked_run_id(chosen)
        if self.nets.known(net.fingerprint) is None:
            first_seen = definition.created_at or self.clock.now()
            self.nets.put(msgspec.structs.replace(definition, created_at=first_seen), net)
        fresh = chosen is None and (self.member is None or self.member.would_own_root(run))
        async with self._followed.start_alone(run, drawn=fresh):
            shown, sealed = split(net, given.pop("input", None) or {}, given.pop("marks", None))
            given.setdefault("sealed", sealed_keys(shown, sealed.marks))
            begin = start or s.Start(run=run, input=shown, **given)
            asked = definition.fingerprint, begin, sealed, request
            async with self._admissions.room_for(net, begin):
                if net.limits and self.known(run):  # another server asked for it meanwhile
                    raise run_exists(run)
                if self.member is not None and not self.member.would_own(run, begin.parent):
                    require_root(begin)
                    await self.member.remote.start(*asked)
                    return run
                opened = self._core.open_run(run, net, sealed)
                try:
                    await self.send(run, begin, request)
                except AnabranchError as error:
                    if self._core.live.get(run) is opened:
                        del self._core.live[run]
                    if self.member is None or error.code not in (ELSEWHERE, PARTITION_LOST):
                        raise
                    require_root(begin)
                    await self.member.remote.start_again(*asked)
        return run

    def new_run_id(self) -> str:
        """An id for a run that this engine will own, if it owns any."""
        run = self.draw_run_id(self.clock.now())
        if self.member is not None and not self.member.owns_nothing:
            while not self.member.would_own_root(run):
                run = self.draw_run_id(self.clock.now())
        return run

    def known(self, run: str) -> bool:
        """Is there a run of this id, in memory or in the store?"""
        return self._followed.known(run)

    def expect_new(self, runs: Sequence[str]) -> Mapping[str, bool]:
        """Which of these are there, and whether they have finished; see `FollowedRuns`."""
        return self._followed.expect_new(runs)

    async def wait(self, run: str, *, standing: bool = False) -> State:
        """The state of the run when it has finished; with `standing` also when it only stands."""
        return await self._followed.wait(run, standing=standing)

    async def is_settled(self, run: str, *, standing: bool = False) -> bool:
        """Whether `wait` would return at once."""
        return await self._followed.is_settled(run, standing=standing)

    def state(self, run: str) -> State:
        """The state of a run now; not to be changed."""
        return self._followed.state(run)

    def events(self, run: str, after: int = 0) -> AsyncIterator[tuple[int, int, e.Event]]:
        """(number, instant, event) from the log, then live until the run has finished."""
        return self._followed.events(run, after)

    # -- what is there now -------------------------------------------------------------------

    @property
    def pools(self) -> PoolQueues:
        """The jobs that wait for workers from outside, or are out with them."""
        return self._core.pools

    def live_run(self, run: str) -> LiveRun | None:
        """The run, if it is in memory; not to be changed."""
        return self._core.live.get(run)

    def load_run(self, run: str) -> LiveRun:
        """The run, from memory or the store; raises where it has ended, is elsewhere or aside."""
        if not self._core.here(run):
            raise RunElsewhere(run)
        return self._core.run(run)

    async def view_run(self, run: str) -> LiveRun:
        """The same, not to be changed, also for a run of another server: what of it is durable."""
        return await self._followed.view(run)

    def keep_payload(self, run: str, sha256: str, content: bytes) -> None:
        """Write this payload with the next batch, for this run."""
        self._core.keep_payload(run, sha256, content)

    @property
    def set_aside(self) -> Mapping[str, BaseException]:
        """The runs that this engine does not touch, and why."""
        return self._core.not_touched

    @property
    def inbox(self) -> int:
        """How many stimuli wait for a turn."""
        return self._core.inbox

    @property
    def timers_overdue_ms(self) -> int:
        """How long ago the next timer was due; 0 where it is yet to come."""
        return self._core.overdue_ms(self.clock.now())

    @property
    def failure(self) -> BaseException | None:
        """Why the engine has stopped by itself, if it has."""
        return self._failure

    @property
    def is_open(self) -> bool:
        return self._loop_task is not None

    @property
    def trouble(self) -> StoreError | None:
        """What keeps the store from taking writes, while a patient engine waits for its end."""
        return self._writer.outage.error

    @property
    def server_clock(self) -> ServerClock | None:
        """On a store that several servers share: the clock of this one beside that of the store."""
        return self.member.clock if self.member is not None else None

    def be_patient(self) -> None:
        """Wait for a full disk to be cleared, as servers do, instead of stopping with an error."""
        self._writer.patient = True

    def share_loop(self, slices: Slices) -> None:
        """Somebody is answered in the same event loop: turns are taken in slices."""
        self._slices = slices

    @property
    def traces(self) -> bool:
        """Whether work is told its span; set by whoever makes spans of what is published."""
        return self._executor.traces

    @traces.setter
    def traces(self, wanted: bool) -> None:
        self._executor.traces = wanted

    def may_act_for(self, run: str) -> bool:
        """Whether this engine may do something in the world for the run: only its owner may."""
        return self.member is None or self.member.may_act_for(run)

    def listen(self, heard: Listener) -> Callable[[], None]:
        """Hear of every durable change; returns how to stop that."""
        return self.subscribers.listen(heard)

    def listen_elsewhere(self, listener: MovedListener, run: str = "") -> Callable[[], None]:
        """Hear that runs of other servers have moved, or this one; returns how to stop that."""
        return self.member.news.listen(listener, run) if self.member else lambda: None

    def _publish(self, news: DurableEvents) -> None:
        ended = news.status if news.final is not None else ""
        self.engine_metrics.published(news.first_seq, news.events, ended)
        self.subscribers.publish(news)
        if self.member is not None:
            self.member.news.told(news)

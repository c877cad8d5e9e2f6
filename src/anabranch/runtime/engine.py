"""The engine: turns, commits, effects, timers and messages, in one asyncio task.

    arrive ─▶ turn (compute) ─▶ batch (durable) ─▶ effects (jobs start and stop, replies, news)

A crash at any point is either "did not happen" or "will be sent again": nothing leaves before its
batch is durable, and whatever was out when an engine died is lost, recorded as such and sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any

import msgspec

from anabranch.clock import Clock
from anabranch.errors import (
    AnabranchError,
    InputError,
    LawBroken,
    MissingRequirements,
    NotFound,
    StoreError,
)
from anabranch.ids import checked_run_id, new_run_id
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.runtime.core import Core, Turned
from anabranch.runtime.effects import DurableEvents, Execute, Replied, Stop
from anabranch.runtime.jobs.concurrency import job_queues_for
from anabranch.runtime.jobs.executor import Executor, SecretScope
from anabranch.runtime.jobs.pool_queues import PoolQueues
from anabranch.runtime.live_run import LiveRun, history, load_state
from anabranch.runtime.messages.mailbox import Mailbox
from anabranch.runtime.messages.subscribers import Listener, Subscribers, stands
from anabranch.runtime.metrics.engine_gauges import add_gauges
from anabranch.runtime.nets import Nets
from anabranch.runtime.recovery import recover
from anabranch.runtime.run_limits import RunLimits
from anabranch.runtime.suspension import Suspension
from anabranch.runtime.values.offload import PayloadOffloader
from anabranch.runtime.values.read_rights import ReadRights
from anabranch.runtime.values.sealing import Said, sealed_keys, split
from anabranch.runtime.writer import Writer
from anabranch.settings import Settings
from anabranch.store.ports import Definition, Store
from anabranch.work.port import Performer

log = logging.getLogger("anabranch.engine")

EVICT_EVERY_SECONDS = 5.0
SWEEP_EVERY_SECONDS = 60.0
SWEPT_AT_ONCE = 200
TURNS_AT_ONCE = 8  # before the event loop gets its turn again


class EngineLoop:
    """Use it as an async context manager; it owns the store until it is closed."""

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
        require: Callable[[Net, State], None] | None = None,
    ) -> None:
        """`require` raises for a run that needs what is not here."""
        self.store = store
        self.nets = nets
        self.clock = clock
        self._settings = settings
        self._owner = owner
        job_queues = job_queues_for(settings, performers)
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
        self._executor = Executor(performers, self._offer, self.rights.content, safe)
        self.engine_metrics = self._core.engine_metrics
        add_gauges(self._core, clock.now)
        self._writer = Writer(store, self.engine_metrics)
        self._wake = asyncio.Event()
        self._subscribers = Subscribers()
        self._mailbox = Mailbox(self._core)
        self._mail_read_at = 0
        self._suspension = Suspension(self._core, int(settings.poll_seconds * 1000))
        self._loop_task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._stopping = False
        self._alarm_clock: asyncio.TimerHandle | None = None
        self._evicted_at = 0
        self._swept_at = 0

    # -- life --------------------------------------------------------------------------------

    async def __aenter__(self) -> EngineLoop:
        await self.open()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def open(self, *, run_jobs: bool = True, only: Collection[str] | None = None) -> None:
        """Take the store, bring back what is unfinished (or `only` these), begin to turn.

        Without `run_jobs` the engine records what it is told and starts no work.
        """
        self.store.acquire(self._owner)
        try:
            self._core.taking_work = self._core.reactions.has_crew = run_jobs
            if run_jobs:
                recover(self._core, self.clock.now(), only)
        except BaseException:
            self.store.release()
            raise
        self._loop_task = asyncio.get_running_loop().create_task(self._turn_forever())

    async def close(self, grace_seconds: float | None = None) -> None:
        """Stop in order: no new work, running work ends or is handed back, all of it recorded."""
        if self._loop_task is None:
            return
        self._core.taking_work = False
        self._core.pools.close()
        grace = self._settings.grace_seconds if grace_seconds is None else grace_seconds
        await self._executor.finish(0 if self._failure else grace)
        self._stopping = True
        self._writer.patient = False
        self._wake.set()
        with contextlib.suppress(BaseException):
            await self._loop_task
        self._loop_task = None
        self._subscribers.tell_all(self._gone())
        if self._alarm_clock is not None:
            self._alarm_clock.cancel()
            self._alarm_clock = None
        self._writer.close()
        if self._failure is None:
            self._swept_at = 0
            self._sweep(self.clock.now())
        self.store.release()

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
                for _ in range(TURNS_AT_ONCE):
                    await self._turn_once()
                    if not self._core.busy:
                        break
            await self._writer.drain()
        except BaseException as failure:
            self._fail(failure)
            raise

    async def _turn_once(self) -> None:
        if self._writer.failed:
            await self._writer.drain()  # raises
        now = self.clock.now()
        if now - self._mail_read_at >= self._settings.poll_seconds * 1000:
            self._mail_read_at = now
            self._mailbox.read()
        ring = self._suspension.lets_ring(self.engine_metrics.turned_at, now)
        turned = self._core.turn(now, ring=ring)
        self.engine_metrics.turned(now)
        batch = turned.batch
        if batch.commits or batch.answers or batch.payloads or turned.effects:
            await self._writer.write(batch, lambda: self._release(turned))
        self._evict(now)

    async def _rest(self) -> None:
        """Let others run; sleep until something arrives, is due, or a message may have come."""
        if self._core.busy or (self._stopping and not self._writer.busy):
            await asyncio.sleep(0)
            return
        self._set_alarm_clock()
        self._wake.clear()
        await self._wake.wait()

    def _set_alarm_clock(self) -> None:
        """Be woken for the next timer or look at the mail; one handle serves many rests."""
        timeout = self._settings.poll_seconds
        alarm = self._core.next_alarm()
        if alarm is not None:
            due = max(0.0, (alarm - self.clock.now()) / 1000)
            timeout = min(timeout, max(due, self._suspension.hearing_seconds))
        loop = asyncio.get_running_loop()
        if self._alarm_clock is not None:
            if self._alarm_clock.when() <= loop.time() + timeout:
                return
            self._alarm_clock.cancel()
        self._alarm_clock = loop.call_later(timeout, self._ring)

    def _ring(self) -> None:
        self._alarm_clock = None
        self._wake.set()

    def _release(self, turned: Turned) -> None:
        """The batch is durable: now its effects may leave."""
        for effect in turned.effects:
            match effect:
                case Execute():
                    self._executor.execute(self._core.live.get(effect.run), effect)
                case Stop():
                    self._executor.stop(effect)
                case DurableEvents():
                    self._publish(effect)
                    if effect.final is not None and self._safe is not None:
                        self._safe.release(effect.run)
                case Replied():
                    self._subscribers.reply(effect)

    def _evict(self, now: int) -> None:
        """Not while a batch is on its way: the store does not know yet what it will hold."""
        if now - self._evicted_at >= EVICT_EVERY_SECONDS * 1000 and not self._writer.busy:
            self._evicted_at = now
            self._core.evict(now, int(self._settings.evict_after_seconds * 1000))
            self._sweep(now)

    def _sweep(self, now: int) -> None:
        """Delete the payloads that nobody needs any more, a few at a time."""
        if now - self._swept_at >= SWEEP_EVERY_SECONDS * 1000:
            self._swept_at = now
            try:
                gone = self.store.expire(now, SWEPT_AT_ONCE)
            except StoreError as error:  # they stay for another time
                log.warning("unused payloads could not be deleted: %s", error.message)
                return
            if gone:
                log.info("%d unused payloads were deleted", gone)

    def _fail(self, failure: BaseException) -> None:
        """The store would not take a batch: memory is ahead of disk, so nothing may go on."""
        self._failure = failure
        if not isinstance(failure, asyncio.CancelledError):
            log.error("engine stopped: %s", failure if _known(failure) else repr(failure))
        self._subscribers.tell_all(self._gone())

    def _gone(self) -> AnabranchError:
        """Why there is nobody to ask any more."""
        if self._failure is None:
            return AnabranchError("the engine is closed", code="engine_closed")
        why = str(self._failure) if _known(self._failure) else repr(self._failure)
        return AnabranchError(f"the engine has stopped: {why}", code="engine_stopped")

    def _set_aside(self, run: str, defect: BaseException) -> None:
        """Nobody will hear of this run any more; its work is no longer wanted."""
        _log_defect(run, defect)
        self._executor.abandon(run)
        self._subscribers.tell_of(run, lambda: self._core.aside(run))

    def _check_going(self) -> None:
        if self._failure is not None or self._loop_task is None:
            raise self._gone()

    # -- in ----------------------------------------------------------------------------------

    def _offer(self, run: str, stimulus: s.Stimulus) -> None:
        self._core.offer(run, self._light.fit(run, stimulus))
        self._wake.set()

    async def hand_in(self, run: str, said: Said) -> None:
        """What a worker elsewhere says of its job; returns when it is durable."""
        live = self._core.live.get(run)
        if live is not None:
            said = live.sealed.clean(said)
        await self.send(run, self._light.fit(run, said))

    async def send(self, run: str, stimulus: s.Stimulus) -> None:
        """Returns when the stimulus has taken effect durably; raises if it was refused."""
        self._check_going()
        if self.trouble is not None:
            raise self.trouble  # it would wait for as long as the store does
        ticket, waiting = self._subscribers.ticket()
        self._core.offer(run, stimulus, ticket)
        self._wake.set()
        await waiting

    # -- verbs -------------------------------------------------------------------------------

    async def start(
        self, definition: Definition, net: Net, start: s.Start | None = None, **given: Any
    ) -> str:
        """Begin a run; returns its id once it is durable. `given` are the fields of `Start`."""
        chosen = given.pop("run", None)
        run = new_run_id(self.clock.now()) if chosen is None else checked_run_id(chosen)
        first_seen = definition.created_at or self.clock.now()
        self.nets.put(msgspec.structs.replace(definition, created_at=first_seen), net)
        if self.known(run):
            raise InputError(f"there is a run {run} already", code="run_exists")
        shown, sealed = split(net, given.pop("input", None) or {}, given.pop("marks", None))
        given.setdefault("sealed", sealed_keys(shown, sealed.marks))
        self._core.open_run(run, net, sealed)
        try:
            await self.send(run, start or s.Start(run=run, input=shown, **given))
        except AnabranchError:
            self._core.live.pop(run, None)
            raise
        return run

    def known(self, run: str) -> bool:
        """Is there a run of this id, in memory or in the store?"""
        return self.live_run(run) is not None or self.store.head(run) is not None

    async def wait(self, run: str, *, standing: bool = False) -> State:
        """The state of the run when it has finished.

        With `standing` also when it is paused, or waits for somebody and no timer of it is due
        within a minute: a decision with a day to answer is not worth standing by for.
        """
        self._check_going()
        state = self.state(run)
        over = state.finished or (standing and stands(state, self.clock.now()))
        if over and self._durable(run, state):
            return state
        return await self._subscribers.wait(run, standing)

    def _durable(self, run: str, state: State) -> bool:
        """Has everybody who reads the store this state? What is not written yet is told later."""
        head = self.store.head(run)
        return head is not None and head.seq >= state.seq

    def state(self, run: str) -> State:
        """The state of a run now; not to be changed."""
        live = self._core.live.get(run)
        if live is not None:
            return live.state
        if run in self._subscribers.finished:
            return self._subscribers.finished[run]
        if run in self._core.broken:
            return self._core.run(run).state  # raises with the reason
        found = self.store.read_many([run]).get(run)
        if found is None or (found[0] is None and not found[1]):
            raise NotFound(f"there is no run {run}")
        return load_state(*found, run)

    async def events(self, run: str, after: int = 0) -> AsyncIterator[tuple[int, int, e.Event]]:
        """(number, instant, event) from the log, then live until the run has finished."""
        while True:
            self._check_going()
            changed = self._subscribers.watch(run)
            records = self.store.read(run, after)
            for at, event in history(records, after, run):
                after += 1
                yield after, at, event
                if isinstance(event, e.RunFinished):
                    return
            if run in self._core.broken:
                raise self._core.aside(run)
            await changed

    # -- what is there now -------------------------------------------------------------------

    @property
    def pools(self) -> PoolQueues:
        """The jobs that wait for workers from outside, or are out with them."""
        return self._core.pools

    def live_run(self, run: str) -> LiveRun | None:
        """The run, if it is in memory; not to be changed."""
        return self._core.live.get(run)

    def load_run(self, run: str) -> LiveRun:
        """The run, from memory or from the store; raises where it has ended or is set aside."""
        return self._core.run(run)

    def keep_payload(self, run: str, sha256: str, content: bytes) -> None:
        """Write this payload with the next batch, for this run."""
        self._core.keep_payload(run, sha256, content)

    @property
    def set_aside(self) -> Mapping[str, BaseException]:
        """The runs that this engine does not touch, and why."""
        return self._core.broken

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
        return self._writer.trouble

    def be_patient(self) -> None:
        """Wait for a full disk to be cleared, as servers do, instead of stopping with an error."""
        self._writer.patient = True

    @property
    def traces(self) -> bool:
        """Whether work is told its span; set by whoever makes spans of what is published."""
        return self._executor.traces

    @traces.setter
    def traces(self, wanted: bool) -> None:
        self._executor.traces = wanted

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Hear of every durable change; returns how to stop that."""
        return self._subscribers.listen(listener)

    def _publish(self, news: DurableEvents) -> None:
        ended = news.status if news.final is not None else ""
        self.engine_metrics.published(news.first_seq, news.events, ended)
        live = self._core.live.get(news.run)
        self._subscribers.publish(news, live.state if live is not None else None)


def _known(error: BaseException) -> bool:
    """Meant for people; anything else is a defect of ours and shown as it is."""
    return isinstance(error, AnabranchError) and not isinstance(error, LawBroken)


def _log_defect(run: str, defect: BaseException) -> None:
    if isinstance(defect, MissingRequirements):
        log.warning("%s", defect)
    elif _known(defect):
        log.error("run %s set aside: %s", run, defect)
    else:
        log.error("run %s set aside: internal error", run, exc_info=defect)

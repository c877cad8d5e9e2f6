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
from anabranch.errors import AnabranchError, InputError, LawBroken, NotFound
from anabranch.ids import checked_run_id, new_run_id
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import State
from anabranch.kernel.values import Answer, failed
from anabranch.net.net import Net
from anabranch.runtime.core import Core, Turned, history, load_state
from anabranch.runtime.crew import Crew, Safe
from anabranch.runtime.effects import Execute, Published, Replied, Stop
from anabranch.runtime.lanes import Lanes
from anabranch.runtime.messages import answer_bytes, read_message
from anabranch.runtime.nets import Nets
from anabranch.runtime.payloads import TooLarge, lighten
from anabranch.runtime.pools import Pools
from anabranch.runtime.recovery import recover
from anabranch.runtime.sealing import split
from anabranch.runtime.writer import Writer
from anabranch.settings import Settings
from anabranch.store.ports import Definition, Store
from anabranch.work.callables import ThreadTool
from anabranch.work.port import Performer

log = logging.getLogger("anabranch.engine")

Listener = Callable[[Published], None]
EVICT_EVERY_SECONDS = 5.0
SWEEP_EVERY_SECONDS = 60.0
SWEPT_AT_ONCE = 200
FINISHED_KEPT = 256
TURNS_AT_ONCE = 8  # before the event loop gets its turn again
MAIL_AT_ONCE = 100
THREADS = "(threads)"  # no kind is called that
STAND_BY_SECONDS = 60


class Engine:
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
        safe: Safe | None = None,
    ) -> None:
        self.store = store
        self.nets = nets
        self.clock = clock
        self._settings = settings
        self._owner = owner
        lanes = _lanes(settings, performers)
        self.core = Core(
            store,
            nets,
            lanes,
            snapshot_every=settings.snapshot_every,
            retention_ms=int(settings.retention_days * 86_400_000),
            pools=Pools(settings.pools_here),
        )
        self.core.on_defect = self._set_aside
        self._safe = safe
        self._crew = Crew(performers, self._offer, store.payload, safe)
        self.pulse = self.core.pulse
        self.pulse.watch(self.core, clock.now)
        self._writer = Writer(store, self.pulse)
        self._wake = asyncio.Event()
        self._tickets: dict[int, asyncio.Future[None]] = {}
        self._last_message = 0
        self._mail_read_at = 0
        self._more_mail = True  # what was posted before we came
        self._next_ticket = 1
        self._listeners: list[Listener] = []
        self._watchers: dict[str, list[asyncio.Future[None]]] = {}
        self._waiters: dict[str, list[tuple[bool, asyncio.Future[State]]]] = {}
        self._loop_task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._stopping = False
        self._alarm_clock: asyncio.TimerHandle | None = None
        self._evicted_at = 0
        self._swept_at = 0
        self._finished: dict[str, State] = {}  # the last few, for whoever waits for them

    # -- life --------------------------------------------------------------------------------

    async def __aenter__(self) -> Engine:
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
            self.core.taking_work = self.core.has_crew = run_jobs
            if run_jobs:
                recover(self.core, self.clock.now(), only)
        except BaseException:
            self.store.release()
            raise
        self._loop_task = asyncio.get_running_loop().create_task(self._turn_forever())

    async def close(self, grace_seconds: float | None = None) -> None:
        """Stop in order: no new work, running work ends or is handed back, all of it recorded."""
        if self._loop_task is None:
            return
        self.core.taking_work = False
        self.core.pools.close()
        grace = self._settings.grace_seconds if grace_seconds is None else grace_seconds
        await self._crew.finish(0 if self._failure else grace)
        self._stopping = True
        self._wake.set()
        with contextlib.suppress(BaseException):
            await self._loop_task
        self._loop_task = None
        self._tell_all(self._gone())
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
            while not (self._stopping and not self.core.busy):
                await self._rest()
                for _ in range(TURNS_AT_ONCE):
                    await self._turn_once()
                    if not self.core.busy:
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
            self._read_mail()
        turned = self.core.turn(now)
        self.pulse.turned(now)
        batch = turned.batch
        if batch.commits or batch.answers or batch.payloads or turned.effects:
            await self._writer.write(batch, lambda: self._release(turned))
        self._evict(now)

    async def _rest(self) -> None:
        """Let others run; sleep until something arrives, is due, or a message may have come."""
        if self.core.busy or (self._stopping and not self._writer.busy):
            await asyncio.sleep(0)
            return
        self._set_alarm_clock()
        self._wake.clear()
        await self._wake.wait()

    def _set_alarm_clock(self) -> None:
        """Be woken for the next timer or look at the mail; one handle serves many rests."""
        timeout = self._settings.poll_seconds
        alarm = self.core.next_alarm()
        if alarm is not None:
            timeout = min(timeout, max(0.0, (alarm - self.clock.now()) / 1000))
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
                    self._crew.execute(self.core.live.get(effect.run), effect)
                case Stop():
                    self._crew.stop(effect)
                case Published():
                    self._publish(effect)
                case Replied():
                    self._reply(effect)

    def _evict(self, now: int) -> None:
        """Not while a batch is on its way: the store does not know yet what it will hold."""
        if now - self._evicted_at >= EVICT_EVERY_SECONDS * 1000 and not self._writer.busy:
            self._evicted_at = now
            self.core.evict(now, int(self._settings.evict_after_seconds * 1000))
            self._sweep(now)

    def _sweep(self, now: int) -> None:
        """Delete the payloads that nobody needs any more, a few at a time."""
        if now - self._swept_at >= SWEEP_EVERY_SECONDS * 1000:
            self._swept_at = now
            gone = self.store.expire(now, SWEPT_AT_ONCE)
            if gone:
                log.info("%d payloads that nobody needs any more were deleted", gone)

    def _fail(self, failure: BaseException) -> None:
        """The store would not take a batch: memory is ahead of disk, so nothing may go on."""
        self._failure = failure
        if not isinstance(failure, asyncio.CancelledError):
            log.error("engine stopped: %s", failure if _known(failure) else repr(failure))
        self._tell_all(self._gone())

    def _gone(self) -> AnabranchError:
        """Why there is nobody to ask any more."""
        if self._failure is None:
            return AnabranchError("the engine is closed", code="engine_closed")
        why = str(self._failure) if _known(self._failure) else repr(self._failure)
        return AnabranchError(f"the engine has stopped: {why}", code="engine_stopped")

    def _tell_all(self, error: AnabranchError) -> None:
        waiting: list[asyncio.Future[Any]] = [*self._tickets.values()]
        waiting += [future for futures in self._watchers.values() for future in futures]
        waiting += [future for pairs in self._waiters.values() for _, future in pairs]
        _tell(waiting, error)

    def _set_aside(self, run: str, defect: BaseException) -> None:
        """Nobody will hear of this run any more; its work is no longer wanted."""
        _log_defect(run, defect)
        self._crew.abandon(run)
        waiting: list[asyncio.Future[Any]] = [*self._watchers.pop(run, ())]
        waiting += [future for _, future in self._waiters.pop(run, ())]
        if waiting:
            _tell(waiting, self.core.aside(run))

    def _check_going(self) -> None:
        if self._failure is not None or self._loop_task is None:
            raise self._gone()

    # -- in ----------------------------------------------------------------------------------

    def _offer(self, run: str, stimulus: s.Stimulus) -> None:
        if isinstance(stimulus, s.JobReport):
            stimulus = self._lighten(run, stimulus)
        elif isinstance(stimulus, s.JobPark) and stimulus.memory is not None:
            stimulus = self._lighten_memory(run, stimulus)
        self.core.offer(run, stimulus)
        self._wake.set()

    def _lighten(self, run: str, report: s.JobReport) -> s.JobReport:
        """A large result is kept beside the log; only its ref travels."""
        if getattr(report.answer, "inline", False):
            return report  # somebody asked for the whole value
        most = self._settings
        try:
            light = lighten(report.answer.result, most.inline_bytes_max, most.result_bytes_max)
        except TooLarge as error:
            answer = failed("result", str(error), retryable=False)
            return s.JobReport(report.job, report.attempt, answer)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            answer = failed("result", f"the result is not JSON: {error}", retryable=False)
            return s.JobReport(report.job, report.attempt, answer)
        if not light.sha256:
            return report
        self.core.keep_payload(run, light.sha256, light.content)
        answer = msgspec.structs.replace(report.answer, result=light.result)
        return s.JobReport(report.job, report.attempt, answer)

    def _lighten_memory(self, run: str, park: s.JobPark) -> s.JobPark | s.JobReport:
        """So is a large memory of work that waits."""
        report = s.JobReport(park.job, park.attempt, Answer(status="ok", result=park.memory))
        light = self._lighten(run, report)
        if light.answer.status != "ok":
            return light
        return msgspec.structs.replace(park, memory=light.answer.result)

    async def hand_in(self, run: str, said: s.JobReport | s.JobPark) -> None:
        """What a worker elsewhere says of its job; returns when it is durable."""
        if isinstance(said, s.JobPark):
            await self.send(run, said if said.memory is None else self._lighten_memory(run, said))
            return
        if self._safe is not None:
            said = msgspec.structs.replace(said, answer=self._safe.clean(said.answer))
        await self.send(run, self._lighten(run, said))

    async def send(self, run: str, stimulus: s.Stimulus) -> None:
        """Returns when the stimulus has taken effect durably; raises if it was refused."""
        self._check_going()
        ticket, self._next_ticket = self._next_ticket, self._next_ticket + 1
        waiting = self._tickets[ticket] = asyncio.get_running_loop().create_future()
        self.core.offer(run, stimulus, ticket)
        self._wake.set()
        await waiting

    def _reply(self, effect: Replied) -> None:
        waiting = self._tickets.pop(effect.ticket, None)
        if waiting is None or waiting.done():
            return
        if effect.error is not None:
            waiting.set_exception(effect.error)
        else:
            waiting.set_result(None)

    def _read_mail(self) -> None:
        """Stimuli posted by other processes."""
        if not (self.store.changed() or self._more_mail):
            return
        found = self.store.unanswered(MAIL_AT_ONCE)
        self._more_mail = len(found) == MAIL_AT_ONCE
        for message in found:
            if message.id <= self._last_message:
                continue  # taken already; its answer is on the way
            self._last_message = message.id
            try:
                stimulus = read_message(message)
            except InputError as error:
                self.core.answer_message(message.id, answer_bytes(error))
                continue
            self.core.offer(message.run, stimulus, message=message.id)

    # -- verbs -------------------------------------------------------------------------------

    async def start(
        self, definition: Definition, net: Net, start: s.Start | None = None, **given: Any
    ) -> str:
        """Begin a run; returns its id once it is durable. `given` are the fields of `Start`."""
        chosen = given.pop("run", None)
        run = new_run_id(self.clock.now()) if chosen is None else checked_run_id(chosen)
        first_seen = definition.created_at or self.clock.now()
        self.nets.put(msgspec.structs.replace(definition, created_at=first_seen), net)
        if self.core.live.get(run) is not None or self.store.head(run) is not None:
            raise InputError(f"there is a run {run} already", code="run_exists")
        shown, sealed = split(net, given.pop("input", None) or {})
        self.core.open_run(run, net, sealed)
        try:
            await self.send(run, start or s.Start(run=run, input=shown, **given))
        except AnabranchError:
            self.core.live.pop(run, None)
            raise
        return run

    def known(self, run: str) -> bool:
        """Is there a run of this id, in memory or in the store?"""
        return self.core.live.get(run) is not None or self.store.head(run) is not None

    async def wait(self, run: str, *, standing: bool = False) -> State:
        """The state of the run when it has finished.

        With `standing` also when it is paused, or waits for somebody and no timer of it is due
        within a minute: a decision with a day to answer is not worth standing by for.
        """
        self._check_going()
        state = self.state(run)
        if state.finished or (standing and _stands(state, self.clock.now())):
            return state
        ending: asyncio.Future[State] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(run, []).append((standing, ending))
        try:
            return await ending
        finally:
            if ending.cancelled():  # whoever gave up is forgotten at once
                left = [one for one in self._waiters.pop(run, ()) if one[1] is not ending]
                if left:
                    self._waiters[run] = left

    def state(self, run: str) -> State:
        """The state of a run now; not to be changed."""
        live = self.core.live.get(run)
        if live is not None:
            return live.state
        if run in self._finished:
            return self._finished[run]
        if run in self.core.broken:
            return self.core.run(run).state  # raises with the reason
        found = self.store.read_many([run]).get(run)
        if found is None or (found[0] is None and not found[1]):
            raise NotFound(f"there is no run {run}")
        return load_state(*found)

    async def events(self, run: str, after: int = 0) -> AsyncIterator[tuple[int, int, e.Event]]:
        """(number, instant, event) from the log, then live until the run has finished."""
        while True:
            self._check_going()
            changed = asyncio.get_running_loop().create_future()
            self._watchers.setdefault(run, []).append(changed)
            records = self.store.read(run, after)
            for at, event in history(records, after):
                after += 1
                yield after, at, event
                if isinstance(event, e.RunFinished):
                    return
            if run in self.core.broken:
                raise self.core.aside(run)
            await changed

    @property
    def failure(self) -> BaseException | None:
        """Why the engine has stopped by itself, if it has."""
        return self._failure

    @property
    def is_open(self) -> bool:
        return self._loop_task is not None

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Hear of every durable change; returns how to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _publish(self, news: Published) -> None:
        ended = news.status if news.final is not None else ""
        self.pulse.published(news.first_seq, news.events, ended)
        if news.final is not None:
            self._finished[news.run] = news.final
            if len(self._finished) > FINISHED_KEPT:
                del self._finished[next(iter(self._finished))]
        for listener in self._listeners:
            listener(news)
        for watcher in self._watchers.pop(news.run, ()):
            if not watcher.done():
                watcher.set_result(None)
        if news.run in self._waiters:
            self._tell_waiters(news)

    def _tell_waiters(self, news: Published) -> None:
        live = self.core.live.get(news.run)
        state = news.final or (live.state if live is not None else None)
        still = state is not None and news.status in ("waiting", "paused")
        stands = still and state is not None and _stands(state, news.at)
        left = []
        for standing, ending in self._waiters.pop(news.run):
            if state is None or not (news.final is not None or (standing and stands)):
                left.append((standing, ending))
            elif not ending.done():
                ending.set_result(state)
        if left:
            self._waiters[news.run] = left


def _stands(state: State, now: int) -> bool:
    """Nothing will happen by itself for a while: not a timer, not a job."""
    status = status_of(state)
    if status == "paused":
        return not any(job.phase == "running" for job in state.jobs.values())
    alarm = state.timers.earliest()
    soon = alarm is not None and alarm - now <= STAND_BY_SECONDS * 1000
    return status == "waiting" and not state.jobs and not soon


def _lanes(settings: Settings, performers: Mapping[str, Performer]) -> Lanes:
    """Some kinds occupy something scarce while they run; blocking callables share the threads."""
    limits = {
        "python": settings.processes_max,
        "shell": settings.shells_max,
        THREADS: settings.threads_max,
    }
    shared = {kind: THREADS for kind, one in performers.items() if isinstance(one, ThreadTool)}
    return Lanes(settings.jobs_max, limits, shared)


def _known(error: BaseException) -> bool:
    """Meant for people; anything else is a defect of ours and shown as it is."""
    return isinstance(error, AnabranchError) and not isinstance(error, LawBroken)


def _tell(waiting: list[asyncio.Future[Any]], error: AnabranchError) -> None:
    for future in waiting:
        if not future.done():
            future.set_exception(error)
            future.exception()  # whoever has stopped listening is not to be complained of


def _log_defect(run: str, defect: BaseException) -> None:
    if _known(defect):
        log.error("run %s set aside: %s", run, defect)
    else:
        log.error("run %s set aside: internal error", run, exc_info=defect)

"""The core of the engine: stimuli in, one batch and its effects out. It does no I/O but reading.

A turn takes what has arrived, steps each run, starts jobs where there is room, and seals everything
into one batch: one row per run. The caller makes the batch durable and only then lets the effects
out. Both the live engine and the simulator drive this class, so what is simulated is what runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from anabranch.errors import AnabranchError, LawBroken, NotFound, Refused
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.jobs import DEFAULT_WORK, kind_of_job, pool_of_job
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.replay import replay
from anabranch.kernel.state import Job, State, decode_state, encode_state
from anabranch.kernel.step import step
from anabranch.kernel.summary import child_answer
from anabranch.kernel.timing import next_wake
from anabranch.net.net import Net
from anabranch.runtime.effects import Effect, Execute, Published, Replied, Stop
from anabranch.runtime.holds import Holds
from anabranch.runtime.lanes import Lanes
from anabranch.runtime.messages import answer_bytes
from anabranch.runtime.nets import Nets
from anabranch.runtime.pools import EVERY_POOL, Lease, Pools
from anabranch.runtime.pulse import Kind, Pulse
from anabranch.runtime.sealing import Sealed, opened
from anabranch.runtime.waking import wake_ups
from anabranch.store.ports import Batch, Commit, Head, Record, Snapshot, Store

TURN_MAX = 4096  # stimuli in one turn: bounds how long one turn can take
RETENTION_MS = 36_500 * 86_400_000  # of payloads after their run; a century is until a purge
#: What an event takes in the log, about. Snapshots are as rare as makes them no larger together.
BYTES_PER_EVENT = 64
ENGINE = "engine"
ENDED_KEPT = 4 * TURN_MAX  # more runs than can end in the batches that are not durable yet
CHILDREN_KEPT = 256
#: A lease that ran out while no engine was there could not be extended: it gets so long again.
GRACE_MS = 15_000


@dataclass(slots=True)
class LiveRun:
    """A run in memory."""

    net: Net
    state: State
    snapshot_seq: int = 0
    snapshot_bytes: int = 0
    idle_since: int = 0
    holds_refs: bool = False  # some result of it is too large to travel
    sealed: Sealed = field(default_factory=Sealed)
    fresh: list[e.Event] = field(default_factory=list)  # recorded in this turn, not yet sealed
    at_work: dict[str, tuple[Kind, int]] = field(default_factory=dict)  # job → kind, since when


@dataclass(frozen=True, slots=True)
class Arrival:
    run: str
    stimulus: s.Stimulus
    ticket: int = 0  # who wants a reply; 0 is nobody
    message: int = 0  # the message it came in, if it came from another process


@dataclass(slots=True)
class Turned:
    batch: Batch
    effects: list[Effect]


class Core:
    def __init__(
        self,
        store: Store,
        nets: Nets,
        lanes: Lanes,
        snapshot_every: int = 200,
        retention_ms: int = RETENTION_MS,
        pools: Pools | None = None,
    ) -> None:
        self.store = store
        self.nets = nets
        self.lanes = lanes
        #: Without any, the engine does the work of every pool itself.
        self.pools = pools or Pools(here=EVERY_POOL)
        self.pulse = Pulse()
        self.live: dict[str, LiveRun] = {}
        self.broken: dict[str, BaseException] = {}
        self._ended: dict[str, str] = {}  # run → status, of the last ones to finish
        self._ended_children: dict[str, State] = {}
        self.on_defect: Callable[[str, BaseException], None] = lambda _run, _error: None
        self.taking_work = True
        self.has_crew = True  # without one, whatever a stored run believes to be at work is lost
        self._snapshot_every = snapshot_every
        self._inbox: deque[Arrival] = deque()
        self._family: deque[Arrival] = deque()  # between parents and children, for this very turn
        self._alarms: list[tuple[int, str]] = []
        self._wakes: dict[str, int] = {}
        self._touched: dict[str, LiveRun] = {}
        self._effects: list[Effect] = []
        self._payloads: dict[str, bytes] = {}
        self._holds = Holds(retention_ms)
        self._answers: dict[int, bytes] = {}

    # -- in ----------------------------------------------------------------------------------

    def offer(self, run: str, stimulus: s.Stimulus, ticket: int = 0, message: int = 0) -> None:
        """For the next turn. A message is answered in the batch that holds its effect."""
        self._inbox.append(Arrival(run, stimulus, ticket, message))

    def open_run(self, run: str, net: Net, sealed: Sealed | None = None) -> None:
        """A run that does not exist yet; its `Start` follows."""
        self.live[run] = LiveRun(net, State(), sealed=sealed or Sealed())

    def keep_payload(self, run: str, sha256: str, content: bytes) -> None:
        """Write this payload with the next batch, for this run."""
        self._payloads[sha256] = content
        self._holds.stored(run, sha256)

    def answer_message(self, message_id: int, answer: bytes) -> None:
        """Answer this message with the next batch."""
        self._answers[message_id] = answer

    @property
    def busy(self) -> bool:
        waiting = self._inbox or self._family or self._answers
        return bool(waiting or (self.taking_work and self.lanes.can_start()))

    @property
    def inbox(self) -> int:
        """Stimuli that wait for a turn."""
        return len(self._inbox)

    @property
    def timers(self) -> int:
        """Runs that want to be woken."""
        return len(self._wakes)

    def next_alarm(self) -> int | None:
        """When the next timer of any run is due."""
        while self._alarms:
            at, run = self._alarms[0]
            if self._wakes.get(run) == at:
                return at
            heappop(self._alarms)
        return None

    # -- a turn ------------------------------------------------------------------------------

    def turn(self, now: int) -> Turned:
        self._ring(now)
        for _ in range(min(len(self._inbox), TURN_MAX)):
            self._take(self._inbox.popleft(), now)
        while self._family:
            self._take(self._family.popleft(), now)
        if self.taking_work:
            self._start_jobs(now)
        return self._seal(now)

    def _ring(self, now: int) -> None:
        while (at := self.next_alarm()) is not None and at <= now:
            _, run = heappop(self._alarms)
            del self._wakes[run]
            self.pulse.rang(now - at)
            self.offer(run, s.Tick())

    def _take(self, arrival: Arrival, now: int) -> None:
        seq = -1
        try:
            live = self.run(arrival.run)
            seq = live.state.seq
            self._step(live, arrival.stimulus, now)
        except AnabranchError as refusal:
            if seq >= 0 and live.state.seq != seq:  # refused half-way: that is no refusal
                self._set_aside(arrival.run, refusal)
            self._answer(arrival, refusal)
        except Exception as defect:  # a defect of ours: this run stops here, the others go on
            self._set_aside(arrival.run, defect)
            self._answer(arrival, self.aside(arrival.run))
        else:
            self._answer(arrival, None)

    def _answer(self, arrival: Arrival, error: AnabranchError | None) -> None:
        """Late news of a run or job that has moved on is recorded nowhere, and harmless."""
        if arrival.ticket or arrival.message:
            self._effects.append(Replied(arrival.ticket, error, arrival.run, arrival.message))

    def _set_aside(self, run: str, defect: Exception) -> None:
        """What is in memory of this run cannot be trusted; what is in the store can."""
        self.live.pop(run, None)
        self._touched.pop(run, None)
        self.lanes.forget(run)
        self.pools.forget(run)
        self.broken[run] = defect
        self._effects = [self._unsaid(effect, run) for effect in self._effects]
        self.on_defect(run, defect)

    def _unsaid(self, effect: Effect, run: str) -> Effect:
        """What this turn meant to do for a run set aside: nothing of it will be durable."""
        if effect.run != run or (isinstance(effect, Replied) and effect.error is not None):
            return effect
        ticket, message = (effect.ticket, effect.message) if isinstance(effect, Replied) else (0, 0)
        return Replied(ticket, self.aside(run), run, message)

    def aside(self, run: str) -> AnabranchError:
        """Why nothing can be done with a run that was set aside."""
        cause = self.broken[run]
        known = isinstance(cause, AnabranchError) and not isinstance(cause, LawBroken)
        why = str(cause) if known else f"internal error: {cause!r}"
        return AnabranchError(f"run {run} is set aside: {why}", code="defect")

    def _step(self, live: LiveRun, stimulus: s.Stimulus, now: int) -> None:
        events = step(live.net, live.state, stimulus, now)
        if not events:
            return
        run = live.state.run
        live.fresh.extend(events)
        self._touched[run] = live
        for event in events:
            follow_up = _FOLLOW_UPS.get(type(event))
            if follow_up is not None:
                follow_up(self, live, event)

    def _start_jobs(self, now: int) -> None:
        for ready in self.lanes.take():
            live = self.live.get(ready.run)
            job = live.state.jobs.get(ready.job) if live is not None else None
            stale = job is None or job.attempt != ready.attempt or job.phase != "scheduled"
            if live is None or stale or live.state.paused:
                self.lanes.free(ready.run, ready.job)
                continue
            try:
                self._step(live, s.JobStart(ready.job, ready.attempt, ENGINE), now)
            except Exception as defect:
                self._set_aside(ready.run, defect)

    # -- what events call for ----------------------------------------------------------------

    def _scheduled(
        self,
        live: LiveRun,
        event: e.JobScheduled | e.ShardScheduled | e.LoopCutting | e.JobContinued,
    ) -> None:
        job = live.state.jobs.get(event.job)
        if job is not None and job.phase == "scheduled":
            self._queue(live, job)

    def _queue(self, live: LiveRun, job: Job) -> None:
        step = live.net.steps[job.step]
        pool = pool_of_job(step, job)
        if self.pools.outside(pool):
            self.pools.add(live.state.run, job.id, job.attempt, pool, job.since)
        else:
            self.lanes.add(live.state.run, job.id, job.attempt, kind_of_job(step, job))

    def _started(self, live: LiveRun, event: e.JobStarted) -> None:
        self.pulse.began(live, event)
        if event.worker == ENGINE:
            self._effects.append(Execute(live.state.run, event.job, event.attempt))
        else:
            self._lent(live, event)

    def _lent(self, live: LiveRun, event: e.JobStarted | e.JobExtended) -> None:
        job = live.state.jobs.get(event.job)
        if job is not None and job.lease:
            pool = pool_of_job(live.net.steps[job.step], job)
            self.pools.lend(live.state.run, job.id, Lease(pool, job.worker, job.lease))

    def _cancelling(self, live: LiveRun, event: e.JobCancelling) -> None:
        job = live.state.jobs.get(event.job)
        waits = job is not None  # a parked job is told to stop and not waited for
        outside = job is not None and job.lease > 0
        run = live.state.run
        stop = Stop(run, event.job, event.attempt, event.ticket, discharge=waits, outside=outside)
        self._effects.append(stop)
        if event.ticket:
            self._cancel_child(live.state.run, event.job, event.ticket, event.reason)

    def _doomed(self, live: LiveRun, event: e.TokenDoomed) -> None:
        """Work that may come to its end does so elsewhere, or nobody is there to do it."""
        job = live.state.jobs.get(f"{event.token}.0")
        if not self.has_crew and job is not None and job.phase == "running" and not job.lease:
            lost = s.JobLose(job.id, job.attempt, "its engine is gone", counted=False)
            self._family.append(Arrival(live.state.run, lost))

    def _timed_out(self, live: LiveRun, event: e.JobTimedOut) -> None:
        self._over(live, event)
        self._effects.append(Stop(live.state.run, event.job, event.attempt, discharge=False))
        if event.ticket:
            self._cancel_child(live.state.run, event.job, event.ticket, "its parent's time is up")

    def _reported(self, live: LiveRun, event: e.JobReported) -> None:
        self._over(live, event)
        self._note_refs(live, event.answer.result)
        if event.answer.wakes:
            self._ask_others(live, event)

    def _ask_others(self, live: LiveRun, event: e.JobReported) -> None:
        """Whoever is woken records it in the batch that holds this answer."""
        for run, wake in wake_ups(live.state, live.fresh, event):
            self._family.append(Arrival(run, wake))

    def _note_refs(self, live: LiveRun, value: Any) -> None:
        """The run needs what this value stands for; whoever builds its tasks looks for it."""
        if self._holds.found(live.state, value):
            live.holds_refs = True

    def _cut(self, live: LiveRun, event: e.LoopCut) -> None:
        if event.source is not None:  # the items of a long list are payloads
            live.holds_refs = True

    def _brought(self, live: LiveRun, event: e.RunStarted | e.ContextPatched) -> None:
        """Values that come from outside may stand for larger ones too."""
        given: list[Any]
        if isinstance(event, e.ContextPatched):
            given = [patch.value for patch in event.patches]
        else:
            given = [event.workload]
            given += [[answer.result for answer in answers] for answers in event.reuse.values()]
            live.holds_refs = live.holds_refs or bool(event.reuse)
        self._note_refs(live, given)

    def _over(self, live: LiveRun, event: Any) -> None:
        self.lanes.free(live.state.run, event.job)
        self.pools.drop(live.state.run, event.job)
        self.pulse.ended(live, event)

    def _resumed(self, live: LiveRun, _event: e.RunResumed) -> None:
        self._queue_scheduled(live)

    def _queue_scheduled(self, live: LiveRun) -> None:
        for job in live.state.jobs.values():
            if job.phase == "scheduled":
                self._queue(live, job)

    def _finished(self, live: LiveRun, _event: e.RunFinished) -> None:
        if live.holds_refs:
            self._holds.end(live.state.run, live.state.finished_at)
        if live.state.parent is not None:
            self._tell_parent(live.state)

    # -- parents and children ----------------------------------------------------------------

    def _tell_parent(self, child: State) -> None:
        """The parked job of the parent has its answer, in the batch that holds the child's end."""
        run, _, job_name = (child.parent or "").partition("/")
        job_id = job_name.partition("#")[0]
        self._ended_children[child.run] = child
        if len(self._ended_children) > CHILDREN_KEPT:
            del self._ended_children[next(iter(self._ended_children))]
        try:
            job = self.run(run).state.jobs.get(job_id)
        except AnabranchError:
            return  # the parent is gone, or set aside
        if job is not None and job.ticket == child.run:
            self._family.append(Arrival(run, s.JobReport(job_id, job.attempt, child_answer(child))))
        # Otherwise it is not parked for it yet, and asks when it is; or no longer wants to know.

    def _parked(self, live: LiveRun, event: e.JobParked) -> None:
        self._over(live, event)
        self._ask_child(live.state.run, event.job, event.attempt, event.ticket)

    def _continued(self, live: LiveRun, event: e.JobContinued) -> None:
        self._note_refs(live, event.answer.result)
        if event.ticket:
            self._cancel_child(live.state.run, event.job, event.ticket, "its parent's time is up")
        self._scheduled(live, event)

    def _ask_child(self, run: str, job: str, attempt: int, ticket: str) -> None:
        """What the job is parked for may have ended without its parent having heard of it."""
        child = self._ended_child(ticket) if ticket else None
        if child is not None and child.parent and child.parent.startswith(f"{run}/{job}#"):
            self._family.append(Arrival(run, s.JobReport(job, attempt, child_answer(child))))

    def _ended_child(self, run: str) -> State | None:
        if run in self._ended_children:
            return self._ended_children[run]
        if run in self.live:
            return None
        head = self.store.head(run)
        if head is None or not head.finished:
            return None
        return load_state(*self.store.read_many([run])[run])

    def _cancel_child(self, run: str, job: str, ticket: str, reason: str) -> None:
        """Whoever no longer wants the answer ends the child run that was to give it."""
        try:
            child = self.run(ticket).state
        except AnabranchError:
            return  # not a run, or over
        if child.parent is not None and child.parent.startswith(f"{run}/{job}#"):
            self._family.append(Arrival(child.run, s.Cancel(ENGINE, reason)))

    # -- out ---------------------------------------------------------------------------------

    def _seal(self, now: int) -> Turned:
        batch = Batch(payloads=self._payloads, answers=self._answers)
        self._holds.write_to(batch)
        for run, live in list(self._touched.items()):
            try:
                commit, published = self._seal_run(live, now)
            except Exception as defect:  # something in it cannot be written down
                self._set_aside(run, defect)
                continue
            batch.commits.append(commit)
            live.sealed.keep(batch, run, over=live.state.finished)
            self._effects.append(published)
            self._set_alarm(run, live)
            if published.final is not None:
                self._let_go(run, published.status)
        effects = self._effects
        for effect in effects:
            if isinstance(effect, Replied) and effect.message:
                batch.answers[effect.message] = answer_bytes(effect.error)
        self._touched, self._effects = {}, []
        self._payloads, self._answers = {}, {}
        return Turned(batch, effects)

    def _let_go(self, run: str, status: str) -> None:
        """A finished run leaves memory. Until its end is durable, the store must not be asked."""
        self.live.pop(run, None)
        self._ended[run] = status
        if len(self._ended) > ENDED_KEPT:
            del self._ended[next(iter(self._ended))]

    def _seal_run(self, live: LiveRun, now: int) -> tuple[Commit, Published]:
        state, events = live.state, live.fresh
        live.fresh = []
        status = status_of(state)
        head = Head(
            run=state.run,
            definition=state.definition,
            name=state.name,
            dialect=live.net.dialect,
            status=status,
            seq=state.seq,
            created_at=state.started_at,
            updated_at=now,
            next_wake=next_wake(state),
            labels=state.labels,
            parent=state.parent,
            origin=state.origin,
            finished=state.finished,
        )
        commit = Commit(
            head=head,
            at=now,
            events=e.encode_events(events),
            count=len(events),
            snapshot=self._snapshot(live),
        )
        first = state.seq - len(events) + 1
        final = state if state.finished else None
        return commit, Published(state.run, first, now, events, status, final)

    def _snapshot(self, live: LiveRun) -> bytes | None:
        """Worth taking when replaying the tail would cost more than decoding the state."""
        worth = max(self._snapshot_every, live.snapshot_bytes // BYTES_PER_EVENT)
        if live.state.seq - live.snapshot_seq < worth:
            return None
        snapshot = encode_state(live.state)
        live.snapshot_seq, live.snapshot_bytes = live.state.seq, len(snapshot)
        return snapshot

    def _set_alarm(self, run: str, live: LiveRun) -> None:
        at = None if live.state.finished else next_wake(live.state)
        if at is None:
            self._wakes.pop(run, None)
        elif self._wakes.get(run) != at:
            self._wakes[run] = at
            heappush(self._alarms, (at, run))

    # -- memory ------------------------------------------------------------------------------

    def run(self, run: str) -> LiveRun:
        """The run, from memory or from the store."""
        live = self.live.get(run)
        if live is not None:
            return live
        if run in self._ended:
            raise Refused(f"the run has ended: {self._ended[run]}", code="run_finished")
        if run in self.broken:
            raise self.aside(run)
        head = self.store.head(run)
        if head is None:
            raise NotFound(f"there is no run {run}")
        if head.finished:  # it must not come back into memory: nothing would let it go again
            raise Refused(f"the run has ended: {head.status}", code="run_finished")
        return self.adopt(head, *self.store.read_many([run])[run])

    def adopt(self, head: Head, snapshot: Snapshot | None, tail: Sequence[Record]) -> LiveRun:
        """Bring a stored run into memory."""
        state = load_state(snapshot, tail)
        live = LiveRun(self.nets.get(head.definition), state)
        if live.net.sealed:
            live.sealed = opened(self.store.sealed(head.run))
        live.holds_refs = True  # perhaps; whoever builds its tasks looks
        live.snapshot_seq = snapshot.seq if snapshot is not None else 0
        live.snapshot_bytes = len(snapshot.state) if snapshot is not None else 0
        self.live[head.run] = live
        return live

    def recover(self, live: LiveRun, now: int) -> None:
        """What the last engine itself had at work is lost, and goes out again. Leases are kept."""
        state = live.state
        for job in list(state.jobs.values()):
            if job.lease:
                self._recover_lease(live, job, now)
            elif job.phase == "running":
                self.offer(state.run, s.JobLose(job.id, job.attempt, "the engine restarted"))
            elif job.phase == "cancelling":
                self.offer(state.run, s.JobDischarge(job.id))
            elif job.phase == "parked":
                self._ask_child(state.run, job.id, job.attempt, job.ticket)
        self._queue_scheduled(live)
        self._set_alarm(state.run, live)

    def _recover_lease(self, live: LiveRun, job: Job, now: int) -> None:
        step = live.net.steps[job.step]
        lease = Lease(pool_of_job(step, job), job.worker, job.lease)
        self.pools.lend(live.state.run, job.id, lease)
        at_least = now + min((step.work or DEFAULT_WORK).lease_ms, GRACE_MS)
        if job.phase == "running" and job.lease < at_least:
            self.offer(live.state.run, s.JobExtend(job.id, job.attempt, at_least))

    def set_wake(self, run: str, at: int) -> None:
        """A run that stays in the store wants a tick then."""
        self._wakes[run] = at
        heappush(self._alarms, (at, run))

    def evict(self, now: int, idle_ms: int) -> int:
        """Forget runs that only wait; their next stimulus brings them back. Returns how many."""
        gone = []
        for run, live in self.live.items():
            if not live.state.seq or any(
                job.phase not in ("parked", "backoff") for job in live.state.jobs.values()
            ):
                live.idle_since = 0
            elif not live.idle_since:
                live.idle_since = now
            if live.idle_since and now - live.idle_since >= idle_ms and not live.fresh:
                gone.append(run)
        for run in gone:
            del self.live[run]
        return len(gone)


def load_state(snapshot: Snapshot | None, tail: Sequence[Record]) -> State:
    """Snapshot plus tail."""
    state = decode_state(snapshot.state) if snapshot is not None else State()
    return replay(history(tail, after=state.seq), state)


def history(records: Sequence[Record], after: int = 0) -> list[tuple[int, e.Event]]:
    """The (instant, event) pairs of log rows, without those up to number `after`."""
    pairs: list[tuple[int, e.Event]] = []
    for record in records:
        skip = max(0, after + 1 - record.first_seq)
        pairs.extend((record.at, event) for event in e.decode_events(record.events)[skip:])
    return pairs


_FOLLOW_UPS: dict[type, Callable[[Core, LiveRun, Any], None]] = {
    e.JobScheduled: Core._scheduled,
    e.ShardScheduled: Core._scheduled,
    e.LoopCutting: Core._scheduled,
    e.JobStarted: Core._started,
    e.JobExtended: Core._lent,
    e.JobCancelling: Core._cancelling,
    e.JobTimedOut: Core._timed_out,
    e.TokenDoomed: Core._doomed,
    e.RunStarted: Core._brought,
    e.ContextPatched: Core._brought,
    e.JobReported: Core._reported,
    e.LoopCut: Core._cut,
    e.JobLost: Core._over,
    e.JobParked: Core._parked,
    e.JobContinued: Core._continued,
    e.JobDischarged: Core._over,
    e.RunResumed: Core._resumed,
    e.RunFinished: Core._finished,
}

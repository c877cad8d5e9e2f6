"""The core of the engine: stimuli in, one batch and its effects out. It does no I/O but reading.

A turn takes what has arrived, steps each run, starts jobs where there is room, and seals everything
into one batch: one row per run. The caller makes the batch durable and only then lets the effects
out. Both the live engine and the simulator drive this class, so what is simulated is what runs.
"""

from __future__ import annotations

from collections import ChainMap, OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence

from anabranch.errors import (
    AnabranchError,
    DamagedRun,
    DefinitionError,
    InputError,
    LawBroken,
    MissingRequirements,
    NotFound,
    Refused,
)
from anabranch.expressions.budget import HELD_WORK_MAX, PAUSE, TurnBudget, do_beside
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.explain import reason_of
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import State
from anabranch.kernel.step import step
from anabranch.kernel.timing import next_wake
from anabranch.net.net import Net
from anabranch.runtime.child_runs import Arrival, ChildRuns
from anabranch.runtime.effects import DurableEvents, Effect, Replied, Turned
from anabranch.runtime.jobs.concurrency import JobQueues
from anabranch.runtime.jobs.pool_queues import EVERY_POOL, PoolQueues
from anabranch.runtime.live_run import LiveRun, StoredRuns, take_snapshot
from anabranch.runtime.messages.codec import Sayable, answer_bytes, elsewhere, write_message
from anabranch.runtime.metrics.engine_metrics import EngineMetrics
from anabranch.runtime.nets import Nets
from anabranch.runtime.reactions import ENGINE, Reactions
from anabranch.runtime.run_limits import RunLimits
from anabranch.runtime.timers import RunTimers
from anabranch.runtime.values.payload_refs import PayloadRefs
from anabranch.runtime.values.payloads import Light, brings_ref
from anabranch.runtime.values.read_rights import ReadRights, before
from anabranch.runtime.values.sealing import Sealed, opened
from anabranch.runtime.values.stored_values import READ_BYTES_MAX, RunValues, StoredValues
from anabranch.store.access_ports import RequestRecord
from anabranch.store.checks import require_storable
from anabranch.store.ports import Batch, Commit, Head, Record, StateSnapshot, Store

#: Stimuli in one turn: bounds how long it can take. Of many more, some are turned while what the
#: others did is written.
TURN_MAX = 1024
RECOVERED_MAX = TURN_MAX * 3 // 4  # of those for runs that were just recovered, while others wait
RETENTION_MS = 36_500 * 86_400_000  # of payloads after their run; a century is until a purge
INLINE_BYTES_MAX = 64 * 1024  # a larger value is kept as a payload
_MOVES = ("running", "completed")  # statuses that need no reason,
_AT_WORK = ("running", "answered")  # where these are the phases of its jobs
ENDED_KEPT = 16 * TURN_MAX  # more runs than can end in the batches that are not durable yet


def run_exists(run: str) -> InputError:
    return InputError(f"there is a run {run} already", code="run_exists")


def everywhere(_run: str) -> bool:
    """An engine that shares its store with no other owns every run."""
    return True


class Core:
    def __init__(
        self,
        store: Store,
        nets: Nets,
        job_queues: JobQueues,
        snapshot_every: int = 200,
        retention_ms: int = RETENTION_MS,
        pools: PoolQueues | None = None,
        inline_bytes_max: int = INLINE_BYTES_MAX,
        value_bytes_max: int | None = None,
        read_bytes_max: int = READ_BYTES_MAX,
        rights: ReadRights | None = None,
        run_limits: RunLimits | None = None,
    ) -> None:
        self._run_limits = run_limits or RunLimits()
        self.store = store
        self.nets = nets
        self._stored = StoredRuns(store, nets)
        self.job_queues = job_queues
        #: Without any, the engine does the work of every pool itself.
        self.pools = pools or PoolQueues(here=EVERY_POOL)
        self.engine_metrics = EngineMetrics()
        self.live: dict[str, LiveRun] = {}
        #: Runs set aside, until the engine is started again; nothing of theirs is kept.
        self.broken: dict[str, BaseException] = {}
        #: Runs that stay in the store and need what is not here, as their definitions say; whoever
        #: wakes one sets it aside.
        self.lacking: dict[str, BaseException] = {}
        self._ended: OrderedDict[str, str] = OrderedDict()  # run → status, of the last to finish
        self._ends: set[str] = set()  # runs whose end may not be durable yet
        self.on_defect: Callable[[str, BaseException], None] = lambda _run, _error: None
        #: Raises for a run that needs what is not here; without a state where every run of the
        #: definition does.
        self.require: Callable[[Net, State | None], None] = lambda _net, _state: None
        #: Whether this engine owns the run; on a shared store another one may.
        self.here: Callable[[str], bool] = everywhere
        self.taking_work = True
        self.found_queued: list[str] = []  # queued runs that recovery met: have they asked?
        self._snapshot_every = snapshot_every
        self._inbox: deque[Arrival] = deque()
        self._recovered: deque[Arrival] = deque()  # for runs that were just brought back
        self.wake_times = RunTimers()
        self.family = ChildRuns(store, self.live, self.run, ENGINE)
        self._holds = PayloadRefs(retention_ms, rights)
        self.family.passed_on = self._holds.passed_on
        self.reactions = Reactions(
            job_queues, self.pools, self.engine_metrics, self._holds, self.family
        )
        self._touched: dict[str, LiveRun] = {}
        self._payloads: dict[str, bytes] = {}
        self._payloads_before: dict[str, bytes] = {}  # of the last batch: perhaps not durable yet
        self._values = StoredValues(
            self._payload,
            self._keep_value,
            self._holds.entitled,
            inline_bytes_max=inline_bytes_max,
            value_bytes_max=value_bytes_max,
            read_bytes_max=read_bytes_max,
        )
        self._answers: dict[int, bytes] = {}
        self._messages: list[tuple[str, bytes, int]] = []
        self._requests: list[tuple[str, RequestRecord]] = []  # with their runs
        self._work = 0  # of the expressions that were evaluated in this turn
        self._sealed_as: dict[int, str] = {}  # message → the name of what is sealed for its start

    # -- in ----------------------------------------------------------------------------------

    def offer(
        self,
        run: str,
        stimulus: s.Stimulus,
        ticket: int = 0,
        message: int = 0,
        request: RequestRecord | None = None,
    ) -> None:
        """For the next turn. A message is answered in the batch that holds its effect; that batch
        has what a request leaves, too."""
        self._inbox.append(Arrival(run, stimulus, ticket, message, request))

    def bring_forward(self, count: int) -> None:
        """Take the last so many stimuli before most others: the runs of a server that died have
        waited longer than those whose next step is at hand."""
        last = [self._inbox.pop() for _ in range(count)]
        self._recovered.extend(reversed(last))

    def open_run(self, run: str, net: Net, sealed: Sealed | None = None) -> LiveRun:
        """A run that does not exist yet; its `Start` follows."""
        live = self.live[run] = LiveRun(net, State(), sealed=sealed or Sealed())
        return live

    def has(self, run: str) -> bool:
        """Whether it is in memory, or has ended and the store may not know of it yet."""
        return run in self.live or run in self._ends

    def open_stored(self, run: str, definition: str, sealed_as: str = "", message: int = 0) -> None:
        """The same for a run that another server was asked for: its definition is in the store, and
        so is what is sealed in its input, under another name until the message is answered."""
        if sealed_as:
            self._sealed_as[message] = sealed_as
        if self.has(run) or self.store.head(run) is not None:
            raise run_exists(run)
        sealed = opened(self.store.sealed(sealed_as), run) if sealed_as else Sealed()
        sealed.unwritten = bool(sealed.values)
        self.open_run(run, do_beside(lambda: self.nets.get(definition)), sealed)

    def keep_payload(self, run: str, sha256: str, content: bytes) -> None:
        """Write this payload with the next batch, for this run."""
        self._payloads[sha256] = content
        self._holds.stored(run, sha256)

    def _keep_value(self, run: str, live: LiveRun, light: Light) -> None:
        """A value that a run is given, or that an expression made, is too large to be recorded."""
        self.keep_payload(run, light.sha256, light.content)
        if live.state.run:  # what it begins with is held by its first event
            self._holds.found(live, light.result)
        live.holds_refs = True

    def _payload(self, sha256: str) -> bytes | None:
        known = self._payloads.get(sha256) or self._payloads_before.get(sha256)
        return known if known is not None else self.store.payload(sha256)

    def answer_message(self, message_id: int, answer: bytes) -> None:
        """Answer this message with the next batch."""
        self._answers[message_id] = answer

    @property
    def busy(self) -> bool:
        waiting = self._inbox or self._recovered or self.family.said or self._answers
        return bool(waiting or (self.taking_work and self.job_queues.can_start()))

    @property
    def inbox(self) -> int:
        """Stimuli that wait for a turn."""
        return len(self._inbox) + len(self._recovered)

    @property
    def runs_in_hand(self) -> set[str]:
        """Runs for which a stimulus waits for a turn."""
        arrivals = (*self._inbox, *self._recovered, *self.family.said)
        return {arrival.run for arrival in arrivals}

    @property
    def known(self) -> set[str]:
        """Runs that are in memory, set aside, or wait for their timer."""
        return {*self.live, *self.broken, *self.lacking, *self.wake_times.runs()}

    @property
    def not_touched(self) -> Mapping[str, BaseException]:
        """Runs that are set aside, or lack something, and why."""
        return ChainMap(self.broken, self.lacking)

    @property
    def timers(self) -> int:
        """Runs that want to be woken."""
        return len(self.wake_times)

    def next_alarm(self) -> int | None:
        """When the next timer of any run is due."""
        return self.wake_times.earliest()

    def overdue_ms(self, now: int) -> int:
        """How long ago the next timer was due; 0 when it is yet to come or there is none."""
        alarm = self.next_alarm()
        return max(0, now - alarm) if alarm is not None else 0

    # -- a turn ------------------------------------------------------------------------------

    def turn(self, now: int, *, ring: bool = True) -> Turned:
        """Without `ring` timers that are due wait for a later turn."""
        self._work, wait = 0, PAUSE.get()
        if ring:
            self._ring(now)
        some = max(TURN_MAX - len(self._inbox), RECOVERED_MAX)
        recovered = min(len(self._recovered), some)
        fresh = min(len(self._inbox), TURN_MAX - recovered)
        for arrivals, count in ((self._recovered, recovered), (self._inbox, fresh)):
            for _ in range(count):
                if self._work <= HELD_WORK_MAX:  # the others wait for the next turn
                    self._take(arrivals.popleft(), now)
                    if wait is not None:
                        wait()
        while self.family.said:
            self._take(self.family.said.popleft(), now)
        if self.taking_work:
            self._start_jobs(now, wait)
        return self._seal(now)

    def _ring(self, now: int) -> None:
        for at, run in self.wake_times.due(now):
            self.engine_metrics.rang(now - at)
            self.offer(run, s.Tick())

    @property
    def worked_long(self) -> bool:
        """Whether others should have their turn before the next one."""
        return self._work > HELD_WORK_MAX

    def _take(self, arrival: Arrival, now: int) -> None:
        if self.here is not everywhere and not self.here(arrival.run):
            self._pass_on(arrival, now)
            return
        seq = -1
        try:
            live = self.live.get(arrival.run) or self.run(arrival.run)
            seq = live.state.seq
            self._step(live, arrival.stimulus, now)
        except AnabranchError as refusal:
            if seq >= 0 and live.state.seq != seq:  # refused half-way: that is no refusal
                self._set_aside(arrival.run, refusal)
            elif seq == 0:
                self.live.pop(arrival.run, None)  # it did not begin
            self._answer(arrival, refusal)
        except Exception as defect:  # a defect of ours: this run stops here, the others go on
            self._set_aside(arrival.run, defect)
            self._answer(arrival, self.aside(arrival.run))
        else:
            if arrival.request is not None:
                self._requests.append((arrival.run, arrival.request))
            if arrival.ticket or arrival.message:
                self._answer(arrival, None)

    def _answer(self, arrival: Arrival, error: AnabranchError | None) -> None:
        """Late news of a run or job that has moved on is recorded nowhere, and harmless.

        The error leaves without the frames it was raised in: they hold values of this turn that the
        collector does not see, and nobody who dropped the answer would ever be rid of them.
        """
        if arrival.ticket or arrival.message:
            if error is not None:
                error.__traceback__ = error.__context__ = None
            self.reactions.effects.append(
                Replied(arrival.ticket, error, arrival.run, arrival.message)
            )

    def _pass_on(self, arrival: Arrival, now: int) -> None:
        """Another server owns the run. Whoever waits for a reply asks there; a message waits in the
        mailbox for its owner; what one of our runs says to it becomes a message in this batch."""
        if arrival.ticket:
            self._answer(arrival, elsewhere(arrival.run))
        elif not arrival.message and isinstance(arrival.stimulus, Sayable):
            self._messages.append((arrival.run, write_message(arrival.stimulus), now))

    def put_down(self, runs: Collection[str]) -> None:
        """Forget these runs, of which nothing is on its way to the store: another server's now."""
        gone = set(runs)
        for run in gone:
            self.live.pop(run, None)
            self.broken.pop(run, None)
            self.lacking.pop(run, None)
            self._touched.pop(run, None)
            self.wake_times.set(run, None)
        self.job_queues.forget(gone)
        self.pools.forget(gone)

    def messages_in_hand(self) -> set[int]:
        """Those that wait for a turn, or for their answer to be written with the next batch."""
        return {one.message for one in self._inbox if one.message} | self._answers.keys()

    def forget_turn(self) -> None:
        """What was said and is not recorded was never said: who waits for a reply is told so, and
        messages are read again. Reports of work stay: they are true of any engine."""
        kept = [one for one in self._inbox if not (one.ticket or one.message)]
        self._inbox = deque(kept)
        self._recovered.clear()  # their runs are recovered again
        self.family.forget_turn()
        self._ended.clear()  # an end may have been in it; the store knows the others
        self._ends.clear()
        self.reactions.effects = []
        self._touched, self._answers, self._messages = {}, {}, []
        self._requests, self._sealed_as = [], {}

    def _set_aside(self, run: str, defect: Exception) -> None:
        """What is in memory of this run cannot be trusted; what is in the store can."""
        self.live.pop(run, None)
        self._touched.pop(run, None)
        self.job_queues.forget({run})
        self.pools.forget({run})
        self.lacking.pop(run, None)
        self.broken[run] = defect
        out = self.reactions
        out.effects = [self._unsaid(effect, run) for effect in out.effects]
        self._requests = [one for one in self._requests if one[0] != run]
        self.on_defect(run, defect)
        self.broken[run] = defect.with_traceback(None)  # the frames have all that was in the turn

    def _unsaid(self, effect: Effect, run: str) -> Effect:
        """What this turn meant to do for a run set aside: nothing of it will be durable."""
        if effect.run != run or (isinstance(effect, Replied) and effect.error is not None):
            return effect
        ticket, message = (effect.ticket, effect.message) if isinstance(effect, Replied) else (0, 0)
        return Replied(ticket, self.aside(run), run, message)

    def aside(self, run: str) -> AnabranchError:
        """Why nothing can be done with a run that was set aside."""
        cause = self.broken[run]
        if isinstance(cause, DamagedRun):
            return DamagedRun(run, cause.what, "is set aside")
        if isinstance(cause, MissingRequirements):
            return cause
        known = isinstance(cause, AnabranchError) and not isinstance(cause, LawBroken)
        why = str(cause) if known else f"internal error: {cause!r}"
        return AnabranchError(f"run {run} is set aside: {why}", code="defect")

    def _step(self, live: LiveRun, stimulus: s.Stimulus, now: int) -> None:
        if type(stimulus) is s.JobStart:  # nothing is looked at
            events = step(live.net, live.state, stimulus, now)
        else:
            budget = TurnBudget()
            try:  # the access is in no variable: it is hidden from the collector, a frame is not
                events = step(
                    live.net, live.state, stimulus, now, self._access(live, stimulus), budget
                )
            finally:
                self._work += budget.used_before + budget.used
        if not events:
            return
        if live.fresh:
            live.fresh.extend(events)
        else:
            live.fresh = events
        self._touched[live.state.run] = live
        self.reactions.follow(live, events)

    def _access(self, live: LiveRun, stimulus: s.Stimulus) -> RunValues:
        """How this stimulus reads large values of the run, and has others kept."""
        if not live.holds_refs:
            live.holds_refs = brings_ref(stimulus)
        run = live.state.run
        if type(stimulus) is s.Start:
            run = stimulus.run
            require_storable(live.net.name, live.sealed.values)
            reused = [[answer.result for answer in each] for each in stimulus.reuse.values()]
            self._holds.begins(run, [stimulus.input, reused], before(stimulus))
        return RunValues(self._values, live, run, live.holds_refs)

    def _start_jobs(self, now: int, wait: Callable[[], None] | None) -> None:
        for ready in self.job_queues.take():
            if wait is not None:
                wait()
            live = self.live.get(ready.run)
            job = live.state.jobs.get(ready.job) if live is not None else None
            stale = job is None or job.attempt != ready.attempt or job.phase != "scheduled"
            if live is None or stale or live.state.paused:
                self.job_queues.free(ready.run, ready.job)
                continue
            try:
                self._step(live, s.JobStart(ready.job, ready.attempt, ENGINE), now)
            except Exception as defect:
                self._set_aside(ready.run, defect)

    # -- out ---------------------------------------------------------------------------------

    def _seal(self, now: int) -> Turned:
        batch = Batch(payloads=self._payloads, answers=self._answers, messages=self._messages)
        self._holds.write_to(batch)
        for run, live in list(self._touched.items()):
            try:
                commit, published = self._seal_run(live, now)
            except Exception as defect:  # something in it cannot be written down
                self._set_aside(run, defect)
                continue
            batch.commits.append(commit)
            over = commit.head.finished
            if live.sealed.values:
                live.sealed.keep(batch, run, over=over)
            self.reactions.effects.append(published)
            live.log_bytes += len(commit.events)
            if reason := self._run_limits.passed(live):
                self._overrun(live, reason)
            self.wake_times.set(run, None if over else commit.head.next_wake)
            if over:
                self._let_go(run, published.status)
        if self.family.told:
            batch.to_recover = self.family.find_unheard(batch)
        effects = self.reactions.effects
        for effect in effects:
            if isinstance(effect, Replied) and effect.message:
                batch.answers[effect.message] = answer_bytes(effect.error)
        if self._sealed_as:
            batch.unsealed += [
                self._sealed_as.pop(one) for one in batch.answers if one in self._sealed_as
            ]
        if self._requests:
            batch.requests = [request for _, request in self._requests]
            self._requests = []
        self._touched, self.reactions.effects = {}, []
        self._payloads_before, self._payloads = self._payloads, {}
        self._answers, self._messages = {}, []
        if self._values.overfull:
            self._values.trim()
        return Turned(batch, effects)

    def _overrun(self, live: LiveRun, reason: str) -> None:
        if not (live.state.ending or live.state.finished or live.overrun):
            live.overrun = True
            self.offer(live.state.run, s.Overrun(reason))

    def _let_go(self, run: str, status: str) -> None:
        """A finished run leaves memory. Until its end is durable, the store must not be asked."""
        self.live.pop(run, None)
        self._ended[run] = status
        self._ends.add(run)
        if len(self._ended) > ENDED_KEPT:
            self._ended.popitem(last=False)

    def end_is_written(self, run: str) -> None:
        self._ends.discard(run)

    def _seal_run(self, live: LiveRun, now: int) -> tuple[Commit, DurableEvents]:
        state, events = live.state, live.fresh
        live.fresh = ()
        status, finished = status_of(state), bool(state.status)
        problems = state.counts.problems + state.counts.tolerated
        # A run that moves and has no problem has no reason either, and is not looked at.
        oldest = next(iter(state.jobs.values()), None)
        moves = status in _MOVES and (oldest is None or oldest.phase in _AT_WORK)
        plain = moves and not problems and not state.phases.get("sleeping")
        head = Head(
            run=state.run,
            definition=state.definition,
            name=state.name,
            dialect=live.net.dialect,
            status=status,
            seq=state.seq,
            created_at=state.started_at,
            updated_at=now,
            next_wake=next_wake(state) if state.timers.due else None,
            labels=state.labels,
            parent=state.parent,
            origin=state.origin,
            finished=finished,
            problems=problems,
            reason="" if plain else reason_of(live.net, state),
        )
        tail, every = state.seq - live.snapshot_seq, self._snapshot_every
        row = e.encode_events(events)
        commit = Commit(
            head=head,
            at=now,
            events=row,
            count=len(events),
            snapshot=take_snapshot(live, every) if tail >= every else None,
        )
        first, final = state.seq - len(events) + 1, state if finished else None
        return commit, DurableEvents(state.run, first, now, events, status, final, row)

    def set_alarm(self, live: LiveRun) -> None:
        """Wake the run when it wants to be woken."""
        at = None if live.state.finished else next_wake(live.state)
        self.wake_times.set(live.state.run, at)

    # -- memory ------------------------------------------------------------------------------

    def run(self, run: str) -> LiveRun:
        """The run, from memory or from the store."""
        live = self.live.get(run)
        if live is not None:
            return live
        if run in self._ended:
            raise Refused(f"run {run} has ended: {self._ended[run]}", code="run_finished")
        if run in self.broken:
            raise self.aside(run)
        head = self.store.head(run)
        if head is None:
            raise NotFound(f"there is no run {run}")
        if head.finished:  # it must not come back into memory: nothing would let it go again
            raise Refused(f"run {run} has ended: {head.status}", code="run_finished")
        try:
            return self.adopt(head, *self._stored.read(head))
        except (DefinitionError, MissingRequirements) as error:
            self._set_aside(run, error)
            raise self.aside(run) from None
        except DamagedRun as damage:  # it would be as damaged the next time
            self._set_aside(run, damage)
            raise self.aside(run) from damage

    def view(self, run: str) -> LiveRun:
        """A run that another server owns, as the store has it; not to be stepped."""
        head = self.store.head(run)
        if head is None:
            raise NotFound(f"there is no run {run}")
        if head.finished:
            raise Refused(f"run {run} has ended: {head.status}", code="run_finished")
        return self._stored.load(head, *self._stored.read(head))

    def adopt(self, head: Head, snapshot: StateSnapshot | None, tail: Sequence[Record]) -> LiveRun:
        """Bring a stored run into memory; raises `DamagedRun` where that makes no sense."""
        live = self._stored.load(head, snapshot, tail)
        if self.reactions.has_crew:  # whoever only records needs nothing of what work needs
            self.require(live.net, live.state)
        live.snapshot_seq = snapshot.seq if snapshot is not None else 0
        live.snapshot_bytes = len(snapshot.state) if snapshot is not None else 0
        live.log_bytes = sum(len(row.events) for row in tail)
        if snapshot is not None:
            live.log_bytes = self.store.weight(head.run, 0, head.seq + 1)[1]
        return self.live.setdefault(head.run, live)  # somebody may have been faster

    def set_wake(self, run: str, at: int) -> None:
        """A run that stays in the store wants a tick then."""
        self.wake_times.set(run, at)

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

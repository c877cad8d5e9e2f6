"""The world around one engine core: store, clock, workers and post, all in virtual time.

No thread, no event loop, no waiting: `turn` lets the core work off what has arrived and carries out
the effects, `advance` moves the clock to the next instant at which anything happens. `play` uses it
as it is; `simulate` makes it a hostile place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from random import Random

import msgspec
from msgspec.structs import replace

from anabranch.clock import ManualClock
from anabranch.errors import AnabranchError
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.ending import gate_id
from anabranch.kernel.gates import source_of
from anabranch.kernel.state import Job, State
from anabranch.kernel.values import Answer, succeeded
from anabranch.net.net import Net
from anabranch.runtime.admissions import RunAdmissions
from anabranch.runtime.core import Core
from anabranch.runtime.effects import (
    DurableEvents,
    Effect,
    Execute,
    LeavePlaces,
    Replied,
    SeekPlaces,
    Stop,
    Turned,
)
from anabranch.runtime.jobs.executor import nobody_waits, not_built
from anabranch.runtime.jobs.pool_queues import PoolQueues
from anabranch.runtime.jobs.tasks import task_of
from anabranch.runtime.nets import Nets
from anabranch.runtime.recovery import recover
from anabranch.runtime.values.offload import PayloadOffloader
from anabranch.runtime.values.sealing import Input, Sealed, sealed_keys, split
from anabranch.settings import Settings
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Definition
from anabranch.testing.scripted.answers import Planned, Scripted, planned
from anabranch.testing.scripted.backstage import (
    COMPOSED,
    perform_composed,
    perform_scripted_shard,
    timed,
)
from anabranch.testing.scripted.participants import (
    SEARCH,
    SOURCE,
    as_participant,
    everybody,
    found_by,
    name_of,
    see_participants,
)
from anabranch.testing.scripted.parts import ScriptedParts
from anabranch.testing.scripted.performing import perform_inside
from anabranch.testing.scripted.rules import RULE, RulesInside, judged
from anabranch.testing.scripted.script import UNSCRIPTED, Scripts
from anabranch.testing.scripted.stand_in_secrets import stand_ins
from anabranch.testing.virtual.one_lane import OneLane
from anabranch.testing.virtual.post import Letter, Post
from anabranch.work.port import Parked, Task, parked_job, whole

EPOCH = 1_700_000_000_000  # virtual time begins here; any instant above zero would do
UNLIMITED = 1_000_000

JobKey = tuple[str, str, int]  # run, job, attempt


class World:
    inline_bytes_max = Settings().inline_bytes_max

    def __init__(
        self,
        net: Net,
        scripts: Scripts,
        *,
        dice: Random | None = None,
        concurrency: int | None = None,
    ) -> None:
        self.net = net
        self.known = {net.fingerprint: net}  # what the dialects would compile again
        self.scripts = scripts
        see_participants(net, scripts.answers)
        self.dice = dice
        self.concurrency = concurrency if concurrency is not None else UNLIMITED
        self.clock = ManualClock(EPOCH)
        self.store = MemoryStore()
        self.post = Post(dice)
        self.at_work: dict[JobKey, Planned] = {}  # what the engine's own workers carry out
        self.unscripted: dict[str, bool] = {}  # steps that would have reached outside
        #: Scripted decisions by run and gate; None leaves the gate open.
        self.verdicts: dict[tuple[str, str], s.Decide | None] = {}
        self.final: State | None = None
        self.core = self.new_core()
        self._start: s.Start | None = None
        self._tickets = count(1)
        self._unanswered: dict[int, Letter] = {}
        self._given: dict[tuple[str, str], tuple[int, Scripted]] = {}
        self._lost: set[JobKey] = set()
        self._rules = RulesInside(self.clock)
        self._light = PayloadOffloader(self._keep_payload, self.inline_bytes_max, None)

    # -- engines come and go -----------------------------------------------------------------

    def new_core(self, snapshot_every: int = 200) -> Core:
        """The core of an engine that has just been started on this store."""
        nets = Nets(self.store, lambda definition: self.known[definition.fingerprint])
        job_queues = OneLane(self.concurrency, self.dice)
        core = Core(
            self.store,
            nets,
            job_queues,
            snapshot_every=snapshot_every,
            pools=self.pools(),
            inline_bytes_max=self.inline_bytes_max,
        )
        core.on_defect = _raise
        self.admissions = RunAdmissions(core, self.clock.now, lambda: None)
        return core

    def pools(self) -> PoolQueues | None:
        """Who does the jobs of pools; here the engine itself."""
        return None

    def begin(self, start: s.Start, marks: Input | None = None) -> None:
        """Ask for the run to be started; `marks` stand for secrets in its input."""
        self._start, self._marks = start, marks
        shown, sealed = split(self.net, start.input, marks)
        self.open_run(start.run, self.net, sealed)
        begin = msgspec.structs.replace(
            start, input=shown, sealed=start.sealed or sealed_keys(shown, sealed.marks)
        )
        self.hand_over(Letter(start.run, begin, must=True))

    def open_run(self, run: str, net: Net, sealed: Sealed | None = None) -> None:
        """Make the definition known and a place for the run; its start follows."""
        definition = Definition(
            fingerprint=net.fingerprint, dialect=net.dialect, name=net.name, source=""
        )
        self.known[net.fingerprint] = net
        self.core.nets.put(definition, net)
        self.core.open_run(run, net, sealed)

    def come_up(self, snapshot_every: int = 200) -> None:
        """The engine is gone with all it had in memory; another one starts on the store."""
        for key in self.at_work:
            self.post.withdraw(key)
        self.at_work.clear()
        self.core = self.new_core(snapshot_every)
        recover(self.core, self.clock.now())
        if self._start is not None and self.store.head(self._start.run) is None:
            self.begin(self._start, self._marks)
        unanswered, self._unanswered = self._unanswered, {}
        for letter in unanswered.values():  # who got no reply asks again
            if letter.asks:
                self.post.send(self.clock.now(), replace(letter, must=False, gone=False))

    # -- a turn ------------------------------------------------------------------------------

    def turn(self) -> None:
        turned = self.core.turn(self.clock.now())
        self.write(turned)
        self.let_out(turned.effects)
        self.admit()

    def admit(self, *, look: bool = True) -> bool:
        """Runs that wait for a place get one if it is free; whether anything follows from that."""
        if not any(net.limits for net in self.known.values()):
            return False
        told = self.admissions.decide(self.admissions.asking(), look=look)
        self.admissions.tell(told)
        return bool(told.admitted or told.surplus)

    def write(self, turned: Turned) -> None:
        """Make the turn durable."""
        if turned.batch.commits:
            self.store.commit(turned.batch)
        for effect in turned.effects:
            if isinstance(effect, DurableEvents):
                state = effect.final or self.core.live[effect.run].state
                self.recorded(effect.run, effect.events, state)

    def let_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Execute():
                    self.execute(effect)
                case Stop():
                    self.stop(effect)
                case DurableEvents():
                    self.published(effect)
                case Replied():
                    self.replied(effect)
                case SeekPlaces() | LeavePlaces():
                    self.admissions.note(effect)

    def advance(self) -> bool:
        """Go to the next instant at which something happens; false when nothing will."""
        coming = [at for at in (self.post.next_at(), self.core.next_alarm()) if at is not None]
        if not coming:
            return False
        self.clock.advance_to(min(coming))
        if self.dice is not None and self.dice.random() < 0.5:
            self.turn()  # timers of this instant before its letters, for once
        self.deliver()
        return True

    def deliver(self) -> None:
        """Hand over the letters that have arrived."""
        for letter in self.post.due(self.clock.now()):
            self.hand_over(letter)

    def hand_over(self, letter: Letter) -> None:
        ticket, stimulus = 0, letter.stimulus
        if letter.asks or letter.must:
            ticket = next(self._tickets)
            self._unanswered[ticket] = letter
        self.core.offer(letter.run, self._light.fit(letter.run, stimulus), ticket)

    def _keep_payload(self, run: str, sha256: str, content: bytes) -> None:
        self.core.keep_payload(run, sha256, content)  # of the engine that is there now

    # -- effects -----------------------------------------------------------------------------

    def execute(self, effect: Execute) -> None:
        live = self.core.live.get(effect.run)
        job = live.state.jobs.get(effect.job) if live is not None else None
        if live is None or job is None or job.phase != "running" or job.attempt != effect.attempt:
            return  # over before it began: a kill in the very next turn
        if nobody_waits(live.state, job):  # drained before it began
            self.core.offer(effect.run, s.JobLose(effect.job, effect.attempt, "nobody waits"))
            return
        key = (effect.run, effect.job, effect.attempt)
        try:
            task = task_of(live, effect.job, self.store.payload, stand_ins(live.net))
        except AnabranchError as error:
            plan = Planned(not_built(error))
        else:
            plan = self.plan(key, task, label_of(live.state, job))
            if plan.answer is not None and live.sealed.values:
                plan = plan._replace(answer=live.sealed.scope().answer(plan.answer))
        self.at_work[key] = plan
        if plan.parked is not None:
            self.park(key, plan)
        if plan.answer is not None:
            self.report(key, plan.answer, plan.delay_ms)

    def plan(self, key: JobKey, task: Task, label: str) -> Planned:
        """What this execution will answer, and when."""
        if task.kind == "loop.cut":
            return self.unscripted_plan(task)
        if task.kind in (SEARCH, SOURCE):
            return self._beside_the_work(key, task)
        entry = self._entry(key, task.step, label)
        if task.kind == "loop.shard" and entry is not UNSCRIPTED:
            return self._shard_plan(task, entry)
        if entry is UNSCRIPTED:
            return self.unscripted_plan(task)
        return judged(task, as_participant(task, planned(entry, task)))

    def _beside_the_work(self, key: JobKey, task: Task) -> Planned:
        """A search for participants, or the question to a decision source."""
        name = name_of(task.inputs)
        self.scripts.answers.saw_slots(task.step, [name] if name else [])
        entry = self._entry(key, "", name) if name in self.scripts.answers else UNSCRIPTED
        if entry is not UNSCRIPTED:
            plan = planned(entry, task)
            self.scripts.answers.saw_slots(task.step, found_by(plan.answer))
            return plan._replace(answer=whole(plan.answer)) if plan.answer is not None else plan
        if task.kind == SEARCH:
            return Planned(whole(everybody(self.net, self.scripts.answers, task)))
        return self.unscripted_plan(task)

    def _shard_plan(self, task: Task, first: Scripted) -> Planned:
        """The items of a shard take one answer of the script each."""
        entries = [first]

        def take(item: Task) -> Planned:
            entry = entries.pop() if entries else self.scripts.answers.take(task.step, "")
            return planned(entry, item)

        answer, delay_ms = perform_scripted_shard(task, self.store, take)
        return Planned(answer, delay_ms)

    def _rule(self, task: Task) -> Answer | None:
        """The verdict of a rule that stays inside; None where it would reach outside."""
        return self._rules.perform(task)

    def _composed(self, task: Task) -> Planned:
        """A pipeline or a shard: its tasks answer by script, or do what they do."""
        parts = ScriptedParts(self.scripts.answers, task.step, self.spoiled)
        answer = perform_composed(task, self.store, parts.perform)
        if parts.outside:
            self.unscripted[task.step] = True
        if isinstance(answer, Parked):
            later = parts.waits_for
            return Planned(later.answer, parts.delay_ms + later.delay_ms, False, answer)
        if parts.silent:
            return Planned(None)
        return Planned(timed(answer, parts.delay_ms), parts.delay_ms)

    def _entry(self, key: JobKey, step: str, label: str) -> Scripted:
        """The next answer of the script, or once more the one whose execution was lost."""
        run, job, attempt = key
        before, entry = self._given.get((run, job), (0, UNSCRIPTED))
        if (run, job, before) not in self._lost:
            entry = self.scripts.answers.take(step, label)
        self._given[run, job] = (attempt, entry)
        return entry

    def unscripted_plan(self, task: Task) -> Planned:
        if task.kind in COMPOSED:
            return self._composed(task)
        answer = self._rule(task) if task.kind == RULE else perform_inside(task)
        if answer is None:
            self.unscripted[task.step] = True
            answer = succeeded(None)
        if isinstance(answer, Parked):  # a wait: the kernel ends it
            return Planned(None, parked=answer)
        return judged(task, Planned(answer))

    def report(self, key: JobKey, answer: Answer, delay_ms: int = 0) -> None:
        run, job, attempt = key
        letter = Letter(run, s.JobReport(job, attempt, answer), key)
        self.post.send(self.clock.now() + delay_ms, letter)

    def spoiled(self, _task: Task) -> Answer | None:
        """What keeps a task inside a job from what it does; nothing here."""
        return None

    def park(self, key: JobKey, plan: Planned) -> None:
        """The job waits for an answer from outside, which is on its way or never comes."""
        run, job, attempt = key
        parked = plan.parked
        assert parked is not None, "only asked where it is"
        stimulus = parked_job(job, attempt, parked)
        self.post.send(self.clock.now(), Letter(run, stimulus, key))

    def stop(self, effect: Stop) -> None:
        """Work stops when it is told to, unless it is stubborn."""
        if effect.abandoned:
            for key in [key for key in self.at_work if key[:2] == (effect.run, effect.job)]:
                self.at_work.pop(key)
                self.post.withdraw(key)
            return
        key = (effect.run, effect.job, effect.attempt)
        plan = self.at_work.get(key)
        if plan is not None and plan.stubborn:
            return
        self.at_work.pop(key, None)
        self.post.withdraw(key)
        if effect.discharge:
            self.core.offer(effect.run, s.JobDischarge(effect.job))

    def published(self, news: DurableEvents) -> None:
        """Somebody who listens hears of it; nobody does here."""

    def replied(self, reply: Replied) -> None:
        letter = self._unanswered.pop(reply.ticket, None)
        if letter is not None and letter.must and reply.error is not None:
            raise reply.error

    # -- what is durable ---------------------------------------------------------------------

    def recorded(self, run: str, events: Iterable[e.Event], state: State) -> None:
        """These events are durable now, and `state` is what they led to."""
        self.final = state if state.finished else None
        for event in events:
            match event:
                case e.JobReported() | e.JobTimedOut() | e.JobParked() | e.JobLost():
                    self.at_work.pop((run, event.job, event.attempt), None)
                    if isinstance(event, e.JobLost):
                        self._lost.add((run, event.job, event.attempt))
                case e.GatherOpened(kind="fan"):
                    step = state.joins[event.gather].target
                    self.scripts.answers.saw_slots(step, event.labels)
                case e.GateOpened() if event.gate in state.gates:
                    gate = state.gates[event.gate]
                    source = bool(source_of(self.net, gate))
                    self._ask(run, gate.id, gate.step, event.actors, override=source)
                case e.TokenHeld() if is_held(state, event.token):
                    token = state.tokens[event.token]
                    self._ask(run, gate_id(token), token.step, ())
                case _:
                    pass

    def _ask(
        self, run: str, gate: str, step: str, actors: Iterable[str], *, override: bool = False
    ) -> None:
        """Send the scripted decision on its way, if there is one."""
        entry = self._decision_for(run, gate, step)
        if entry is UNSCRIPTED:
            return
        plan = planned(entry, gate)
        verdict = _verdict(gate, plan.answer, next(iter(actors), "script"), override=override)
        self.verdicts[run, gate] = verdict
        if verdict is not None:
            self.post.send(self.clock.now() + plan.delay_ms, Letter(run, verdict, asks=True))

    def _decision_for(self, run: str, gate: str, step: str) -> Scripted:
        """The last decision repeats for other gates, never for one that opens again."""
        repeat = (run, gate) not in self.verdicts
        if step in self.scripts.decisions:
            return self.scripts.decisions.next(step, repeat=repeat)
        if step not in self.scripts.answers or self.net.steps[step].work is not None:
            return UNSCRIPTED
        asks = self.net.steps[step].decision is not None
        return self.scripts.answers.next(step, repeat=repeat) if asks else UNSCRIPTED


def label_of(state: State, job: Job) -> str:
    """The label of the fan-out slot that a job fills; "" for the one job of a plain step."""
    if job.slot < 0:
        return ""
    gather = state.gathers.get(state.tokens[job.token].gather)
    return gather.labels[job.slot] if gather is not None else ""  # a shard has no label


def is_held(state: State, token: int) -> bool:
    return token in state.tokens and state.tokens[token].phase == "held"


def _verdict(gate: str, answer: Answer | None, actor: str, *, override: bool) -> s.Decide | None:
    if answer is None:
        return None
    if answer.status == "ok":
        return s.Decide(gate, "fulfil", actor, evidence=answer.result, override=override)
    why = answer.fault.message if answer.fault is not None else ""
    return s.Decide(gate, "reject", actor, why, override=override)


def _raise(_run: str, defect: BaseException) -> None:
    raise defect

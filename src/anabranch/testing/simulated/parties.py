"""Unreliable parties: workers that vanish, stutter, stop late or never; child runs; and people.

This is the part of the hostile world outside the engine. It acts on what is durable, because that
is all anybody outside can know.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.ending import gate_id
from anabranch.kernel.gates import source_of
from anabranch.kernel.limits import held_by
from anabranch.kernel.state import State
from anabranch.kernel.values import Answer, ContextPatch, Wait, failed
from anabranch.net.net import Net
from anabranch.runtime.effects import Stop
from anabranch.runtime.jobs.executor import nobody_waits, not_built
from anabranch.runtime.jobs.pool_queues import PoolQueues
from anabranch.runtime.jobs.tasks import task_of
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.reactions import ENGINE
from anabranch.testing.random.nets import random_net
from anabranch.testing.random.steps import (
    RANDOM_RUN,
    RANDOM_WORK,
    UNREAD,
    random_answer,
    random_cut,
    random_shard,
)
from anabranch.testing.random.waits import random_wait, signal_for
from anabranch.testing.scripted.answers import Planned
from anabranch.testing.scripted.backstage import timed
from anabranch.testing.scripted.rules import RULE, random_verdict
from anabranch.testing.scripted.script import Scripts
from anabranch.testing.scripted.stand_in_secrets import stand_ins
from anabranch.testing.simulated.audit import Audit, Recent
from anabranch.testing.simulated.faults import Faults
from anabranch.testing.virtual.post import Letter
from anabranch.testing.virtual.world import JobKey, World, label_of
from anabranch.work.port import Task

RUN = RANDOM_RUN
RECENT = 15  # events that a failure shows
Patches = Sequence[Mapping[str, Any]]
Move = tuple[str, Callable[[], s.Stimulus]]


class Parties(World):
    dice: Random
    inline_bytes_max = 500  # so that some results travel as refs

    def __init__(
        self,
        net: Net,
        scripts: Scripts,
        *,
        dice: Random,
        faults: Faults,
        patches: Patches,
    ) -> None:
        concurrency = dice.choice((None, None, None, 1, 2, 3))
        super().__init__(net, scripts, dice=dice, concurrency=concurrency)
        self.recent: Recent = deque(maxlen=RECENT)
        self.audit = Audit(net, self.recent)
        self.audits = {RUN: self.audit}  # and one for every child run
        self.tally: Counter[str] = Counter()  # which faults happened how often
        self.faults = faults
        self.calm = False  # from some point on nothing goes wrong any more
        self._patches = patches
        self._elsewhere: set[JobKey] = set()  # jobs of workers that are not the engine's own
        self._parked: dict[JobKey, Answer] = {}
        self._asking: dict[str, JobKey] = {}  # child run → the job that asks for it
        self._nobody_decides = dice.random() < 0.15
        self._signals = 0  # that were sent

    def strikes(self, fault: str) -> bool:
        """Does it happen now?"""
        if self.calm or self.dice.random() >= getattr(self.faults, fault):
            return False
        self.tally[fault] += 1
        return True

    def later(self, most_seconds: int) -> int:
        """A random instant from now on."""
        return self.clock.now() + self.dice.choice((0, self.dice.randint(1, most_seconds * 1000)))

    def unfinished(self) -> Iterator[tuple[str, Audit]]:
        for run, audit in self.audits.items():
            if audit.state.run and not audit.state.finished:
                yield run, audit

    # -- workers -----------------------------------------------------------------------------

    def unscripted_plan(self, task: Task) -> Planned:
        delay_ms = self.later(30) - self.clock.now()
        error = 0.0 if self.calm else self.faults.error
        work = self.audits[task.run].net.steps[task.step].work
        waits = task.kind == RANDOM_WORK and work is not None and work.wait is not None
        if waits and work is not None and self.dice.random() < 0.6:
            return Planned(None, parked=random_wait(self.dice, work))
        if task.kind == RANDOM_WORK or is_unread(task):
            return Planned(self._random_answer(task, error), delay_ms)
        if self.strikes("error"):
            return Planned(failed("simulated", "simulated failure"), delay_ms)
        if task.kind == RULE:
            answer = self._rule(task) or random_verdict(self.dice, calm=self.calm)
            return Planned(answer, delay_ms)
        plan = super().unscripted_plan(task)
        if plan.answer is None:
            return plan
        delay_ms += plan.delay_ms
        return plan._replace(answer=timed(plan.answer, delay_ms), delay_ms=delay_ms)

    def spoiled(self, _task: Task) -> Answer | None:
        """One task of a pipeline, or of an item of a loop, may fail like any other."""
        if self.strikes("error"):
            return failed("simulated", "simulated failure", retryable=self.dice.random() < 0.8)
        return None

    def park(self, key: JobKey, plan: Planned) -> None:
        super().park(key, plan)
        if plan.answer is not None:
            self._parked[key] = plan.answer

    def _random_answer(self, task: Task, error: float) -> Answer:
        if is_unread(task):
            return random_cut(self.dice, task.source, task.inputs["first"], error)
        if task.shard is None or self.dice.random() < error / 3:
            return random_answer(self.dice, error)
        return random_shard(self.dice, task.shard, error)

    def report(self, key: JobKey, answer: Answer, delay_ms: int = 0) -> None:
        run, job, attempt = key
        at = self.clock.now() + delay_ms
        if self._asks_child(key):
            self._ask_child(key)
            return
        if self.strikes("lost_job"):
            self.post.send(at, Letter(run, s.JobLose(job, attempt, "simulated loss"), key))
            late = s.JobLate(job, attempt, "worker", answer.outcome or answer.status)
            self.post.send(self.later(60), Letter(run, late))
            return
        if self._is_random(key) and self.strikes("parked"):
            at = self._park(key, answer)
        self.post.send(at, Letter(run, s.JobReport(job, attempt, answer), key))
        if self.strikes("duplicate"):
            self.post.send(self.later(60), Letter(run, s.JobReport(job, attempt, answer)))
        if self.strikes("stale"):
            wrong = self.dice.choice((attempt - 1, attempt + 1000))
            self.post.send(self.later(60), Letter(run, s.JobReport(job, wrong, answer)))

    def _is_random(self, key: JobKey) -> bool:
        audit = self.audits[key[0]]
        job = audit.state.jobs.get(key[1])
        work = audit.net.steps[job.step].work if job is not None else None
        return work is not None and work.kind == RANDOM_WORK

    def _loops(self, key: JobKey) -> bool:
        """The jobs of a loop report of their items, which no child run does."""
        audit = self.audits[key[0]]
        job = audit.state.jobs.get(key[1])
        return job is not None and audit.net.steps[job.step].loop is not None

    def _park(self, key: JobKey, answer: Answer) -> int:
        """Somebody outside will answer; returns when."""
        run, job, attempt = key
        until = self.later(120) if self.dice.random() < 0.3 else 0
        memory = {"leg": attempt} if self.dice.random() < 0.4 else None  # it goes on afterwards
        park = s.JobPark(job, attempt, "order", until, memory)
        self.post.send(self.clock.now(), Letter(run, park, key))
        self._parked[key] = answer
        return self.later(120)

    def remind(self) -> bool:
        """Outside parties whose answer was not taken, because an engine died, give it again."""
        reminded = False
        for (run, job, attempt), answer in self._parked.items():
            known = self.audits[run].state.jobs.get(job)
            if known is not None and known.phase == "parked" and known.attempt == attempt:
                self.post.send(self.later(10), Letter(run, s.JobReport(job, attempt, answer)))
                reminded = True
        return reminded

    def stop(self, effect: Stop) -> None:
        key = (effect.run, effect.job, effect.attempt)
        busy = key in self.at_work or key in self._elsewhere
        if busy and self.post.holds(key, s.JobReport, s.JobLose) and self.strikes("late"):
            return  # it goes on, and reports all the same
        if busy and effect.discharge and self.strikes("slow_stop"):
            self.post.withdraw(key)
            self.post.send(self.later(20), Letter(effect.run, s.JobDischarge(effect.job), key))
            return
        self._elsewhere.discard(key)
        super().stop(effect)

    # -- workers elsewhere -------------------------------------------------------------------

    def pools(self) -> PoolQueues | None:
        """Jobs of a pool wait for the workers of that pool."""
        return PoolQueues()

    def pools_wait(self) -> bool:
        pools = self.core.pools
        return any(pools.waiting(name) for name in pools.names())

    def claim_from_pools(self) -> None:
        """Workers of the pools ask for jobs, each for some, when they get round to it."""
        for name in self.core.pools.names():
            while self.core.pools.waiting(name) and (self.calm or self.dice.random() < 0.7):
                lease = self.clock.now() + self.dice.randint(1, 60) * 1000
                for ready in self.core.pools.take(name, self.dice.randint(1, 3)):
                    start = s.JobStart(ready.job, ready.attempt, f"{name}-worker", lease)
                    self.core.offer(ready.run, start)

    def offer_elsewhere(self) -> None:
        """A worker of some other process takes a job that waits, under a lease."""
        for run, audit in self.unfinished():
            for job in audit.state.jobs.values():
                if job.phase == "scheduled" and self.strikes("outside"):
                    lease = self.clock.now() + self.dice.randint(1, 60) * 1000
                    worker = f"worker-{self.dice.randint(1, 3)}"
                    self.core.offer(run, s.JobStart(job.id, job.attempt, worker, lease))

    def recorded(self, run: str, events: Iterable[e.Event], state: State) -> None:
        events = list(events)
        super().recorded(run, events, state)
        for event in events:
            if isinstance(event, e.JobStarted) and event.worker != ENGINE:
                self._work_elsewhere(run, event, state)
            elif isinstance(event, e.RunStarted) and run in self._asking:
                self._park_for(run)

    def _work_elsewhere(self, run: str, event: e.JobStarted, state: State) -> None:
        key = (run, event.job, event.attempt)
        job = state.jobs.get(event.job)
        if job is None or job.phase != "running" or job.attempt != event.attempt:
            return  # stopped before it began
        self._elsewhere.add(key)
        if self.strikes("silent") or nobody_waits(state, job):
            return
        try:
            live = LiveRun(self.audits[run].net, state, holds_refs=True)
            task = task_of(live, event.job, self.store.payload, stand_ins(live.net))
            plan = self.plan(key, task, label_of(state, job))
        except AnabranchError as error:
            plan = Planned(not_built(error))
        if plan.parked is not None:
            self.park(key, plan)
        if plan.answer is not None:
            self._heartbeats(key, event.lease, plan.delay_ms)
            self.report(key, plan.answer, plan.delay_ms)

    def _heartbeats(self, key: JobKey, lease: int, delay_ms: int) -> None:
        run, job, attempt = key
        now = self.clock.now()
        length = max(lease - now, 1000)
        for at in range(now + length // 2, now + delay_ms, length // 2):
            self.post.send(at, Letter(run, s.JobExtend(job, attempt, at + length), key))
            self.post.send(at, Letter(run, s.JobProgress(job, attempt, {"at": at - now}), key))

    # -- child runs --------------------------------------------------------------------------

    def _asks_child(self, key: JobKey) -> bool:
        """A job that asked for a child run once asks for the same one in every attempt."""
        run, job, _ = key
        if run != RUN or not self._is_random(key) or self._loops(key):
            return False
        return _child_of(run, job) in self._asking or self.strikes("child")

    def _ask_child(self, key: JobKey) -> None:
        """Start the child, and park once that is durable; or park for the one that is there."""
        run, job, attempt = key
        child = _child_of(run, job)
        if child not in self.audits:
            self.audits[child] = Audit(random_net(self.dice.randrange(1000)), self.recent)
        self._asking[child] = key
        if child in self.core.live or self.store.head(child) is not None:
            self._park_for(child)
            return
        self.open_run(child, self.audits[child].net)
        parent = f"{run}/{job}#{attempt}"
        steps = self.audits[child].net.steps
        returns = self.dice.choice(list(steps)) if self.dice.random() < 0.3 else ""
        held = held_by(self.audits[run].state)
        start = s.Start(run=child, parent=parent, returns=returns, held=held)
        self.hand_over(Letter(child, start))

    def _park_for(self, child: str) -> None:
        key = self._asking[child]
        run, job, attempt = key
        self.post.send(self.later(5), Letter(run, s.JobPark(job, attempt, child), key))

    # -- people ------------------------------------------------------------------------------

    def somebody_acts(self) -> bool:
        """Answer a gate, patch the context, resume; false when there is nothing to do."""
        if self._nobody_decides:
            return False
        moves = [move for run, audit in self.unfinished() for move in self._moves(run, audit)]
        if not moves:
            return False
        run, move = self.dice.choice(moves)
        self.clock.advance_to(self.later(60))
        self.core.offer(run, move())
        return True

    def _moves(self, run: str, audit: Audit) -> Iterator[Move]:
        state = audit.state
        if state.paused:
            yield run, s.Resume
        for gate in state.gates.values():
            if (run, gate.id) not in self.verdicts:
                yield (
                    run,
                    partial(
                        self._decision,
                        gate.id,
                        gate.actors,
                        failed=gate.failed,
                        source=bool(source_of(audit.net, gate)),
                    ),
                )
        for job in state.jobs.values():
            if job.wait is not None and job.wait.event:
                yield run, partial(self.signal_to, job.wait)
        for token in state.tokens.values():
            if token.phase == "sleeping":
                yield run, partial(s.Wake, token.id, payload={"woken": True})
            elif token.phase == "held":
                yield run, partial(self._decision, gate_id(token), ())
                yield run, partial(self._decision, token.step, ())
                yield from ((run, partial(_patch, patch)) for patch in self._patches)

    def signal_to(self, wait: Wait) -> s.Stimulus:
        """One for this wait; sometimes the last one once more."""
        self._signals += self.dice.random() < 0.9
        return signal_for(self.dice, wait, self._signals)

    def _decision(
        self, gate: str, actors: Sequence[str], *, failed: bool = False, source: bool = False
    ) -> s.Stimulus:
        wrong = self.dice.random() < 0.1
        actor = self.dice.choice(list(actors)) if actors and not wrong else "a stranger"
        rejects = not self.calm and self.dice.random() < 0.3
        if failed:  # some work fails for ever: it is given up sooner or later
            rejects = self.dice.random() < 0.5
        if source and self.dice.random() < 0.3:
            return s.Decide(gate, "ask_again", actor, "simulated")
        word = "reject" if rejects else "fulfil"
        return s.Decide(gate, word, actor, "simulated", override=source)  # type: ignore[arg-type]


def is_unread(task: Task) -> bool:
    """The reading of a collection that only random nets have."""
    return task.kind == "loop.cut" and isinstance(task.source, Mapping) and UNREAD in task.source


def _child_of(run: str, job: str) -> str:
    return f"{run}-{job}"


def _patch(patch: Mapping[str, Any]) -> s.Stimulus:
    return s.PatchContext(tuple(ContextPatch(key, value) for key, value in patch.items()))

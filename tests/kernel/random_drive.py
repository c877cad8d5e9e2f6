"""Drives a run at random: mostly what may come, sometimes what must be refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Literal

from msgspec.structs import replace

from anabranch.errors import InputError, Refused
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.evolve import evolve
from anabranch.kernel.explain import explain
from anabranch.kernel.gates import source_of
from anabranch.kernel.laws import Witness, check, check_rest
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import Job, State, decode_state, encode_state
from anabranch.kernel.step import step
from anabranch.kernel.summary import summarise
from anabranch.kernel.timing import next_wake
from anabranch.kernel.values import (
    TERMINAL,
    Answer,
    ContextPatch,
    Wait,
    aborted,
    cancels_run,
    failed,
    succeeded,
)
from anabranch.net.net import Work
from anabranch.testing.random.waits import EVENTS, random_wait, signal_for
from anabranch.work.port import Parked, parked_job

from .loop_reports import loop_answer
from .random_nets import GATES, random_net

PATIENCE = 60  # stimuli at random before everybody starts to behave
GOOD_WILL = 150  # stimuli of good behaviour before the run is cancelled
CROWD = 40  # tokens at once: a loop that forks grows without end


class Drive:
    def __init__(self, seed: int) -> None:
        self.random = Random(f"drive {seed}")
        self.net, self.loops = random_net(seed)
        self.state = State()
        self.replayed = State()
        self.witness = Witness()
        self.at = self.random.choice((0, 1, 1_000_000))
        self.deepest = 0
        self.refused = 0
        self.kinds: set[str] = set()
        self.sent = 0
        self.cancelled = False

    def to_the_end(self) -> Drive:
        self._send(s.Start(run="run", input={"n": 1}))
        for number in range(PATIENCE + GOOD_WILL):
            if self.state.finished:
                return self
            if self.loops and len(self.state.tokens) > CROWD:
                break
            if number < PATIENCE:
                self._anything()
            else:
                self._behave()
        self.cancelled = True
        if not self.state.ending:
            self._send(s.Cancel("tester", "it never ends"))
        for job in list(self.state.jobs):
            self._send(s.JobDischarge(job))
        assert self.state.finished, "a cancelled run with nobody at work has ended"
        return self

    # -- one stimulus --------------------------------------------------------------------------

    def _send(self, stimulus: s.Stimulus) -> None:
        twin = None
        if self.random.random() < 0.1:
            self.state = decode_state(encode_state(self.state))
            twin = decode_state(encode_state(self.state))
        events = step(self.net, self.state, stimulus, self.at)
        if twin is not None:
            assert step(self.net, twin, stimulus, self.at) == events
        for event in e.decode_events(e.encode_events(events)):
            evolve(self.replayed, event, self.at)
            check(self.replayed)
            self.witness.see(event)
            self.kinds.add(e.kind_of(event))
        check_rest(self.state)
        self.witness.agrees(self.state)
        self._look(isinstance(stimulus, s.Tick))

    def _look(self, ticked: bool) -> None:
        state = self.state
        wake = next_wake(state)
        assert not ticked or wake is None or wake > self.at, "a tick leaves nothing due"
        status = status_of(state)
        assert (status in TERMINAL) == state.finished
        if state.finished:
            assert encode_state(self.replayed) == encode_state(state)
        elif not state.busy and wake is None and not state.paused:
            assert status == "waiting", "nothing moves it from inside"
        waiting = explain(self.net, state)
        assert bool(waiting) != state.finished or state.left_behind, "what did not stop is named"
        assert all(one.waits_for and one.since <= self.at for one in waiting)
        summarise(self.net, state)
        self.deepest = max(self.deepest, self._depth())

    def _depth(self) -> int:
        """How deep the scopes nest: the id of a scope is the id of its join's target."""
        depth: dict[int, int] = {0: 0}
        for token in self.state.tokens.values():
            if token.gather.startswith("j"):
                depth[token.id] = depth.get(token.scope, 0) + 1
        return max(depth.values())

    def _try(self, stimulus: s.Stimulus) -> None:
        """Whatever is refused changes nothing."""
        before = encode_state(self.state)
        try:
            self._send(stimulus)
        except (Refused, InputError):
            self.refused += 1
            assert encode_state(self.state) == before

    # -- choosing ------------------------------------------------------------------------------

    def _anything(self) -> None:
        jobs = list(self.state.jobs.values())
        roll = self.random.random()
        if roll < 0.12:
            self._nonsense()
        elif jobs and roll < 0.8:
            self._with(self.random.choice(jobs))
        elif roll < 0.9:
            self._time_passes()
        else:
            self._somebody()

    def _with(self, job: Job) -> None:
        roll, report = self.random.random(), s.JobReport(job.id, job.attempt, self._answer(job))
        match job.phase:
            case "scheduled":
                lease = self.at + self.random.randint(1, 60) if roll < 0.2 else 0
                self._try(s.JobStart(job.id, job.attempt, "worker", lease))
            case "running" if self._waits(job) and roll < 0.7:
                work = self.net.steps[job.step].work
                assert work is not None
                self._try(parked_job(job.id, job.attempt, self._wait(work)))
            case "parked" if job.wait is not None:
                self._signal(job.wait)
            case "running" if roll < 0.1:
                until = self.at + 20 if roll < 0.05 else 0
                memory = {"leg": 1} if self.random.random() < 0.5 else None
                self._try(s.JobPark(job.id, job.attempt, "ticket", until, memory))
            case "running" if roll < 0.2:
                unbegun = roll > 0.15
                lost = s.JobLose(job.id, job.attempt, counted=not unbegun, unbegun=unbegun)
                self._try(lost)
            case "running" if roll < 0.25:
                self._try(s.JobExtend(job.id, job.attempt, self.at + 50))
                self._try(s.JobProgress(job.id, job.attempt, {"at": self.at}))
            case "running" | "parked":
                self._send(report)
            case "cancelling":
                self._send(report if roll < 0.4 else s.JobDischarge(job.id))
            case _:
                self._time_passes()

    def _waits(self, job: Job) -> bool:
        work = self.net.steps[job.step].work
        return work is not None and work.wait is not None and job.slot == -1

    def _wait(self, work: Work) -> Parked:
        memory = {"leg": 1} if self.random.random() < 0.5 else None
        return replace(random_wait(self.random, work, 10), memory=memory)

    def _signal(self, wait: Wait | None) -> None:
        """A signal for this wait, or for any; sometimes one that was sent before."""
        wanted = wait if wait is not None and wait.event else Wait(self.random.choice(EVENTS))
        self.sent += self.random.random() < 0.9
        self._try(signal_for(self.random, wanted, self.sent))

    def _answer(self, job: Job | None = None) -> Answer:
        roll = self.random.random()
        tracker = self.state.loops.get(f"l{job.token}") if job is not None else None
        if job is not None and tracker is not None and roll > 0.2:
            return loop_answer(self.random, tracker, job.id, self.random.choice((0.0, 0.3)))
        if roll < 0.03:
            return aborted("broken", "it gave up")
        if roll < 0.04:
            return cancels_run("enough", "it asked for the end")
        if roll < 0.2:
            kind = self.random.choice(("boom", "unreachable"))
            return failed(kind, "went wrong", retryable=self.random.random() < 0.7)
        result = self.random.choice((None, {}, {"score": 1}, {"score": 2.5}, {"score": "x"}, [1]))
        patches = (ContextPatch("total", 1, "sum"),) if roll < 0.3 else ()
        wait = 30 if roll > 0.9 else 0
        outcome = self.random.choice(("ok", "ok", "alt"))
        return succeeded(result, outcome=outcome, patches=patches, wait_ms=wait)

    def _time_passes(self) -> None:
        due = next_wake(self.state)
        if due is None or self.random.random() < 0.2:
            self.at += self.random.randint(0, 20)
        else:
            self.at = max(self.at, due + self.random.choice((-1, 0, 0, 7)))
        self._send(s.Tick())

    def _somebody(self) -> None:
        """People and other programs."""
        gates = [*self.state.gates, *(f"gate-{token}" for token in self.state.held), "s1"]
        choices: list[Callable[[], s.Stimulus]] = [
            lambda: s.Decide(self.random.choice(gates), self._verdict(), "alice"),
            lambda: s.Decide(self.random.choice(gates), self._verdict(), "mallory"),
            lambda: s.Decide(self.random.choice(gates), self._verdict(), "alice", override=True),
            lambda: s.Decide(self.random.choice(gates), "ask_again", "alice"),
            lambda: s.PatchContext((ContextPatch(self.random.choice(GATES), True),), "bob"),
            lambda: s.PatchContext((ContextPatch("total", "text", "sum"),), "bob"),
            lambda: signal_for(self.random, Wait(self.random.choice(EVENTS)), self.sent + 1000),
            lambda: s.Signal("odd", "nobody waits for this"),
            lambda: s.Pause("bob"),
            lambda: s.Resume("bob"),
            lambda: s.Wake(step=self.random.choice(list(self.net.steps)), payload={"w": 1}),
            lambda: s.RetryNow(self.random.choice(list(self.net.steps)), actor="bob"),
        ]
        waiting = [job for job in self.state.jobs.values() if job.phase == "backoff"]
        choices += [partial(s.RetryNow, job.step, job.token, "bob") for job in waiting[:3]]
        if self.random.random() < 0.1:
            choices.append(self._skip)
        for loop in self.state.loops:
            choices.append(partial(s.TuneLoop, loop, self.random.randint(1, 5)))
        if self.state.loops and self.random.random() < 0.05:
            choices = [lambda: s.TuneLoop(next(iter(self.state.loops)), stop=True, actor="bob")]
        if self.random.random() < 0.03:
            choices = [lambda: s.Cancel("bob")]
        self._try(self.random.choice(choices)())

    def _skip(self) -> s.Skip:
        """Of some step run, or of a step where there may be none or several."""
        names, tokens = list(self.net.steps), list(self.state.tokens.values())
        answered = self.random.random() < 0.5
        if tokens and self.random.random() < 0.7:
            one = self.random.choice(tokens)
            return s.Skip(one.step, one.id, "bob", "in the way", answered, {"given": one.id})
        return s.Skip(self.random.choice(names), actor="bob", answered=answered)

    def _verdict(self) -> Literal["fulfil", "reject"]:
        return "fulfil" if self.random.random() < 0.7 else "reject"

    def _nonsense(self) -> None:
        jobs = [*self.state.jobs, "1.0", "99.9", ""]
        job, attempt = self.random.choice(jobs), self.random.choice((0, 1, 2, 99))
        self._try(
            self.random.choice(
                (
                    s.JobStart(job, attempt),
                    s.JobReport(job, attempt, self._answer()),
                    s.JobPark(job, attempt),
                    s.JobLose(job, attempt),
                    s.JobLate(job, attempt, "worker", "ok"),
                    s.JobExtend(job, attempt, self.at + 10),
                    s.JobProgress(job, attempt, 1),
                    s.JobDischarge(job),
                    s.Start(run="run"),
                    s.Decide("nowhere", "fulfil"),
                    s.PatchContext((ContextPatch("", 1),)),
                    s.PatchContext(()),
                    s.Wake(token=99),
                    s.RetryNow("nowhere"),
                    s.Skip("nowhere"),
                    s.Skip(self.net.entry, token=99_999),
                    s.Tick(),
                )
            )
        )

    def _behave(self) -> None:
        """Everybody does what is asked of them, so that a net without loops comes to its end."""
        state = self.state
        of_sources = [gate for gate in state.gates.values() if source_of(self.net, gate)]
        if of_sources:  # asked again, a source might say no for ever
            actor = next(iter(of_sources[0].actors), "alice")
            self._send(s.Decide(of_sources[0].id, "fulfil", actor, override=True))
        elif state.paused:
            self._send(s.Resume("alice"))
        elif state.jobs:
            self._finish(next(iter(state.jobs.values())))
        elif state.gates:
            gate = next(iter(state.gates.values()))  # what failed for good is given up
            actor = next(iter(gate.actors), "alice")
            self._send(s.Decide(gate.id, "reject" if gate.failed else "fulfil", actor))
        elif state.held:
            self._send(s.Decide(f"gate-{next(iter(state.held))}", "fulfil", "alice"))
        else:
            self._on_time()

    def _finish(self, job: Job) -> None:
        match job.phase:
            case "parked" if job.wait is not None and job.wait.event and not job.due:
                self._signal(job.wait)
            case "parked" if job.wait is not None:
                self._on_time()
            case "scheduled":
                self._send(s.JobStart(job.id, job.attempt, "worker"))
            case "running" | "parked":
                tracker = self.state.loops.get(f"l{job.token}")
                good = succeeded({"score": 1})
                if tracker is not None:
                    good = loop_answer(self.random, tracker, job.id, 0.0)
                self._send(s.JobReport(job.id, job.attempt, good))
            case "cancelling":
                self._send(s.JobDischarge(job.id))
            case _:
                self._on_time()

    def _on_time(self) -> None:
        due = next_wake(self.state)
        assert due is not None, "something is unfinished and nothing can move it"
        self.at = max(self.at, due)
        self._send(s.Tick())

"""The laws of the kernel, as code.

`check(state)` looks at a state and raises `LawBroken` with everything that does not hold. It is
called after every event in tests and simulation. `check_rest(state)` adds what holds between two
turns, when every consequence has been followed. `Witness` adds the laws that speak about change: it
is shown every event as it is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anabranch.errors import LawBroken
from anabranch.kernel import events as e
from anabranch.kernel.gather import needed
from anabranch.kernel.jobs import token_of
from anabranch.kernel.laws_of_loops import Recount, broken_loops
from anabranch.kernel.replay import replay
from anabranch.kernel.state import Gather, Job, State, encode_state
from anabranch.kernel.values import TERMINAL


def check(state: State) -> None:
    """Raise if the state breaks a law."""
    broken = [*_counters(state), *_references(state), *_gathers(state), *_timers(state)]
    broken += [*broken_loops(state), *_signals(state), *_ending(state), *_limits(state)]
    _raise(state, broken)


def check_rest(state: State) -> None:
    """Raise if the state breaks a law, or if a turn has left something undone in it."""
    check(state)
    _raise(state, [*_at_rest(state)])


def _raise(state: State, broken: list[str]) -> None:
    if broken:
        raise LawBroken(f"run {state.run} at event {state.seq}: " + "; ".join(broken))


def _at_rest(state: State) -> Iterator[str]:
    for token in state.tokens.values():
        if token.phase == "new":
            yield f"token {token.id} was left without a decision"
        if token.phase in ("ready", "running") and not token.jobs:
            yield f"token {token.id} is {token.phase} and has no job"
        if (token.phase == "deciding") != (f"gate-{token.id}" in state.gates):
            yield f"token {token.id} is {token.phase}, which does not fit its gate"
    for job in state.jobs.values():
        if job.phase == "answered":
            yield f"the answer of job {job.id} was left unused"
        late = 0 < state.deadline <= job.since and not state.ending
        if job.phase == "scheduled" and late:
            yield f"job {job.id} is to begin, and the deadline of the run has passed"
    idle = not state.tokens and not state.jobs and not state.queued_for_place
    if state.run and not state.finished and idle:
        yield "nothing is left to do and the run has not ended"


def _limits(state: State) -> Iterator[str]:
    """Nothing of a run begins before it is admitted."""
    if state.queued_for_place and not state.limits:
        yield "it waits for a place under no limit"
    if state.queued_for_place and (state.counts.created or state.jobs):
        yield "it waits for a place and has begun"


def _counters(state: State) -> Iterator[str]:
    """Counters equal the recount."""
    counts = state.counts
    if counts.created != counts.finished + len(state.tokens):
        live = len(state.tokens)
        yield f"{counts.created} tokens created, {counts.finished} finished, {live} live"
    if counts.created != sum(tally.runs for tally in state.steps.values()):
        yield "the steps' runs do not add up to the tokens created"
    for name, tally in state.steps.items():
        if tally.runs != tally.dropped + len(tally.statuses):
            yield f"the runs of step {name} are not those that are listed and dropped"
        if tally.dropped:
            older = sum(t.step == name and t.ordinal < tally.dropped for t in state.tokens.values())
            if tally.dropped != older + sum(tally.earlier.values()):
                yield f"the earlier runs of step {name} are miscounted"
    phases: dict[str, int] = {}
    live_in: dict[int, dict[str, int]] = {}
    for token in state.tokens.values():
        phases[token.phase] = phases.get(token.phase, 0) + 1
        there = live_in.setdefault(token.scope, {})
        there[token.step] = there.get(token.step, 0) + 1
    for scope in state.scopes.values():
        if live_in.get(scope.id, {}) != scope.live:
            yield f"scope {scope.id} miscounts its live members"
        if not scope.members.keys() <= state.tokens.keys():
            yield f"scope {scope.id} lists a member that is gone"
    if phases != {phase: count for phase, count in state.phases.items() if count}:
        yield f"tokens are counted as {state.phases} and are {phases}"
    if phases.get("queued", 0) != len(state.queued):
        yield f"queued tokens are listed as {list(state.queued)}"
    if phases.get("held", 0) != len(state.held) or not state.held.keys() <= state.tokens.keys():
        yield f"held tokens are listed as {list(state.held)}"
    yield from _job_counters(state)


def _job_counters(state: State) -> Iterator[str]:
    busy, jobs_of = 0, dict[int, int]()
    for job in state.jobs.values():
        busy += job.phase != "parked"
        jobs_of[job.token] = jobs_of.get(job.token, 0) + 1
    if state.busy != busy:
        yield f"{state.busy} jobs are counted as busy and {busy} are"
    for token in state.tokens.values():
        if token.jobs != jobs_of.get(token.id, 0):
            yield f"token {token.id} counts {token.jobs} jobs and has {jobs_of.get(token.id, 0)}"


def _references(state: State) -> Iterator[str]:
    """Whatever points at something points at something that is there."""
    for token in state.tokens.values():
        if token.scope not in state.scopes:
            yield f"token {token.id} is in scope {token.scope}, which is gone"
        elif token.id not in state.scopes[token.scope].members:
            yield f"token {token.id} is not a member of its scope {token.scope}"
        if token.gather and token.gather not in state.gathers:
            yield f"token {token.id} waits for gather {token.gather}, which is gone"
        tally = state.steps[token.step]
        at = token.ordinal - tally.dropped
        if at >= 0 and tally.statuses[at] != token.phase:
            yield f"token {token.id} is {token.phase} and listed otherwise"
    for gate in state.gates.values():
        if gate.token not in state.tokens or state.tokens[gate.token].phase != "deciding":
            yield f"gate {gate.id} is open for a token that does not wait at it"
    for scope in state.scopes.values():
        for step, barrier in scope.barriers.items():
            if barrier not in state.tokens or state.tokens[barrier].phase != "joining":
                yield f"no gather is open at the barrier {step} of scope {scope.id}"
    for job in state.jobs.values():
        if job.token not in state.tokens and not _may_outlive_its_token(state, job):
            yield f"job {job.id} is {job.phase} for a token that is gone"


def _may_outlive_its_token(state: State, job: Job) -> bool:
    """Told to stop, or a loser of a fan that drains."""
    if job.phase in ("running", "parked"):
        record = state.joins.get(job.gather)
        return job.slot >= 0 and record is not None and record.verdict != "open"
    return job.phase in ("cancelling", "answered")


def _gathers(state: State) -> Iterator[str]:
    """A gather has what its verdict says, at most one delivery a slot and a producer."""
    settled = sum(r.kind == "join" and r.verdict != "open" for r in state.joins.values())
    if settled != state.joins_settled:
        yield f"{settled} joins have settled and {state.joins_settled} are counted"
    for gather in state.gathers.values():
        producers = [d.producer for d in gather.filled.values()]
        if gather.kind != "barrier" and len(set(producers)) != len(producers):
            yield f"gather {gather.id} took two deliveries from one producer"
        if gather.filled.keys() & gather.lost.keys():
            yield f"gather {gather.id} has a slot both filled and lost"
        if gather.verdict == "closed":
            yield from _closed(gather)


def _closed(gather: Gather) -> Iterator[str]:
    if not set(gather.selected) <= gather.filled.keys():
        yield f"gather {gather.id} selected a slot that was not delivered"
    enough = needed(gather) if gather.kind != "barrier" and gather.labels else 0
    if gather.rule.mode == "best_of" and enough:
        if len(gather.filled) < enough:
            yield f"gather {gather.id} chose from {len(gather.filled)} of {enough} needed"
        enough = 1
    if gather.rule.partial_on_expiry:
        enough = min(enough, len(gather.selected))
    if gather.rule.mode in ("any", "quorum", "best_of") and len(gather.selected) != enough:
        yield f"gather {gather.id} closed with {len(gather.selected)} of {enough} needed"
    if gather.rule.mode == "all" and len(gather.selected) < enough:
        yield f"gather {gather.id} closed with {len(gather.selected)} of {enough} needed"


def _timers(state: State) -> Iterator[str]:
    """Every timer belongs to something unfinished."""
    for key in state.timers.due:
        kind, _, name = key.partition(":")
        if kind in ("step", "wake"):
            if int(name) not in state.tokens:
                yield f"timer {key} outlived its token"
        elif kind == "signal":
            if name not in state.signals:
                yield f"timer {key} outlived its signal"
        elif kind not in ("deadline", "abandon") and name not in state.jobs:
            yield f"timer {key} outlived its job"


def _signals(state: State) -> Iterator[str]:
    """The waits that are listed are those of jobs, and a signal is kept or gone, not both."""
    listed = {job: name for name, jobs in state.waits.items() for job in jobs}
    waiting = {job.id: job.wait.event for job in state.jobs.values() if job.wait and job.wait.event}
    if listed != waiting:
        yield f"waits for signals are listed as {listed} and are {waiting}"
    for job in state.jobs.values():
        if job.wait is not None and job.phase != "parked":
            yield f"job {job.id} is {job.phase} and waits"
        if job.wait is not None and not job.wait.event and not job.due:
            yield f"job {job.id} waits for a time that never comes"
    if both := state.signals.keys() & state.past_signals.keys():
        yield f"signals are kept and gone: {sorted(both)}"


def _ending(state: State) -> Iterator[str]:
    """A finished run has nothing unfinished."""
    if not state.finished:
        return
    if state.status not in TERMINAL:
        yield f"the run ended as {state.status}, which is no terminal status"
    for what in ("tokens", "jobs", "gathers", "loops", "gates", "signals", "waits"):
        if getattr(state, what):
            yield f"the run has ended and still has {what}: {list(getattr(state, what))}"
    if state.timers.due:
        yield f"the run has ended and still has timers: {list(state.timers.due)}"


class Witness:
    """Watches one run's events and keeps the laws about what may follow what."""

    def __init__(self) -> None:
        self.settled: set[str] = set()
        self.finished_tokens: set[int] = set()
        self.doomed: set[int] = set()
        self.producers: set[tuple[str, str]] = set()
        self.loops: dict[str, Recount] = {}
        self.out: dict[str, int] = {}  # job → the attempt that somebody works on
        self.signals: dict[str, str] = {}  # id → what became of it
        self.waits: dict[str, str] = {}  # job → the signal that it waits for
        self.before_retry: set[tuple[int, str]] = set()  # tokens and jobs that wait for a try
        self.skipped: set[int] = set()
        self.keys: dict[str, str] = {}  # idempotency key → whose it is
        self.finals = 0
        self.ended = ""

    def see(self, event: e.Event) -> None:
        if self.ended:
            raise LawBroken(f"{e.kind_of(event)} was recorded after the run ended {self.ended}")
        self._see_attempt(event)
        self._see_signal(event)
        self._see_by_hand(event)
        match event:
            case e.GatherSettled():
                self._once(event.gather in self.settled, f"gather {event.gather} settled twice")
                self.settled.add(event.gather)
            case e.Delivered() | e.SlotLost():
                self._fills(event)
            case e.TokenDoomed():
                self.doomed.add(event.token)
            case e.ContextPatched():
                by_loser = event.by in {f"token {token}" for token in self.doomed}
                self._once(by_loser, f"killed {event.by} patched the context")
            case e.TokenFinished():
                twice = event.token in self.finished_tokens
                self._once(twice, f"token {event.token} finished twice")
                self.finished_tokens.add(event.token)
            case e.TokenCreated():
                self.finals += event.via == "final"
                self._once(self.finals > 1, "the final step got a second token")
                by_loser = event.parent in self.doomed
                self._once(by_loser, f"killed token {event.parent} made token {event.token}")
            case e.RunFinished():
                self.ended = event.status
            case _:
                self._see_loop(event)

    def _see_attempt(self, event: e.Event) -> None:
        match event:
            case e.JobStarted():
                self.out[event.job] = event.attempt
            case e.JobReported() | e.JobTimedOut() | e.JobLost() | e.JobDischarged():
                self.out.pop(event.job, None)
            case e.JobContinued():  # the attempt to come has not begun
                self.out.pop(event.job, None)
            case e.WorkKeyed():
                other = self.keys.setdefault(event.key, event.work)
                self._once(other != event.work, f"{other} and {event.work} have one key")
            case e.JobLate():
                there = self.out.get(event.job) == event.attempt
                self._once(there, f"attempt {event.attempt} of job {event.job} is out, not late")
            case _:
                pass

    def _see_signal(self, event: e.Event) -> None:
        """A signal is taken or expires at most once, and a wait takes one that it waits for."""
        match event:
            case e.SignalReceived():
                twice = not self.signals.get(event.signal, "!").startswith("!")
                self._once(twice, f"signal {event.signal} was received twice")
                self.signals[event.signal] = event.name
            case e.SignalTaken():
                name = self.signals.get(event.signal)
                gone = name is None or name.startswith("!")
                self._once(gone, f"signal {event.signal} was taken, and was not there")
                other = self.waits.pop(event.job, None) != name
                self._once(other, f"job {event.job} took {name}, for which it did not wait")
                self.signals[event.signal] = "!taken"
            case e.SignalExpired():
                gone = self.signals.get(event.signal, "!").startswith("!")
                self._once(gone, f"signal {event.signal} expired, and was not there")
                self.signals[event.signal] = "!expired"
            case e.JobParked() if event.wait is not None and event.wait.event:
                twice = event.job in self.waits
                self._once(twice, f"job {event.job} began a wait inside a wait")
                self.waits[event.job] = event.wait.event
            case e.JobReported() | e.JobContinued() | e.JobCancelling() | e.JobDischarged():
                self.waits.pop(event.job, None)
            case _:
                pass

    def _see_by_hand(self, event: e.Event) -> None:
        """A retry is brought forward only where one waits; a skipped step run ends as that."""
        match event:
            case e.JobRetrying():
                self.before_retry.add((token_of(event.job), event.job))
            case e.TokenRetrying():
                self.before_retry.add((event.token, ""))
            case e.JobScheduled() | e.JobStarted() | e.JobDischarged():
                self._goes_on(event)
            case e.TokenWoken():
                self.before_retry.discard((event.token, ""))
            case e.TokenRetriedNow():
                waits = any(token == event.token for token, _ in self.before_retry)
                self._once(not waits, f"token {event.token} was retried and waited for no retry")
            case e.TokenSkipped():
                twice = event.token in self.skipped | self.doomed
                self._once(twice, f"token {event.token} was skipped when it was over")
                self.skipped.add(event.token)
            case e.TokenFinished() if event.token in self.skipped:
                worked = event.ending in ("aborted", "discarded") or event.end == "killed"
                self._once(worked, f"skipped token {event.token} ended {event.ending}")
            case _:
                pass

    def _goes_on(self, event: e.JobScheduled | e.JobStarted | e.JobDischarged) -> None:
        token = token_of(event.job)
        self.before_retry.discard((token, event.job))
        worked = token in self.skipped and not isinstance(event, e.JobDischarged)
        self._once(worked, f"skipped token {token} went on to work")

    def _see_loop(self, event: e.Event) -> None:
        match event:
            case e.LoopOpened():
                twice = event.loop in self.loops
                self._once(twice, f"loop {event.loop} was opened twice")
                self.loops[event.loop] = Recount(event)
            case e.ShardScheduled():
                self.loops[f"l{event.token}"].scheduled(event)
            case e.JobReported():
                loop = self.loops.get(f"l{event.job.partition('.')[0]}")
                if loop is not None:
                    loop.reported(event)
            case e.ShardClosed():
                self.loops[event.loop].closed(event)
            case e.LoopSettled():
                self.loops[event.loop].settles()
            case _:
                pass

    def agrees(self, state: State) -> None:
        """What was counted by hand is what the state says."""
        for loop in self.loops.values():
            loop.agrees(state)
        left = self.skipped - self.finished_tokens
        self._once(bool(left), f"skipped tokens have not ended: {sorted(left)}")

    def _fills(self, event: e.Delivered | e.SlotLost) -> None:
        late = event.gather in self.settled
        self._once(late, f"gather {event.gather} changed after its verdict")
        source = (event.gather, event.producer)
        twice = source in self.producers and not event.gather.startswith("b")
        self._once(twice, f"gather {event.gather} heard twice from {event.producer}")
        self.producers.add(source)
        by_loser = event.producer.isdecimal() and int(event.producer) in self.doomed
        self._once(by_loser, f"killed token {event.producer} filled a slot of {event.gather}")

    @staticmethod
    def _once(broken: bool, what: str) -> None:
        if broken:
            raise LawBroken(what)


def check_replay(history: Iterable[tuple[int, e.Event]], live: State) -> None:
    """Replaying the log gives the live state, to the byte."""
    again = replay(history)
    if encode_state(again) != encode_state(live):
        raise LawBroken(f"replaying the log of run {live.run} does not give the live state")

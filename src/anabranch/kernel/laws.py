"""The laws of the kernel, as code.

`check(state)` looks at a state and raises `LawBroken` with everything that does not hold. It is
called after every event in tests and simulation. `Witness` adds the laws that speak about change:
it is shown every event as it is recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from anabranch.errors import LawBroken
from anabranch.kernel import events as e
from anabranch.kernel.gather import needed
from anabranch.kernel.replay import replay
from anabranch.kernel.state import Gather, State, encode_state
from anabranch.kernel.values import TERMINAL


def check(state: State) -> None:
    """Raise if the state breaks a law."""
    broken = [*_counters(state), *_references(state), *_gathers(state), *_timers(state)]
    broken += _ending(state)
    if broken:
        raise LawBroken(f"run {state.run} at event {state.seq}: " + "; ".join(broken))


def _counters(state: State) -> Iterator[str]:
    """Counters equal the recount."""
    counts = state.counts
    if counts.created != counts.finished + len(state.tokens):
        live = len(state.tokens)
        yield f"{counts.created} tokens created, {counts.finished} finished, {live} live"
    if counts.created != sum(tally.runs for tally in state.steps.values()):
        yield "the steps' runs do not add up to the tokens created"
    for scope in state.scopes.values():
        members = [state.tokens[m] for m in scope.members if m in state.tokens]
        if len(members) != len(scope.members):
            yield f"scope {scope.id} lists a member that is gone"
        if Counter(token.step for token in members) != Counter(scope.live):
            yield f"scope {scope.id} miscounts its live members"
    jobs = Counter(job.token for job in state.jobs.values())
    for token in state.tokens.values():
        if token.jobs != jobs[token.id]:
            yield f"token {token.id} counts {token.jobs} jobs and has {jobs[token.id]}"


def _references(state: State) -> Iterator[str]:
    """Whatever points at something points at something that is there."""
    for token in state.tokens.values():
        if token.scope not in state.scopes:
            yield f"token {token.id} is in scope {token.scope}, which is gone"
        elif token.id not in state.scopes[token.scope].members:
            yield f"token {token.id} is not a member of its scope {token.scope}"
        if token.gather and token.gather not in state.gathers:
            yield f"token {token.id} waits for gather {token.gather}, which is gone"
        if token.phase in ("ready", "running") and not token.jobs and not token.gather:
            yield f"token {token.id} is {token.phase} and has no job"
        if state.steps[token.step].statuses[token.ordinal] != token.phase:
            yield f"token {token.id} is {token.phase} and listed otherwise"
    for gate in state.gates.values():
        if gate.token not in state.tokens or state.tokens[gate.token].phase != "deciding":
            yield f"gate {gate.id} is open for a token that does not wait at it"
    for job in state.jobs.values():
        if job.token not in state.tokens and job.phase not in ("cancelling", "answered"):
            yield f"job {job.id} is {job.phase} for a token that is gone"


def _gathers(state: State) -> Iterator[str]:
    """A gather has what its verdict says, at most one delivery a slot and a producer."""
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
    enough = needed(gather) if gather.kind != "barrier" else 0
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
        elif kind != "deadline" and name not in state.jobs:
            yield f"timer {key} outlived its job"


def _ending(state: State) -> Iterator[str]:
    """A finished run has nothing unfinished."""
    if not state.finished:
        return
    if state.status not in TERMINAL:
        yield f"the run ended as {state.status}, which is no terminal status"
    for what in ("tokens", "jobs", "gathers", "gates", "barriers"):
        if getattr(state, what):
            yield f"the run has ended and still has {what}: {list(getattr(state, what))}"
    if state.timers.due:
        yield f"the run has ended and still has timers: {list(state.timers.due)}"


class Witness:
    """Watches one run's events and keeps the laws about what may follow what."""

    def __init__(self) -> None:
        self.settled: set[str] = set()
        self.finished_tokens: set[int] = set()
        self.finals = 0
        self.ended = ""

    def see(self, event: e.Event) -> None:
        if self.ended:
            raise LawBroken(f"{e.kind_of(event)} was recorded after the run ended {self.ended}")
        match event:
            case e.GatherSettled():
                self._once(event.gather in self.settled, f"gather {event.gather} settled twice")
                self.settled.add(event.gather)
            case e.Delivered() | e.SlotLost():
                late = event.gather in self.settled
                self._once(late, f"gather {event.gather} changed after its verdict")
            case e.TokenFinished():
                twice = event.token in self.finished_tokens
                self._once(twice, f"token {event.token} finished twice")
                self.finished_tokens.add(event.token)
            case e.TokenCreated(via="final"):
                self.finals += 1
                self._once(self.finals > 1, "the final step got a second token")
            case e.RunFinished():
                self.ended = event.status
            case _:
                pass

    @staticmethod
    def _once(broken: bool, what: str) -> None:
        if broken:
            raise LawBroken(what)


def check_replay(history: Iterable[tuple[int, e.Event]], live: State) -> None:
    """Replaying the log gives the live state, to the byte."""
    again = replay(history)
    if encode_state(again) != encode_state(live):
        raise LawBroken(f"replaying the log of run {live.run} does not give the live state")

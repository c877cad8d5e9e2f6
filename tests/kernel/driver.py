"""Drives one run by hand and looks at everything after every event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from anabranch.errors import AnabranchError, InputError, Refused
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.evolve import evolve
from anabranch.kernel.laws import Witness, check, check_replay, check_rest
from anabranch.kernel.quiescence import result_of, status_of
from anabranch.kernel.state import Gather, Job, State, Token, decode_state, encode_state
from anabranch.kernel.step import step
from anabranch.kernel.timing import next_wake
from anabranch.kernel.values import Answer, ContextPatch, failed, succeeded
from anabranch.net.net import Net


class Run:
    """A started run.

    Each stimulus is given to the live state and to a twin that has just come back from a
    snapshot: both must record the same. The events then take the way through the log, one at a
    time, into a third state on which the laws are checked after every event.
    """

    def __init__(self, net: Net, at: int = 1_000, *, begin: bool = True, **start: Any) -> None:
        self.net = net
        self.at = at
        self.state = State()
        self.history: list[tuple[int, e.Event]] = []
        self._replayed = State()
        self._witness = Witness()
        if begin:
            self.send(s.Start(run="run", **start))

    # -- in ------------------------------------------------------------------------------------

    def send(self, stimulus: s.Stimulus, at: int | None = None) -> list[e.Event]:
        self.at = self.at if at is None else at
        twin = decode_state(encode_state(self.state))
        events = step(self.net, self.state, stimulus, self.at)
        assert step(self.net, twin, stimulus, self.at) == events, "a snapshot goes on differently"
        row = e.encode_events(events)
        assert e.encode_events(e.decode_events(row)) == row
        for event in e.decode_events(row):
            evolve(self._replayed, event, self.at)
            self.history.append((self.at, event))
            check(self._replayed)
            self._witness.see(event)
        check_rest(self.state)
        assert encode_state(self._replayed) == encode_state(self.state)
        assert encode_state(twin) == encode_state(self.state)
        self._check_clock()
        if self.state.finished:
            check_replay(self.history, self.state)
        return events

    def _check_clock(self) -> None:
        due = self.state.timers.due
        if self.state.paused:
            due = {k: at for k, at in due.items() if not k.startswith(("wake:", "retry:"))}
        assert next_wake(self.state) == min(due.values(), default=None)

    def refuses(
        self, stimulus: s.Stimulus, code: str = "", at: int | None = None
    ) -> AnabranchError:
        """The stimulus is refused, with that code, and nothing changed."""
        before = encode_state(self.state)
        with pytest.raises((Refused, InputError)) as caught:
            step(self.net, self.state, stimulus, self.at if at is None else at)
        assert encode_state(self.state) == before
        assert not code or caught.value.code == code
        assert caught.value.message
        return caught.value

    def tick(self, at: int) -> list[e.Event]:
        return self.send(s.Tick(), at)

    def next_wake(self) -> int | None:
        return next_wake(self.state)

    # -- jobs, named by their step ---------------------------------------------------------------

    def job(self, step_name: str, nth: int = 0) -> Job:
        """The open job (of the nth token) at that step, or the one with that id."""
        if step_name in self.state.jobs:
            return self.state.jobs[step_name]
        return [job for job in self.state.jobs.values() if job.step == step_name][nth]

    def begin(self, step_name: str, nth: int = 0, **more: Any) -> Job:
        job = self.job(step_name, nth)
        self.send(s.JobStart(job.id, job.attempt, more.pop("worker", "worker"), **more))
        return self.state.jobs[job.id]

    def answer(self, step_name: str, answer: Answer, nth: int = 0) -> list[e.Event]:
        """Start the job if nobody has, and report."""
        job = self.job(step_name, nth)
        if job.phase == "scheduled":
            self.send(s.JobStart(job.id, job.attempt, "worker"))
        return self.send(s.JobReport(job.id, job.attempt, answer))

    def done(self, step_name: str, result: Any = None, nth: int = 0, **more: Any) -> list[e.Event]:
        return self.answer(step_name, succeeded(result, **more), nth)

    def valid(self, step_name: str, nth: int = 0, **payload: Any) -> list[e.Event]:
        return self.done(step_name, payload, nth, outcome="valid")

    def invalid(self, step_name: str, nth: int = 0, **payload: Any) -> list[e.Event]:
        return self.done(step_name, payload, nth, outcome="invalid")

    def fails(self, step_name: str, kind: str = "boom", nth: int = 0, **more: Any) -> list[e.Event]:
        return self.answer(step_name, failed(kind, f"{step_name} went wrong", **more), nth)

    def park(self, step_name: str, ticket: str = "ticket", nth: int = 0, until: int = 0) -> Job:
        job = self.begin(step_name, nth)
        self.send(s.JobPark(job.id, job.attempt, ticket, until))
        return self.state.jobs[job.id]

    def discharge(self, job: str) -> list[e.Event]:
        return self.send(s.JobDischarge(job))

    def patch(self, **values: Any) -> list[e.Event]:
        patches = tuple(ContextPatch(key, value) for key, value in values.items())
        return self.send(s.PatchContext(patches, "tester"))

    # -- out ---------------------------------------------------------------------------------

    @property
    def status(self) -> str:
        return status_of(self.state)

    @property
    def result(self) -> Any:
        return result_of(self.state)

    def statuses(self, step_name: str) -> list[str]:
        tally = self.state.steps.get(step_name)
        return list(tally.statuses) if tally is not None else []

    def token(self, step_name: str, nth: int = 0) -> Token:
        return [token for token in self.state.tokens.values() if token.step == step_name][nth]

    def gather(self, step_name: str) -> Gather:
        return self.state.gathers[self.token(step_name).gather]

    def verdict(self, target: str, nth: int = -1) -> tuple[str, list[str], int]:
        """(verdict, selected, late) of the gather at that step."""
        record = [record for record in self.state.joins.values() if record.target == target][nth]
        return record.verdict, record.selected, record.late

    def kinds(self, since: int = 0) -> list[str]:
        return [e.kind_of(event) for _, event in self.history[since:]]

    def of_kind(self, kind: type[Any]) -> list[Any]:
        return [event for _, event in self.history if isinstance(event, kind)]


def kinds(events: Sequence[e.Event]) -> list[str]:
    return [e.kind_of(event) for event in events]

"""Dispatch records: one for every request to a participant, read from the log of a run.

They are what the log says, put together: who was asked when, and what became of it. Each has its
place in the commit log, `state/workflow-dispatch/<dispatch_id>`. The raw response is in the record
and in nothing that is made from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from anabranch.ids import dispatch_id
from anabranch.kernel import events as e
from anabranch.kernel.values import Answer
from anabranch.literals import DispatchStatus
from anabranch.net.net import Net
from anabranch.work.participants.performers import (
    NOT_ORDERED,
    ORDER_EXPIRED,
    UNREACHABLE,
    rfc3339,
)

PLACE = "state/workflow-dispatch/"
ASKING = frozenset({"dispatch", "request"})  # the kinds of work that ask a participant
TIME_IS_UP = "time is up"
TAKEN_OVER = "taken over from the run that this one redrives"
#: Faults of a request that nobody received, and of one that was never answered.
_NEVER_SENT = frozenset({UNREACHABLE, "expression", "config", "no_means", NOT_ORDERED})


class WorkflowStepDispatch(msgspec.Struct, kw_only=True):
    dispatch_id: str
    run_id: str
    step_id: str
    target: str
    dispatched_at: str
    status: DispatchStatus = "pending"
    response: Any = None
    responded_at: str | None = None


class Dispatch(msgspec.Struct):
    """A record, and what an inspection wants to know besides."""

    record: WorkflowStepDispatch
    job: str
    gather: str
    attempt: int
    outcome: str = ""  # usable, negative, unreachable
    reason: str = ""  # why an answer that says yes cannot be used, or why none was asked for
    selected: bool = False
    score: float | None = None
    late_at: str | None = None  # an answer that came when nobody needed it any more

    @property
    def place(self) -> str:
        return PLACE + self.record.dispatch_id

    def inspection(self) -> dict[str, Any]:
        """Everything but the response."""
        fields: dict[str, Any] = msgspec.to_builtins(self.record)
        del fields["response"]
        more = {"attempt": self.attempt, "outcome": self.outcome, "selected": self.selected}
        if self.reason:
            more["reason"] = self.reason
        if self.score is not None:
            more["score"] = self.score
        if self.late_at is not None:
            more["late_response_at"] = self.late_at
        return fields | more


class _Asked(msgspec.Struct):
    """A job that asks: its slot, and its request that is out."""

    step: str
    gather: str
    target: str
    slot: int
    token: int
    before: int = 0  # attempts of earlier rounds
    tries: int = 1
    now: Dispatch | None = None


class _Gather(msgspec.Struct):
    step: str
    labels: tuple[str, ...]
    before: int = 0
    jobs: dict[int, str] = {}


class _Walk:
    """Goes through the events of a run once."""

    def __init__(self, net: Net, run: str) -> None:
        self._net = net
        self._run = run
        self._steps: dict[int, str] = {}  # token → step
        self._gathers: dict[str, _Gather] = {}
        self._open: dict[int, str] = {}  # token → its gather
        self._attempts: dict[int, int] = {}  # token → how often somebody was asked for it
        self._jobs: dict[str, _Asked] = {}
        self.found: list[Dispatch] = []

    def see(self, at: int, event: e.Event) -> None:
        match event:
            case e.TokenCreated():
                self._steps[event.token] = event.step
            case e.GatherOpened(kind="fan") if self._asks(self._steps[event.token]):
                step = self._steps[event.token]
                before = self._attempts.get(event.token, 0)
                self._gathers[event.gather] = _Gather(step, tuple(event.labels), before)
                self._open[event.token] = event.gather
            case e.JobScheduled() | e.JobReused() if event.slot >= 0:
                self._scheduled(at, event)
            case e.JobStarted():
                self._started(at, event.job)
            case e.JobReported():
                self._reported(at, event.job, event.answer)
            case e.JobTimedOut():
                self._ended(event.job, "timeout")
                self._again(event.job)
            case e.JobDischarged():
                self._ended(event.job, "cancelled")
            case e.Delivered() | e.SlotLost():
                self._weighed(event)
            case e.GatherSettled():
                self._settled(event)
            case _:
                pass

    def _asks(self, step: str) -> bool:
        work = self._net.steps[step].work if step in self._net.steps else None
        return work is not None and work.kind in ASKING

    def _scheduled(self, at: int, event: e.JobScheduled | e.JobReused) -> None:
        gather = self._gathers.get(self._open.get(event.token, ""))
        if gather is None or event.job in self._jobs:
            return
        name = self._open[event.token]
        target = gather.labels[event.slot]
        asked = _Asked(gather.step, name, target, event.slot, event.token, gather.before)
        self._jobs[event.job] = asked
        gather.jobs[event.slot] = event.job
        if isinstance(event, e.JobReused):
            self._started(at, event.job)
            self._reported(at, event.job, event.answer)
            if asked.now is not None:
                asked.now.reason = TAKEN_OVER

    def _started(self, at: int, job: str) -> None:
        asked = self._jobs.get(job)
        if asked is None or asked.now is not None:
            return  # lost and sent again: the same request
        record = WorkflowStepDispatch(
            dispatch_id=dispatch_id(self._run, job, asked.tries),
            run_id=self._run,
            step_id=asked.step,
            target=asked.target,
            dispatched_at=rfc3339(at),
        )
        attempt = asked.before + asked.tries
        self._attempts[asked.token] = max(attempt, self._attempts.get(asked.token, 0))
        asked.now = Dispatch(record, job, asked.gather, attempt)
        self.found.append(asked.now)

    def _reported(self, at: int, job: str, answer: Answer) -> None:
        dispatch = self._jobs[job].now if job in self._jobs else None
        if dispatch is None:
            return
        if dispatch.record.status != "pending":
            dispatch.late_at = rfc3339(at)
            return
        if answer.fault is not None and answer.fault.kind in _NEVER_SENT:
            dispatch.record.status = "cancelled"
            dispatch.outcome = "unreachable" if answer.fault.kind == UNREACHABLE else ""
            dispatch.reason = answer.fault.message
        elif answer.fault is not None and answer.fault.kind == ORDER_EXPIRED:
            dispatch.record.status = "timeout"
        else:
            dispatch.record.status = "responded"
            dispatch.record.responded_at = rfc3339(at)
            usable = answer.status == "ok" and answer.outcome != "negative"
            dispatch.outcome = "usable" if usable else "negative"
            details = answer.fault.details if answer.fault is not None else None
            dispatch.record.response = answer.result if answer.status == "ok" else details
        if answer.status == "error":
            self._again(job)

    def _again(self, job: str) -> None:
        """The next execution is another request."""
        asked = self._jobs.get(job)
        if asked is not None and asked.now is not None:
            asked.tries += 1
            asked.now = None

    def _ended(self, job: str, status: DispatchStatus) -> None:
        dispatch = self._jobs[job].now if job in self._jobs else None
        if dispatch is not None and dispatch.record.status == "pending":
            dispatch.record.status = status

    def _weighed(self, event: e.Delivered | e.SlotLost) -> None:
        dispatch = self._jobs[event.producer].now if event.producer in self._jobs else None
        if dispatch is None:
            return
        if isinstance(event, e.Delivered):
            dispatch.score = event.score
        elif event.reason == "no score" or event.reason.startswith("score "):
            dispatch.outcome, dispatch.reason = "negative", event.reason

    def _settled(self, event: e.GatherSettled) -> None:
        gather = self._gathers.get(event.gather)
        if gather is None:
            return
        timed_out = event.verdict == "expired" or event.reason == TIME_IS_UP
        for slot, job in gather.jobs.items():
            self._ended(job, "timeout" if timed_out else "cancelled")
            dispatch = self._jobs[job].now
            if dispatch is not None:
                dispatch.selected = slot in event.selected


def dispatches_of(net: Net, run: str, history: Iterable[tuple[int, e.Event]]) -> list[Dispatch]:
    """Every request that the run made, in the order in which they went out."""
    walk = _Walk(net, run)
    for at, event in history:
        walk.see(at, event)
    return walk.found


def by_step(dispatches: Iterable[Dispatch]) -> Mapping[str, list[Dispatch]]:
    found: dict[str, list[Dispatch]] = {}
    for dispatch in dispatches:
        found.setdefault(dispatch.record.step_id, []).append(dispatch)
    return found

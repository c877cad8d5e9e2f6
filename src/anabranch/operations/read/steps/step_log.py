"""The runs of one step, read from the log of its run: attempts, answers, faults, decisions.

Only events about this step are decoded: of a log with very many others, such as the shards of a
loop, the rest is passed over by its first bytes. Of very many runs or attempts the last are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from anabranch.kernel import events as e
from anabranch.kernel.jobs import token_of
from anabranch.kernel.step_status import ended_word
from anabranch.kernel.values import Answer, Fault
from anabranch.store.ports import Journal

RUNS_KEPT = 100
ATTEMPTS_KEPT = 50
ROWS_AT_ONCE = 256
UNNAMED = "an unnamed caller"
_DISCHARGED = {"abandoned": "abandoned", "put_back": "put back"}


class Attempt(msgspec.Struct):
    """One try of one job: when it could begin, when it did, who had it, what it came to."""

    job: str
    number: int
    whom: str  # of a step that asks several: which of them
    queued: int
    seq: int  # the event that says so
    started: int = 0
    ended: int = 0
    status: str = "queued"
    worker: str = ""
    note: str = ""
    fault: Fault | None = None
    answer: Answer | None = None
    next_at: int = 0  # when it is tried again
    begun_seq: int = 0  # the event with which it began: its input was rendered then


class StepRun(msgspec.Struct):
    """One run of the step."""

    token: int
    nth: int  # from 1
    created: int
    came_from: str  # the step before it, or how it came to be
    ended: int = 0
    status: str = "running"
    fault: Fault | None = None
    result: Any = None
    has_result: bool = False
    attempts: list[Attempt] = []
    dropped: int = 0
    said: list[tuple[int, str]] = []  # what people did here: when, and in words
    loop: str = ""
    labels: list[str] = []  # whom its jobs ask

    def add(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)
        if len(self.attempts) > ATTEMPTS_KEPT:
            del self.attempts[0]
            self.dropped += 1

    def last(self, job: str) -> Attempt | None:
        return next((one for one in reversed(self.attempts) if one.job == job), None)


_split = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode = msgspec.json.Decoder(e.Event).decode


class StepLog:
    def __init__(self, step: str) -> None:
        self.step = step
        self.runs: OrderedDict[int, StepRun] = OrderedDict()
        self.total = 0
        self._mine: set[bytes] = set()  # tokens, as they are written
        self._looping: set[bytes] = set()  # those whose jobs are shards
        self._steps: dict[int, str] = {}  # the steps of other tokens, while they may be parents
        self._gates: dict[str, int] = {}
        self._seq = 0

    def read(self, log: Journal, run: str) -> StepLog:
        while True:
            rows = log.read(run, self._seq, ROWS_AT_ONCE)
            for row in rows:
                for raw in _split(row.events):
                    self._seq += 1
                    text = bytes(raw)
                    if self._concerns(text):
                        self._see(row.at, _decode(text))
            if len(rows) < ROWS_AT_ONCE:
                return self

    def _concerns(self, text: bytes) -> bool:
        kind, _, rest = text[2:].partition(b'"')
        if kind == b"token.created":
            return True
        if kind.startswith(b"job."):
            token = rest.split(b'"', 2)[1].partition(b".")[0].partition(b"r")[0]
            return token in self._mine and token not in self._looping
        if kind.startswith((b"token.", b"task.")):
            return rest[1:].partition(b",")[0].partition(b"]")[0] in self._mine
        return kind.startswith((b"gate.", b"gather.opened", b"loop.opened", b"loop.settled"))

    def _see(self, at: int, event: e.Event) -> None:
        match event:
            case e.TokenCreated():
                self._created(at, event)
            case e.GateOpened() | e.GateDecided() | e.GateAskedAgain():
                self._gate(at, event)
            case e.GatherOpened() | e.LoopOpened():
                self._opened(event)
            case e.LoopSettled():
                for looping in self.runs.values():
                    if looping.loop == event.loop:
                        looping.said.append((at, f"its loop is {event.status}"))
            case _ if hasattr(event, "job"):
                self._job(at, event)
            case _ if (one := self.runs.get(getattr(event, "token", 0))) is not None:
                self._token(at, event, one)

    # -- step runs ---------------------------------------------------------------------------

    def _created(self, at: int, event: e.TokenCreated) -> None:
        if event.step != self.step:
            self._steps[event.token] = event.step
            return
        self._steps[event.token] = event.step
        self.total += 1
        before = self._steps.get(event.parent, "")
        came = before if event.via == "arc" and before else event.via
        self.runs[event.token] = StepRun(event.token, self.total, at, came)
        self._mine.add(str(event.token).encode())
        if len(self.runs) > RUNS_KEPT:
            gone, _ = self.runs.popitem(last=False)
            self._mine.discard(str(gone).encode())

    def _opened(self, event: e.GatherOpened | e.LoopOpened) -> None:
        one = self.runs.get(event.token)
        if one is None:
            return
        if isinstance(event, e.LoopOpened):
            one.loop = event.loop
            # Its jobs are shards, of which there may be very many: the page of the loop has them.
            self._looping.add(str(event.token).encode())
        else:
            one.labels = list(event.labels)

    def _token(self, at: int, event: e.Event, one: StepRun) -> None:
        match event:
            case e.TokenFinished():
                answer = one.attempts[-1].answer if one.attempts else None
                by_error = answer.by_error if answer is not None else ""
                one.ended, one.fault = at, event.fault
                one.status = ended_word(event.ending, event.outcome, by_error)
            case e.TokenSkipped():
                who = event.actor or UNNAMED
                given = " with a result" if event.answered else ""
                one.said.append((at, _because(f"skipped{given} by {who}", event.reason)))
                one.result, one.has_result = event.result, event.answered
            case e.TokenRetriedNow():
                who = event.actor or UNNAMED
                one.said.append((at, _because(f"retried now by {who}", event.reason)))
            case e.TokenHeld():
                one.said.append((at, event.reason or "held by admission"))
            case e.TokenAdmitted():
                one.said.append((at, f"let in by {event.by}"))
            case e.TokenSlept():
                one.said.append((at, "fell asleep until its wake time"))
            case e.TokenWoken():
                one.said.append((at, f"woken by {event.by}"))
            case e.TokenRetrying():
                one.said.append((at, _because("the step starts over", event.reason)))
            case e.TaskJudged():
                word = "fulfilled" if event.fulfilled else "not fulfilled"
                by = f" by {event.actor}" if event.actor else ""
                one.said.append((at, _because(f"judged {word}{by}", event.reason)))
            case e.TokenDoomed():
                one.said.append((at, _because("told to stop", event.reason)))
            case _:
                pass

    def _gate(self, at: int, event: e.GateOpened | e.GateDecided | e.GateAskedAgain) -> None:
        if isinstance(event, e.GateOpened):
            self._gates[event.gate] = event.token
        one = self.runs.get(self._gates.get(event.gate, 0))
        if one is None:
            return
        match event:
            case e.GateOpened():
                one.said.append((at, _because("a decision is asked for", event.ask)))
            case e.GateDecided():
                who = event.actor or UNNAMED
                one.said.append((at, _because(f"{event.verdict} by {who}", event.reason)))
            case e.GateAskedAgain():
                one.said.append((at, f"its source is asked again by {event.actor or UNNAMED}"))

    # -- attempts ----------------------------------------------------------------------------

    def _job(self, at: int, event: Any) -> None:
        one = self.runs.get(token_of(event.job))
        if one is None:
            return
        if isinstance(event, e.JobScheduled | e.JobContinued):
            slot = event.slot if isinstance(event, e.JobScheduled) else -1
            whom = one.labels[slot] if 0 <= slot < len(one.labels) else ""
            before = one.last(event.job)
            whom = whom or (before.whom if before is not None else "")
            one.add(Attempt(event.job, event.attempt, whom, at, self._seq))
            return
        if isinstance(event, e.JobReused):
            one.add(_reused(event, at, self._seq))
            self._take(one, event.answer)
            return
        attempt = one.last(event.job)
        if attempt is not None:
            _tell(attempt, event, at, self._seq)
            if isinstance(event, e.JobReported):
                self._take(one, event.answer)

    def _take(self, one: StepRun, answer: Answer) -> None:
        """The result of a step with one job is that of the job; a fan has its own."""
        if not one.labels and answer.status == "ok":
            one.result, one.has_result = answer.result, True


def _because(said: str, reason: str) -> str:
    return f"{said}: {reason}" if reason else said


def _reused(event: e.JobReused, at: int, seq: int) -> Attempt:
    note = "taken over from the run that it redrives"
    return Attempt(
        event.job, 1, "", at, seq, at, at, "reused", note=note, answer=event.answer
    )  # fmt: skip


def _ended(attempt: Attempt, at: int, status: str, note: str = "") -> None:
    attempt.ended, attempt.status = at, status
    attempt.note = note or attempt.note


def _tell(attempt: Attempt, event: e.Event, at: int, seq: int) -> None:
    """What an event says of the attempt that is out."""
    match event:
        case e.JobStarted():
            attempt.started, attempt.status, attempt.worker = at, "running", event.worker
            attempt.begun_seq = seq - 1  # the state before it is what the work was told
        case e.JobReported():
            _reported(attempt, event.answer, at)
        case e.JobRetrying():
            attempt.next_at = event.due
        case e.JobParked():
            attempt.status, attempt.note = "parked", event.ticket
        case e.JobTimedOut():
            _ended(attempt, at, "timed out")
        case e.JobLost():
            _ended(attempt, at, "lost", event.reason)
        case e.JobCancelling():
            attempt.status, attempt.note = "stopping", event.reason
        case e.JobDischarged() if not attempt.ended:
            _ended(attempt, at, _DISCHARGED.get(event.how, "stopped"), event.reason)
        case e.JobLate():
            attempt.note = f"attempt {event.attempt} came to its end late, without effect"
        case _:
            pass


def _reported(attempt: Attempt, answer: Answer, at: int) -> None:
    attempt.ended, attempt.answer, attempt.fault = at, answer, answer.fault
    good = ended_word("done", answer.outcome, answer.by_error)
    attempt.status = good if answer.status == "ok" else "failed"
    if answer.later_ms:
        attempt.status = "put off"

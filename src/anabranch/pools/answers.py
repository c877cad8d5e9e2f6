"""What a job came to, in the words of the protocol: a verb and a body.

A worker says them to a server, a process of a compute cluster to the dispatcher of its pool.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from anabranch.errors import InputError
from anabranch.kernel.tracker import ShardReport, TaskRun
from anabranch.kernel.values import Answer, ContextPatch, Fault, Wait
from anabranch.work.port import InlineAnswer, Parked


class JobAnswer(NamedTuple):
    """What a job came to, as it is told: the result may have gone ahead as a payload."""

    answer: Answer | Parked
    payload: str = ""


def worded(said: JobAnswer) -> tuple[str, dict[str, Any]]:
    """The verb and the body that tell of an answer."""
    answer = said.answer
    if isinstance(answer, Parked):
        fields = msgspec.to_builtins(answer)
        return "park", fields
    if answer.status == "ok":
        return "report", {
            "result": answer.result,
            "payload": said.payload,
            "outcome": answer.outcome or "ok",
            "patches": answer.patches,
            "wait_ms": answer.wait_ms,
            "shard": answer.shard,
            "locals": answer.locals,
            "inline": getattr(answer, "inline", False),
            **_more(answer),
        }
    return "fail", _fault(answer)


def _fault(answer: Answer) -> dict[str, Any]:
    fault = answer.fault
    return {
        "message": fault.message if fault is not None else "the work failed and did not say why",
        "kind": fault.kind if fault is not None else "unknown",
        "code": fault.code if fault is not None else "",
        "retryable": fault.retryable if fault is not None else True,
        "details": fault.details if fault is not None else None,
        "status": answer.status,
        "patches": answer.patches,
        "locals": answer.locals,
        **_more(answer),
    }


def _more(answer: Answer) -> dict[str, Any]:
    """What most answers do not have."""
    said: dict[str, Any] = {"redacted": answer.redacted} if answer.redacted else {}
    return {**said, "tasks": answer.tasks} if answer.tasks else said


#: Far more than any job writes, and no more than a server keeps of one.
PARTS_MAX = 100_000
#: An instant or a length in milliseconds: one that a store can hold, and that can be added to
#: another. The kernel bounds timers as well (`kernel.state.LATEST_MS`).
NUMBER_MAX = 2**53
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Count = Annotated[int, msgspec.Meta(le=NUMBER_MAX)]
Patches = Annotated[tuple[ContextPatch, ...], msgspec.Meta(max_length=PARTS_MAX)]
TaskRuns = Annotated[tuple[TaskRun, ...], msgspec.Meta(max_length=PARTS_MAX)]


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ReportBody(_Body, frozen=True):
    """What the work came to. A result that is too large for a body is sent ahead as a payload, and
    `payload` is its hash."""

    result: Any = None
    payload: str = ""
    outcome: str = "ok"
    patches: Patches = ()
    wait_ms: Count = 0
    shard: ShardReport | None = None
    locals: dict[str, Any] = {}
    inline: bool = False  # keep the result in the log, however large
    redacted: Count = 0  # in so many places the worker has put stars for a secret
    tasks: TaskRuns = ()  # the executions of tasks it is made of

    def __post_init__(self) -> None:
        if self.shard is not None and not 0 <= self.shard.milliseconds <= NUMBER_MAX:
            raise ValueError("`shard.milliseconds` is no length of time")

    def answer(self) -> Answer:
        kind = InlineAnswer if self.inline else Answer
        return kind(
            status="ok",
            result=self.result,
            outcome=self.outcome,
            patches=self.patches,
            wait_ms=max(0, self.wait_ms),
            shard=self.shard,
            locals=self.locals,
            redacted=max(0, self.redacted),
            tasks=self.tasks,
        )


class FailBody(_Body, frozen=True):
    """Why there is no result. `retryable` says whether another try may help."""

    message: str
    kind: str = "failed"
    code: str = ""
    retryable: bool = True
    details: Any = None
    status: Literal["error", "aborted", "cancel_run"] = "error"
    patches: Patches = ()
    locals: dict[str, Any] = {}
    redacted: Count = 0
    tasks: TaskRuns = ()

    def answer(self) -> Answer:
        return Answer(
            status=self.status,
            fault=Fault(self.kind, self.message, self.code, self.retryable, self.details),
            outcome="error" if self.status == "error" else "",
            patches=self.patches,
            locals=self.locals,
            redacted=max(0, self.redacted),
            tasks=self.tasks,
        )


class ParkBody(_Body, frozen=True):
    ticket: str
    until: Milliseconds = 0
    limit_ms: Milliseconds = 0
    memory: Any = None
    wait: Wait | None = None

    def answer(self) -> Parked:
        return Parked(self.ticket, self.until, self.memory, self.limit_ms, self.wait)


_BODIES: dict[str, type[ReportBody | FailBody | ParkBody]] = {
    "report": ReportBody,
    "fail": FailBody,
    "park": ParkBody,
}


def heard(verb: str, body: dict[str, Any]) -> JobAnswer:
    """The answer that these words tell of: `worded`, read backwards. Raises `InputError` for words
    that tell of none."""
    kind = _BODIES.get(verb)
    if kind is None:
        raise InputError(f"{verb!r:.40} is no verb of an answer", code="verb")
    try:
        said = msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"the words of `{verb}` cannot be read: {error}", code="words") from None
    return JobAnswer(said.answer(), said.payload if isinstance(said, ReportBody) else "")

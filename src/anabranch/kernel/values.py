"""The small values that stimuli, events and state share."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from anabranch.kernel.tracker import ShardReport, TaskRun
from anabranch.literals import Reducer

#: How a step run ended. `done` and `failed` come from its work, the rest from what happened to it.
Ending = Literal["done", "failed", "aborted", "skipped", "discarded"]
ENDINGS = frozenset(get_args(Ending))


TERMINAL: frozenset[str] = frozenset(
    {"completed", "failed", "partial", "cancelled", "deadline_exceeded", "step_timeout"}
)


#: The kind of a fault that no code foresaw, as opposed to those that work or a definition names.
INTERNAL = "internal"


#: Codes of our own kinds of work as they are recorded; those of parties are left as they are.
_SHOUTED = re.compile(
    "TIMEOUT|STEP_TIMEOUT|CONNECT_TIMEOUT|READ_TIMEOUT|QUEUE_TTL|JOB_LOST|REJECTED|LOOP_FAILED"
    "|SHARD_REPORT|KIND_OFF|CHECKSUM|TOO_MANY_ROWS|TOO_MANY_REDIRECTS|BODY_TOO_LARGE"
    "|ADDRESS_REFUSED|CONN_FAILED|CONN_CLOSED|CONN_REFUSED|BAD_URL|BAD_HTTP|BAD_REQUEST"
)


class Fault(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Why something failed, for machines (`kind`, `code`) and for people (`message`)."""

    kind: str
    message: str
    code: str = ""
    retryable: bool = True
    details: Any = None


#: Codes of faults of the kind `timeout`: the step ran out of time, or whoever decides about it.
STEP_TIMEOUT, DECISION_TIMEOUT = "STEP_TIMEOUT", "DECISION_TIMEOUT"
#: The kind that such faults have in older logs.
OLD_TIMEOUT = "step_timeout"


def is_step_timeout(fault: Fault | None) -> bool:
    if fault is None:
        return False
    own = fault.kind == "timeout" and fault.code in (STEP_TIMEOUT, DECISION_TIMEOUT)
    return own or fault.kind == OLD_TIMEOUT


def code_of(fault: Fault) -> str:
    """What it is called wherever runs are shown: always in small letters.

    Definitions compare `error.code` with the spelling that is recorded, so that one stays.
    """
    code = fault.code or fault.kind
    return code.lower() if _SHOUTED.fullmatch(code) else code


How = Literal[
    "failed",
    "unfinished",
    "items",
    "arc",
    "join",
    "context",
    "result",
    "again",
    "asked",
    "session",
]

_CAUSES: dict[str, str] = {
    "failed": "it did not end well",
    "unfinished": "it did not come to its end",
    "items": "not all of its items were done",
    "again": "it is done again",
    "asked": "it was asked for",
    "session": "it names the session, which is another one now",
    "arc": "it follows {of}, which runs again",
    "join": "it joins what {of} delivers, which runs again",
    "context": "it reads ctx.{of}, which {by} writes",
    "result": "it reads the result of {of}, which runs again",
}


class Cause(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Why something is not as it was."""

    how: How
    of: str = ""  # the step or the key it is about
    by: str = ""  # of a key: the step that writes it, or whoever did

    @property
    def text(self) -> str:
        return _CAUSES[self.how].format(of=self.of, by=self.by or "an unnamed caller")


class ContextPatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One write to the context of the run."""

    key: str
    value: Any
    reducer: Reducer = "set"


class WakeRequest(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a job asks of another run: wake what sleeps at that step, with this payload.

    It is a request. Where it is not allowed, or no process sleeps there, nothing happens.
    """

    run: str
    step: str
    owner: str = ""  # on whose behalf it is asked
    rule: str = ""  # the rule contract that asks
    payload: Mapping[str, Any] = {}
    runner: str | None = None  # whose run is meant; None says nothing about that


class Wait(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a parked job waits for by itself: its time, or a signal."""

    event: str = ""  # the name of the signal; "" is time alone
    task: str = ""  # the task of the step that waits: the net has its filter
    seen: Mapping[str, Any] = {}  # what the filter sees of the job, as it was when the wait began


class KeyLimit(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How many runs that count under this key may be under way at once."""

    key: str
    limit: int
    when_full: Literal["queue", "reject", "cancel_oldest"] = "queue"


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a job reports. Use the constructors below; each names one legal shape."""

    status: Literal["ok", "error", "aborted", "cancel_run"]
    result: Any = None
    fault: Fault | None = None
    outcome: str = ""  # label for branch selection and slots, such as "valid"; "" means ok / error
    patches: tuple[ContextPatch, ...] = ()  # of a failure: what is to be written all the same
    wait_ms: int = 0  # how long the tokens that follow sleep before they run
    shard: ShardReport | None = None  # for the job of a loop's shard: what became of its items
    locals: Mapping[str, Any] = {}  # values of the step run itself, for its patches and routes
    record: Any = None  # a receipt: kept in the log with the report, part of no result
    wakes: tuple[WakeRequest, ...] = ()  # asked of other runs once this answer is durable
    redacted: int = 0  # in so many places of it there are stars in the place of a secret
    #: Of an error: what the work needs is away, so it is tried again after so long. That is no
    #: failure, whatever the retry policy says.
    later_ms: int = 0
    tasks: tuple[TaskRun, ...] = ()  # the executions of the tasks it is made of, in order
    #: Its outcome is a no because of this error, not because of what was looked at.
    by_error: str = ""


def succeeded(
    result: Any = None,
    *,
    outcome: str = "ok",
    patches: tuple[ContextPatch, ...] = (),
    wait_ms: int = 0,
) -> Answer:
    return Answer(status="ok", result=result, outcome=outcome, patches=patches, wait_ms=wait_ms)


def failed(kind: str, message: str, **more: Any) -> Answer:
    """The work ran and did not succeed. `more`: `code`, `retryable`, `details`."""
    return Answer(status="error", fault=Fault(kind=kind, message=message, **more), outcome="error")


def postponed(kind: str, message: str, later_ms: int) -> Answer:
    """The work could not begin, or not go on, for want of something that may be there later."""
    fault = Fault(kind=kind, message=message)
    return Answer(status="error", fault=fault, outcome="error", later_ms=later_ms)


def aborted(kind: str, message: str) -> Answer:
    """The step run ends here: no branch, no delivery."""
    return Answer(status="aborted", fault=Fault(kind=kind, message=message, retryable=False))


def cancels_run(kind: str, message: str) -> Answer:
    """The work asks for the end of the whole run."""
    return Answer(status="cancel_run", fault=Fault(kind=kind, message=message, retryable=False))


def is_number(value: Any) -> bool:
    """A number that can be compared and counted with; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False

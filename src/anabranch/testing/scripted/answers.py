"""What a scripted step answers.

A script says, for each step, one answer or a list of them. An answer is

    ok(value)                 it worked; a plain value such as `{"n": 3}` means the same
    error(kind, message)      it failed; retried if the step says so and the error allows it
    never()                   no answer at all: only a timeout, a kill or a cancel moves the step on
    after(seconds, answer)    any of these, that much virtual time after the job started
    valid(payload)            a rule that holds
    invalid(payload)          a rule that does not
    unreachable()             nobody is there
    negative(reply)           a participant answers, and the answer is no
    aborts(kind, message)     the step run ends here: no branch, no delivery
    hard_error(message)       a rule that cannot be evaluated: the same, for an orchestration
    stubborn(answer)          work that cannot be stopped: it answers even when told to stop
    an exception              what a callable raising it would have answered
    a callable                called with the task when the job runs; gives any of the above
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from anabranch.errors import InputError
from anabranch.kernel.values import Answer, aborted, failed, succeeded
from anabranch.work.faults import raised
from anabranch.work.port import Parked
from anabranch.work.values.json_values import require_json

#: One entry of a script. Anything that is none of the special forms is a plain value.
Scripted = Any


class Never(msgspec.Struct, frozen=True):
    """No answer will come."""


class After(msgspec.Struct, frozen=True):
    """The answer takes that long."""

    seconds: float
    answer: Scripted


class Stubborn(msgspec.Struct, frozen=True):
    """The work does not hear that it should stop."""

    answer: Scripted


def ok(value: Any = None) -> Answer:
    """The work succeeded with this result."""
    return succeeded(require_json(value, "the scripted result", root="value"))


def error(kind: str, message: str = "", *, retryable: bool = True) -> Answer:
    """The work failed. `kind` is what policies look at, `message` is for people."""
    return failed(kind, message or f"scripted error: {kind}", retryable=retryable)


def never() -> Never:
    """The work hangs: no answer comes, however long one waits."""
    return Never()


def after(seconds: float, answer: Scripted = None) -> After:
    """The answer comes that many virtual seconds after the job started."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise InputError(f"after() takes a number of seconds from 0 up, not {seconds!r}")
    return After(seconds, answer)


def valid(payload: Any = None, *, wait: float = 0) -> Answer:
    """The rule of the step holds; the payload goes on to what follows, after `wait` seconds."""
    return _judged("valid", payload, wait)


def invalid(payload: Any = None, *, wait: float = 0) -> Answer:
    """The rule of the step does not hold; the step itself ended well."""
    return _judged("invalid", payload, wait)


def _judged(outcome: str, payload: Any, wait: float) -> Answer:
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not wait >= 0:
        raise InputError(f"wait is a number of seconds from 0 up, not {wait!r}")
    checked = require_json(payload, "the payload", root="payload")
    return succeeded(checked, outcome=outcome, wait_ms=round(wait * 1000))


def hard_error(message: str = "") -> Answer:
    """The rule of the step cannot be evaluated: the process is aborted, the session goes on."""
    return aborted("hard_error", message or "scripted hard error")


def unreachable(message: str = "the participant cannot be reached") -> Answer:
    """The party asked cannot be reached."""
    return failed("unreachable", message)


def negative(reply: Any = None) -> Answer:
    """The party asked says no, with this reply."""
    said = {"status": "no_offer_available"} if reply is None else reply
    return succeeded(require_json(said, "the reply", root="reply"), outcome="negative")


def aborts(kind: str, message: str = "") -> Answer:
    """The step run ends here without a branch and without a delivery."""
    return aborted(kind, message or f"scripted abort: {kind}")


def stubborn(answer: Scripted) -> Stubborn:
    """Work that goes on after it was told to stop, and then reports: too late."""
    return Stubborn(answer)


class Planned(NamedTuple):
    """A script entry worked out for one execution."""

    answer: Answer | None  # None: it never comes
    delay_ms: int = 0
    stubborn: bool = False
    parked: Parked | None = None  # instead: it waits outside, and this `answer` is what will come


def planned(entry: Scripted, asked: Any) -> Planned:
    """What the entry means when `asked` (the task, or the gate) comes up."""
    seconds, deaf = 0.0, False
    while True:
        match entry:
            case After():
                seconds, entry = seconds + entry.seconds, entry.answer
            case Stubborn():
                deaf, entry = True, entry.answer
            case Never():
                return Planned(None, 0, deaf)
            case Answer():
                return Planned(entry, round(seconds * 1000), deaf)
            case BaseException():
                entry = raised(entry, outside=__file__)
            case _ if callable(entry):
                entry = _called(entry, asked)
            case _:
                entry = ok(entry)


def _called(answer: Callable[[Any], Scripted], asked: Any) -> Scripted:
    try:
        return answer(asked)
    except AssertionError:
        raise  # the test speaks, not the work
    except Exception as exception:
        return raised(exception, outside=__file__)

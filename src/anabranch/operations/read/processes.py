"""The processes of a session, read from its log: one for every step run, finished ones included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.kernel import events as e
from anabranch.kernel.jobs import token_of
from anabranch.kernel.step_status import ended_word
from anabranch.kernel.summary import PROCESS
from anabranch.kernel.values import Fault


class Process(msgspec.Struct):
    token: int
    step: str
    parent: int
    scope: int
    updated: int
    status: str = "waiting"
    from_scope: int = 0  # of a join target: the group it takes deliveries from
    outcome: str = ""
    error: Fault | None = None
    receipt: Mapping[str, Any] | None = None
    is_taken_over: bool = False  # from the session that this one redrives
    valid: bool | None = None
    by_error: str = ""

    @property
    def verdict(self) -> str:
        """valid, invalid, invalid by error; nothing where no rule has come to its end."""
        if self.valid is None or self.status != "done":
            return ""
        return ended_word("done", "valid" if self.valid else "invalid", self.by_error)

    @property
    def trouble(self) -> str:
        """Why it was aborted, or why its no comes from an error; "" of any other."""
        if self.status == "aborted" and self.error is not None:
            return self.error.message
        return self.by_error if self.verdict else ""


def pid_of(run: str, token: int) -> str:
    return f"{run}:{token}"


def run_and_token(pid: str) -> tuple[str, int]:
    """`run:7` is process 7 of a session; a bare run id is the session itself (0)."""
    run, colon, number = pid.rpartition(":")
    if not colon:
        return pid, 0
    digits = number.isascii() and number.isdecimal() and len(number) <= 15
    if not run or not digits or not int(number):
        raise InputError(f"{pid!r} is no process id: write RUN:NUMBER", code="pid")
    return run, int(number)


def group_of(scope: int) -> str:
    """Groups are called after the join target they deliver to; the outermost has no name."""
    return f"g{scope}" if scope else ""


def processes(history: Iterable[tuple[int, e.Event]]) -> dict[int, Process]:
    found: dict[int, Process] = {}
    for at, event in history:
        match event:
            case e.TokenCreated():
                found[event.token] = Process(event.token, event.step, event.parent, event.scope, at)
            case e.GatherOpened(kind="join"):
                found[event.token].from_scope = event.token
            case e.JobStarted() | e.JobLost() | e.JobRetrying() | e.JobReported() | e.JobReused():
                _job(found, at, event)
            case e.TokenSlept() | e.TokenWoken() | e.TokenReleased():
                found[event.token].updated = at
            case e.TokenFinished():
                one = found[event.token]
                one.updated, one.outcome, one.error = at, event.outcome, event.fault
                one.status = PROCESS[event.ending]
            case _:
                pass
    return found


def _job(
    found: dict[int, Process],
    at: int,
    event: e.JobStarted | e.JobLost | e.JobRetrying | e.JobReported | e.JobReused,
) -> None:
    one = found.get(token_of(event.job))
    if one is None:
        return
    one.updated = at
    match event:
        case e.JobStarted():
            one.status = "running"
        case e.JobReported() | e.JobReused():
            answer = event.answer
            one.receipt = answer.record if isinstance(answer.record, Mapping) else {}
            one.valid = answer.outcome == "valid" if answer.status == "ok" else None
            one.by_error = answer.by_error
            one.is_taken_over = isinstance(event, e.JobReused)
        case _:
            one.status = "waiting"

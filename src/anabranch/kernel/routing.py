"""Routing: what follows a step's outcome.

Lays out the names that guards and templates see, picks the branch for the outcome, matches its arcs
(exclusive: the first in document order; inclusive: all) and evaluates their arguments. It only
decides; `kernel.finishing` creates what it returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from anabranch.errors import ExpressionError
from anabranch.expressions.port import Expression
from anabranch.kernel.empty import EMPTY
from anabranch.kernel.state import State, Token
from anabranch.kernel.value_access import INLINE, ValueAccess
from anabranch.kernel.values import Fault
from anabranch.net.net import Arc, Branch

NO_ARGS: Mapping[str, Any] = EMPTY


def names_of_run(state: State) -> dict[str, Any]:
    """What everything in a run can see. Values are not copied, and expressions and work meet plain
    dicts only: `EMPTY` stays in the state."""
    names = {
        "run": state.run,
        "workload": state.workload or {},
        "ctx": state.ctx or {},
        "results": state.results or {},
        "labels": state.labels or {},
        "answered_by": state.answered_by or {},
    }
    if state.first_run:  # with which the line of redrives begins
        names["first_run"] = state.first_run
    return names


def names_for(state: State, token: Token, values: ValueAccess = INLINE) -> dict[str, Any]:
    """What a guard or an arc of this token can see. Values are not copied."""
    names = names_of_run(state)
    names["args"], names["payload"] = token.args or {}, token.payload or {}
    if values.lazy or state.sealed:  # seldom
        names["workload"] = _Unread(state, values) if state.sealed else values.view(state.workload)
        for key in ("ctx", "args", "payload", "results"):
            names[key] = values.view(names[key])
    return names


class _Unread(Mapping[str, Any]):
    """The input of a run with secrets in it. What is decided is recorded, so nothing is decided by
    a secret: who reads one is told, and does not go on with the mark that stands for it."""

    __slots__ = ("_state", "_values")

    def __init__(self, state: State, values: ValueAccess) -> None:
        self._state = state
        self._values = values

    def __getitem__(self, key: str) -> Any:
        found = self._state.workload[key]
        if key in self._state.sealed:
            raise ExpressionError(
                f"workload.{key} is a secret: the inputs of a task can read it, but no guard, "
                "arc or loop, whose outcome is recorded"
            )
        return self._values.whole(found)

    def __contains__(self, key: object) -> bool:
        return key in self._state.workload

    def __iter__(self) -> Iterator[str]:
        return iter(self._state.workload)

    def __len__(self) -> int:
        return len(self._state.workload)


def boundary_event(
    token: Token, ending: str, outcome: str, fault: Fault | None, at: int
) -> dict[str, Any]:
    """The event that routing is about: this step run has just ended."""
    answer = token.answer
    event: dict[str, Any] = {
        "ending": ending,
        "outcome": outcome,
        "step": token.step,
        "result": answer.result if answer is not None else None,
        "error": msgspec.structs.asdict(fault) if fault is not None else None,
        "at": at,
    }
    if token.fanin is not None:
        event["fanin"] = token.fanin
    if answer is not None and answer.locals:
        event["locals"] = answer.locals
    return event


def outcome_of(token: Token, ending: str) -> str:
    """The label that selects branches and slots: the work's own, or one from the ending."""
    if ending == "done":
        return token.answer.outcome if token.answer is not None and token.answer.outcome else "ok"
    return {"failed": "error"}.get(ending, ending)


class Taken(msgspec.Struct, frozen=True, gc=False):
    """An arc that fires, with the arguments it hands on."""

    arc: Arc
    args: Mapping[str, Any]


def taken_arcs(
    branch: Branch, names: Mapping[str, Any], values: ValueAccess = INLINE, *, failed: bool = False
) -> list[Taken]:
    """The arcs that fire; raises `ExpressionError` where a guard or an argument cannot be had."""
    taken: list[Taken] = []
    for arc in branch.arcs:
        if failed and not arc.after_failure:
            continue
        if arc.guard is not None and not arc.guard.evaluate(names):
            continue
        args = _arguments(arc.args, arc.target, names) if arc.args is not None else NO_ARGS
        taken.append(Taken(arc, values.fit_fields(args) if args else args))
        if branch.mode == "exclusive":
            break
    return taken


def _arguments(given: Expression, target: str, names: Mapping[str, Any]) -> Mapping[str, Any]:
    args = given.evaluate(names)
    if args is None:
        return NO_ARGS
    if not isinstance(args, Mapping):
        raise ExpressionError(
            f"the args of the arc to {target!r} must be a mapping, not {type(args).__name__}"
        )
    return args

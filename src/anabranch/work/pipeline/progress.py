"""How far a pipeline is: the task it stands at, results, counts. It can be remembered as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.dialects.result_policy import Accumulation
from anabranch.kernel.tracker import TaskRun
from anabranch.kernel.values import Answer, succeeded
from anabranch.work.pipeline.held_bytes import HeldBytes, TooMuchHeld, bytes_of
from anabranch.work.values.results import WithRef, accumulated, seen_by_tasks

EXECUTED_KEPT = 200  # of a pipeline that turns in circles: the first half, and the last


class PipelineProgress:
    def __init__(self, prev: Any = None) -> None:
        self.at = 0
        self.prev: Any = prev
        self.results: dict[str, Any] = {}
        self.last = succeeded()  # the last answer that was good, as it will travel
        self.attempts: dict[str, int] = {}
        self.deeds: dict[str, int] = {}  # how often each task was done with
        self.jumps = 0
        self.opened = ""  # the task whose `before` has run
        self.executed: list[TaskRun] = []  # every execution of a task, as it is recorded
        self.gathered: dict[str, Any] = {}  # what the rounds of a task accumulated
        self._gathered_bytes: dict[str, int] = {}  # at most
        self._travels: dict[str, Any] = {}  # where a stand-in travels instead of the result

    def take(self, label: str, answer: Answer, travels: Any) -> None:
        """A good answer: its result becomes visible."""
        self.last = msgspec.structs.replace(answer, result=travels, patches=())
        self.prev = self.results[label] = seen_by_tasks(answer.result, travels)
        if travels is not answer.result:
            self._travels[label] = travels
        self.attempts[label] = 0
        self.done_with(label)

    def answer_of(self, label: str) -> Answer:
        """The good answer of a task, with the result that the others see."""
        result = self.results[label]
        return self.last if self.last.result is result else succeeded(result)

    def replace(self, label: str, answer: Answer, travels: Any) -> None:
        """The same result with what travels of it, wherever it is seen."""
        before, seen = self.results[label], seen_by_tasks(answer.result, travels)
        self.results[label] = seen
        if self.prev is before:
            self.prev = seen
        if self.last.result is before:
            self.last = msgspec.structs.replace(answer, result=travels, patches=())
        if travels is not answer.result:
            self._travels[label] = travels

    def note(self, label: str, answer: Answer) -> None:
        """One execution of a task is over."""
        fault, attempt = answer.fault, self.attempts[label]
        error = "" if answer.status == "ok" else fault.kind if fault is not None else "unknown"
        self.executed.append(TaskRun(label, attempt, error, self.deeds.get(label, 0) + 1))
        if len(self.executed) > EXECUTED_KEPT:
            del self.executed[EXECUTED_KEPT // 2]

    def done_with(self, label: str) -> None:
        self.deeds[label] = self.deeds.get(label, 0) + 1

    def before(self, label: str) -> Before:
        had = label in self.results
        gathered, size = self.gathered.get(label), self._gathered_bytes.get(label, 0)
        return Before(label, self.prev, self.last, self.results.get(label), had, gathered, size)

    def gather(self, label: str, how: Accumulation, result: Any, held: HeldBytes) -> Any:
        """The result of a task that accumulates: what all its rounds gave, if it may be kept."""
        whole = accumulated(how, self.gathered.get(label), result)
        size = self._gathered_bytes.get(label, 0) + bytes_of(result)
        try:
            held.require_room(size)
        except TooMuchHeld:  # of some the parts take each other's place
            size = bytes_of(whole)
            held.require_room(size)
        self.gathered[label], self._gathered_bytes[label] = whole, size
        if not how.name:
            return whole
        return {**result, how.name: whole} if isinstance(result, Mapping) else {how.name: whole}

    def gather_error(self, label: str, error: Any) -> None:
        so_far = self.gathered.get(label) or ()
        self.gathered[label] = [*so_far, {"status": "error", "error": error}]

    def take_back(self, before: Before) -> None:
        """As if this round had not accumulated anything."""
        self.gathered[before.label] = before.gathered
        self._gathered_bytes[before.label] = before.gathered_bytes

    def forget(self, before: Before) -> None:
        """As if the task had not been there; what it did is done all the same."""
        self.prev, self.last = before.prev, before.last
        self.take_back(before)
        self.attempts[before.label] = 0
        self.results[before.label] = before.result
        if not before.had_result:
            del self.results[before.label]

    # -- remembering -------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        same = [label for label, value in self.results.items() if value is self.prev]
        return {
            "at": self.at,
            "attempts": self.attempts,
            "deeds": self.deeds,
            "jumps": self.jumps,
            "opened": self.opened,
            "results": {label: _whole(value) for label, value in self.results.items()},
            "travels": self._travels,
            "gathered": self.gathered,
            "executed": self.executed,
            "prev": {"label": same[-1]} if same else {"value": _whole(self.prev)},
            "last": self.last,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        self.at = saved["at"]
        self.attempts = dict(saved["attempts"])
        self.deeds = dict(saved["deeds"])
        self.jumps = saved["jumps"]
        self.opened = saved["opened"]
        self._travels = dict(saved["travels"])
        self.gathered = dict(saved["gathered"])
        self._gathered_bytes = {label: bytes_of(value) for label, value in self.gathered.items()}
        self.executed = msgspec.convert(saved.get("executed", []), list[TaskRun])
        for label, value in saved["results"].items():
            self.results[label] = seen_by_tasks(value, self._travels.get(label, value))
        prev = saved["prev"]
        self.prev = self.results[prev["label"]] if "label" in prev else prev["value"]
        self.last = msgspec.convert(saved["last"], Answer)


class Before(msgspec.Struct, frozen=True):
    """What was there before a task had its answer."""

    label: str
    prev: Any
    last: Answer
    result: Any
    had_result: bool
    gathered: Any
    gathered_bytes: int


def _whole(value: Any) -> Any:
    return dict(value) if isinstance(value, WithRef) else value

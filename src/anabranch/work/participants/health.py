"""How participants have answered since the engine was opened: a count of each, and the last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

#: What an attempt to ask came to; a no is an answer.
Outcome = Literal["answered", "negative", "nonsense", "unreachable"]
State = Literal["unknown", "up", "odd", "down"]
_STATES: dict[Outcome, State] = {
    "answered": "up", "negative": "up", "nonsense": "odd", "unreachable": "down",
}  # fmt: skip
NAMES_KEPT = 10_000  # those asked last


class Condition(msgspec.Struct):
    """`state` is by the last attempt: up, odd (what came was no answer), down, or unknown."""

    state: State = "unknown"
    answered: int = 0
    negative: int = 0
    nonsense: int = 0
    unreachable: int = 0
    last_asked_at: int | None = None  # milliseconds since the epoch
    last_answer_at: int | None = None
    problem: str = ""  # of the last attempt


class HealthOfParticipants:
    def __init__(self) -> None:
        self._of: dict[str, Condition] = {}  # the one asked last stands last

    def note(self, name: str, outcome: Outcome, now: int, problem: str = "") -> None:
        found = self._of.pop(name, None) or Condition()
        if len(self._of) >= NAMES_KEPT:
            del self._of[next(iter(self._of))]
        self._of[name] = found
        setattr(found, outcome, getattr(found, outcome) + 1)
        found.state, found.last_asked_at, found.problem = _STATES[outcome], now, problem
        if _STATES[outcome] == "up":
            found.last_answer_at = now

    def of(self, name: str) -> Condition:
        return self._of.get(name, Condition())

    def names(self) -> Iterable[str]:
        """Those that were asked, also such as are in no book."""
        return sorted(self._of)

    def fields(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self.of(name))
        return found

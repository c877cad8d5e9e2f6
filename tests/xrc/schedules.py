"""Random schedules: who is leased, who ends how and when, chosen by what the oracle allows.

Loops are bounded here, not in the documents: once a session has had its fill, every process that
ends takes a branch that brings forth nothing or, if it has none, fails.
"""

from __future__ import annotations

from random import Random
from typing import Any

from .oracle import Action, Session

PROCESSES_MAX = 24
GROWING = 6
"""A session with fewer processes is steered towards having more: most would be over at once."""

KEYS = ("a", "b", "c", "__x", "__y", "_z")


def payload(rng: Random, mark: int) -> dict[str, Any]:
    """A few keys, often the same ones, whose values say who wrote them."""
    return {key: f"{key}{mark}" for key in rng.sample(KEYS, rng.choice((0, 1, 1, 2, 3)))}


class Walk:
    """One way through one session."""

    def __init__(self, rng: Random, session: Session, size: int = PROCESSES_MAX) -> None:
        self.rng = rng
        self.session = session
        self.size = size
        self.eager = rng.random()
        """How gladly waiting processes are leased: at 0 one runs at a time, at 1 all do."""

        self.troubled = rng.choice((0.0, 0.05, 0.25))
        self.sleepy = rng.choice((0.0, 0.0, 0.3))

    def next(self) -> Action | None:
        """What happens next; nothing when the session is over."""
        session, rng = self.session, self.rng
        startable, running = session.startable(), session.running()
        if not startable and not running:
            return self._pass_time() if session.alive() else None
        if rng.random() < 0.03:
            return self._disturb()
        if startable and (not running or rng.random() < self.eager):
            return ("start", rng.choice(startable).pid)
        return self._end(rng.choice(running).pid)

    def _pass_time(self) -> Action:
        asleep = [
            p for p in self.session.processes if p.state == "waiting" and p.due > self.session.now
        ]
        if asleep and self.rng.random() < 0.4:
            chosen = self.rng.choice(asleep)
            where = chosen.pid if self.rng.random() < 0.5 else chosen.step
            return ("wake", where, payload(self.rng, chosen.pid))
        return ("tick", self.rng.choice((1, 100, 100, 250)))

    def _disturb(self) -> Action:
        step = self.rng.choice(list(self.session.structure))
        kill: Action = ("kill",) if self.rng.random() < 0.3 else ("tick", 50)
        return self.rng.choice((("wake", step, payload(self.rng, 0)), ("tick", 1), kill))

    def _end(self, pid: int) -> Action:
        rng = self.rng
        if len(self.session.processes) > self.size:
            return self._end_quietly(pid)
        young = len(self.session.processes) < GROWING
        if rng.random() < self.troubled * (0.2 if young else 1):
            return rng.choice((("error", pid), ("error", pid), ("abort", pid), ("cancel", pid)))
        outcome = "valid" if rng.random() < 0.7 else "invalid"
        if young and not self._branch(pid, outcome) and rng.random() < 0.8:
            outcome = "invalid" if outcome == "valid" else "valid"
        wait = rng.choice((1, 100, 250)) if rng.random() < self.sleepy else 0
        return ("finish", pid, outcome, payload(rng, pid), wait)

    def _end_quietly(self, pid: int) -> Action:
        for outcome in ("valid", "invalid"):
            if not self._branch(pid, outcome):
                return ("finish", pid, outcome, payload(self.rng, pid), 0)
        return ("error", pid)

    def _branch(self, pid: int, outcome: str) -> list[Any]:
        """What this outcome would bring forth."""
        step = self.session.structure[self.session.processes[pid - 1].step]
        branch = step.get("onValid" if outcome == "valid" else "onInvalid", {})
        return [*branch.get("spawns", []), *(["join"] if "join" in branch else [])]

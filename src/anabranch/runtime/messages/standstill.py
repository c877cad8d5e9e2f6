"""Whether a run stands still: nothing happens in it by itself for a while.

Not a timer, not a job, and nothing in a child that it waits for.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import Job, State
from anabranch.runtime.child_runs import is_child_of, may_be_child

SOON_MS = 60_000


class Look(msgspec.Struct, frozen=True):
    """What somebody who waits for a run sees: its state where waiting is over, else the run whose
    change could end it, if that is another one."""

    settled: State | None = None
    moves: str = ""


def look_at(
    state: State, state_of: Callable[[str], State | None], now: int, standing: bool
) -> Look:
    """Waiting ends with the run; with `standing` also where it stands still."""
    if state.finished:
        return Look(state)
    if not standing:
        return Look()
    standstill = Standstill(state_of, now)
    return Look(state) if standstill.holds(state) else Look(moves=standstill.moving_child(state))


class Standstill:
    """`state_of` gives the state of a run, None where there is no such run."""

    def __init__(self, state_of: Callable[[str], State | None], now: int) -> None:
        self._state_of = state_of
        self._now = now

    def holds(self, state: State) -> bool:
        status = status_of(state)
        if status == "paused":
            return not any(job.phase == "running" for job in state.jobs.values())
        alarm = state.timers.earliest()
        soon = alarm is not None and alarm - self._now <= SOON_MS
        if status != "waiting" or soon:
            return False
        return all(
            job.wait is not None or self._child_stands(state, job) for job in state.jobs.values()
        )

    def moving_child(self, state: State) -> str:
        """One that the run waits for and that moves, or one of that child's; empty for none. As
        long as it moves, no other child is worth a look."""
        if status_of(state) != "waiting":
            return ""
        for job in state.jobs.values():
            child = self._child(state, job)
            if child is not None and not child.finished and not self.holds(child):
                return self.moving_child(child) or child.run
        return ""

    def _child_stands(self, state: State, job: Job) -> bool:
        child = self._child(state, job)
        return child is not None and not child.finished and self.holds(child)

    def _child(self, state: State, job: Job) -> State | None:
        if not may_be_child(job.ticket, state.run):
            return None
        child = self._state_of(job.ticket)
        return child if child is not None and is_child_of(child, state.run, job.id) else None

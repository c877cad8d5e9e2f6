"""What the evaluations of one turn of a run may take together.

Each evaluation has a budget of its own (`jinja/limits.py`, `cel/values.py`). A turn of a run may
hold any number of them on one event loop: the guards of many arcs, what they hand on, what is
written. So they also share one budget, which whoever takes a turn brings (`share_budget`). An
evaluation that meets its end fails as one that has used up its own. It counts work and asks no
clock, so the same turn ends at the same place on every machine, and after a crash.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

import msgspec

#: In the units of templates (see `jinja/limits.py`): as much as one evaluation may take.
TURN_WORK_MAX: Final = 64 * 1024 * 1024
RENEWED_MAX: Final = 16  # budgets that a turn of many others may have


class TooMuch(Exception):
    """A limit was reached."""

    def __init__(self, what: str, value: int, limit: str, allowed: int) -> None:
        super().__init__(f"{what} {value:,} is too much; the limit {limit} is {allowed:,}")


class TurnBudget(msgspec.Struct, gc=False):
    """What is shared. `used` counts on beyond the limit: what is spent stays spent."""

    limit: int = TURN_WORK_MAX
    used: int = 0
    used_before: int = 0  # it was renewed

    def charge(self, units: int) -> None:
        self.used += units
        if self.used > self.limit:
            what = "the expressions of one turn of a run together: work of"
            raise TooMuch(what, self.used, "turn_work_max", self.limit)

    def renew(self) -> None:
        """For what is a turn by itself elsewhere: as much again, though not for ever."""
        if self.used_before + self.used <= RENEWED_MAX * self.limit:
            self.used_before += self.used
            self.used = 0

    @property
    def is_spent(self) -> bool:
        return self.used > self.limit


class CountedWork(TurnBudget, gc=False):
    """Only counts, for who makes room for others now and then: nothing fails."""

    def charge(self, units: int) -> None:
        self.used += units


_SHARED: ContextVar[TurnBudget | None] = ContextVar("turn_budget", default=None)
#: The budget that evaluations share here, if a turn is being taken.
shared_budget = _SHARED.get
#: Have all evaluations charge this budget too, until what is returned is given to `unshare_budget`.
#: Turns are many and short: a context manager would take three calls of Python code more.
share_budget = _SHARED.set
unshare_budget = _SHARED.reset


def charge_shared(units: int) -> None:
    """For what is done before or after an evaluation that counts for itself."""
    budget = shared_budget()
    if budget is not None:
        budget.charge(units)

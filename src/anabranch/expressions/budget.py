"""What the evaluations of one turn of a run may take together.

Each evaluation has a budget of its own (`jinja/limits.py`, `cel/values.py`). A turn of a run may
hold any number of them on one event loop: the guards of many arcs, what they hand on, what is
written. So they also share one budget, which whoever takes a turn brings (`share_budget`). So do
those of one visit to a task of a pipeline, or of one item of a loop. An evaluation that meets its
end fails as one that has used up its own. It counts work and asks no clock, so the same
turn ends at the same place on every machine, and after a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, TypeVar, cast

import msgspec

T = TypeVar("T")

#: In the units of templates (see `jinja/limits.py`): as much as one evaluation may take.
TURN_WORK_MAX: Final = 64 * 1024 * 1024
#: After so much others get their turn, where what was begun can be left for a while: a few
#: thousandths of a second, at most some hundredths.
BREATHE_WORK: Final = 512 * 1024
HELD_WORK_MAX: Final = 4 * BREATHE_WORK  # what takes more is done beside the event loop
#: So many bytes of a large value are read and decoded for a unit. They take longer than that: so
#: an evaluation on the event loop may have no more than these, and others go on before each load.
BYTES_OF_UNIT: Final = 8
HELD_BYTES_MAX: Final = 1024 * 1024
UNBOUNDED: Final = 2**63 - 1
RENEWED_MAX: Final = 16  # budgets that a turn of many others may have


class TooMuch(Exception):
    """A limit was reached."""

    def __init__(self, what: str, value: int, limit: str, allowed: int) -> None:
        super().__init__(f"{what} {value:,} is too much; the limit {limit} is {allowed:,}")


class TakesLong(Exception):
    """The event loop would be held for this: it is to be done again beside it."""


class TurnBudget(msgspec.Struct, gc=False):
    """What is shared. `used` counts on beyond the limit: what is spent stays spent."""

    limit: int = TURN_WORK_MAX
    used: int = 0
    used_before: int = 0  # it was renewed
    look_after: int = 0  # so much was used
    bytes_max: int = UNBOUNDED  # of large values
    bytes_read: int = 0
    #: The large values that were read, so that each of them is read once.
    loaded: dict[Any, Any] | None = None

    def charge(self, units: int) -> None:
        self.used += units
        if self.used > self.look_after:
            self._look()

    def charge_load(self, size: int) -> None:
        """For so many bytes of a large value, before they are read."""
        self.charge(1 + size // BYTES_OF_UNIT)
        self.bytes_read += size
        if self.bytes_read > self.bytes_max:
            raise TooMuch("large values of", self.bytes_read, "bytes_max", self.bytes_max)
        pause()

    def forget(self) -> None:
        """After an evaluation: its large values stay nowhere, and the next one may read as many."""
        self.bytes_read, self.loaded = 0, None

    def _look(self) -> None:
        """Whether the end is reached, and whether somebody else should go on."""
        if self.used > self.limit:
            what = "the expressions of one turn of a run together: work of"
            raise TooMuch(what, self.used, "turn_work_max", self.limit)
        self.look_after = min(self.used + BREATHE_WORK, self.limit)
        pause()

    def begin_again(self) -> None:
        """For what follows by itself."""
        self.used = self.look_after = 0
        self.forget()

    def renew(self) -> None:
        """For what is a turn by itself elsewhere: as much again, though not for ever."""
        if self.used_before + self.used <= RENEWED_MAX * self.limit:
            self.used_before += self.used
            self.begin_again()

    @property
    def is_spent(self) -> bool:
        return self.used > self.limit


_SHARED: ContextVar[TurnBudget | None] = ContextVar("turn_budget", default=None)
#: The budget that evaluations share here, if a turn is being taken.
shared_budget = _SHARED.get
#: Have all evaluations charge this budget too, until what is returned is given to `unshare_budget`.
#: Turns are many and short: a context manager would take three calls of Python code more.
share_budget = _SHARED.set
unshare_budget = _SHARED.reset


class within_one_budget:  # noqa: N801 - used like a function
    """What is evaluated inside shares the caller's budget, or one of its own."""

    __slots__ = ("_before", "_budget")

    def __init__(self) -> None:
        self._budget = shared_budget() or TurnBudget()

    def __enter__(self) -> TurnBudget:
        self._before = share_budget(self._budget)
        return self._budget

    def __exit__(self, *_exc: object) -> None:
        unshare_budget(self._before)


#: Called now and then in the midst of long work, where somebody else waits for it (see
#: `runtime/slices.py`).
PAUSE: ContextVar[Callable[[], None] | None] = ContextVar("pause", default=None)


def pause() -> None:
    """Let whoever waits for this go on for a while."""
    wait = PAUSE.get()
    if wait is not None:
        wait()


#: Does one piece of such work, which nobody else has a part in, while whoever waits goes on.
BESIDE: ContextVar[Callable[[Callable[[], Any]], Any] | None] = ContextVar("beside", default=None)


def do_beside(work: Callable[[], T]) -> T:
    """What this comes to. Whoever waits for the work as a whole may go on meanwhile."""
    beside = BESIDE.get()
    return work() if beside is None else cast(T, beside(work))


def charge_shared(units: int) -> None:
    """For what is done before or after an evaluation that counts for itself."""
    budget = shared_budget()
    if budget is not None:
        budget.charge(units)

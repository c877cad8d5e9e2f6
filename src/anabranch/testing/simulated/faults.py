"""What may go wrong in a simulation, and how often."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from anabranch.errors import InputError
from anabranch.net.problems import did_you_mean


@dataclass(frozen=True, slots=True)
class Faults:
    """Each number is a probability: of a turn, of an execution, or of whatever it is about."""

    crash: float = 0.05  # a turn: the engine dies before, after or amid making it known
    slow_disk: float = 0.1  # a turn: its batch is written while the next turn is computed
    restart: float = 0.005  # a turn: the engine is stopped in order and started again
    evict: float = 0.05  # a turn: idle runs leave memory
    lost_job: float = 0.03  # an execution: whoever has the job is gone without a word
    outside: float = 0.2  # a waiting job: a worker elsewhere takes it under a lease
    silent: float = 0.3  # a job taken elsewhere: nothing is heard again, the lease runs out
    parked: float = 0.08  # an execution of a random net: the answer comes later from outside
    child: float = 0.03  # an execution of a random net: a child run answers for it
    duplicate: float = 0.06  # a report: it arrives twice
    stale: float = 0.03  # a report: another arrives for an attempt that is not out
    late: float = 0.4  # a job told to stop: it reports all the same
    slow_stop: float = 0.3  # a job told to stop: it takes its time
    lost_wake: float = 0.1  # a timer: nobody looks at it for a while
    spurious_tick: float = 0.05  # a turn: a wake-up for nothing
    clock_jump: float = 0.01  # a turn: the clock leaps forward
    pause: float = 0.01  # a turn: somebody pauses the run, and resumes it later
    signal: float = 0.03  # a turn: somebody sends a signal, whether the run waits for one or not
    tune: float = 0.02  # a turn: somebody changes the window of a loop, or stops it
    retry_now: float = 0.05  # a turn: somebody ends the wait before a retry, where there is one
    skip: float = 0.002  # a turn: somebody skips a step run, with or without a result
    people: float = 0.5  # a moment at which people could answer a gate or patch: they do
    cancel: float = 0.002  # a turn: somebody cancels the run
    redrive: float = 0.2  # a run that did not complete: somebody starts it again
    error: float = 0.15  # an execution that is not scripted: it fails

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not 0 <= value <= 1:
                raise InputError(f"faults: {each.name} is a probability, not {value!r}")

    @classmethod
    def none(cls) -> Faults:
        """A world in which only the order of things is random."""
        return cls(**{each.name: 0.0 for each in fields(cls)})

    @classmethod
    def only(cls, *names: str) -> Faults:
        """Nothing but these, at their usual rates."""
        usual, known = cls(), [each.name for each in fields(cls)]
        for name in names:
            if name not in known:
                raise InputError(f"there is no fault {name!r}: {did_you_mean(name, known)}")
        return replace(cls.none(), **{name: getattr(usual, name) for name in names})

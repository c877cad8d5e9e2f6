"""What a simulation tells: the sums when all went well, the seed when it did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from anabranch.testing.scripted.played import PlayedEvent


@dataclass(slots=True)
class Simulation:
    """The sums over all seeds that were run."""

    seeds: int = 0
    events: int = 0  # recorded and checked
    turns: int = 0
    virtual_seconds: float = 0.0
    wall_seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)  # how often each kind struck
    statuses: Counter[str] = field(default_factory=Counter)  # how the runs ended

    @property
    def crashes(self) -> int:
        """How many times the engine was killed, at any of the places where it can be."""
        return sum(count for name, count in self.faults.items() if name.startswith("crash "))

    @property
    def hours(self) -> float:
        """Virtual hours."""
        return self.virtual_seconds / 3600

    def __str__(self) -> str:
        rate = self.seeds / self.wall_seconds if self.wall_seconds else 0.0
        lines = [
            f"{self.seeds:,} seeds, {self.events:,} events checked, {self.turns:,} turns, "
            f"{self.crashes:,} crashes, {self.hours:,.1f} simulated hours "
            f"in {self.wall_seconds:.1f} s ({rate:,.0f} seeds/s)",
            "  ended: " + _listed(self.statuses),
            "  faults: " + _listed(self.faults),
        ]
        return "\n".join(lines)


class SimulationFailed(AssertionError):
    """A law was broken. The message says by which seed, and how to see it again."""

    def __init__(
        self, seed: int, what: str, repeat: str, events: Sequence[PlayedEvent], faults: str
    ) -> None:
        self.seed = seed
        self.what = what  # what was found
        self.repeat = repeat  # the call or command that shows it again
        self.events = list(events)  # the last ones before it was found
        last = [f"    {event}" for event in events] or ["    (none)"]
        lines = [
            f"seed {seed}: {what}",
            f"  repeat it with: {repeat}",
            f"  faults so far: {faults or 'none'}",
            "  the last events:",
            *last,
        ]
        super().__init__("\n".join(lines))


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common()) or "none"

"""What was measured: `bench/results/latest.json`, written anew after each case."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.rows import Row
from bench.runner import Outcome

FILE = Path(__file__).parent / "results" / "latest.json"


@dataclass(slots=True)
class Measured:
    """One case: when it ended, how busy others kept the machine before it, what came of it."""

    at: float
    others: float | None
    outcome: Outcome


@dataclass(slots=True)
class Results:
    machine: str
    cases: dict[str, Measured] = field(default_factory=dict)

    @property
    def rows(self) -> Iterator[Row]:
        for one in self.cases.values():
            yield from one.outcome.shown

    def put(self, outcome: Outcome, others: float | None, at: float) -> None:
        self.cases[outcome.case] = Measured(at, others, outcome)

    @property
    def words(self) -> str:
        """The machine, the minutes, and how much of its processors others had between cases."""
        ended = [one.at for one in self.cases.values()]
        begun = min(one.at - one.outcome.seconds for one in self.cases.values())
        said = f"{self.machine}; {_minute(begun)} to {_minute(max(ended))} UTC"
        busy = [one.others for one in self.cases.values() if one.others is not None]
        if busy:
            middle, most = sorted(busy)[len(busy) // 2], max(busy)
            said += f"; others had {middle:.0%} of its processors between cases, {most:.0%} at most"
        return said


def _minute(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))


def machine() -> str:
    return (
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores, {platform.system()}"
    )


def write(results: Results) -> None:
    FILE.parent.mkdir(exist_ok=True)
    part = FILE.with_suffix(".part")
    part.write_text(json.dumps(asdict(results), indent=1) + "\n")
    part.replace(FILE)


def read() -> Results | None:
    """The last ones; nothing where there are none, or those of another version."""
    try:
        found = json.loads(FILE.read_bytes())
        cases = {name: _measured(one) for name, one in found["cases"].items()}
        return Results(found["machine"], cases)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _measured(found: Mapping[str, Any]) -> Measured:
    outcome = dict(found["outcome"])
    rows = [Row(**row) for row in outcome.pop("rows")]
    return Measured(found["at"], found["others"], Outcome(rows=rows, **outcome))


# -- is the machine quiet? ---------------------------------------------------------------------


def others(seconds: float = 0.5) -> float | None:
    """The share of all processors that is in use while we do nothing, where the system says it."""
    before = _ticks()
    time.sleep(seconds)
    after = _ticks()
    if before is None or after is None or after[1] == before[1]:
        return None
    return (after[0] - before[0]) / (after[1] - before[1])


def _ticks() -> tuple[int, int] | None:
    """Busy ones and all, since the system was started."""
    try:
        words = Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, idle, iowait, irq, soft, steal = map(int, words)
    busy = user + nice + system + irq + soft + steal
    return busy, busy + idle + iowait

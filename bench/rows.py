"""A line of the table, and how its figures are written."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """`figure` is missing where something could not be measured: `probe` then says why."""

    case: str
    figure: float | None
    unit: str
    probe: str
    ratio: float | None
    aim: str
    met: bool | None
    #: Microseconds of the processor for one of what is counted: a run, a step, an item, a call.
    cpu_us: float | None = None

    def fields(self) -> dict[str, Any]:
        return asdict(self)


def figure(row: Row) -> str:
    """With as many digits as a reader can use: 12,345 steps/s, 85.2 ms, 0.26 ms."""
    return "–" if row.figure is None else f"{number(row.figure)} {row.unit}".rstrip()


def number(value: float) -> str:
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def processor(row: Row) -> str:
    """Time of the processor for one of what is counted."""
    if row.cpu_us is None:
        return ""
    return f"{number(row.cpu_us)} µs" if row.cpu_us < 1_000 else f"{number(row.cpu_us / 1e3)} ms"


def times(ratio: float | None) -> str:
    return "" if ratio is None else f"{number(ratio)}×"

"""A line of the table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    case: str
    figure: float
    unit: str
    probe: str
    ratio: float | None
    aim: str
    met: bool | None

    def fields(self) -> dict[str, Any]:
        return asdict(self)

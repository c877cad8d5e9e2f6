"""The result of a run, as programs get it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run as it stands: what `anabranch run --json` prints, with attributes."""

    run: str
    name: str
    dialect: str
    status: str
    result: Any
    steps: Mapping[str, Mapping[str, Any]]
    joins: list[Mapping[str, Any]]
    problem: Mapping[str, Any] | None
    session: Mapping[str, Any] | None = None  # of an orchestration: its processes by state
    problems: int = 0  # step runs that did not end as they should,
    tolerated: int = 0  # those of them that a policy lets the run go on without
    handled: int = 0  # failures with a way of their own out of their step: no problems
    failures: list[Mapping[str, Any]] = field(default_factory=list)  # why, where there are any
    joins_dropped: int = 0  # of `joins`, those that were settled long ago

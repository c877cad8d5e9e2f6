"""What both readers share: the limits, and the problems found so far."""

from __future__ import annotations

import msgspec

from anabranch.cancel import poll
from anabranch.net.problems import Position, Problem


class SourceLimits(msgspec.Struct, frozen=True):
    bytes_max: int = 8 * 1024 * 1024
    depth_max: int = 100
    values_max: int = 250_000  # with aliases written out


class StopReading(Exception):
    """Nothing more can be read."""


class Reading:
    def __init__(self, file: str, limits: SourceLimits) -> None:
        self.file = file
        self.limits = limits
        self.problems: list[Problem] = []
        self.syntax_error = False

    def at(self, line: int, column: int) -> Position:
        return Position(line, column, self.file)

    def problem(self, line: int, column: int, code: str, message: str, hint: str = "") -> None:
        self.problems.append(Problem(self.at(line, column), code, message, hint))

    def stop(self, line: int, column: int, message: str, hint: str = "") -> StopReading:
        """A mistake in the syntax; raise what this gives."""
        self.syntax_error = True
        self.problem(line, column, "syntax", message, hint)
        return StopReading()

    def check_depth(self, depth: int, line: int, column: int) -> None:
        poll()
        allowed = self.limits.depth_max
        if depth > allowed:
            message = f"the document is nested more than {allowed} deep (the limit depth_max)"
            self.problem(line, column, "too-deep", message, "flatten the document")
            raise StopReading

    def check_values(self, values: int, line: int, column: int) -> None:
        allowed = self.limits.values_max
        if values > allowed:
            message = f"the document has more than {allowed:,} values (the limit values_max)"
            hint = "aliases count as often as they are used; write less, or raise the limit"
            self.problem(line, column, "too-many-values", message, hint)
            raise StopReading

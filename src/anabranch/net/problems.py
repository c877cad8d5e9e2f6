"""Problems of a definition, each with its place and the one change that mends it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where something stands in a source file; lines and columns count from 1."""

    line: int
    column: int
    file: str = "<text>"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong (or worth a look) in a definition."""

    position: Position
    code: str
    message: str
    hint: str = ""
    severity: Severity = "error"

    def __str__(self) -> str:
        kind = "" if self.severity == "error" else f"{self.severity}: "
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.position}: {self.code}: {kind}{self.message}{hint}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint naming the closest known word, or the known words when they are few."""
    options = list(known)
    close = get_close_matches(word, options, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    if 0 < len(options) <= 12:
        return "known here: " + ", ".join(sorted(options))
    return ""

"""What work printed, as a store keeps it: beside the log of events, and never in it.

Rows belong to a run and are numbered within it; the owner of the run writes them. A row holds
pieces of what one attempt printed. It says with which line and at which byte of that attempt it
begins, so that a reader sees what is missing before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

Stream = Literal["stdout", "stderr", "log"]
STREAMS: tuple[Stream, ...] = ("stdout", "stderr", "log")
Attempt = tuple[str, int]  # job, number of the attempt


class LogPiece(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Whole lines that were printed at the same time, to the same stream."""

    at: int
    stream: Stream
    level: str  # debug | info | warning | error | critical
    item: int  # of a loop; -1 where there is none
    text: str  # one line or more, without the last end of line


class LogRow(msgspec.Struct, frozen=True, kw_only=True):
    """Some of what one attempt printed."""

    run: str
    number: int  # from 1, in the order in which the rows of this run were written
    job: str
    attempt: int
    step: str
    first_line: int  # of the attempt, from 0
    lines: int
    start: int  # how many bytes the attempt had printed before
    size: int  # and how many of them this row stands for
    at: int
    pieces: bytes  # a JSON array of `LogPiece`


class LogTrim(msgspec.Struct, frozen=True):
    """Of one attempt, the rows that lie between these bytes are not needed any more."""

    run: str
    job: str
    attempt: int
    begin: int
    end: int


class LogState(msgspec.Struct, frozen=True):
    """What a store has of a run."""

    number: int = 0  # of the last row
    size: int = 0  # bytes in all
    ends: Mapping[Attempt, int] = {}  # at which byte the last row of each attempt ends


class LogFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows to read, in their order."""

    run: str
    after: int = 0  # only rows with a greater number
    before: int | None = None  # only rows with a smaller one
    step: str | None = None
    job: str | None = None
    attempt: int | None = None
    limit: int = 100
    newest: bool = False  # the last `limit` of them instead of the first


class WorkLogs(Protocol):
    def append_logs(self, rows: Sequence[LogRow], trims: Sequence[LogTrim] = ()) -> None:
        """Write rows, then delete what is trimmed. Rows of runs that are not there are left out.
        Raises `Conflict` and writes nothing where another writer has used a number."""

    def log_rows(self, wanted: LogFilter) -> list[LogRow]: ...

    def log_state(self, run: str) -> LogState: ...

    def shrink_logs(self, run: str, head: int, tail: int) -> int:
        """Keep the first rows of a run up to `head` bytes and the last ones up to `tail`; returns
        how many bytes are left."""

"""What work printed, line by line, with what is missing between the lines.

A page ends with a whole row of the store, so the number of its last row says where to go on. Lines
that do not fit what is asked for are looked through and left out; how much is looked through for
one page is bounded, so a page can be empty and still have a next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import msgspec

from anabranch.errors import AnabranchError, InputError, NotFound, UnusableStore
from anabranch.net.problems import did_you_mean
from anabranch.operations.read.reader import Reader
from anabranch.store.ports import Store
from anabranch.store.work_log_ports import Attempt, LogFilter, LogPiece, LogRow
from anabranch.work.logs.clean_text import printable

Level = Literal["debug", "info", "warning", "error", "critical"]
LEVELS: tuple[Level, ...] = get_args(Level)
GAP = "gap"  # the stream of a line that stands for lines that are not kept

LINES = 1000  # of a page, if it is not said
LINES_MAX = 10_000
ROWS_AT_ONCE = 16
SCAN_BYTES = 8 * 1024 * 1024  # looked through for one page


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    at: int
    step: str
    job: str
    attempt: int
    stream: str  # stdout | stderr | log | gap
    level: str
    text: str
    item: int | None = None  # of a loop
    missing: int = 0  # of a gap: bytes that are not kept


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines: of a step or one run of it, of an attempt, from a level on, with a text."""

    step: str | None = None
    token: int | None = None  # of the run of a step: its jobs are `7.0`, `7r1.0`
    attempt: int | None = None
    level: Level | None = None
    search: str = ""

    def least(self) -> int:
        return LEVELS.index(self.level) if self.level is not None else 0


class LogLines(msgspec.Struct, kw_only=True):
    """Request the rest with `after=next`; `next` is null where nothing more is written yet."""

    items: list[LogLine]
    last: int  # the number of the last row that was looked at,
    first: int = 0  # and of the newest lines, of the first one
    next: int | None = None
    earlier: bool = False  # of the newest lines: there are some before them


def read_level(text: str | None) -> Level | None:
    if text is None or text in LEVELS:
        return text
    raise InputError(f"{text[:50]!r} is no level: {', '.join(LEVELS)}", code="log_level")


def open_log(read: Reader, run: str, wanted: LogQuery) -> LogReader:
    """The log of a run; refuses a step that the run does not have."""
    head = read.find(run)
    if wanted.step is not None:
        try:
            steps = read.net(head).steps
        except AnabranchError:
            steps = {wanted.step: None}  # type: ignore[dict-item]  # it cannot be compiled here
        if wanted.step not in steps:
            hint = did_you_mean(wanted.step, steps) or f"it has {', '.join(list(steps)[:20])}"
            raise NotFound(f"run {head.run} has no step {wanted.step[:200]!r}", hint=hint)
    return LogReader(read.store, head.run, wanted)


class LogReader:
    """One reader of the log of one run. It remembers where each attempt was, to see what is
    missing."""

    def __init__(self, store: Store, run: str, wanted: LogQuery) -> None:
        self._store = store
        self.run = run
        self._wanted = wanted
        self._ends: dict[Attempt, int] = {}
        self._search = wanted.search.casefold()
        self._least = wanted.least()
        token = wanted.token
        self._of_run = () if token is None else (f"{token}.", f"{token}r")

    def using(self, store: Store) -> LogReader:
        """The same reader, which reads with this handle: threads have one each."""
        self._store = store
        return self

    def page(self, after: int = 0, lines: int = LINES, most_bytes: int = SCAN_BYTES) -> LogLines:
        found = LogLines(items=[], last=after)
        looked = 0
        while True:
            rows = self._store.log_rows(self._filter(after=found.last, limit=ROWS_AT_ONCE))
            for row in rows:
                if looked > most_bytes or len(found.items) >= lines:
                    found.next = found.last
                    return found
                found.items += self._lines(row)
                found.last, looked = row.number, looked + len(row.pieces)
            if len(rows) < ROWS_AT_ONCE:
                return found

    def newest(self, lines: int = LINES, before: int | None = None) -> LogLines:
        """The last lines, at least so many if there are; `last` is where to go on from."""
        pages: list[list[LogLine]] = []
        count = looked = last = 0
        while count < lines and looked <= SCAN_BYTES:
            wanted = self._filter(after=0, before=before, newest=True, limit=1)
            rows = self._store.log_rows(wanted)
            if not rows:
                break
            row = rows[0]
            last, before = last or row.number, row.number
            looked += len(row.pieces)
            self._ends.pop((row.job, row.attempt), None)
            pages.append(list(self._lines(row)))
            count += len(pages[-1])
        left = self._filter(after=0, before=before, limit=1)
        earlier = before is not None and bool(self._store.log_rows(left))
        items = [line for page in reversed(pages) for line in page]
        return LogLines(items=items, last=last, first=before or 0, earlier=earlier)

    def _filter(
        self, *, after: int, before: int | None = None, newest: bool = False, limit: int
    ) -> LogFilter:
        return LogFilter(
            run=self.run,
            after=after,
            before=before,
            step=self._wanted.step,
            attempt=self._wanted.attempt,
            newest=newest,
            limit=limit,
        )

    def _lines(self, row: LogRow) -> Iterator[LogLine]:
        if self._of_run and not row.job.startswith(self._of_run):
            return
        if (gap := self._gap(row)) is not None:
            yield gap
        for piece in pieces_of(row):
            if piece.level in LEVELS and LEVELS.index(piece.level) < self._least:
                continue
            for text in printable(piece.text).split("\n"):
                if not self._search or self._search in text.casefold():
                    yield LogLine(
                        at=piece.at,
                        step=row.step,
                        job=row.job,
                        attempt=row.attempt,
                        stream=piece.stream,
                        level=piece.level,
                        text=text,
                        item=piece.item if piece.item >= 0 else None,
                    )

    def _gap(self, row: LogRow) -> LogLine | None:
        """What the attempt had printed before this row, and is not kept."""
        key = row.job, row.attempt
        end = self._ends.get(key)
        if end is None:
            end = self._end_before(row) if row.start else 0
        self._ends[key] = row.start + row.size
        missing = row.start - end
        if missing <= 0:
            return None
        return LogLine(
            at=row.at,
            step=row.step,
            job=row.job,
            attempt=row.attempt,
            stream=GAP,
            level="warning",
            text=f"… {missing:,} bytes are missing here: more was printed than is kept …",
            missing=missing,
        )

    def _end_before(self, row: LogRow) -> int:
        """Where the row of the same attempt before this one ends."""
        wanted = LogFilter(
            run=row.run,
            before=row.number,
            job=row.job,
            attempt=row.attempt,
            newest=True,
            limit=1,
        )
        found = self._store.log_rows(wanted)
        return found[0].start + found[0].size if found else 0


def pieces_of(row: LogRow) -> list[LogPiece]:
    try:
        return msgspec.json.decode(row.pieces, type=list[LogPiece])
    except msgspec.MsgspecError as error:
        raise UnusableStore(
            f"row {row.number} of what run {row.run} printed cannot be read: {error}"
        ) from None

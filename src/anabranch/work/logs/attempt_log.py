"""What one attempt prints, on its way to where it is kept.

Any thread may write; one thread at a time takes. Between two takes at most the head and the tail of
an attempt are in memory, so an output of any size can stream through. What is dropped is counted:
every batch says with which line and byte of the attempt it begins.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from threading import Lock
from typing import Any, NamedTuple, Protocol

import msgspec

from anabranch.kernel.values import Answer, Fault
from anabranch.store.work_log_ports import LogPiece, Stream
from anabranch.work.logs.clean_text import REPLACED, SecretsOfLog, printable
from anabranch.work.logs.limits import LogLimits
from anabranch.work.secrets.redaction import Redactor

NO_ITEM = -1
WORDS_HELD = 64  # of a line, before they are written
WORD_LETTERS = 256  # longer ones are written at once
_BEGINNING = Lock()  # two threads may print the first line of an attempt
#: What the level of a line is that no logger has said one of.
LEVELS = {"stdout": "info", "stderr": "warning", "log": "info"}


class LogBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Pieces that follow each other, and where in the attempt they are."""

    first_line: int
    lines: int
    start: int
    size: int
    pieces: list[LogPiece]


class _Written:
    """What was written at the same time to the same stream: not cleaned, and perhaps it begins or
    ends in the middle of a line."""

    __slots__ = ("at", "item", "level", "size", "stream", "texts")

    def __init__(self, at: int, stream: Stream, level: str, item: int) -> None:
        self.at = at
        self.stream = stream
        self.level = level
        self.item = item
        self.texts: list[str] = []
        self.size = 0


_NOTHING = _Written(-1, "stdout", "", NO_ITEM)  # nothing is added to it: no text is of that time


class OpensLogs(Protocol):
    """Whoever opens logs, takes what is in them and knows the limits."""

    limits: LogLimits
    redactor: Redactor | None
    now: Callable[[], int]

    def wake(self, log: AttemptLog, /) -> None:
        """From any thread: there is something to be taken."""


class AttemptLog:
    """Costs next to nothing before the first line."""

    __slots__ = (
        "_awake", "_closed", "_decoders", "_dropped_lines", "_dropped_size", "_first", "_held",
        "_held_at", "_held_item", "_held_stream", "_in_tail", "_last", "_last_size", "_limits",
        "_made", "_now", "_opened_by", "_scope", "_seen", "attempt", "job", "lock", "run", "step",
    )  # fmt: skip

    item = NO_ITEM
    _awake: bool  # these begin with the first line
    _last_size: int
    _held: list[str]  # words of a line that has not ended
    _held_stream: Stream

    def __init__(
        self,
        opened_by: OpensLogs,
        run: str,
        job: str,
        attempt: int,
        step: str,
        scope: Redactor | None = None,
    ) -> None:
        """`scope` knows the secrets that the job is given."""
        self.run = run
        self.job = job
        self.attempt = attempt
        self.step = step
        self._opened_by = opened_by
        self._scope = scope
        self._closed = False
        self.lock: Lock | None = None  # with all that follows, once something is printed

    @property
    def log(self) -> AttemptLog:
        """It is what is printed to, as long as no item of a loop is done."""
        return self

    def write(self, stream: Stream, text: str, level: str = "", item: int = NO_ITEM) -> None:
        """Some text, whole lines or not. Callables that print much come here for every word."""
        if self._closed or not text:
            return
        lock, at = self.lock or self._begin(), 0
        if self._held:
            text, at = self._after_held(stream, text, level, item)
        size = len(text) if text.isascii() else _size(text)
        if size > self._limits.row:
            self._write_large(stream, text, level, item)
            return
        at = at or self._opened_by.now()
        with lock:
            now = self._now
            if (
                now.at == at
                and now.item == item
                and now.stream == stream
                and now.level == level
                and now.size < self._limits.row
            ):
                now.texts.append(text)
                now.size += size
                if self._in_tail:
                    self._last_size += size
                else:
                    self._seen += size
            else:
                self._put(at, stream, level, item, text, size)
            if self._awake:
                return
            self._awake = True
        self._opened_by.wake(self)

    def hold(self, stream: Stream, text: str, item: int = NO_ITEM) -> None:
        """A word of a line whose end follows: `print` writes every argument alone. Words are put
        together here, since `write` costs several times as much."""
        if self._closed:
            return
        lock = self.lock or self._begin()
        with lock:
            held = self._held
            if held:
                same = self._held_stream == stream and self._held_item == item
                if same and len(held) < WORDS_HELD:
                    held.append(text)
                    return
            elif self._awake:
                self._hold_first(stream, text, item)
                return
            else:  # who takes it begins to wait for more of it
                self._hold_first(stream, text, item)
                self._awake = True
                text = ""
        if text:
            self.write(stream, text, item=item)
        else:
            self._opened_by.wake(self)

    def _hold_first(self, stream: Stream, text: str, item: int) -> None:
        self._held_at = self._opened_by.now()
        self._held_stream, self._held_item = stream, item
        self._held.append(text)

    def _after_held(self, stream: Stream, text: str, level: str, item: int) -> tuple[str, int]:
        """The text with the words before it, and the time of the first; words of another stream or
        item are written before it."""
        assert self.lock is not None
        with self.lock:
            held, self._held = self._held, []
            place, at = (self._held_stream, self._held_item), self._held_at
        if not held:  # another thread was faster
            return text, 0
        if place == (stream, item) and not level:
            return "".join(held) + text, at
        self.write(place[0], "".join(held), item=place[1])
        return text, 0

    def _write_large(self, stream: Stream, text: str, level: str, item: int) -> None:
        most = self._limits.head + self._limits.tail
        if len(text) > 2 * most:  # far more than is kept: do not even walk through it
            self._write_parts(stream, text[:most], level, item)
            assert self.lock is not None
            with self.lock:
                while self._last:
                    self._drop_first()
                self._drop(text[most : len(text) - most])
                self._now = _NOTHING
            text = text[len(text) - most :]
        self._write_parts(stream, text, level, item)

    def _write_parts(self, stream: Stream, text: str, level: str, item: int) -> None:
        width = self._limits.row // 4  # a character may take four bytes
        for start in range(0, len(text), width):
            self.write(stream, text[start : start + width], level, item)

    def write_bytes(self, stream: Stream, data: bytes, item: int = NO_ITEM) -> None:
        """The same for what comes through a pipe; characters may be cut in two."""
        if data:
            if self.lock is None:
                self._begin()
            decoder = self._decoders.get((stream, item))
            if decoder is None:
                decoder = codecs.getincrementaldecoder("utf-8")("replace")
                self._decoders[stream, item] = decoder
            self.write(stream, decoder.decode(data), item=item)

    def failed(self, fault: Fault, item: int = NO_ITEM) -> None:
        """Why the attempt or the item failed, with the traceback of the user's code where there is
        one."""
        said = f"{fault.kind}: {fault.message}"
        details = fault.details if isinstance(fault.details, dict) else {}
        trace = details.get("traceback")
        if isinstance(trace, str) and trace:
            said = f"{said}\n{trace}"
        self.write("log", f"{said}\n", "error", item)

    def end(self, answer: object) -> None:
        """The attempt is over: with this answer, or with none."""
        if isinstance(answer, Answer) and answer.fault is not None:
            self.failed(answer.fault)
        if self.lock is None:  # nothing was printed
            self._closed = True
        else:
            self.close()

    def close(self) -> None:
        """Nothing more will be written; lines without an end are lines now."""
        if self._closed:
            return
        if self.lock is not None:
            for (stream, item), decoder in list(self._decoders.items()):
                self.write(stream, decoder.decode(b"", final=True), item=item)
            self._after_held("log", "", "info", NO_ITEM)  # nothing follows
        self._closed = True
        if self.lock is not None:
            self._opened_by.wake(self)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def used(self) -> bool:
        return self.lock is not None

    def _begin(self) -> Lock:
        with _BEGINNING:
            if self.lock is None:
                opened_by = self._opened_by
                self._limits = opened_by.limits
                self._seen = 0  # bytes of the head
                self._in_tail = False
                self._first: list[_Written] = []
                self._last: deque[_Written] = deque()
                self._now = _NOTHING  # the newest of both
                self._awake = False  # somebody is told to take what there is
                self._held = []
                self._held_at = 0
                self._held_stream = "stdout"
                self._held_item = NO_ITEM
                self._last_size = self._dropped_size = self._dropped_lines = 0
                self._decoders: dict[tuple[Stream, int], Any] = {}
                self._made = _Lines(self._limits, SecretsOfLog(self._scope, opened_by.redactor))
                self.lock = Lock()
            return self.lock

    def _put(self, at: int, stream: Stream, level: str, item: int, text: str, size: int) -> None:
        now = self._now = _Written(at, stream, level, item)
        now.texts.append(text)
        now.size = size
        if self._seen < self._limits.head:
            self._seen += size
            self._first.append(now)
            return
        self._in_tail = True
        self._last.append(now)
        self._last_size += size
        while self._last_size > self._limits.tail and len(self._last) > 1:
            self._drop_first()

    def _drop_first(self) -> None:
        gone = self._last.popleft()
        self._last_size -= gone.size
        self._dropped_size += gone.size
        self._dropped_lines += "".join(gone.texts).count("\n")

    def _drop(self, text: str) -> None:
        self._dropped_size += _size(text)
        self._dropped_lines += text.count("\n")

    @property
    def dropped(self) -> int:
        """Bytes that came faster than they were taken."""
        return self._made.dropped if self.lock is not None else 0

    def take(self) -> list[LogBatch]:
        """What was printed since the last time, cleaned: whole lines only, before it is closed."""
        if self.lock is None:
            return []
        closed = self._closed
        with self.lock:
            first, self._first = self._first, []
            last, self._last = self._last, deque()
            size, lines = self._dropped_size, self._dropped_lines
            self._last_size = self._dropped_size = self._dropped_lines = 0
            self._now, self._awake = _NOTHING, False
        made = self._made
        made.add(first)
        if size:
            made.skip(size, lines)
        made.add(last)
        if closed:
            made.finish(self._opened_by.now())
        return made.batches()


_Place = tuple[Stream, int]  # and an item: each has its own lines


class _Partial(NamedTuple):
    at: int
    level: str
    text: str


class _Lines:
    """Makes lines of what was written."""

    def __init__(self, limits: LogLimits, secrets: SecretsOfLog) -> None:
        self._limits = limits
        self._secrets = secrets
        self._partial: dict[_Place, _Partial] = {}
        self._was_cut = False  # the next line of each place begins somewhere in its middle,
        self._whole: set[_Place] = set()  # unless it has had a whole one since,
        self._edges: dict[_Place, str] = {}  # or this is all that has come of it
        self._batches: list[LogBatch] = []
        self._pieces: list[LogPiece] = []
        self._begin = (0, 0)  # line and byte at which the pieces begin
        self._line = self._byte = 0
        self._replaced: dict[Stream, int] = {}
        self.dropped = 0

    def add(self, written: Iterable[_Written]) -> None:
        for one in written:
            self._add(one.at, one.stream, one.level, one.item, "".join(one.texts))

    def _add(self, at: int, stream: Stream, level: str, item: int, text: str) -> None:
        level = level or LEVELS[stream]
        place = stream, item
        if self._was_cut and place not in self._whole:
            text = self._after_cut(place, text)
        before = self._partial.pop(place, None)
        if before is not None:
            at, text = before.at, before.text + text
        whole, end, rest = text.rpartition("\n")
        held = self._secrets.lines_max
        if held and end:
            lines = whole.split("\n")
            cut = max(0, len(lines) - held)
            rest = "\n".join([*lines[cut:], rest])
            whole, end = "\n".join(lines[:cut]), end if cut else ""
        if end:
            self._emit(at, stream, level, item, whole)
        if len(rest) > self._limits.row + self._secrets.room:
            rest = printable(rest)
        while len(rest) > self._limits.row + self._secrets.room:
            cut = self._secrets.cut_before(rest, self._limits.row) or self._limits.row
            self._emit(at, stream, level, item, rest[:cut])
            rest = rest[cut:]
        if rest:
            self._partial[place] = _Partial(at, level, rest)

    def _after_cut(self, place: _Place, text: str) -> str:
        """Without what may be the end of a secret: an incomplete line; or, of a line without an
        end, as much as a secret can take. Less than that is held until more of it has come."""
        text = self._edges.pop(place, "") + text
        found, lines = -1, self._secrets.lines_max + 1
        for _ in range(lines):
            found = text.find("\n", found + 1)
            if found < 0:
                break
        if found < 0:
            room = self._secrets.room
            if len(text) <= 2 * room or lines > 1:
                self._edges[place] = text
                return ""
            found = self._secrets.cut_after(text, room) - 1
        self._whole.add(place)
        self._lose(text[: found + 1])
        return text[found + 1 :]

    def _lose(self, text: str) -> None:
        self._flush()
        self._move(text.count("\n"), _size(text))
        self.dropped += _size(text)

    def _move(self, lines: int, size: int) -> None:
        self._line += lines
        self._byte += size
        self._begin = self._line, self._byte

    def skip(self, size: int, lines: int) -> None:
        """So much was dropped here; the lines at its edges are not whole."""
        self._flush()
        for text in (*(one.text for one in self._partial.values()), *self._edges.values()):
            size += _size(text)
            lines += text.count("\n")
        self._partial.clear()
        self._edges.clear()
        self._whole.clear()
        self._was_cut = True
        self._move(lines, size)
        self.dropped += size

    def finish(self, at: int) -> None:
        for text in self._edges.values():
            self._lose(text)
        self._edges.clear()
        for (stream, item), partial in self._partial.items():
            text = partial.text.removesuffix("\n")
            self._emit(partial.at, stream, partial.level, item, text)
        self._partial.clear()
        for stream, count in self._replaced.items():
            said = f"{stream} had {count:,} characters that are no text, shown as {REPLACED}"
            self._emit(at, "log", "warning", NO_ITEM, said)
        self._replaced.clear()

    def _emit(self, at: int, stream: Stream, level: str, item: int, text: str) -> None:
        shown = self._secrets.starred(printable(text))
        if REPLACED in shown and stream != "log":
            count = shown.count(REPLACED)
            self._replaced[stream] = self._replaced.get(stream, 0) + count
        for part in _parts(shown, self._limits.row):
            self._pieces.append(LogPiece(at, stream, level, item, part))
            self._line += part.count("\n") + 1
            self._byte += _size(part) + 1
            if self._byte - self._begin[1] >= self._limits.row // 2:
                self._flush()

    def _flush(self) -> None:
        (line, byte), pieces = self._begin, self._pieces
        if pieces:
            size, lines = self._byte - byte, self._line - line
            batch = LogBatch(first_line=line, lines=lines, start=byte, size=size, pieces=pieces)
            self._batches.append(batch)
        self._pieces = []
        self._begin = self._line, self._byte

    def batches(self) -> list[LogBatch]:
        self._flush()
        made, self._batches = self._batches, []
        return made


def _parts(text: str, most: int) -> Iterator[str]:
    """The text in parts of whole lines, each of up to half of `most` bytes. Long lines are cut."""
    most //= 2
    if _size(text) <= most:
        yield text
        return
    part: list[str] = []
    size = 0
    for line in text.split("\n"):
        for some in _cut(line, most):
            length = _size(some) + 1
            if part and size + length > most:
                yield "\n".join(part)
                part, size = [], 0
            part.append(some)
            size += length
    yield "\n".join(part)


def _cut(line: str, most: int) -> Iterator[str]:
    if _size(line) <= most:
        yield line
        return
    width = most if line.isascii() else max(1, most // 4)
    for start in range(0, len(line), width):
        yield line[start : start + width]


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class PrintTarget:
    """Where what is printed in this context goes: to a log, for an item of a loop or none."""

    __slots__ = ("_items", "_results", "item", "log")

    def __init__(self, log: AttemptLog, item: int = NO_ITEM) -> None:
        self.log = log
        self.item = item
        self._items: Any = None
        self._results: Any = ()

    def follow(self, items: Any, results: Any) -> PrintTarget:
        """Of items that are done one after the other in one call: their indexes, and the list that
        each of them adds its result to."""
        self._items, self._results = items, results
        return self

    def write(self, stream: Stream, text: str, level: str = "") -> None:
        self.log.write(stream, text, level, self._item_now())

    def hold(self, stream: Stream, text: str) -> None:
        self.log.hold(stream, text, self._item_now())

    def _item_now(self) -> int:
        if self._items is not None:
            at = len(self._results)
            if at < len(self._items):
                return int(self._items[at])
        return self.item


#: None where nobody keeps what is printed.
print_target: ContextVar[AttemptLog | PrintTarget | None] = ContextVar(
    "anabranch_print_target", default=None
)

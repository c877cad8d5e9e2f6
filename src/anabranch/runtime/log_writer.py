"""Writes what work prints to the store, in a thread of its own and outside of turns.

A batch is written every `FLUSH_SECONDS` while there is something to write. A turn never waits for
that: losing the last lines with a killed process is the price. The rows of a run are numbered here,
by the engine that owns the run. What several engines or workers hand in twice is written once:
every batch says at which byte of its attempt it begins.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from weakref import finalize

import msgspec

from anabranch.errors import Conflict, StoreError
from anabranch.repeating import start_repeating
from anabranch.runtime.metrics.registry import Registry
from anabranch.store.ports import Store
from anabranch.store.work_log_ports import Attempt, LogRow, LogTrim
from anabranch.work.logs.attempt_log import LogBatch
from anabranch.work.logs.attempt_logs import AttemptLogs
from anabranch.work.logs.limits import LogLimits

FLUSH_SECONDS = 0.1
BYTES_AT_ONCE = 256 * 1024  # in one transaction: it must not hold up the commit of a turn
ROWS_AT_ONCE = 200
HANDED_BYTES = 32 * 1024 * 1024  # of workers, that wait to be written
PIECE_BYTES = 200  # in memory, beside its text
RUNS_KEPT = 500  # whose numbers are known without asking the store
TRIES = 2
_encode = msgspec.json.Encoder().encode

log = logging.getLogger("anabranch.engine")


class AttemptBatch(msgspec.Struct, frozen=True):
    """A batch of one attempt."""

    run: str
    job: str
    attempt: int
    step: str
    batch: LogBatch


class _RunLog(msgspec.Struct):
    """What is known of the log of a run."""

    number: int
    size: int
    ends: dict[Attempt, int]


class LogWriter(AttemptLogs):
    def __init__(self, store: Store, limits: LogLimits) -> None:
        super().__init__(limits)
        self._store = store
        self._runs: OrderedDict[str, _RunLog] = OrderedDict()
        self._handed: list[AttemptBatch] = []
        self._handed_bytes = 0
        self._thread: threading.Thread | None = None
        self._something = threading.Event()
        self._closing = threading.Event()
        self._writing = threading.Lock()
        self._troubled = False
        #: Whether this engine owns a run at this moment; None: it owns all of them.
        self.may_act_for: Callable[[str], bool] | None = None
        self._followers: dict[str, set[Callable[[], None]]] = {}
        self.stored_bytes = 0
        self.dropped_bytes = 0

    def add_metrics(self, registry: Registry) -> None:
        for name, text, value in (
            ("stored", "bytes of what work printed that were written", lambda: self.stored_bytes),
            ("dropped", "bytes of it that are over the limits", lambda: self.dropped_bytes),
        ):
            registry.gauge(f"anabranch_log_bytes_{name}_total", text, value, kind="counter")

    def follow(self, run: str, heard: Callable[[], None]) -> Callable[[], None]:
        """Calls it, in another thread, when rows of this run were written; returns how to stop."""
        self._followers.setdefault(run, set()).add(heard)

        def stop() -> None:
            left = self._followers.get(run, set())
            left.discard(heard)
            if not left:
                self._followers.pop(run, None)

        return stop

    # -- in ----------------------------------------------------------------------------------

    def awake(self) -> None:
        self._something.set()
        if self._thread is None:
            self._begin()

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                self.in_use()
                wait = partial(_wait_for_something, self._something, self._closing)
                self._thread = start_repeating(self._write_more, wait, "anabranch-logs")
                finalize(self, self._something.set).atexit = False

    def hand_in(self, handed: Sequence[AttemptBatch]) -> None:
        """What a worker has sent; it is cleaned of the secrets that are known here, too."""
        with self._lock:
            self._handed += [self._starred(one) for one in handed]
            self._handed_bytes += sum(map(_bytes_in_memory, handed))
        self.awake()

    @property
    def is_full(self) -> bool:
        """Whether workers hand in more than the store takes: they have to come again."""
        return self._handed_bytes >= HANDED_BYTES

    def _starred(self, handed: AttemptBatch) -> AttemptBatch:
        redactor = self.redactor
        if redactor is None or not redactor.knows_any:
            return handed
        pieces = [
            msgspec.structs.replace(piece, text=redactor.text(piece.text))
            for piece in handed.batch.pieces
        ]
        return msgspec.structs.replace(
            handed, batch=msgspec.structs.replace(handed.batch, pieces=pieces)
        )

    # -- out ---------------------------------------------------------------------------------

    def _write_more(self) -> None:
        self.flush()
        self._closing.wait(FLUSH_SECONDS)

    def flush(self) -> None:
        """Write what there is, in this thread."""
        with self._writing:
            try:
                self._write_all(self._taken())
            except StoreError as error:
                self._tell(error)
            except Exception:
                log.exception("what work printed could not be written")

    def _taken(self) -> list[AttemptBatch]:
        with self._lock:
            taken, self._handed, self._handed_bytes = self._handed, [], 0
        for one in self.waiting():
            before = one.dropped
            key = one.run, one.job, one.attempt, one.step
            taken += [AttemptBatch(*key, batch) for batch in one.take()]
            self.dropped_bytes += one.dropped - before
        if self.may_act_for is not None:
            taken = [one for one in taken if self.may_act_for(one.run)]
        return taken

    def _write_all(self, handed: list[AttemptBatch]) -> None:
        while handed:
            some, size = 0, 0
            while some < min(len(handed), ROWS_AT_ONCE) and size < BYTES_AT_ONCE:
                size += handed[some].batch.size
                some += 1
            self._write_some(handed[:some])
            del handed[:some]
        self._troubled = False

    def _write_some(self, handed: list[AttemptBatch]) -> None:
        for left in range(TRIES - 1, -1, -1):
            rows, trims = self._rows(handed)
            if not rows:
                return
            try:
                self._store.append_logs(rows, trims)
                break
            except StoreError as error:
                for row in rows:  # what is known of these runs is not what is there
                    self._runs.pop(row.run, None)
                if not left:
                    raise
                if not isinstance(error, Conflict):
                    self._closing.wait(FLUSH_SECONDS)
        self.stored_bytes += sum(row.size for row in rows)
        for run in {row.run for row in rows}:
            if self._runs[run].size > self.limits.run_bytes:
                self._shrink(run)
            for heard in tuple(self._followers.get(run, ())):
                heard()

    def _rows(self, handed: list[AttemptBatch]) -> tuple[list[LogRow], list[LogTrim]]:
        rows, ends = [], dict[tuple[str, str, int], int]()
        for one in handed:
            known, batch = self._known(one.run), one.batch
            key = one.job, one.attempt
            if batch.start < known.ends.get(key, 0):
                continue  # it is here already
            known.number += 1
            known.size += batch.size
            known.ends[key] = ends[one.run, *key] = batch.start + batch.size
            rows.append(_row(one, known.number))
        head, tail = self.limits.head, self.limits.tail
        trims = [LogTrim(*key, head, end - tail) for key, end in ends.items() if end - tail > head]
        return rows, trims

    def _known(self, run: str) -> _RunLog:
        known = self._runs.get(run)
        if known is None:
            found = self._store.log_state(run)
            known = self._runs[run] = _RunLog(found.number, found.size, dict(found.ends))
            while len(self._runs) > RUNS_KEPT:
                self._runs.popitem(last=False)
        else:
            self._runs.move_to_end(run)
        return known

    def _shrink(self, run: str) -> None:
        """Over the limit of a run; unless tails that moved on have made room since."""
        known, most = self._runs[run], self.limits.run_bytes
        known.size = self._store.log_state(run).size
        if known.size > most:
            before = known.size
            known.size = self._store.shrink_logs(run, most // 2, most // 2 - most // 8)
            self.dropped_bytes += before - known.size

    def _tell(self, error: StoreError) -> None:
        if not self._troubled:
            self._troubled = True
            log.warning("what work printed is lost while this lasts: %s", error.message)

    def close(self) -> None:
        """Write what is left."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._something.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()
        self.shut()


def _bytes_in_memory(handed: AttemptBatch) -> int:
    return handed.batch.size + PIECE_BYTES * len(handed.batch.pieces)


def _wait_for_something(something: threading.Event, closing: threading.Event) -> bool:
    something.wait()
    something.clear()
    return not closing.is_set()


def _row(one: AttemptBatch, number: int) -> LogRow:
    batch = one.batch
    return LogRow(
        run=one.run,
        number=number,
        job=one.job,
        attempt=one.attempt,
        step=one.step,
        first_line=batch.first_line,
        lines=batch.lines,
        start=batch.start,
        size=batch.size,
        at=batch.pieces[0].at,
        pieces=_encode(batch.pieces),
    )

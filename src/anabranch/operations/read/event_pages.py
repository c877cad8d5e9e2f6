"""The events of a run in pages, so that a long log is never in memory at once.

A page is bounded by its number of events and by the bytes it takes. Where somebody stopped reading
is remembered for a while: the next page then costs as much as the page, not as the log before it.
Whoever has seen everything is told what becomes durable without another look at the log.

A page for people (`log_page`) may begin anywhere and costs what it shows and not what came before
it. To name shards the few thousand events before it are looked at; what lies further back is needed
by nobody any more in practice, and an event that is not recognised keeps its plain name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock

import msgspec

from anabranch.kernel import events as e
from anabranch.operations.read.event_view import EventRecord, EventView
from anabranch.operations.read.task_events import with_tasks
from anabranch.runtime.effects import DurableEvents
from anabranch.runtime.live_run import history
from anabranch.store.damage import events_of
from anabranch.store.ports import Journal

ROWS_AT_ONCE = 128
ROWS_AT_FIRST = 8  # rows may be large: how large is known when the first have been read
PAGE_BYTES = 4 * 1024 * 1024
PLACES_KEPT = 256
PAGE = 100  # events of a page for people
TASKS_SHOWN = 500  # executions of tasks in one report, for people
BEFORE = 2000
SCAN_MAX = 50_000  # events looked through for one page
ROWS_SCANNED = 64  # at once


class Follower:
    """One reader of one run: what comes next, and what has to be known to show it."""

    def __init__(self, run: str, private: str = "") -> None:
        self.run = run
        self.at_end = False  # the last look at the log found nothing behind what it read
        self._shown = EventView(run, private)

    @property
    def seq(self) -> int:
        """The number of the last event that was given out or skipped."""
        return self._shown.seq

    def skip_to(self, store: Journal, after: int) -> None:
        """Go on behind event `after`; what lies before is taken note of."""
        while self.seq < after:
            before = self.seq
            for at, events in self._next(store):
                left = after - self.seq
                self._shown.skip((at, event) for event in events[:left])
                if self.seq >= after:
                    return
            if self.seq == before:
                return  # the log ends earlier

    def page(self, store: Journal, limit: int, most_bytes: int = PAGE_BYTES) -> list[EventRecord]:
        """The next events, at most so many; fewer where they are large, none at the end."""
        found: list[EventRecord] = []
        for at, events in self._next(store, limit, most_bytes):
            left = limit - len(found)
            found += [self._shown.record(at, event) for event in events[:left]]
            if len(found) >= limit:
                break
        return found

    def hear(self, news: DurableEvents) -> list[EventRecord] | None:
        """What is new to it in these events, without a look at the log; None: some are missing."""
        seen = self.seq + 1 - news.first_seq
        if seen < 0:
            return None
        # As they are in the log: what is read back from there differs in its types, if not in JSON.
        events = e.decode_events(news.row)
        return [self._shown.record(news.at, event) for event in events[seen:]]

    def _next(
        self, store: Journal, rows: int = ROWS_AT_ONCE, most_bytes: int = PAGE_BYTES
    ) -> Iterator[tuple[int, list[e.Event]]]:
        """Row by row: its instant, and which of its events are new."""
        size, at_once, left = 0, ROWS_AT_FIRST, min(rows, ROWS_AT_ONCE)
        self.at_end = False
        while left > 0:
            asked = min(left, at_once)
            found = store.read(self.run, self.seq, asked)
            for record in found:
                if size and size + len(record.events) > most_bytes:
                    return
                size += len(record.events)
                seen = max(0, self.seq - record.first_seq + 1)
                yield record.at, events_of(self.run, record)[seen:]
            if len(found) < asked:
                self.at_end = True
                return
            left, at_once = left - asked, 2 * at_once


class Places:
    """Followers that wait for somebody to ask for the page after theirs."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], Follower] = OrderedDict()
        self._lock = Lock()  # pages are read in threads

    def take(self, run: str, after: int) -> Follower | None:
        with self._lock:
            return self._kept.pop((run, after), None)

    def keep(self, follower: Follower) -> None:
        with self._lock:
            self._kept[follower.run, follower.seq] = follower
            while len(self._kept) > PLACES_KEPT:
                self._kept.popitem(last=False)


class LogPage(msgspec.Struct):
    records: list[EventRecord] = []
    after: int = 0  # the page begins behind this event
    next_after: int | None = None  # where the next one begins; None at the end of the log


def log_page(log: Journal, run: str, *, private: str, after: int, kind: str = "") -> LogPage:
    """Events numbered above `after`, of kinds that contain `kind`; what tasks did where that asks
    for it. A report counts as one event, whatever its tasks did."""
    page = LogPage(after=after)
    shown = EventView(run, private)
    shown.seq = start = max(0, after - BEFORE)
    looked = 0
    while True:
        rows = log.read(run, start, ROWS_SCANNED)
        for at, event in history(rows, start, run):
            start += 1
            record = shown.record(at, event)
            if record.seq <= after:
                continue
            if len(page.records) >= PAGE or looked == SCAN_MAX:
                page.next_after = record.seq - 1
                return page
            looked += 1
            tasks = with_tasks([record], TASKS_SHOWN) if kind.startswith("task") else (record,)
            for each in tasks:
                if kind in each.kind:
                    page.records.append(each)
        if len(rows) < ROWS_SCANNED:
            return page

"""The events of a run in pages. A page costs what it shows and not what came before it.

To name shards the few thousand events before a page are looked at; what lies further back is
needed by nobody any more in practice, and an event that is not recognised keeps its plain name.
"""

from __future__ import annotations

import msgspec

from anabranch.operations.read.event_view import EventRecord, Shown
from anabranch.operations.read.task_events import with_tasks
from anabranch.runtime.live_run import history
from anabranch.store.ports import Journal

PAGE = 100
BEFORE = 2000
SCAN_MAX = 50_000  # events looked through for one page
ROWS_AT_ONCE = 64


class EventPage(msgspec.Struct):
    records: list[EventRecord] = []
    after: int = 0  # the page begins behind this event
    next_after: int | None = None  # where the next one begins; None at the end of the log


def event_page(
    log: Journal, run: str, *, private: str, after: int, kind: str = "", most: int = PAGE
) -> EventPage:
    """Events numbered above `after`, of kinds that contain `kind`; what tasks did where that asks
    for it. A report counts as one event, whatever its tasks did."""
    page = EventPage(after=after)
    shown = Shown(run, private)
    shown.seq = start = max(0, after - BEFORE)
    looked = 0
    while True:
        rows = log.read(run, start, ROWS_AT_ONCE)
        for at, event in history(rows, start, run):
            start += 1
            record = shown.record(at, event)
            if record.seq <= after:
                continue
            if len(page.records) >= most or looked == SCAN_MAX:
                page.next_after = record.seq - 1
                return page
            looked += 1
            for each in with_tasks([record]) if kind.startswith("task") else (record,):
                if kind in each.kind:
                    page.records.append(each)
        if len(rows) < ROWS_AT_ONCE:
            return page

"""The pages of a run's log and the lanes of its timeline, as plain data."""

from __future__ import annotations

import json

from anabranch.kernel import events as e
from anabranch.kernel.values import failed
from anabranch.operations.read.event_pages import PAGE, log_page
from anabranch.operations.read.event_view import EventRecord
from anabranch.operations.read.timeline import LANES_KEPT
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch, Commit, Head
from anabranch.surfaces.ui.views.lanes import lanes_of
from timelines import token, told


def test_of_very_many_step_runs_the_last_are_kept_and_the_others_counted() -> None:
    timeline = told(*((n, token(n, "tick")) for n in range(1, LANES_KEPT + 501)))
    shown = lanes_of(timeline, 0, 200, "/runs/r")
    assert (shown["total"], shown["dropped"], len(shown["lanes"])) == (LANES_KEPT + 500, 500, 200)
    assert shown["lanes"][-1]["id"] == str(LANES_KEPT + 500)
    older = lanes_of(timeline, 200, 200, "/runs/r")
    assert older["lanes"][-1]["id"] == str(LANES_KEPT + 300)
    json.dumps(shown)


def test_what_a_lane_did_can_be_read() -> None:
    timeline = told(
        (0, token(1, "fetch")),
        (0, e.JobScheduled("1.0", 1, -1, 1)),
        (5, e.JobStarted("1.0", 1, "engine")),
        (25, e.JobReported("1.0", 1, failed("http", "no route"))),
        (25, e.JobRetrying("1.0", 2, 50)),
    )
    (lane,) = lanes_of(timeline, 0, 10, "/runs/r")["lanes"]
    assert lane["words"] == "queued 5 ms; at work, failed 20 ms (no route); " + (
        "before a retry until now (before attempt 2)"
    )


# -- the log -----------------------------------------------------------------------------------


def log_of(count: int) -> MemoryStore:
    store = MemoryStore()
    for first in range(1, count + 1, 10):
        events = [token(number, "tick") for number in range(first, first + 10)]
        head = Head(
            run="r", definition="", name="", dialect="", status="running", seq=first + 9,
            created_at=0, updated_at=0,
        )  # fmt: skip
        commit = Commit(head=head, at=first, events=e.encode_events(events), count=10)
        store.commit(Batch(commits=[commit]))
    return store


def numbers(records: list[EventRecord]) -> list[int]:
    return [record.seq for record in records]


def test_pages_of_events_follow_one_another_without_a_gap() -> None:
    store, after, seen = log_of(3450), 0, list[int]()
    while True:
        page = log_page(store, "r", private="", after=after)
        seen += numbers(page.records)
        assert len(page.records) <= PAGE
        if page.next_after is None:
            break
        after = page.next_after
    assert seen == list(range(1, 3451))


def test_a_page_far_inside_the_log_begins_where_it_was_asked_to() -> None:
    page = log_page(log_of(5000), "r", private="", after=4321)
    assert numbers(page.records)[0] == 4322


def test_a_filter_looks_on_until_a_page_is_full() -> None:
    store = log_of(300)
    assert log_page(store, "r", private="", after=0, kind="job.").records == []
    assert len(log_page(store, "r", private="", after=0, kind="token").records) == PAGE

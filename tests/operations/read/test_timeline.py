"""Timelines, gathers and the paths that tokens took, from events alone."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.errors import DamagedRun
from anabranch.kernel import events as e
from anabranch.kernel.values import Answer, failed, succeeded
from anabranch.net.net import GatherRule
from anabranch.operations.read.timeline import Timelines
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch, Commit, Head
from timelines import token, told


def test_a_retried_job_is_one_lane_with_its_tries_and_the_waits_between_them() -> None:
    timeline = told(
        (10, token(1, "fetch")),
        (10, e.JobScheduled("1.0", 1, -1, 1)),
        (12, e.JobStarted("1.0", 1, "engine")),
        (20, e.JobReported("1.0", 1, failed("http", "no route"))),
        (20, e.JobRetrying("1.0", 2, 50)),
        (50, e.JobScheduled("1.0", 1, -1, 2)),
        (50, e.JobStarted("1.0", 2, "engine")),
        (60, e.JobReported("1.0", 2, succeeded(1))),
        (60, e.TokenFinished(1, "done")),
    )
    (lane,) = timeline.lanes.values()
    assert (lane.start, lane.end, lane.status, lane.attempts) == (10, 60, "done", 2)
    kinds = [(s.kind, s.start, s.end, s.good) for s in lane.segments]
    assert kinds == [
        ("queued", 10, 12, True),
        ("running", 12, 20, False),
        ("retry", 20, 50, True),
        ("queued", 50, 50, True),
        ("running", 50, 60, True),
    ]
    assert lane.segments[1].note == "no route"


def test_the_jobs_of_a_fan_have_lanes_of_their_own_with_whom_they_ask() -> None:
    timeline = told(
        (0, token(1, "ask")),
        (0, e.GatherOpened("f1", "fan", 1, GatherRule(mode="best_of"), ["north", "south"])),
        (0, e.JobScheduled("1.0", 1, 0, 1)),
        (0, e.JobScheduled("1.1", 1, 1, 1)),
        (1, e.JobStarted("1.0", 1, "engine")),
        (5, e.JobReported("1.0", 1, succeeded({"price": 3}))),
        (5, e.Delivered("f1", 0, "1.0", "ok", 3.0)),
        (6, e.Delivered("f1", 1, "1.1", "ok", 9.0)),
        (6, e.GatherSettled("f1", "closed", [1])),
    )
    assert [lane.label for lane in timeline.lanes.values()] == [
        "ask",
        "ask → north",
        "ask → south",
    ]
    view = timeline.gathers.shown["f1"]
    assert view.rule_text == "best of 2"
    assert [(slot.label, slot.score, slot.selected) for slot in view.ranked] == [
        ("south", 9.0, True),
        ("north", 3.0, False),
    ]


def test_losers_of_a_join_are_told_apart_by_what_became_of_them() -> None:
    rule = GatherRule(mode="quorum", k=1, losers="kill")
    timeline = told(
        (0, token(2, "done")),
        (0, e.GatherOpened("g2", "join", 2, rule, ["a", "b", "c", "d"], ["any"] * 4)),
        *((1, token(number, step, 2)) for number, step in ((3, "a"), (4, "b"), (5, "c"), (6, "d"))),
        (5, e.Delivered("g2", 0, "3", "ok")),
        (5, e.TokenFinished(3, "done")),
        (5, e.GatherSettled("g2", "closed", [0])),
        (5, e.TokenFinished(4, "aborted", end="killed")),
        (5, e.TokenDoomed(5, "its join closed")),
        (8, e.TokenFinished(5, "aborted", end="killed")),
        (9, e.DeliveryLate("g2", "6", "ok")),
    )
    view = timeline.gathers.shown["g2"]
    became = {one.step: one.became for one in view.losers}
    assert became == {
        "b": "killed before it worked",
        "c": "killed while it worked; ended",
        "d": "on its way",
    }
    assert (view.late, view.late_ones) == (1, [(9, "6", "ok")])


def test_a_loop_is_one_bar_however_many_shards_it_has() -> None:
    timeline = told(
        (0, token(1, "each")),
        (0, e.LoopOpened("l1", 1, "fanout", {"range": 1000}, 1000, 2, 1, False)),
        *((n, e.JobStarted(f"1.{n}", 1, "engine")) for n in range(1000)),
        (2000, e.LoopSettled("l1", "partial")),
        (2001, e.TokenFinished(1, "done")),
    )
    (lane,) = timeline.lanes.values()
    assert [(s.kind, s.start, s.end) for s in lane.segments] == [("loop", 0, 2000)]


# -- the ways of tokens --------------------------------------------------------------------------


def test_ways_are_counted_from_parent_to_child_and_into_and_out_of_joins() -> None:
    rule = GatherRule(mode="quorum", k=1)
    timeline = told(
        (0, e.TokenCreated(1, "order", 0, 0, "entry")),
        (0, e.TokenCreated(2, "done", 1, 0, "join")),  # waits: nobody has come to it yet
        (0, e.GatherOpened("j2", "join", 2, rule, ["a"], ["any"])),
        (0, e.TokenCreated(3, "a", 1, 2, "arc")),
        (0, e.TokenFinished(1, "done", "valid")),
        (1, e.TokenFinished(3, "done")),
        (1, e.Delivered("j2", 0, "3", "ok")),
        (1, e.GatherSettled("j2", "closed", [0])),
    )
    assert timeline.ways() == [
        ["order", "a", "valid", 1],
        ["a", "→ done", "ok", 1],
        ["→ done", "done", "", 1],
    ]


def test_a_way_to_the_final_step_counts_when_that_runs() -> None:
    timeline = told(
        (0, e.TokenCreated(1, "a", 0, 0, "entry")),
        (1, e.TokenFinished(1, "done", "ok", "leaf", None, {})),
    )
    assert timeline.ways() == []
    timeline.see(2, e.TokenCreated(2, "end", 0, 0, "final"))
    assert timeline.ways() == [["a", "end", "ok", 1]]


def test_a_lane_is_queued_until_somebody_has_its_job_and_ends_with_its_outcome() -> None:
    timeline = told(
        (0, e.TokenCreated(1, "a", 0, 0, "entry")),
        (0, e.JobScheduled("1.0", 1, -1, 1)),
    )
    (lane,) = timeline.lanes.values()
    assert lane.status == "queued"
    timeline.see(1, e.JobStarted("1.0", 1, "w"))
    assert lane.status == "running"
    no = Answer(status="ok", outcome="invalid", by_error="amount is missing")
    timeline.see(2, e.JobReported("1.0", 1, no))
    timeline.see(2, e.TokenFinished(1, "done", "invalid"))
    assert lane.status == "invalid by error"


def test_a_barrier_counts_everybody_who_came_and_a_join_that_failed_leads_nowhere() -> None:
    timeline = told(
        *(
            (0, e.TokenCreated(number, step, 0, 0, "entry"))
            for number, step in ((1, "a"), (2, "b"))
        ),
        (0, e.TokenCreated(3, "all", 1, 0, "barrier")),
        (0, e.GatherOpened("b3", "barrier", 3, GatherRule(mode="all"), ["a", "b"])),
        (0, e.Delivered("b3", 0, "1", "ok")),
        (1, e.Delivered("b3", 1, "2", "ok")),
        (1, e.GatherSettled("b3", "closed", [0, 1])),
        (2, e.TokenCreated(4, "end", 1, 0, "join")),
        (2, e.GatherOpened("j4", "join", 4, GatherRule(mode="all"), ["x"])),
        (3, e.GatherSettled("j4", "impossible", [])),
    )
    assert timeline.ways() == [["a", "all", "ok", 1], ["b", "all", "ok", 1]]


# -- kept between two looks ----------------------------------------------------------------------


def kept(created_at: int, *steps: str) -> tuple[MemoryStore, Head]:
    store = MemoryStore()
    head = Head(
        run="r", definition="", name="", dialect="", status="running", seq=len(steps),
        created_at=created_at, updated_at=created_at,
    )  # fmt: skip
    events = e.encode_events([token(number, step) for number, step in enumerate(steps, start=1)])
    store.commit(Batch(commits=[Commit(head=head, at=9, events=events, count=len(steps))]))
    return store, head


def test_a_run_that_has_the_id_of_a_purged_one_has_a_timeline_of_its_own() -> None:
    timelines = Timelines()
    for created_at, steps in ((1, ("a", "b")), (2, ("c",))):
        timeline = timelines.of(*kept(created_at, *steps))
        assert [lane.step for lane in timeline.lanes.values()] == list(steps)


def test_what_was_read_of_a_log_is_not_read_again() -> None:
    timelines, (store, head) = Timelines(), kept(1, "a", "b")
    assert timelines.of(store, head) is timelines.of(store, head)
    assert len(timelines.of(store, head).lanes) == 2


def test_a_damaged_row_is_named_every_time_and_never_passed_over() -> None:
    store, head = kept(1, "a")
    torn = Commit(
        head=msgspec.structs.replace(head, seq=2), at=9, events=b'[["token.created",2,7]]', count=1
    )
    store.commit(Batch(commits=[torn]))
    timelines = Timelines()
    for _ in range(2):
        with pytest.raises(DamagedRun, match="events 2 to 2"):
            timelines.of(store, head)

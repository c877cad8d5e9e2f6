"""Who runs at once, who waits, and in which order things of one instant happen."""

from __future__ import annotations

import pytest

from anabranch.net.net import GatherRule, Net
from anabranch.testing import Played, after, never, ok, play

from .support import asks, calls, joins, net, to

KILL = GatherRule(mode="any", combine="merge", losers="kill")
PARTIES = ["p1", "p2", "p3", "p4"]


def _most_at_once(played: Played) -> int:
    now = most = 0
    for event in played.events:
        now += event.kind == "job.started"
        now -= event.kind == "job.reported"
        most = max(most, now)
    return most


@pytest.mark.parametrize(("limit", "seconds"), [(1, 40.0), (2, 20.0), (3, 20.0), (None, 10.0)])
def test_concurrency_limits_how_many_jobs_run_at_once(limit: int | None, seconds: float) -> None:
    flow = net(asks("ask", PARTIES, GatherRule(mode="all")))
    played = play(flow, script={"ask": after(10, ok())}, concurrency=limit)
    assert _most_at_once(played) == (limit or 4)
    assert played.seconds == seconds


def test_jobs_of_all_kinds_share_one_queue_in_arrival_order() -> None:
    flow = net(
        calls("start", branches=to("a", "b", "c", "d")),
        calls("a", kind="http"),
        calls("b", kind="shell"),
        calls("c", kind="http"),
        calls("d", kind="shell"),
    )
    played = play(flow, concurrency=1)
    assert _order(played) == ["start", "a", "b", "c", "d"]


def _order(played: Played) -> list[str]:
    steps = {event["token"]: event["step"] for event in played.events_of("token.created")}
    jobs = {event["job"]: event["token"] for event in played.events_of("job.scheduled")}
    return [steps[jobs[event["job"]]] for event in played.events_of("job.started")]


def test_a_timeout_runs_only_from_the_start_of_the_job() -> None:
    flow = net(
        calls("start", branches=to("a", "b")),
        calls("a", job_timeout_ms=10_000),
        calls("b", job_timeout_ms=10_000),
    )
    played = play(flow, script={"a": after(9, ok()), "b": after(9, ok())}, concurrency=1)
    assert (played.status, played.seconds) == ("completed", 18.0)


def test_a_kill_ends_scheduled_losers_at_once_and_stops_running_ones() -> None:
    flow = net(
        calls("start", branches=joins("x", "y", "z", target="end", rule=KILL)),
        calls("x"),
        calls("y"),
        calls("z"),
        calls("end"),
    )
    script = {"x": after(1, {"x": 1}), "y": after(5, {"y": 1}), "z": after(5, {"z": 1})}
    played = play(flow, script=script, concurrency=2)
    assert [played.step(name).status for name in ("x", "y", "z", "end")] == [
        *("done", "aborted", "aborted", "done")
    ]
    assert _order(played) == ["start", "x", "y", "end"]  # z never began
    assert [event["how"] for event in played.events_of("job.discharged")] == [
        "unstarted",
        "stopped",
    ]
    assert played.seconds == 1.0


def test_a_job_that_never_answers_keeps_its_place() -> None:
    flow = net(calls("start", branches=to("a", "b")), calls("a"), calls("b"))
    played = play(flow, script={"a": never()}, concurrency=1)
    assert [played.step(name).status for name in "ab"] == ["running", "ready"]
    assert [wait.waits_for for wait in played.waiting] == [
        *("its work (attempt 1)", "a free worker (attempt 1)")
    ]


# -- seeds -----------------------------------------------------------------------------------


def _race() -> Net:
    names = ["a", "b", "c", "d", "e"]
    return net(
        calls("start", branches=to(*names)),
        *(calls(name, branches=to("end")) for name in names),
        calls("end"),
    )


def test_seed_zero_is_the_order_of_arrival() -> None:
    assert _order(play(_race()))[:6] == ["start", "a", "b", "c", "d", "e"]


def test_the_same_seed_gives_the_same_events_and_another_one_another_order() -> None:
    plays = [play(_race(), seed=seed) for seed in (0, 1, 1, 2, 3)]
    assert plays[1].events == plays[2].events
    assert len({tuple(_order(played)) for played in plays}) >= 3
    assert {tuple(sorted(played.steps)) for played in plays} == {tuple(sorted(plays[0].steps))}


def test_seeds_decide_races_between_an_answer_and_a_timeout() -> None:
    flow = net(calls("a", job_timeout_ms=5_000))
    endings = {play(flow, script={"a": after(5, ok())}, seed=seed).status for seed in range(20)}
    assert endings == {"completed", "failed"}

"""Fans: one token asks many, one job a slot, and goes on with the answers it needs."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import Fault, aborted, cancels_run, failed
from anabranch.net.net import Fan, GatherRule, Work

from .driver import Run
from .nets import Fn, Wrong, const, fan_net, net, retrying, step

THREE = ["ann", "bob", "cy"]


def started(run: Run, *slots: int) -> None:
    for slot in slots:
        run.begin(f"1.{slot}")


def phases(run: Run) -> dict[str, str]:
    return {job.id: job.phase for job in run.state.jobs.values()}


def fault_of(run: Run) -> Fault:
    assert run.state.problem is not None
    return run.state.problem


# -- asking --------------------------------------------------------------------------------------


def test_one_job_a_slot_is_scheduled_at_once() -> None:
    run = Run(fan_net(THREE, "all"))
    assert phases(run) == {"1.0": "scheduled", "1.1": "scheduled", "1.2": "scheduled"}
    assert run.token("ask").jobs == 3


def test_a_window_bounds_how_many_jobs_are_out() -> None:
    run = Run(fan_net([f"p{i}" for i in range(5)], "all", window=2))
    asked = []
    while not run.state.finished:
        assert len(run.state.jobs) <= 2
        job = next(iter(run.state.jobs))
        asked.append(job)
        run.done(job, job)
    assert asked == [f"1.{slot}" for slot in range(5)]
    assert run.result == {"responses": asked}


def test_values_that_are_not_text_are_labelled_by_position() -> None:
    run = Run(fan_net([{"n": 1}, "x"], "all"))
    gather = run.gather("ask")
    assert gather.labels == ["0", "1"]
    assert gather.values == [{"n": 1}, "x"]


@pytest.mark.parametrize(
    ("over", "kind", "words"),
    [
        (const("abc"), "collection", "needs a list, not str"),
        (const(None), "collection", "needs a list, not NoneType"),
        (Wrong("slots"), "expression", "slots: division by zero"),
    ],
)
def test_a_collection_that_is_none_fails_the_step(over: Any, kind: str, words: str) -> None:
    run = Run(net(step("ask", fan=Fan(over, GatherRule()))))
    assert run.status == "failed"
    assert fault_of(run).kind == kind
    assert words in fault_of(run).message


def test_nobody_to_ask_fails_at_once() -> None:
    run = Run(fan_net([], "all"))
    assert run.status == "failed"
    assert fault_of(run).kind == "gather_impossible"


def test_an_empty_loop_is_complete() -> None:
    run = Run(fan_net([], "all", "next", empty_closes=True))
    assert run.status == "completed"
    assert run.state.results["ask"] == {"responses": []}


# -- answers -------------------------------------------------------------------------------------


def test_all_lists_the_answers_in_slot_order() -> None:
    run = Run(fan_net(THREE, "all"))
    for slot in (2, 0, 1):
        run.done(f"1.{slot}", slot)
    assert run.result == {"responses": [0, 1, 2]}
    assert run.verdict("ask") == ("closed", THREE, 0)


def test_any_goes_on_with_the_first_usable_answer() -> None:
    run = Run(fan_net(THREE, "any", combine="one", losers="kill", usable=Fn(lambda n: n["answer"])))
    run.done("1.1", None)  # a negative answer
    assert run.gather("ask").lost == {1: "negative"}
    run.done("1.2", "yes")
    assert run.result == "yes"
    assert run.status == "completed"


def test_no_usable_answer_at_all_fails_at_once() -> None:
    run = Run(fan_net(THREE, "any", usable=const(False)))
    for slot in range(3):
        run.done(f"1.{slot}", slot)
    assert run.status == "failed"
    assert run.verdict("ask")[0] == "impossible"


def test_best_of_takes_the_best_score() -> None:
    score = Fn(lambda names: names["answer"]["price"])
    run = Run(fan_net(THREE, "best_of", select="score", order="asc", combine="one", score=score))
    for slot, price in enumerate([7, 3, 9]):
        run.done(f"1.{slot}", {"price": price, "who": THREE[slot]})
    assert run.result == {"price": 3, "who": "bob"}
    assert [d.score for d in run.of_kind(e.Delivered)] == [7.0, 3.0, 9.0]


@pytest.mark.parametrize("score", [True, "9", None, float("inf"), [1]])
def test_an_answer_without_a_number_is_no_candidate(score: Any) -> None:
    read = Fn(lambda names: score if names["answer"] == "odd" else 1)
    run = Run(fan_net(["a", "b"], "best_of", select="score", combine="one", score=read))
    run.done("1.0", "odd")
    run.done("1.1", "even")
    assert run.result == "even"


def test_a_score_that_cannot_be_worked_out_loses_the_slot() -> None:
    run = Run(fan_net(["a"], "best_of", select="score", score=Wrong()))
    run.done("1.0", 1)
    assert run.of_kind(e.SlotLost)[0].reason.startswith("not scored")
    assert run.status == "failed"


def test_unreachable_parties_are_excluded_where_the_rule_says_so() -> None:
    run = Run(fan_net(THREE, "quorum", k=3, exclude_lost=True))
    run.fails("1.0", "unreachable")
    run.done("1.1", 1)
    run.done("1.2", 2)
    assert run.verdict("ask") == ("closed", ["bob", "cy"], 0)


def test_a_slot_is_retried_by_itself() -> None:
    run = Run(fan_net(["a", "b"], "all", work=retrying(2, 50)))
    run.done("1.0", "a")
    run.fails("1.1")
    assert run.state.jobs["1.1"].phase == "backoff"
    run.tick(run.at + 50)
    assert run.state.jobs["1.1"].attempt == 2
    run.done("1.1", "b")
    assert run.result == {"responses": ["a", "b"]}


def test_a_slot_that_aborts_is_lost() -> None:
    run = Run(fan_net(["a"], "all"))
    run.answer("1.0", aborted("schema", "bad"))
    assert run.of_kind(e.SlotLost)[0].reason == "schema"


def test_a_slot_that_asks_for_the_end_of_the_run_gets_it() -> None:
    run = Run(fan_net(THREE, "all"))
    started(run, 1)
    run.answer("1.0", cancels_run("budget", "out of money"))
    assert run.state.ending == "cancelled"
    run.discharge("1.1")
    assert run.status == "cancelled"
    assert fault_of(run).message == "out of money"


# -- losers --------------------------------------------------------------------------------------


def test_kill_ends_scheduled_losers_and_tells_running_ones_to_stop() -> None:
    run = Run(fan_net(THREE, "any", "next", losers="kill"))
    started(run, 0, 1)
    run.done("1.0", "first")
    assert phases(run) == {"1.1": "cancelling"}
    assert run.statuses("ask") == ["done"], "the token has gone on"
    assert run.status == "running", "somebody still works for the run"
    run.discharge("1.1")
    assert run.status == "completed"


def test_the_late_answer_of_a_killed_loser_is_recorded_and_changes_nothing() -> None:
    run = Run(fan_net(THREE, "any", "next", losers="kill", combine="one"))
    started(run, 0, 1)
    run.done("1.0", "first")
    run.done("1.1", "second")
    assert run.verdict("ask") == ("closed", ["ann"], 1)
    assert run.state.results["ask"] == "first"
    reports = [event.answer.result for event in run.of_kind(e.JobReported)]
    assert reports == ["first", "second"]


def test_the_late_failure_of_a_killed_loser_is_no_delivery() -> None:
    run = Run(fan_net(["a", "b"], "any", losers="kill"))
    started(run, 0, 1)
    run.done("1.0")
    run.fails("1.1")
    assert run.verdict("ask")[2] == 0
    assert run.status == "completed"


def test_drain_lets_running_and_parked_losers_come_in_late() -> None:
    run = Run(fan_net([*THREE, "dee"], "any", "next", losers="drain"))
    started(run, 0, 1)
    parked = run.park("1.2")
    run.done("1.0", "first")
    assert phases(run) == {"1.1": "running", "1.2": "parked"}, "what had not begun is dropped"
    run.done("1.1", "late")
    assert run.status == "waiting"
    run.send(s.JobReport(parked.id, 1, failed("boom", "too bad")))
    assert run.verdict("ask") == ("closed", ["ann"], 1)
    assert run.status == "completed"


def test_a_draining_loser_is_not_tried_again() -> None:
    run = Run(fan_net(THREE, "any", "next", work=retrying(5), losers="drain"))
    started(run, 0, 1, 2)
    run.done("1.0", "first")
    run.fails("1.1")
    run.send(s.JobLose("1.2", 1))
    assert phases(run) == {}
    assert run.status == "completed"


def test_a_draining_loser_that_takes_too_long_is_over() -> None:
    run = Run(fan_net(["a", "b"], "any", work=Work("test", timeout_ms=100), losers="drain"))
    started(run, 0, 1)
    run.done("1.0", "first")
    run.tick(run.at + 100)
    assert run.status == "completed"
    assert run.verdict("ask")[2] == 0


def test_an_impossible_fan_stops_the_rest() -> None:
    run = Run(fan_net(THREE, "all", losers="kill"))
    started(run, 0, 1)
    run.fails("1.0")
    assert phases(run) == {"1.1": "cancelling"}
    run.discharge("1.1")
    assert run.status == "failed"


# -- time ----------------------------------------------------------------------------------------


def test_at_the_step_timeout_partial_answers_are_enough_where_the_rule_says_so() -> None:
    run = Run(fan_net(THREE, "all", timeout_ms=500, partial_on_expiry=True, losers="kill"))
    started(run, 1, 2)
    run.done("1.1", "bob")
    run.tick(run.at + 500)
    assert run.verdict("ask") == ("closed", ["bob"], 0)
    run.discharge("1.2")
    assert run.result == {"responses": ["bob"]}


def test_at_the_step_timeout_an_open_fan_expires() -> None:
    run = Run(fan_net(THREE, "all", timeout_ms=500))
    started(run, 0)
    run.done("1.1", "bob")
    run.tick(run.at + 500)
    assert run.verdict("ask")[0] == "expired"
    assert phases(run) == {"1.0": "cancelling"}, "time is up for everybody, drain or not"
    run.discharge("1.0")
    assert run.status == "step_timeout"


def test_a_slots_own_timeout_loses_only_that_slot() -> None:
    run = Run(fan_net(["a", "b"], "any", work=Work("test", timeout_ms=100)))
    started(run, 0)
    run.tick(run.at + 100)
    assert run.gather("ask").lost == {0: "timeout"}
    run.done("1.1", "b")
    assert run.status == "completed"


def test_a_slot_and_the_step_can_run_out_of_time_in_one_tick() -> None:
    run = Run(fan_net(["a", "b"], "all", work=Work("test", timeout_ms=100), timeout_ms=100))
    started(run, 0, 1)
    run.tick(run.at + 1_000)
    assert run.verdict("ask")[0] == "expired"
    assert run.status == "step_timeout"


def test_killing_a_fan_waits_for_its_running_jobs_only() -> None:
    run = Run(fan_net(THREE, "all"))
    started(run, 0)
    run.send(s.Cancel("me"))
    assert phases(run) == {"1.0": "cancelling"}
    assert run.token("ask").doomed
    run.done("1.0", "too late")
    assert run.status == "cancelled"
    assert run.verdict("ask") == ("impossible", [], 1)
    assert run.state.results == {}

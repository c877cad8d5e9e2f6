"""Proposal 033: what the host does, what is in scope, and its open questions."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from anabranch.testing import after, negative, never, ok, stubborn, unreachable

from .arca_stage import ask, seconds, stage, step, workflow

SECRET = {"secret": "of a loser"}


def by(wait: float, name: str) -> Any:
    return after(wait, ok({"by": name}))


# -- fan-out dispatch, host responsibilities -----------------------------------------------------


def test_host_1_resolves_the_target_to_a_list_of_participants() -> None:
    target = {"resolve": "capability", "capability_id": "offer-catalog"}
    there = stage(workflow(step(target=target, fan_in={})), {"offer-catalog": ["x"], "x": 1})
    assert there.asked() == ["x"]


def test_host_2_creates_a_dispatch_record_for_each_target() -> None:
    there = stage(workflow(ask("p1", "p2", policy="all")), {"p1": by(1, "p1"), "p2": by(2, "p2")})
    first, second = there.records
    assert [first.target, second.target] == ["p1", "p2"]
    assert first.dispatch_id != second.dispatch_id


def test_host_3_collects_responses_by_step_and_participant() -> None:
    steps = [ask("p1", "p2", policy="all", step_id=name) for name in ("a", "b")]
    script = {f"{name}/{p}": {"at": f"{name}{p}"} for name in "ab" for p in ("p1", "p2")}
    there = stage(workflow(*steps), script)
    assert there.output("a") == {"responses": [{"at": "ap1"}, {"at": "ap2"}]}
    assert there.output("b") == {"responses": [{"at": "bp1"}, {"at": "bp2"}]}


def test_host_4_applies_the_policy_to_decide_when_the_step_is_done() -> None:
    one = ask("p1", "p2", "p3", policy="quorum", min_responses=2)
    there = stage(workflow(one), {"p1": negative(), "p2": by(4, "p2"), "p3": by(2, "p3")})
    assert there.played.seconds == 4


def test_host_5_cancels_outstanding_dispatches_when_the_policy_is_satisfied() -> None:
    there = stage(workflow(ask("p1", "p2")), {"p1": never(), "p2": by(2, "p2")})
    assert there.ends() == {"p1": "cancelled", "p2": "responded"}
    (told,) = there.played.events_of("job.cancelling")
    assert (told["job"], told.at) == ("1.0", 2)


def test_host_5_cancels_outstanding_dispatches_after_the_timeout() -> None:
    one = ask("p1", "p2", policy="all", timing={"timeout": "PT9S"})
    there = stage(workflow(one), {"p1": never(), "p2": by(2, "p2")})
    assert there.ends() == {"p1": "timeout", "p2": "responded"}
    assert [e.at for e in there.played.events_of("job.cancelling")] == [9]


# -- dispatch tracking ---------------------------------------------------------------------------


def test_a_dispatch_record_has_exactly_the_fields_of_the_proposal() -> None:
    there = stage(workflow(ask("p1")), {"p1": by(2, "p1")})
    (record,) = there.records
    fields = msgspec.to_builtins(record)
    assert list(fields) == [
        *("dispatch_id", "run_id", "step_id", "target", "dispatched_at", "status"),
        *("response", "responded_at"),
    ]
    assert re.fullmatch(r"dispatch:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", record.dispatch_id)
    assert (record.run_id, record.step_id, record.target) == ("play", "s", "p1")
    assert record.dispatched_at.endswith("Z")
    assert seconds(record.responded_at) == 2
    assert record.response == {"by": "p1"}


def test_dispatch_status_pending() -> None:
    there = stage(workflow(ask("p1")), {"p1": never()})
    assert there.ends() == {"p1": "pending"}
    assert there.step("s")["status"] == "awaiting_fan_out"


def test_dispatch_status_responded_timeout_cancelled() -> None:
    one = ask("p1", "p2", "p3", policy="best_of", score_field="/n", timing={"timeout": "PT5S"})
    there = stage(workflow(one), {"p1": {"n": 1}, "p2": never(), "p3": unreachable()})
    assert there.ends() == {"p1": "responded", "p2": "timeout", "p3": "cancelled"}


def test_records_are_in_the_commit_log_under_their_place() -> None:
    there = stage(workflow(ask("p1")), {"p1": 1})
    (dispatch,) = there.dispatches
    assert dispatch.place == f"state/workflow-dispatch/{dispatch.record.dispatch_id}"


def test_dispatch_ids_are_the_same_for_the_same_run_and_new_for_each_try() -> None:
    timing = {"timeout": "PT1S", "retry": {"max_attempts": 2}}
    one, two = (stage(workflow(ask("p1", timing=timing)), {"p1": never()}) for _ in range(2))
    ids = [record.dispatch_id for record in one.records]
    assert len(set(ids)) == 3
    assert ids == [record.dispatch_id for record in two.records]
    assert [dispatch.attempt for dispatch in one.dispatches] == [1, 2, 3]


# -- temporal enforcement ------------------------------------------------------------------------


def test_tick_1_and_2_a_timed_out_dispatch_triggers_a_retry_and_then_on_timeout() -> None:
    timing = {"timeout": "PT2S", "on_timeout": "skip", "retry": {"max_attempts": 1}}
    there = stage(workflow(ask("p1", timing=timing)), {"p1": never()})
    assert [record.status for record in there.records] == ["timeout", "timeout"]
    assert (there.step("s")["status"], there.played.seconds) == ("skipped", 4)


def test_tick_3_and_4_the_deadline_cancels_all_pending_dispatches() -> None:
    steps = [ask("p1", "p2", policy="all", step_id=name) for name in ("a", "b")]
    there = stage(workflow(*steps, deadline="PT7S"), {"a/p1": 1, "p1": never(), "p2": never()})
    assert (there.status, there.played.seconds) == ("deadline_exceeded", 7)
    assert there.ends("a") == {"p1": "responded", "p2": "cancelled"}
    assert there.ends("b") == {"p1": "cancelled", "p2": "cancelled"}


# -- the Arca contract ---------------------------------------------------------------------------


def test_only_the_selected_output_is_seen_never_the_responses_of_the_losers() -> None:
    one = ask("p1", "p2", policy="best_of", score_field="/n", timing={"timeout": "PT5S"})
    heard: list[Any] = []

    def follows(task: Any) -> Any:
        heard.append(task.inputs["input"])
        return {}

    two = step("follows", input_from="s")
    script = {"p1": {"n": 2}, "p2": {"n": 1, **SECRET}, "follows": follows}
    there = stage(workflow(one, two), script)
    assert there.step("s")["selected_output"] == {"n": 2}
    assert heard == [{"n": 2, "upstream": {"s": {"n": 2}}}]
    assert SECRET["secret"] not in msgspec.json.encode(there.snapshot).decode()
    assert there.records[1].response == {"n": 1, **SECRET}, "the commit log has it"
    assert "response" not in there.step("s")["dispatches"][1]


# -- hard MVP scope ------------------------------------------------------------------------------

SCOPE: dict[str, tuple[Any, dict[str, Any], Any]] = {
    'target.resolve = "static"': (ask("p1"), {"p1": 1}, 1),
    'target.resolve = "capability"': (
        step(target={"resolve": "capability", "capability_id": "c"}, fan_in={}),
        {"c": ["p1"], "p1": 1},
        1,
    ),
    'fan_in.policy = "any_one"': (ask("p1", "p2"), {"p1": by(2, "a"), "p2": 2}, 2),
    'fan_in.policy = "all"': (
        ask("p1", "p2", policy="all"),
        {"p1": 1, "p2": 2},
        {"responses": [1, 2]},
    ),
    'fan_in.policy = "quorum"': (
        ask("p1", "p2", "p3", policy="quorum", min_responses=2),
        {"p1": 1, "p2": never(), "p3": 3},
        {"responses": [1, 3]},
    ),
    'fan_in.policy = "best_of"': (
        ask("p1", "p2", policy="best_of", score_field="/n", timing={"timeout": "PT1S"}),
        {"p1": {"n": 1}, "p2": {"n": 2}},
        {"n": 2},
    ),
    "timing.timeout + on_timeout": (
        ask("p1", timing={"timeout": "PT1S", "on_timeout": "skip"}),
        {"p1": never()},
        None,
    ),
    "timing.retry": (
        ask("p1", timing={"timeout": "PT1S", "retry": {"max_attempts": 1, "backoff": "PT1S"}}),
        {"p1": [never(), 5]},
        5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", SCOPE)
def test_mvp_scope(row: str) -> None:
    one, script, output = SCOPE[row]
    there = stage(workflow(one), script)
    assert there.status == "completed"
    assert there.output() == output


def test_mvp_scope_run_level_deadline_and_background_enforcement_tick() -> None:
    """Nothing happens for an hour, and then the run ends at the millisecond."""
    there = stage(workflow(ask("p1"), deadline="PT1H"), {"p1": never()})
    assert (there.status, there.played.seconds) == ("deadline_exceeded", 3600)


def test_mvp_scope_dispatch_records_and_canonical_output_only() -> None:
    there = stage(workflow(ask("p1", "p2")), {"p1": {"x": 1}, "p2": by(1, "p2")})
    assert len(there.records) == len(there.step("s")["dispatches"]) == 2
    assert there.step("s")["output"] == there.step("s")["selected_output"] == {"x": 1}


# -- open questions ------------------------------------------------------------------------------


def test_open_question_1_all_returns_an_array_under_responses_in_the_order_of_the_targets() -> None:
    there = stage(
        workflow(ask("p1", "p2", policy="all")), {"p1": by(9, "slow"), "p2": by(1, "quick")}
    )
    assert there.output() == {"responses": [{"by": "slow"}, {"by": "quick"}]}


def test_open_question_2_unreachable_targets_leave_the_denominator() -> None:
    quorum = ask("p1", "p2", "p3", policy="quorum", min_responses=3)
    there = stage(workflow(quorum), {"p1": by(1, "p1"), "p2": unreachable(), "p3": by(2, "p3")})
    assert there.output() == {"responses": [{"by": "p1"}, {"by": "p3"}]}
    everybody = ask("p1", "p2", policy="all")
    there = stage(workflow(everybody), {"p1": unreachable(), "p2": by(1, "p2")})
    assert there.output() == {"responses": [{"by": "p2"}]}
    assert [dispatch.outcome for dispatch in there.dispatches] == ["unreachable", "usable"]


def test_open_question_3_targets_are_searched_once_per_round_and_not_per_dispatch() -> None:
    target = {"resolve": "capability", "capability_id": "c"}
    one = step(target=target, fan_in={"policy": "all"}, timing={"retry": {"max_attempts": 1}})
    found = [ok(["p1", "p2", "p3"]), ok(["p4"])]
    away = dict.fromkeys(("p1", "p2", "p3"), unreachable())
    there = stage(workflow(one), {"c": found, **away, "p4": 1})
    searches = [e for e in there.played.events_of("job.started") if e["job"].endswith("cut")]
    assert len(searches) == 2
    assert there.asked() == ["p1", "p2", "p3", "p4"]


# -- at the edges --------------------------------------------------------------------------------


def test_a_late_response_is_recorded_and_changes_nothing() -> None:
    script = {"p1": stubborn(by(9, "late")), "p2": by(1, "p2")}
    there = stage(workflow(ask("p1", "p2")), script)
    assert there.output() == {"by": "p2"}
    assert there.ends() == {"p1": "cancelled", "p2": "responded"}
    (late,) = [dispatch for dispatch in there.dispatches if dispatch.late_at is not None]
    assert (late.record.target, seconds(late.late_at), late.record.response) == ("p1", 9, None)


def test_a_response_at_the_instant_of_the_timeout_counts_if_it_was_there_first() -> None:
    timing = {"timeout": "PT5S", "on_timeout": "skip"}
    there = stage(workflow(ask("p1", timing=timing)), {"p1": by(5, "just in time")})
    assert there.output() == {"by": "just in time"}

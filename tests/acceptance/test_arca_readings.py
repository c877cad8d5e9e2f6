"""Where the sources leave a question open, one reading is kept: each has its test."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.testing import after, error, negative, never, ok, unreachable

from .arca_stage import ask, seconds, stage, step, workflow


def by(wait: float, name: str, **more: Any) -> Any:
    return after(wait, ok({"by": name, **more}))


ROUND: dict[str, Any] = {"timing": {"timeout": "PT10S"}}


@pytest.mark.parametrize(
    "target",
    [
        {"resolve": "static", "participants": ["p1", "p2"]},
        {"resolve": "capability", "capability_id": "find"},
        {"resolve": "task_type", "task_type": "find"},
    ],
)
def test_a1_a_target_without_fan_in_chooses_one_provider_and_never_fans_out(target: Any) -> None:
    search = {} if target["resolve"] == "static" else {"find": ["p1", "p2"]}
    one = {"step_id": "s", "target": target}
    one |= {} if target["resolve"] == "task_type" else {"service_type": "t"}
    there = stage(workflow(one), {**search, "p1": {"n": 1}, "p2": {"n": 2}})
    assert there.asked() == ["p1"]
    assert there.output() == {"n": 1}
    fanned = stage(workflow(one | {"fan_in": {}}), {**search, "p1": by(2, "p1"), "p2": {"n": 2}})
    assert fanned.asked() == ["p1", "p2"]
    assert fanned.output() == {"n": 2}, "an empty fan_in is any_one"


NO = [negative(), ok({"status": "error"}), ok(None), error("garbage")]


@pytest.mark.parametrize("no", NO)
@pytest.mark.parametrize("policy", ["any_one", "quorum", "best_of"])
def test_a3_a_negative_answer_does_not_satisfy(policy: str, no: Any) -> None:
    more: dict[str, Any] = {"quorum": {"min_responses": 1}, "best_of": {"score_field": "/n"}}
    one = ask("p1", "p2", policy=policy, **more.get(policy, {}), **ROUND)
    there = stage(workflow(one), {"p1": no, "p2": by(3, "p2", n=1)})
    assert there.played.seconds == 3
    assert [dispatch.outcome for dispatch in there.dispatches] == ["negative", "usable"]
    assert there.ends()["p1"] == "responded"


def test_a3_for_all_a_negative_answer_counts_and_appears() -> None:
    one = ask("p1", "p2", policy="all", **ROUND)
    there = stage(workflow(one), {"p1": negative({"status": "declined"}), "p2": 2})
    assert there.output() == {"responses": [{"status": "declined"}, 2]}


@pytest.mark.parametrize("policy", ["any_one", "quorum", "best_of"])
def test_a3_all_answers_in_and_none_usable_fails_at_once(policy: str) -> None:
    more: dict[str, Any] = {"quorum": {"min_responses": 2}, "best_of": {"score_field": "/n"}}
    one = ask("p1", "p2", policy=policy, **more.get(policy, {}), **ROUND)
    there = stage(workflow(one), {"p1": negative(), "p2": after(2, negative())})
    assert (there.status, there.played.seconds) == ("failed", 0 if policy == "quorum" else 2)
    assert there.problem["code"] in ("no_usable_response", "not_enough_responses")


def test_a4_max_attempts_counts_the_tries_after_the_first() -> None:
    timing = {"timeout": "PT10S", "retry": {"max_attempts": 1, "backoff": "PT300S"}}
    for one in (
        ask("p1", timing=timing),
        step(timing=timing, target={"resolve": "static", "participants": ["p1"]}),
    ):
        there = stage(workflow(one), {"p1": never()})
        assert [seconds(record.dispatched_at) for record in there.records] == [0, 310]


def test_a5_the_timeout_is_for_each_attempt_and_the_deadline_bounds_the_sum() -> None:
    timing = {"timeout": "PT10S", "retry": {"max_attempts": 5}}
    there = stage(workflow(ask("p1", timing=timing), deadline="PT25S"), {"p1": never()})
    assert [seconds(record.dispatched_at) for record in there.records] == [0, 10, 20]
    assert (there.status, there.played.seconds) == ("deadline_exceeded", 25)


def test_a6_best_of_closes_when_all_who_can_be_reached_have_answered() -> None:
    one = ask("p1", "p2", "p3", policy="best_of", score_field="/n", timing={"timeout": "PT1H"})
    script = {"p1": by(1, "p1", n=1), "p2": by(4, "p2", n=2), "p3": unreachable()}
    there = stage(workflow(one), script)
    assert (there.output()["by"], there.played.seconds) == ("p2", 4)


def test_a6_best_of_takes_what_there_is_at_the_timeout() -> None:
    one = ask("p1", "p2", policy="best_of", score_field="/n", **ROUND)
    there = stage(workflow(one), {"p1": by(1, "p1", n=1), "p2": never()})
    assert (there.output()["by"], there.played.seconds) == ("p1", 10)
    nobody = stage(workflow(one), {"p1": never(), "p2": negative()})
    assert nobody.status == "step_timeout"


@pytest.mark.parametrize("score", [True, "9", None, [9], {"n": 9}])
def test_a7_what_is_no_number_is_no_candidate(score: Any) -> None:
    one = ask("p1", "p2", policy="best_of", score_field="/n", **ROUND)
    there = stage(workflow(one), {"p1": by(0, "p1", n=score), "p2": by(1, "p2", n=-5)})
    assert there.output()["by"] == "p2"
    assert there.dispatches[0].outcome == "negative"
    alone = stage(
        workflow(ask("p1", policy="best_of", score_field="/n", **ROUND)), {"p1": {"n": score}}
    )
    assert alone.status == "failed"


def test_a7_of_equal_scores_the_earlier_answer_wins_and_then_the_order_of_the_targets() -> None:
    one = ask("p1", "p2", "p3", policy="best_of", score_field="/n", **ROUND)
    script = {"p1": by(3, "p1", n=1), "p2": by(2, "p2", n=1), "p3": by(1, "p3", n=0)}
    assert stage(workflow(one), script).output()["by"] == "p2"
    same = {name: by(2, name, n=1) for name in ("p3", "p2", "p1")}
    assert stage(workflow(one), same).output()["by"] == "p1"


def test_a8_the_first_transition_wins_and_nothing_later_changes_it() -> None:
    timing = {"timeout": "PT5S", "on_timeout": "skip"}
    there = stage(workflow(ask("p1", timing=timing)), {"p1": by(5.001, "late")})
    assert (there.step("s")["status"], there.ends()) == ("skipped", {"p1": "timeout"})


def test_a9_unreachable_targets_are_recorded_as_cancelled_and_not_counted() -> None:
    one = ask("p1", "p2", "p3", policy="quorum", min_responses=2, **ROUND)
    there = stage(workflow(one), {"p1": unreachable(), "p2": unreachable(), "p3": by(1, "p3")})
    assert there.output() == {"responses": [{"by": "p3"}]}, "at least one"
    assert there.ends() == {"p1": "cancelled", "p2": "cancelled", "p3": "responded"}


@pytest.mark.parametrize("policy", ["any_one", "all", "best_of"])
def test_a9_nobody_reachable_fails_at_once(policy: str) -> None:
    more: dict[str, Any] = {"score_field": "/n"} if policy == "best_of" else {}
    one = ask("p1", "p2", policy=policy, **more, **ROUND)
    there = stage(workflow(one), {"p1": unreachable(), "p2": unreachable()})
    assert (there.status, there.played.seconds) == ("failed", 0)
    assert there.problem["code"] == "no_reachable_targets"


@pytest.mark.parametrize("fan_in", [{"fan_in": {"policy": "all"}}, {"fan_in": {}}, {}])
def test_a10_no_targets_is_a_failure_and_is_tried_again_where_that_is_configured(
    fan_in: Any,
) -> None:
    target = {"resolve": "capability", "capability_id": "find"}
    one = step(target=target, **fan_in)
    there = stage(workflow(one), {"find": ok([])})
    assert (there.status, there.problem["code"]) == ("failed", "no_targets")
    again = one | {"max_retries": 1, "retry_delay_ms": 5000}
    there = stage(workflow(again), {"find": [ok([]), ok(["p1"])], "p1": {"n": 1}})
    assert (there.status, there.played.seconds, there.asked()) == ("completed", 5, ["p1"])


def test_a11_ready_steps_run_side_by_side_up_to_max_parallel_steps() -> None:
    steps = [ask("p", step_id=name) for name in "abcd"]
    for room, takes in ((1, 8), (2, 4), (3, 4), (4, 2)):
        there = stage(workflow(*steps, max_parallel_steps=room), {"p": after(2, 1)})
        assert (there.status, there.played.seconds) == ("completed", takes)


def test_a12_the_timeout_of_an_ordinary_step_is_enforced_in_the_host() -> None:
    timing = {"timeout": "PT3S", "on_timeout": "skip", "retry": {"max_attempts": 1}}
    there = stage(workflow(step(timing=timing, max_retries=5)), {"s": never()})
    assert (there.step("s")["status"], there.played.seconds) == ("skipped", 6)
    assert [record.status for record in there.records] == ["timeout", "timeout"]


def test_a12_failures_and_timeouts_of_an_ordinary_step_have_budgets_of_their_own() -> None:
    timing = {"timeout": "PT3S", "retry": {"max_attempts": 1}}
    answers = [never(), error("boom"), error("boom"), ok({"n": 1})]
    there = stage(workflow(step(timing=timing, max_retries=2)), {"s": answers})
    assert (there.output(), len(there.records)) == ({"n": 1}, 4)
    spent = stage(workflow(step(timing=timing, max_retries=1)), {"s": answers})
    assert spent.status == "failed"


def test_a13_a_release_alone_does_not_resume_a_run_that_was_paused() -> None:
    """Somebody paused for one step; what another one waits for does not end that pause."""
    failing = step("failing", fail_policy="pause")
    asked = step("asked", fulfillment={"policy": "requester_confirmation"})
    plan = workflow(failing, asked, step("after", depends_on=["asked"]))
    script = {"failing": after(5, error("boom")), "asked": 1, "after": 1}
    there = stage(plan, script, decisions={"asked": after(10, ok())})
    assert there.step("asked")["status"] == "completed"
    assert (there.status, there.asked("after")) == ("paused", [])
    both = stage(
        plan,
        script | {"failing": [error("boom"), ok(1)]},
        decisions={"asked": after(10, ok()), "failing": after(20, ok())},
    )
    assert both.status == "completed"


def test_a14_statuses_are_written_in_snake_case() -> None:
    timing = {"timeout": "PT1S"}
    there = stage(workflow(ask("p1", timing=timing)), {"p1": never()})
    assert (there.status, there.step("s")["status"]) == ("step_timeout", "step_timeout")
    assert there.ends() == {"p1": "timeout"}
    assert "timed_out" not in str(there.snapshot)


def test_a23_an_envelope_goes_before_the_matcher_and_neither_is_an_error() -> None:
    envelope = {"schema": "arca-task-fulfillment-decision.v1", "fulfillment/status": "fulfilled"}
    source = {"kind": "capability", "capability_id": "verify"}
    rule = {"policy": "external_decision", "decision_source": source}
    match = {"path": "/ok", "fulfilled_values": [True], "not_fulfilled_values": [False]}

    def judged(reply: Any, **more: Any) -> str:
        one = step(fulfillment=rule | more)
        return stage(workflow(one), {"s": 1, "verify": reply}).status

    assert judged(envelope | {"ok": False}, result_match=match) == "completed"
    assert judged({"ok": True}, result_match=match) == "completed"
    assert judged(envelope) == "completed"
    assert judged({"ok": True}) == "failed"


@pytest.mark.parametrize("policy", ["requester_confirmation", "never"])
def test_a24_people_are_waited_for_and_recorded_by_name(policy: str) -> None:
    plan = workflow(step(fulfillment={"policy": policy}))
    waiting = stage(plan, {"s": 1})
    assert waiting.step("s")["status"] == "awaiting_fulfillment"
    assert (waiting.status, bool(waiting.snapshot["pause_reason"])) == ("paused", True)
    decided = stage(plan, {"s": 1}, decisions={"s": ok({"seen": True})})
    task = decided.step("s")["task"]
    assert (task["decided_by"], task["evidence"]) == ("script", {"seen": True})


def test_a25_inspection_has_the_dispatches_without_their_responses() -> None:
    there = stage(workflow(ask("p1", "p2", policy="all")), {"p1": {"x": 1}, "p2": {"x": 2}})
    for shown, record in zip(there.step("s")["dispatches"], there.records, strict=True):
        assert "response" not in shown
        assert shown["dispatch_id"] == record.dispatch_id
        assert record.response in ({"x": 1}, {"x": 2})


def test_a26_a_step_keeps_its_ids_and_its_provider_however_often_it_is_tried() -> None:
    target = {"resolve": "capability", "capability_id": "find"}
    one = step(target=target, max_retries=2)
    found = [ok(["p1", "p2"]), ok(["p2"])]
    there = stage(workflow(one), {"find": found, "p1": [error("boom"), unreachable(), ok(1)]})
    assert there.asked() == ["p1", "p1", "p1"], "no silent substitution"
    assert [dispatch.attempt for dispatch in there.dispatches] == [1, 2, 3]
    assert len({record.dispatch_id for record in there.records}) == 3


def test_a28_the_filter_goes_with_the_request_too() -> None:
    target = {"resolve": "capability", "capability_id": "find", "filter": {"region": "eu"}}
    seen: list[Any] = []

    def participant(task: Any) -> Any:
        seen.append(task.inputs["filter"])
        return 1

    stage(workflow(step(target=target, fan_in={})), {"find": ["p1"], "p1": participant})
    assert seen == [{"region": "eu"}]

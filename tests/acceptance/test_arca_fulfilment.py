"""Execution completed is one fact, task fulfilled another; only what is declared decides."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.testing import after, error, never, ok

from .arca_stage import Staged, ask, stage, step, workflow

MATCH = {
    "path": "/verification/status",
    "fulfilled_values": ["fulfilled"],
    "not_fulfilled_values": ["not_fulfilled", "rejected"],
}
#: As it is printed in the proposal.
AS_PRINTED = {
    "policy": "external_decision",
    "decision_source": {
        "kind": "capability",
        "capability_id": "publication.verify",
        "input": {
            "commit_sha": {"from": "/steps/publish/output/publish_commit"},
            "branch": "publish/main",
        },
    },
    "result_match": MATCH,
    "on_not_fulfilled": "pause",
    "on_error": "fail",
}
ENVELOPE = {
    "schema": "arca-task-fulfillment-decision.v1",
    "fulfillment/status": "fulfilled",
    "reason": "commit-visible-on-origin",
    "evidence": {"commit_sha": "8fa2", "ref": "origin/publish/main"},
}
COMMIT = {"publish_commit": "8fa2"}


def publish(reply: Any, **changes: Any) -> Staged:
    one = step("publish", fulfillment={**AS_PRINTED, **changes})
    script = {"publish": COMMIT, "publication.verify": reply, "after": 1}
    return stage(workflow(one, step("after", depends_on=["publish"])), script)


def matched(output: Any, *, times: int = 0, **changes: Any) -> Staged:
    """A step whose own output says whether the task is done."""
    rule = {"policy": "output_match", "result_match": MATCH | {"path": "/verdict"}, **changes}
    one = step(fulfillment=rule, max_retries=times)
    return stage(workflow(one, step("after", depends_on=["s"])), {"s": output, "after": 1})


def facts(there: Staged, step_id: str = "s") -> tuple[bool, bool | None]:
    found = there.step(step_id)
    return found["execution"]["completed"], found["task"]["fulfilled"]


def kinds(there: Staged) -> list[str]:
    wanted = ("execution.completed", "task.judged")
    return [event.kind for event in there.played.events if event.kind in wanted]


# -- the five policies ---------------------------------------------------------------------------


def test_policy_auto_treats_execution_as_fulfilment_and_records_both() -> None:
    for one in (step(), step(fulfillment={"policy": "auto"})):
        there = stage(workflow(one), {"s": 1})
        assert facts(there) == (True, True)
        assert kinds(there) == ["execution.completed", "task.judged"]
        assert there.step("s")["task"]["decided_by"] == "engine"


def test_policy_output_match_reads_the_output_of_the_step() -> None:
    there = matched({"verdict": "fulfilled"})
    assert (there.status, facts(there)) == ("completed", (True, True))


def test_policy_external_decision_asks_the_declared_capability_with_its_input() -> None:
    asked = []

    def verify(task: Any) -> Any:
        asked.append((task.inputs["capability_id"], task.inputs["input"]))
        return {"verification": {"status": "fulfilled"}}

    there = publish(verify)
    assert asked == [("publication.verify", {"commit_sha": "8fa2", "branch": "publish/main"})]
    assert (there.status, facts(there, "publish")) == ("completed", (True, True))
    assert there.step("publish")["task"]["decided_by"] == "capability publication.verify"


@pytest.mark.parametrize("kind", ["requester", "operator"])
def test_policy_external_decision_may_be_a_person(kind: str) -> None:
    rule = {"policy": "external_decision", "decision_source": {"kind": kind, "actors": ["ann"]}}
    there = stage(workflow(step(fulfillment=rule)), {"s": 1}, decisions={"s": ok({"seen": 1})})
    assert there.status == "completed"
    task = there.step("s")["task"]
    assert (task["decided_by"], task["evidence"]) == ("ann", {"seen": 1})


def test_policy_requester_confirmation_pauses_until_somebody_confirms() -> None:
    plan = workflow(step(fulfillment={"policy": "requester_confirmation"}))
    waiting = stage(plan, {"s": {"x": 1}})
    assert (waiting.status, facts(waiting)) == ("paused", (True, None))
    assert waiting.step("s")["status"] == "awaiting_fulfillment"
    assert "step s fulfilled?" in waiting.snapshot["pause_reason"]
    confirmed = stage(plan, {"s": {"x": 1}}, decisions={"s": after(3600, ok())})
    assert (confirmed.status, confirmed.output()) == ("completed", {"x": 1})
    assert confirmed.step("s")["task"]["decided_by"] == "script"


def test_policy_never_needs_a_later_explicit_action() -> None:
    plan = workflow(step(fulfillment={"policy": "never"}))
    assert stage(plan, {"s": 1}).status == "paused"
    assert stage(plan, {"s": 1}, decisions={"s": ok()}).status == "completed"
    given_up = stage(plan, {"s": 1}, decisions={"s": error("no", "give it up")})
    assert (given_up.status, facts(given_up)) == ("failed", (True, False))


# -- on_not_fulfilled ----------------------------------------------------------------------------


def test_on_not_fulfilled_pause_is_the_default_and_somebody_may_overrule() -> None:
    no = {"verdict": "rejected"}
    for there in (matched(no), matched(no, on_not_fulfilled="pause")):
        assert (there.status, facts(there)) == ("paused", (True, False))
        assert there.step("after")["status"] == "pending"
    rule = {"policy": "output_match", "result_match": MATCH | {"path": "/v"}}
    there = stage(workflow(step(fulfillment=rule)), {"s": {"v": "rejected"}}, decisions={"s": ok()})
    assert (there.status, facts(there)) == ("completed", (True, True))


def test_on_not_fulfilled_fail() -> None:
    there = matched({"verdict": "rejected"}, on_not_fulfilled="fail")
    assert (there.status, facts(there)) == ("failed", (True, False))
    assert there.step("after")["status"] == "cancelled"


def test_on_not_fulfilled_retry_does_the_work_again_within_the_budget() -> None:
    outputs = [ok({"verdict": "rejected"}), ok({"verdict": "fulfilled"})]
    there = matched(outputs, times=1, on_not_fulfilled="retry")
    assert (there.status, len(there.asked())) == ("completed", 2)
    never_good = matched({"verdict": "rejected"}, times=2, on_not_fulfilled="retry")
    assert (never_good.status, len(never_good.asked())) == ("failed", 3)


def test_on_not_fulfilled_continue_goes_on_and_keeps_the_fact() -> None:
    there = matched({"verdict": "rejected"}, on_not_fulfilled="continue")
    assert (there.status, facts(there)) == ("completed", (True, False))
    assert there.step("after")["status"] == "completed"


# -- on_error ------------------------------------------------------------------------------------

UNREADABLE = [{"verdict": "perhaps"}, {"verdict": True}, {"other": 1}, {"verdict": None}, 5]


@pytest.mark.parametrize("output", UNREADABLE)
def test_on_error_fail_is_the_default_for_a_value_in_neither_list_or_a_missing_path(
    output: Any,
) -> None:
    there = matched(output, on_not_fulfilled="continue")
    assert (there.status, facts(there)) == ("failed", (True, None))


def test_on_error_pause_asks_somebody() -> None:
    there = matched({"verdict": "perhaps"}, on_error="pause")
    assert (there.status, facts(there)) == ("paused", (True, None))


def test_on_error_retry_does_the_work_again_within_the_budget() -> None:
    there = matched([ok({}), ok({"verdict": "fulfilled"})], times=1, on_error="retry")
    assert (there.status, len(there.asked())) == ("completed", 2)


@pytest.mark.parametrize("reply", [error("connection"), never(), ok({"odd": 1})])
def test_on_error_holds_for_a_source_that_cannot_be_asked_or_read(reply: Any) -> None:
    assert publish(reply).status == "failed"
    assert publish(reply, on_error="pause").status == "paused"


def test_on_error_retry_asks_the_source_again_not_the_provider() -> None:
    replies = [error("connection"), ok({"odd": 1}), ok(ENVELOPE)]
    there = publish(replies, on_error="retry")
    assert there.status == "completed"
    assert there.asked("publish") == ["a provider for publish"]


# -- replies -------------------------------------------------------------------------------------


def test_a_reply_may_be_the_decision_envelope_with_reason_and_evidence() -> None:
    there = publish(ENVELOPE)
    task = there.step("publish")["task"]
    assert there.status == "completed"
    assert (task["reason"], task["evidence"]) == (ENVELOPE["reason"], ENVELOPE["evidence"])


def test_an_envelope_that_says_no_is_a_no() -> None:
    there = publish(ENVELOPE | {"fulfillment/status": "not_fulfilled"})
    assert (there.status, facts(there, "publish")) == ("paused", (True, False))


def test_an_envelope_that_says_neither_is_an_error() -> None:
    assert publish(ENVELOPE | {"fulfillment/status": "maybe"}).status == "failed"


@pytest.mark.parametrize(
    ("reply", "match"),
    [
        ({"ok": True}, {"path": "/ok", "fulfilled_values": [True]}),
        ({"status": "done"}, {"path": "status", "fulfilled_values": ["done"]}),
    ],
)
def test_a_reply_may_be_dull_and_the_definition_says_what_it_means(reply: Any, match: Any) -> None:
    there = publish(reply, result_match=match)
    assert (there.status, facts(there, "publish")) == ("completed", (True, True))


def test_true_is_not_one_and_not_a_word() -> None:
    match = {"path": "/ok", "fulfilled_values": [True], "not_fulfilled_values": [False]}
    for value in (1, "true", 0, None):
        assert publish({"ok": value}, result_match=match).status == "failed"


# -- nobody else decides -------------------------------------------------------------------------


def test_a_decision_shaped_object_inside_an_output_decides_nothing() -> None:
    no = ENVELOPE | {"fulfillment/status": "not_fulfilled"}
    assert stage(workflow(step()), {"s": no}).status == "completed", "auto is auto"
    waiting = stage(
        workflow(step(fulfillment={"policy": "requester_confirmation"})), {"s": ENVELOPE}
    )
    assert waiting.status == "paused"
    there = publish({"verification": {"status": "rejected"}, "decision": ENVELOPE})
    assert facts(there, "publish") == (True, False)


def test_output_match_decides_by_its_field_only() -> None:
    assert (
        matched(
            {"verdict": "fulfilled", "decision": ENVELOPE | {"fulfillment/status": "no"}}
        ).status
        == "completed"
    )
    assert matched({"verdict": "rejected", **ENVELOPE}).status == "paused"


def test_a_fan_out_is_judged_once_over_the_chosen_output() -> None:
    rule = {"policy": "output_match", "result_match": MATCH | {"path": "/verdict"}}
    one = ask(
        "p1", "p2", policy="best_of", score_field="/n", timing={"timeout": "PT9S"}, fulfillment=rule
    )
    script = {"p1": {"n": 1, "verdict": "rejected"}, "p2": {"n": 2, "verdict": "fulfilled"}}
    there = stage(workflow(one), script)
    assert (there.status, kinds(there)) == ("completed", ["execution.completed", "task.judged"])


def test_the_time_limit_of_a_step_is_not_for_those_who_decide() -> None:
    rule = {"policy": "requester_confirmation"}
    for one in (ask("p1", timing={"timeout": "PT5S"}), step(timing={"timeout": "PT5S"})):
        there = stage(
            workflow(one | {"fulfillment": rule}), {"s": 1}, decisions={"s": after(60, ok())}
        )
        assert there.status == "completed"

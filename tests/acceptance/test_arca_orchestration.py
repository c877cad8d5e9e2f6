"""Workflow runs as the Arca component describes them: order, retries, failures, templates."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from anabranch.dialects.arca.templates import definition_text, read_template
from anabranch.testing import after, error, never, ok

from .arca_stage import seconds, stage, step, workflow

# -- a plan like that of story 009: A, then B beside C, then D after both, then E ----------------


def role(name: str, **fields: Any) -> dict[str, Any]:
    target = {"resolve": "task_type", "task_type": f"role.{name}"}
    return {"target": target, "timing": {"timeout": "PT30M"}, **fields}


ACCEPTED = {
    "policy": "output_match",
    "result_match": {
        "path": "/outcome",
        "fulfilled_values": ["accepted"],
        "not_fulfilled_values": ["rejected"],
    },
    "on_not_fulfilled": "pause",
}
STORY = {
    "template_id": "biweekly-publish.v1",
    "parameters": {"topic": {"type": "string"}},
    "plan": {
        "steps": {
            "research": role("researcher", request_input={"topic": "{{params.topic}}"}),
            "illustrate": role("illustrator", input_from="research"),
            "review": role("reviewer", input_from="research", fulfillment=ACCEPTED),
            "publish": role("publisher", input_from=["illustrate", "review"]),
            "verify": role("verifier", input_from="publish", fulfillment=ACCEPTED),
        }
    },
}
ROLES = {
    "research": {"record": "sha256:r", "outcome": "draft"},
    "illustrate": {"record": "sha256:i", "outcome": "drawn"},
    "review": {"record": "sha256:v", "outcome": "accepted"},
    "publish": {"commit": "8fa2"},
    "verify": {"outcome": "accepted"},
}


def story(room: int | None = None, deadline: str | None = "PT4H", **answers: Any) -> Any:
    template = STORY | {"deadline": deadline}
    made = read_template(json.dumps(template)).materialise({"topic": "rivers"})
    if room is not None:
        made["max_parallel_steps"] = room
    scripted = {name: after(60, ok(answer)) for name, answer in ROLES.items()}
    return stage(json.loads(definition_text(made)), scripted | answers)


@pytest.mark.parametrize(("room", "minutes"), [(1, 5), (4, 4), (None, 4)])
def test_story_009_passes_with_one_step_at_a_time_and_with_several(
    room: int | None, minutes: int
) -> None:
    there = story(room)
    assert (there.status, there.played.seconds) == ("completed", minutes * 60)
    assert [there.step(name)["status"] for name in ROLES] == ["completed"] * 5
    asked = {record.step_id: seconds(record.dispatched_at) for record in there.records}
    assert asked["publish"] >= max(asked["illustrate"], asked["review"]) + 60
    assert all(
        first.dispatched_at <= second.dispatched_at for first, second in pairwise(there.records)
    )


def test_story_009_hands_each_step_what_it_needs_from_upstream() -> None:
    heard: dict[str, Any] = {}

    def publisher(task: Any) -> Any:
        heard.update(task.inputs["input"])
        return ROLES["publish"]

    story(publish=publisher)
    assert heard["upstream"] == {name: ROLES[name] for name in ("illustrate", "review")}
    assert heard["outcome"] == "accepted", "of two that share a key the later one wins"


def test_story_009_a_reviewer_who_rejects_pauses_the_run_and_nothing_is_published() -> None:
    there = story(deadline=None, review=ok({"outcome": "rejected"}))
    assert there.status == "paused"
    assert there.step("review")["task"]["fulfilled"] is False
    assert there.step("publish")["status"] == "pending"
    assert there.asked("publish") == []


def test_story_009_a_stalled_illustrator_is_a_step_timeout_that_names_the_step() -> None:
    there = story(illustrate=never())
    assert there.status == "step_timeout"
    assert there.problem["step_id"] == "illustrate"
    assert there.asked("illustrate") == ["a provider for illustrate"], "no other provider"
    assert there.step("review")["status"] == "completed"
    assert there.step("publish")["status"] == "cancelled"


# -- order ---------------------------------------------------------------------------------------


def test_steps_run_in_the_order_of_their_dependencies_whatever_the_order_they_are_written_in() -> (
    None
):
    steps = [step("c", depends_on=["b"]), step("b", input_from="a"), step("a")]
    there = stage(workflow(*steps), dict.fromkeys("abc", 1))
    assert [record.step_id for record in there.records] == ["a", "b", "c"]


def test_a_plain_plan_is_sequential_in_the_order_it_is_written_in() -> None:
    steps = [step("a"), step("b"), step("c", depends_on=["a"]), step("d")]
    there = stage(workflow(*steps), {name: after(1, 1) for name in "abcd"})
    assert [record.step_id for record in there.records] == ["a", "b", "c", "d"]
    assert there.played.seconds == 4


def test_a_skipped_step_satisfies_those_who_depend_on_it() -> None:
    steps = [step("a", fail_policy="skip"), step("b"), step("c", depends_on=["a", "b"])]
    there = stage(workflow(*steps), {"a": error("boom"), "b": 1, "c": 2})
    assert there.status == "completed"
    assert [there.step(name)["status"] for name in "abc"] == ["skipped", "completed", "completed"]


def test_what_depends_on_a_step_that_timed_out_is_never_begun_and_the_rest_is_finished() -> None:
    slow = step("slow", timing={"timeout": "PT5S"})
    steps = [slow, step("b", depends_on=["slow"]), step("c"), step("d", depends_on=["b", "c"])]
    there = stage(
        workflow(*steps, max_parallel_steps=4),
        {"slow": never(), "b": 1, "c": after(60, 1), "d": 1},
    )
    assert (there.status, there.played.seconds) == ("step_timeout", 60)
    assert [there.step(name)["status"] for name in ("slow", "b", "c", "d")] == [
        *("step_timeout", "cancelled", "completed", "cancelled")
    ]


# -- retries and fail_policy ---------------------------------------------------------------------


def test_max_retries_and_retry_delay_ms_are_for_failures() -> None:
    one = step(max_retries=2, retry_delay_ms=1500)
    there = stage(workflow(one), {"s": [error("boom"), error("boom"), ok({"n": 1})]})
    assert there.output() == {"n": 1}
    assert [seconds(record.dispatched_at) for record in there.records] == [0, 1.5, 3]


@pytest.mark.parametrize(
    ("policy", "status", "own", "beside"),
    [
        ("abort_workflow", "failed", "failed", "cancelled"),
        ("skip", "completed", "skipped", "completed"),
        ("pause", "paused", "awaiting_fulfillment", "awaiting_execution"),
    ],
)
def test_fail_policy_is_applied_when_the_budget_is_spent(
    policy: str, status: str, own: str, beside: str
) -> None:
    one = step("a", max_retries=1, fail_policy=policy)
    slow = never() if policy == "pause" else after(9, 1)
    there = stage(workflow(one, step("b"), max_parallel_steps=2), {"a": error("boom"), "b": slow})
    assert len(there.asked("a")) == 2
    assert (there.status, there.step("a")["status"]) == (status, own)
    assert there.step("b")["status"] == beside


def test_fail_policy_pause_lets_somebody_try_again_or_give_up() -> None:
    one = step(fail_policy="pause")
    again = stage(
        workflow(one), {"s": [error("boom"), ok({"n": 2})]}, decisions={"s": after(60, ok())}
    )
    assert (again.status, again.output()) == ("completed", {"n": 2})
    given_up = stage(workflow(one), {"s": error("boom")}, decisions={"s": error("no", "enough")})
    assert given_up.status == "failed"


def test_an_error_says_its_code_and_its_step() -> None:
    refused = {"status": "rejected", "error": {"code": "too_long", "message": "900 words"}}
    there = stage(workflow(step()), {"s": ok(refused)})
    assert there.problem["code"] == "too_long"
    assert "900 words" in there.problem["message"]
    assert there.problem["step_id"] == "s"
    assert there.records[0].response == refused


# -- targets by task type ------------------------------------------------------------------------


def test_a_task_type_maps_to_the_service_type_where_none_is_given() -> None:
    asked = []

    def search(task: Any) -> Any:
        asked.append({k: task.inputs[k] for k in ("resolve", "task_type", "service_type")})
        return ok(["p1"])

    target = {"resolve": "task_type", "task_type": "role.editor"}
    stage(workflow({"step_id": "s", "target": target}), {"role.editor": search, "p1": 1})
    named = {"step_id": "s", "service_type": "text/edit", "target": target}
    stage(workflow(named), {"role.editor": search, "p1": 1})
    assert [each["service_type"] for each in asked] == ["role.editor", "text/edit"]
    assert {each["task_type"] for each in asked} == {"role.editor"}


def test_a_task_type_with_fan_in_asks_all_who_offer_it() -> None:
    target = {"resolve": "task_type", "task_type": "role.editor"}
    one = {"step_id": "s", "target": target, "fan_in": {"policy": "all"}}
    there = stage(workflow(one), {"role.editor": ["p1", "p2"], "p1": 1, "p2": 2})
    assert there.output() == {"responses": [1, 2]}

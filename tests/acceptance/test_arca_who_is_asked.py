"""How many must answer, what counts as a no, whom a filter finds, and what is tried again."""

from __future__ import annotations

import json
from typing import Any

import pytest

import anabranch
from anabranch.testing import error, ok

from .arca_stage import ask, stage, step, workflow

AWAY = error("unreachable", "nobody is there")


def quorum(of: int, *participants: str, **fields: Any) -> Any:
    return ask(*participants, policy="quorum", min_responses=of, **fields)


# -- a quorum needs as many targets as it asks for -----------------------------------------------


def test_fewer_targets_than_min_responses_fail_and_nobody_is_asked() -> None:
    there = stage(workflow(quorum(3, "a", "b")), {"a": 1, "b": 2})
    assert there.status == "failed"
    assert there.problem["code"] == "quorum_unreachable"
    assert "min_responses" in there.problem["message"]
    assert "3" in there.problem["message"]
    assert "2" in there.problem["message"]
    assert there.asked() == []


def test_a_search_that_finds_too_few_is_made_again_where_tries_are_left() -> None:
    one = quorum(2, timing={"retry": {"max_attempts": 1}})
    one["target"] = {"resolve": "capability", "capability_id": "c"}
    there = stage(workflow(one), {"c": [ok(["a"]), ok(["a", "b"])], "a": 1, "b": 2})
    assert there.status == "completed"
    assert there.output() == {"responses": [1, 2]}


def test_only_those_who_cannot_be_reached_make_a_quorum_smaller() -> None:
    there = stage(workflow(quorum(3, "a", "b", "c")), {"a": 1, "b": AWAY, "c": 3})
    assert (there.status, there.output()) == ("completed", {"responses": [1, 3]})
    there = stage(workflow(quorum(3, "a", "b", "c")), {"a": 1, "b": {"status": "no"}, "c": 3})
    assert (there.status, there.problem["code"]) == ("failed", "not_enough_responses")


# -- what counts as a no -------------------------------------------------------------------------

NO = [
    {"status": "offer", "error": {"code": "x"}},
    {"status": "completed", "error": "broken"},
    {"status": "rejected-invalid-request"},
    {"status": "rejected_by_policy"},
    {"status": "Rejected: too large"},
    {"status": "failed/timeout"},
]
YES = [
    {"status": "offer", "error": None},
    {"status": "rejectedness"},
    {"status": "no_error"},
    {"status": "offer", "errors": []},
]


@pytest.mark.parametrize("reply", NO)
def test_an_error_or_a_status_that_begins_with_a_no_is_never_chosen(reply: Any) -> None:
    there = stage(workflow(ask("a", "b", policy="any_one")), {"a": reply, "b": {"status": "ok"}})
    assert there.output() == {"status": "ok"}
    ordinary = step(target={"resolve": "static", "participants": ["a"]})
    assert stage(workflow(ordinary), {"a": reply}).status == "failed"


@pytest.mark.parametrize("reply", YES)
def test_what_only_looks_like_a_no_is_an_answer(reply: Any) -> None:
    assert stage(workflow(ask("a", policy="any_one")), {"a": reply}).output() == reply


# -- a filter may read the input -----------------------------------------------------------------


def labelled(region: str, seen: list[Any]) -> dict[str, Any]:
    def answer(request: Any) -> Any:
        seen.append(request)
        return {"region": region}

    return {"function": answer, "service_types": ["quote"], "labels": {"region": region}}


def filtered(wanted: Any, **given: Any) -> tuple[Any, list[Any]]:
    seen: list[Any] = []
    target = {"resolve": "task_type", "task_type": "quote", "filter": {"region": wanted}}
    one = {"step_id": "s", "target": target, "fan_in": {"policy": "all"}}
    book = {"participants": {name: labelled(name, seen) for name in ("eu", "us")}}
    text = json.dumps(workflow(one, input={"region": "us"}))
    return anabranch.run(text, given, participants=book), seen


def test_a_filter_renders_its_references_for_the_search_and_for_the_request() -> None:
    result, seen = filtered("{{input.region}}", region="eu")
    assert result.result == {"responses": [{"region": "eu"}]}
    assert [request["filter"] for request in seen] == [{"region": "eu"}]
    result, _ = filtered({"from": "/input/region"})
    assert result.result == {"responses": [{"region": "us"}]}


def test_a_filter_that_reads_what_is_not_there_fails_and_asks_nobody() -> None:
    result, seen = filtered("{{input.nowhere}}")
    assert (result.status, seen) == ("failed", [])
    assert "input.nowhere" in str(result.problem)


# -- timing.retry is for failures, too -----------------------------------------------------------


def retried(script: Any, **fields: Any) -> Any:
    one = step(target={"resolve": "static", "participants": ["a"]}, **fields)
    return stage(workflow(one), {"a": script})


def test_timing_retry_tries_an_ordinary_step_again_that_failed() -> None:
    timing = {"retry": {"max_attempts": 2, "backoff": "PT1S"}}
    there = retried([{"status": "no"}, error("unreachable", "away"), 7], timing=timing)
    assert (there.status, there.output()) == ("completed", 7)
    assert there.asked() == ["a"] * 3


def test_timing_retry_is_one_budget_for_failures_and_for_time_limits() -> None:
    timing = {"timeout": "PT1S", "retry": {"max_attempts": 2}}
    late = anabranch.testing.never()
    there = retried([late, {"status": "no"}, late, 7], timing=timing)
    assert there.status == "step_timeout"
    assert there.asked() == ["a"] * 3


def test_max_retries_stays_the_budget_for_failures_where_both_are_given() -> None:
    timing = {"timeout": "PT1S", "retry": {"max_attempts": 3}}
    there = retried([{"status": "no"}, {"status": "no"}, 7], timing=timing, max_retries=1)
    assert there.status == "failed"
    assert there.asked() == ["a"] * 2

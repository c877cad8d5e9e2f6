"""What is wrong with a definition is said at its place, with the one change that mends it."""

from __future__ import annotations

from typing import Any

import pytest

from ..support import codes, documented_severity
from .definitions import STATIC, definition, fan_out, line_of, problem_of, read, step

CAPABILITY = {"resolve": "capability", "capability_id": "c"}
MATCH = {"path": "/ok", "fulfilled_values": [True], "not_fulfilled_values": [False]}
SOURCE = {"kind": "capability", "capability_id": "verify"}


def timed(**timing: Any) -> Any:
    return step(timing=timing)


def judged(**fulfilment: Any) -> Any:
    return step(fulfillment=fulfilment)


def without(fields: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != key}


#: A step, the code, the text on whose line it is reported, a word of the hint.
REFUSED: dict[str, tuple[Any, str, str, str]] = {
    "no step id": (without(step(), "step_id"), "missing-key", "   {", "give it one"),
    "an empty step id": (step(""), "bad-name", '"step_id"', "letters"),
    "a step id with a space": (step("a b"), "bad-name", '"step_id"', "letters"),
    "a long step id": (step("x" * 129), "bad-name", '"step_id"', "128"),
    "a step id of another type": (step() | {"step_id": True}, "bad-name", '"step_id"', "letters"),
    "no service type": (without(step(), "service_type"), "missing-key", "   {", "text/summarise"),
    "input that is a list": (step(input=[1]), "wrong-type", '"input"', "a mapping"),
    "a placeholder that is empty": (step(input={"a": "{{ }}"}), "bad-template", '"input"', ""),
    "depends_on of another type": (step(depends_on=[1]), "wrong-type", "     1", "a step id"),
    "a fail policy nobody knows": (
        step(fail_policy="abort"),
        "bad-choice",
        '"fail_policy"',
        "abort_workflow",
    ),
    "a negative budget": (step(max_retries=-1), "bad-number", '"max_retries"', "from 0"),
    "a delay of another type": (
        step(max_retries=1, retry_delay_ms="1s"),
        "wrong-type",
        '"retry_delay_ms"',
        "a whole number",
    ),
    "a key nobody knows": (step(fanin={}), "unknown-key", '"fanin"', "did you mean 'fan_in'?"),
    "a target of another type": (step(target="p1"), "wrong-type", '"target"', "a mapping"),
    "a target that is not resolved": (step(target={}), "missing-key", '"target"', "capability"),
    "a way to resolve nobody knows": (
        step(target={"resolve": "statik", "participants": ["p"]}),
        "bad-choice",
        '"resolve"',
        "did you mean 'static'?",
    ),
    "no capability": (
        step(target={"resolve": "capability"}),
        "missing-key",
        '"target"',
        "'capability' needs it",
    ),
    "no participants": (step(target={"resolve": "static"}), "missing-key", '"target"', "needs it"),
    "an empty list of participants": (
        step(target={"resolve": "static", "participants": []}),
        "missing-key",
        '"participants"',
        "at least one",
    ),
    "a participant that is no text": (
        step(target={"resolve": "static", "participants": ["p", {}]}),
        "wrong-type",
        "{}",
        "its id as text",
    ),
    "no task type": (step(target={"resolve": "task_type"}), "missing-key", '"target"', "needs it"),
    "a filter that is a list": (
        step(target=CAPABILITY | {"filter": []}),
        "wrong-type",
        '"filter"',
        "a mapping",
    ),
    "a limit of zero": (
        step(target=CAPABILITY | {"limit": 0}),
        "bad-number",
        '"limit"',
        "from 1",
    ),
    "fan_in without a target": (step(fan_in={}), "missing-key", "   {", "needs a `target`"),
    "a fan-in policy nobody knows": (
        fan_out(fan_in={"policy": "first"}),
        "bad-choice",
        '"policy"',
        "any_one, all, quorum, best_of",
    ),
    "a quorum of nobody knows how many": (
        fan_out(fan_in={"policy": "quorum"}),
        "missing-key",
        '"fan_in"',
        "how many",
    ),
    "a quorum of zero": (
        fan_out(fan_in={"policy": "quorum", "min_responses": 0}),
        "bad-number",
        '"min_responses"',
        "from 1",
    ),
    "the best by nothing": (
        fan_out(fan_in={"policy": "best_of"}, timing={"timeout": "PT1S"}),
        "missing-key",
        '"fan_in"',
        "such as /price",
    ),
    "a score field that is no path": (
        fan_out(fan_in={"policy": "best_of", "score_field": "a..b"}, timing={"timeout": "PT1S"}),
        "bad-template",
        '"score_field"',
        "write /a/b",
    ),
    "a bound that is text": (
        fan_out(fan_in={"score_field": "/a", "max_score": "cheap"}),
        "wrong-type",
        '"max_score"',
        "a number or a reference",
    ),
    "a bound with text around its reference": (
        fan_out(fan_in={"score_field": "/a", "min_score": "{{input.a}} EUR"}),
        "wrong-type",
        '"min_score"',
        "a number or a reference",
    ),
    "bounds that leave nothing": (
        fan_out(fan_in={"score_field": "/a", "min_score": 3, "max_score": 2}),
        "conflicting-keys",
        '"min_score"',
        "exchange them",
    ),
    "a bound without a score": (
        fan_out(fan_in={"max_score": 3}),
        "missing-key",
        '"fan_in"',
        "the number that is bounded",
    ),
    "a bound that reads a step that never ran": (
        fan_out(fan_in={"score_field": "/a", "max_score": "{{steps.other.output.a}}"}),
        "unknown-reference",
        '"fan_in"',
        "",
    ),
    "a score order nobody knows": (
        fan_out(
            fan_in={"policy": "best_of", "score_field": "/a", "score_order": "up"},
            timing={"timeout": "PT1S"},
        ),
        "bad-choice",
        '"score_order"',
        "asc, desc",
    ),
    "any_one that waits for two": (
        fan_out(fan_in={"policy": "any_one", "min_responses": 2}),
        "conflicting-keys",
        '"min_responses"',
        "quorum",
    ),
    "a timeout in seconds": (timed(timeout="30s"), "bad-duration", '"timeout"', "PT30S"),
    "a timeout that is a number": (timed(timeout=30), "bad-duration", '"timeout"', "PT30S"),
    "a timeout of months": (timed(timeout="P1M"), "bad-duration", '"timeout"', ""),
    "a timeout of nothing": (timed(timeout="PT0S"), "bad-duration", '"timeout"', "1ms"),
    "an on_timeout nobody knows": (
        timed(timeout="PT1S", on_timeout="abort"),
        "bad-choice",
        '"on_timeout"',
        "abort_workflow",
    ),
    "retry without a number": (
        timed(timeout="PT1S", retry={"backoff": "PT1S"}),
        "missing-key",
        '"retry"',
        "how often",
    ),
    "a backoff that shrinks": (
        timed(timeout="PT1S", retry={"max_attempts": 1, "backoff_multiplier": 0.5}),
        "bad-number",
        '"backoff_multiplier"',
        "from 1",
    ),
    "a fulfilment policy nobody knows": (
        judged(policy="manual"),
        "bad-choice",
        '"policy"',
        "requester_confirmation",
    ),
    "output_match without a match": (
        judged(policy="output_match"),
        "missing-key",
        '"fulfillment"',
        "which values",
    ),
    "external_decision without a source": (
        judged(policy="external_decision"),
        "missing-key",
        '"fulfillment"',
        "name the capability",
    ),
    "a source without a capability": (
        judged(policy="external_decision", decision_source={"kind": "capability"}),
        "missing-key",
        '"decision_source"',
        "name the capability",
    ),
    "a source nobody knows": (
        judged(policy="external_decision", decision_source=SOURCE | {"kind": "robot"}),
        "bad-choice",
        '"kind"',
        "operator",
    ),
    "a match without a path": (
        judged(policy="output_match", result_match=without(MATCH, "path")),
        "missing-key",
        '"result_match"',
        "/status",
    ),
    "a match without a yes": (
        judged(policy="output_match", result_match=without(MATCH, "fulfilled_values")),
        "missing-key",
        '"result_match"',
        "[true]",
    ),
    "a match by a broken pointer": (
        judged(policy="output_match", result_match=MATCH | {"path": "/a~2"}),
        "bad-template",
        '"path"',
        "",
    ),
    "an on_not_fulfilled nobody knows": (
        judged(policy="output_match", result_match=MATCH, on_not_fulfilled="stop"),
        "bad-choice",
        '"on_not_fulfilled"',
        "pause, fail, retry, continue",
    ),
    "an on_error nobody knows": (
        judged(policy="output_match", result_match=MATCH, on_error="skip"),
        "bad-choice",
        '"on_error"',
        "fail, pause, retry",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_definition_is_refused_for(name: str) -> None:
    wrong, code, place, hint = REFUSED[name]
    document = definition(wrong)
    problem = problem_of(document, code)
    assert problem.position.line == line_of(document, place)
    assert problem.position.file == "d.json"
    assert hint in problem.hint or (not hint and problem.message)
    assert documented_severity(code) == "error"


WARNED: dict[str, tuple[Any, str, str]] = {
    "a quorum above the number of those who are asked": (
        fan_out(fan_in={"policy": "quorum", "min_responses": 4}),
        "unmeetable-policy",
        "waits for 4 answers and asks 3",
    ),
    "a quorum above the limit": (
        fan_out(
            fan_in={"policy": "quorum", "min_responses": 3},
            target=CAPABILITY | {"limit": 2},
        ),
        "unmeetable-policy",
        "waits for 3 answers and asks 2",
    ),
    "best_of without any time limit": (
        fan_out(fan_in={"policy": "best_of", "score_field": "/a"}),
        "unmeetable-policy",
        "without any time limit",
    ),
    "on_timeout without a timeout": (timed(on_timeout="skip"), "ignored-key", "no effect"),
    "a retry of timeouts without a timeout": (
        step(max_retries=1, timing={"retry": {"max_attempts": 1}}),
        "ignored-key",
        "a `timeout` it has not",
    ),
    "a delay without retries": (step(retry_delay_ms=5), "ignored-key", "`max_retries`"),
    "two budgets of a fan-out": (
        fan_out(max_retries=1, timing={"retry": {"max_attempts": 1}}),
        "ignored-key",
        "does not use `max_retries`",
    ),
    "a bound that nobody looks at": (
        fan_out(fan_in={"policy": "all", "max_score": 3}),
        "ignored-key",
        "`max_score` has no effect",
    ),
    "a score that nobody looks at": (
        fan_out(fan_in={"policy": "all", "score_field": "/a"}),
        "ignored-key",
        "`score_field` has no effect",
    ),
    "a number that all does not need": (
        fan_out(fan_in={"policy": "all", "min_responses": 2}),
        "ignored-key",
        "`min_responses` has no effect",
    ),
    "a participant named twice": (
        fan_out(target={"resolve": "static", "participants": ["p", "q", "p"]}),
        "ignored-key",
        "'p' is named twice and asked once",
    ),
    "a key of another way to resolve": (
        fan_out(target=STATIC | {"capability_id": "c"}),
        "ignored-key",
        "`capability_id` has no effect",
    ),
    "a match that auto does not use": (
        judged(policy="auto", result_match=MATCH),
        "ignored-key",
        "`result_match` has no effect",
    ),
    "a source that output_match does not ask": (
        judged(policy="output_match", result_match=MATCH, decision_source=SOURCE),
        "ignored-key",
        "`decision_source` has no effect",
    ),
    "another try without a budget": (
        judged(policy="output_match", result_match=MATCH, on_not_fulfilled="retry"),
        "unmeetable-policy",
        "has no tries",
    ),
}


@pytest.mark.parametrize("name", WARNED)
def test_a_definition_is_warned_about(name: str) -> None:
    odd, code, words = WARNED[name]
    problem = problem_of(definition(odd), code, "warning")
    assert words in problem.message
    assert problem.hint
    assert documented_severity(code) in ("warning", "note")


def test_an_input_close_to_one_of_the_definition_is_a_slip() -> None:
    asking = step(input={"a": "{{input.txt}}", "b": {"from": "/input/other"}})
    problem = problem_of(definition(asking, input={"text": "x"}), "unknown-input", "warning")
    assert "{{input.txt}}" in problem.message
    assert problem.hint == "did you mean 'text'?"
    assert read(definition(asking)).problems == ()  # it is given when a run starts


def test_a_deadline_shorter_than_the_timeout_of_a_step_is_worth_a_warning() -> None:
    document = definition(timed(timeout="PT10S"), deadline="PT5S")
    assert (
        "longer than the deadline" in problem_of(document, "unmeetable-policy", "warning").message
    )
    assert codes(read(definition(timed(timeout="PT5S"), deadline="PT5S"))) == []


def test_a_run_deadline_is_time_limit_enough_for_best_of() -> None:
    best = fan_out(fan_in={"policy": "best_of", "score_field": "/a"})
    assert codes(read(definition(best, deadline="PT5S"))) == []


# -- deadline_seconds ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ({**definition(step()), "deadline_seconds": 5}, "the definition"),
        ({"workflow_id": "w", "plan": {"steps": [step()], "deadline_seconds": 5}}, "the plan"),
        (definition(step(deadline_seconds=5)), "step 's'"),
        (definition(timed(timeout="PT1S", deadline_seconds=5)), "`timing` of step 's'"),
    ],
    ids=["root", "plan", "step", "timing"],
)
def test_deadline_seconds_is_refused_with_its_replacement(document: Any, where: str) -> None:
    problem = problem_of(document, "removed-key")
    assert where in problem.message
    assert "`deadline`" in problem.hint
    assert "PT5M" in problem.hint
    assert problem.position.line == line_of(document, "deadline_seconds")


# -- the plan as a whole -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"workflow_id": "w"}, "missing-key"),
        ({"workflow_id": "w", "plan": {}}, "missing-key"),
        ({"workflow_id": "w", "plan": 3}, "wrong-type"),
        (definition(), "no-steps"),
        ({"steps": []}, "no-steps"),
        ({"plan": {"steps": {}}}, "no-steps"),
        ({"workflow_id": "w", "plan": {"steps": 5}}, "wrong-type"),
        ({"workflow_id": "w", "plan": {"steps": {"a": 5}}}, "wrong-type"),
        (definition("a"), "wrong-type"),
        ({"workflow_id": "w", "plan": {"steps": {"a": step("b")}}}, "conflicting-keys"),
        ({**definition(step()), "steps": [step()]}, "conflicting-keys"),
        (definition(step(), stps=1), "unknown-key"),
        (definition(step(), input=[]), "wrong-type"),
        (definition(step(), max_parallel_steps=0), "bad-number"),
        (definition(step(), deadline="5m"), "bad-duration"),
        (definition(step("a"), step("a")), "duplicate-step"),
        (definition(step("a", depends_on=["b"])), "unknown-step"),
        (definition(step("a", input_from="b")), "unknown-step"),
        (definition(step("a", depends_on=["a"])), "dependency-cycle"),
        (
            definition(step("a", depends_on=["b"]), step("b", depends_on=["a"])),
            "dependency-cycle",
        ),
        (
            definition(timed(retry={"max_attempts": 1}, timeout="PT1S") | {"retry": {}}),
            "conflicting-keys",
        ),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be_run_is_refused(document: Any, code: str) -> None:
    compiled = read(document)
    assert compiled.net is None
    assert codes(compiled, "error")[:1] == [code]
    assert compiled.errors[0].hint


def test_all_problems_are_told_at_once_in_their_order() -> None:
    wrong = definition(
        step("a", fail_policy="x"), step("b", target={"resolve": "static"}), step("c d"), step("a")
    )
    assert codes(read(wrong)) == ["bad-choice", "missing-key", "bad-name", "duplicate-step"]

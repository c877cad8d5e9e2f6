"""References are checked before anybody is asked anything, and read when the step runs."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.testing import error, play

from ..support import codes
from .definitions import STATIC, definition, fan_out, line_of, net_of, problem_of, read, step

VERIFY: dict[str, Any] = {
    "policy": "external_decision",
    "decision_source": {"kind": "capability", "capability_id": "verify"},
}


def reading(value: Any, **more: Any) -> Any:
    return definition(step("a"), step("b", input={"x": value}, **more))


@pytest.mark.parametrize(
    ("value", "words", "hint"),
    [
        ("{{inptu.x}}", "reads '{{inptu.x}}'", "did you mean 'input'?"),
        ("{{secrets.x}}", "reads '{{secrets.x}}'", "input"),
        ("{{params.x}}", "a parameter of a template", "anabranch template run"),
        ("{{steps.c.output}}", "no such step", "known here: a, b"),
        ("{{steps.aa.output}}", "no such step", "did you mean 'a'?"),
        ({"from": "/steps"}, "no such step", ""),
        ({"from": "/steps/a/output"}, "reads '/steps/a/output'", "add 'a' to its `depends_on`"),
        ("{{steps.b.output}}", "its own output", "only `fulfillment`"),
    ],
)
def test_a_reference_to_what_cannot_be_there_is_refused(value: Any, words: str, hint: str) -> None:
    document = reading(value)
    problem = problem_of(document, "unknown-reference")
    assert words in problem.message
    assert hint in problem.hint
    assert problem.position.line == line_of(document, '"input"')


@pytest.mark.parametrize(
    ("value", "more"),
    [
        ("{{input.x}}", {}),
        ("{{run.id}}", {}),
        ({"from": "/input/x"}, {}),
        ({"from": "/steps/a/output/x"}, {"depends_on": ["a"]}),
        ("{{steps.a.output.x}}", {"input_from": "a"}),
    ],
)
def test_a_reference_to_what_will_be_there_is_fine(value: Any, more: dict[str, Any]) -> None:
    assert codes(read(reading(value, **more))) == []


def test_steps_further_up_may_be_read() -> None:
    last = step("c", depends_on=["b"], input={"x": {"from": "/steps/a/output"}})
    assert codes(read(definition(step("a"), step("b", depends_on=["a"]), last))) == []


def test_a_decision_source_reads_the_output_that_it_judges_and_nothing_that_is_not_there() -> None:
    source = VERIFY["decision_source"] | {"input": {"sha": {"from": "/steps/s/output/sha"}}}
    assert codes(read(definition(step(fulfillment=VERIFY | {"decision_source": source})))) == []
    wrong = source | {"input": {"sha": {"from": "/steps/other/output"}}}
    document = definition(step(fulfillment=VERIFY | {"decision_source": wrong}))
    problem = problem_of(document, "unknown-reference")
    assert problem.position.line == line_of(document, '"fulfillment"')


# -- when the step runs --------------------------------------------------------------------------


def asked(*steps: Any, script: dict[str, Any], **given: Any) -> dict[str, Any]:
    """What each step was sent."""
    sent: dict[str, Any] = {}

    def keep(name: str, answer: Any) -> Any:
        def answering(task: Any) -> Any:
            sent[name] = task.inputs["input"]
            return answer

        return answering

    scripted = {name: keep(name, answer) for name, answer in script.items()}
    sent["status"] = play(net_of(*steps), given, script=scripted).status
    return sent


def test_placeholders_and_pointers_are_put_in_when_the_step_runs() -> None:
    last = "n={{steps.a.output.n}}"
    sent = asked(
        step("a", input={"text": "{{input.text}}", "id": "{{run.id}}"}),
        step("b", depends_on=["a"], input={"n": {"from": "/steps/a/output/n"}, "s": last}),
        script={"a": {"n": 7}, "b": {}},
        text="hello",
    )
    assert sent == {
        "status": "completed",
        "a": {"text": "hello", "id": "play"},
        "b": {"n": 7, "s": "n=7"},
    }


def test_upstream_outputs_are_merged_in_order_with_a_copy_by_step_and_own_input_on_top() -> None:
    sent = asked(
        step("a"),
        step("b"),
        step("c", input_from=["a", "b"], input={"own": 1, "both": "mine"}),
        script={"a": {"x": 1, "y": 1, "both": 1}, "b": {"y": 2}, "c": {}},
    )
    assert sent["c"] == {
        "x": 1,
        "y": 2,
        "both": "mine",
        "own": 1,
        "upstream": {"a": {"x": 1, "y": 1, "both": 1}, "b": {"y": 2}},
    }


def test_an_upstream_output_that_is_no_mapping_is_only_in_the_copy() -> None:
    sent = asked(step("a"), step("b", input_from="a"), script={"a": [1, 2], "b": {}})
    assert sent["b"] == {"upstream": {"a": [1, 2]}}


def test_the_output_of_a_skipped_step_is_null_upstream_and_an_error_for_a_pointer() -> None:
    skipped = step("a", fail_policy="skip")
    sent = asked(skipped, step("b", input_from="a"), script={"a": error("boom"), "b": {}})
    assert sent["b"] == {"upstream": {"a": None}}
    pointing = step("b", depends_on=["a"], input={"x": {"from": "/steps/a/output"}})
    played = play(net_of(skipped, pointing), script={"a": error("boom"), "b": {}})
    assert played.status == "failed"
    assert played.problem is not None
    assert played.problem["code"] == "unresolved_reference"


@pytest.mark.parametrize("fan_in", [{}, {"policy": "all"}])
def test_an_unresolved_reference_fails_a_fan_out_once_and_nobody_is_asked(fan_in: Any) -> None:
    retry = {"max_attempts": 3, "backoff": "PT1S"}
    ask = fan_out(fan_in=fan_in, input={"x": "{{input.none}}"}, timing={"retry": retry})
    played = play(net_of(ask), script=dict.fromkeys(STATIC["participants"], 1))
    assert (played.status, played.seconds) == ("failed", 0)
    assert played.problem is not None
    assert played.problem["code"] == "unresolved_reference"
    assert "{{input.none}}" in played.problem["message"]
    assert not played.events_of("token.retrying")


def test_an_answer_cannot_smuggle_a_reference_in() -> None:
    sent = asked(
        step("a"),
        step("b", input={"x": "{{steps.a.output.x}}"}, input_from="a"),
        script={"a": {"x": "{{input.secret}}", "y": {"from": "/input/secret"}}, "b": {}},
        secret="hidden",
    )
    assert sent["b"]["x"] == "{{input.secret}}"
    assert sent["b"]["y"] == {"from": "/input/secret"}

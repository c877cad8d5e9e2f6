"""One mistake is one finding: nothing that would be wrong once it is mended."""

from __future__ import annotations

from typing import Any

import pytest

from .definitions import STATIC, definition, fan_out, read, step

MATCH = {"path": "/ok", "fulfilled_values": [True]}
SOURCE = {"kind": "capability", "capability_id": "verify"}
BEST = {"policy": "best_of", "score_field": "/price"}
CAPABILITY = {"capability_id": "c", "filter": {}}

#: A step with one mistake, and the code of the one finding.
MISTAKES: dict[str, tuple[Any, str]] = {
    "a policy of fan_in": (
        fan_out(
            fan_in={"policy": "best-of", "score_field": "/price", "score_order": "asc"},
            timing={"timeout": "PT1S"},
        ),
        "bad-choice",
    ),
    "a policy of fan_in with a number": (
        fan_out(fan_in={"policy": "quorom", "min_responses": 2}),
        "bad-choice",
    ),
    "a number of answers": (
        fan_out(fan_in={"policy": "quorum", "min_responses": "2"}),
        "wrong-type",
    ),
    "a way to resolve": (step(target={"resolve": "capabilty", **CAPABILITY}), "bad-choice"),
    "a policy of fulfillment": (
        step(
            fulfillment={
                "policy": "external-decision",
                "decision_source": SOURCE,
                "result_match": MATCH,
            }
        ),
        "bad-choice",
    ),
    "a kind of source": (
        step(
            fulfillment={
                "policy": "external_decision",
                "decision_source": {"kind": "capabilities", "capability_id": "v", "input": {}},
                "result_match": MATCH,
            }
        ),
        "bad-choice",
    ),
    "a timeout": (step(timing={"timeout": "30 s", "on_timeout": "skip"}), "bad-duration"),
    "a timeout of the best": (fan_out(fan_in=BEST, timing={"timeout": "pt30s"}), "bad-duration"),
    "a number of retries": (step(max_retries="2", retry_delay_ms=5), "wrong-type"),
    "a number of tries": (
        fan_out(
            fan_in={},
            timing={"retry": {"max_attempts": "2"}},
            fulfillment={
                "policy": "output_match",
                "result_match": MATCH,
                "on_not_fulfilled": "retry",
            },
        ),
        "wrong-type",
    ),
    "participants": (
        fan_out(
            target={"resolve": "static", "participants": "p1"},
            fan_in={"policy": "quorum", "min_responses": 2},
        ),
        "wrong-type",
    ),
    "a limit": (
        fan_out(
            target={**STATIC, "limit": 0},
            fan_in={"policy": "quorum", "min_responses": 2},
        ),
        "bad-number",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_one_mistake_gives_one_finding(mistake: str) -> None:
    one, code = MISTAKES[mistake]
    found = read(definition(one)).problems
    assert [problem.code for problem in found] == [code], "\n".join(map(str, found))


def test_a_deadline_that_cannot_be_read_is_the_only_finding() -> None:
    found = read(definition(fan_out(fan_in=BEST), deadline="5 minutes")).problems
    assert [problem.code for problem in found] == ["bad-duration"]


@pytest.mark.parametrize("written", ["pt5s", "PT1.5H30M", "P1.5DT1H"])
def test_a_duration_that_is_none_of_iso_8601_is_refused(written: str) -> None:
    found = read(definition(step(timing={"timeout": written}))).problems
    assert [problem.code for problem in found] == ["bad-duration"]


@pytest.mark.parametrize("text", ["{{steps.nowhere.output.x}}", "{{workload.region}}"])
def test_references_in_a_filter_and_in_participants_are_checked(text: str) -> None:
    searched = {"resolve": "capability", "capability_id": "c", "filter": {"region": text}}
    named = {"resolve": "static", "participants": [text]}
    for target in (searched, named):
        found = read(definition(step(target=target))).problems
        assert [problem.code for problem in found] == ["unknown-reference"]

"""Templates: parameters are checked and put in, everything else is left for the run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.dialects.arca.normal import normal_form
from anabranch.dialects.arca.template_check import template_problems
from anabranch.dialects.arca.templates import Template, definition_text, read_template
from anabranch.dialects.registry import compile_source
from anabranch.errors import DefinitionError, InputError

from ..support import shape
from .definitions import line_of, read, step

TEMPLATE: dict[str, Any] = {
    "schema": "workflow-template.v1",
    "template_id": "biweekly.v1",
    "template_kind": "workflow",
    "participant_id": "participant:did:key:z6MkExample",
    "label": "Biweekly",
    "description": "writes and checks",
    "created_at": "2026-01-01T00:00:00Z",
    "parameters": {
        "topic": {"type": "string", "description": "what about"},
        "words": {"type": "integer", "default": 500},
        "wait": {"type": "string", "default": "PT10M"},
        "anything": {"required": False},
    },
    "deadline": "PT1H",
    "plan": {
        "steps": {
            "draft": step(
                request_input={"topic": "{{params.topic}}", "words": {"from": "/params/words"}},
                timing={"timeout": "{{params.wait}}"},
            )
            | {"step_id": "draft"},
            "check": step(input={"note": "{{params.topic}} by {{run.id}}"}, input_from="draft")
            | {"step_id": "check"},
        }
    },
}


def template(**changes: Any) -> Template:
    return read_template(json.dumps({**TEMPLATE, **changes}))


def refused(**changes: Any) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        template(**changes)
    return caught.value


def test_a_template_becomes_a_definition() -> None:
    made = template().materialise({"topic": "rivers"})
    assert made["workflow_id"] == "biweekly.v1"
    assert made["deadline"] == "PT1H"
    draft, check = made["plan"]["steps"].values()
    assert draft["request_input"] == {"topic": "rivers", "words": 500}
    assert draft["timing"] == {"timeout": "PT10M"}
    assert check["input"] == {"note": "rivers by {{run.id}}"}
    assert not {"parameters", "template_id", "schema", "participant_id"} & made.keys()
    assert compile_source(definition_text(made)).problems == ()


def test_what_belongs_to_the_template_is_kept() -> None:
    read_back = template()
    assert (read_back.template_id, read_back.label) == ("biweekly.v1", "Biweekly")
    assert [parameter.name for parameter in read_back.parameters] == [
        *("topic", "words", "wait", "anything")
    ]
    assert [parameter.required for parameter in read_back.parameters] == [True, False, False, False]


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({}, "missing_parameter", "needs the parameter 'topic'"),
        ({"topic": "x", "wrods": 3}, "unknown_parameter", "did you mean 'words'?"),
        ({"topic": 5}, "parameter_type", "must be of type string, not int"),
        ({"topic": "x", "words": "many"}, "parameter_type", "integer, not str"),
        ({"topic": "x", "words": True}, "parameter_type", "integer, not bool"),
        ({"topic": "x", "words": 1.5}, "parameter_type", "integer, not float"),
        ({"topic": "x", "words": float("inf")}, "parameter_type", "integer, not float"),
        ({"topic": None}, "parameter_type", "string, not null"),
        ({"topic": "{{input.secret}}"}, "parameter_type", "holds a reference"),
        ({"topic": "x", "anything": {"from": "/input/x"}}, "parameter_type", "holds a reference"),
        ({"topic": "x {{}}"}, "parameter_type", "holds a reference"),
    ],
)
def test_wrong_parameters_are_refused(given: dict[str, Any], code: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        template().materialise(given)
    assert caught.value.code == code
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("string", "x", 1),
        ("integer", 3, 3.5),
        ("integer", 3.0, "3"),
        ("number", 1.5, True),
        ("boolean", False, 0),
        ("object", {"a": 1}, []),
        ("array", [1], {}),
    ],
)
def test_every_type_of_parameter_takes_what_it_says(kind: str, good: Any, bad: Any) -> None:
    plan = {"steps": [step(input={"v": "{{params.v}}"})]}
    one = template(parameters={"v": {"type": kind}}, plan=plan)
    assert one.materialise({"v": good})["plan"]["steps"][0]["input"] == {"v": good}
    with pytest.raises(InputError, match="must be of type"):
        one.materialise({"v": bad})


def test_a_type_alone_is_short_for_a_parameter() -> None:
    plan = {"steps": [step(input={"v": "{{params.v}}"})]}
    (parameter,) = template(parameters={"v": "integer"}, plan=plan).parameters
    assert (parameter.type, parameter.required) == ("integer", True)


ODD = {"type": "integer", "default": "x"}


@pytest.mark.parametrize(
    ("changes", "code", "place"),
    [
        ({"template_id": "two words"}, "bad-name", '"template_id"'),
        ({"template_id": None}, "missing-key", "{"),
        ({"schema": "workflow-template.v2"}, "bad-choice", '"schema"'),
        ({"template_kind": "offer"}, "bad-choice", '"template_kind"'),
        ({"plan": None}, "missing-key", "{"),
        ({"paramters": {}}, "unknown-key", '"paramters"'),
        ({"parameters": {"a-b": {}}, "plan": {"steps": []}}, "bad-name", '"a-b"'),
        ({"parameters": {"v": {"type": "int"}}, "plan": {}}, "bad-choice", '"type"'),
        ({"parameters": {"v": ODD}, "plan": {}}, "wrong-type", '"default"'),
        ({"parameters": {}}, "unknown-reference", "{"),
        ({"plan": {"steps": [step(input={"a": "{{ }}"})]}}, "bad-template", "{"),
    ],
)  # fmt: skip
def test_a_template_that_cannot_be_used_is_refused_at_its_place(
    changes: dict[str, Any], code: str, place: str
) -> None:
    document = {**TEMPLATE, **changes}
    with pytest.raises(DefinitionError) as caught:
        read_template(json.dumps(document, indent=1), file="t.json")
    problem = caught.value.problems[0]
    assert problem.code == code
    assert problem.position.file == "t.json"
    assert problem.position.line == line_of(document, place)


def test_deadline_seconds_is_refused_in_a_template_and_in_what_it_becomes() -> None:
    problem = refused(deadline_seconds=60).problems[0]
    assert problem.code == "removed-key"
    assert "PT5M" in problem.hint
    plan = {"steps": [step(deadline_seconds=5, input={"t": "{{params.topic}}"})]}
    made = template(plan=plan).materialise({"topic": "x"})
    assert [problem.code for problem in read(made).errors] == ["removed-key"]


def test_a_template_may_have_every_new_field() -> None:
    """No template changes are required beyond accepting them."""
    plan = {
        "steps": [
            step(
                target={"resolve": "capability", "capability_id": "{{params.cap}}", "limit": 3},
                fan_in={"policy": "best_of", "score_field": "/price"},
                timing={"timeout": "PT30S", "on_timeout": "skip", "retry": {"max_attempts": 1}},
            )
        ]
    }
    made = template(parameters={"cap": "string"}, plan=plan).materialise({"cap": "offer-catalog"})
    compiled = read(made)
    assert compiled.problems == ()
    assert compiled.net is not None
    fan = compiled.net.steps["s"].fan
    assert fan is not None
    assert fan.rule.mode == "best_of"


# -- checked as what it will become ----------------------------------------------------------------


def problems(text: str) -> list[str]:
    return [
        f"{one.position.line}: {one.code}" for one in template_problems(text, file="template.json")
    ]


def test_a_template_without_a_fault_has_no_problem_whatever_its_parameters_are() -> None:
    assert problems(json.dumps(TEMPLATE)) == []
    typed = {kind: kind for kind in ("string", "integer", "boolean", "array", "object", "any")}
    free = {
        "template_id": "free.v1",
        "parameters": typed,
        "deadline": "{{params.string}}",
        "max_parallel_steps": "{{params.integer}}",
        "plan": {
            "steps": [
                step(
                    "ask",
                    target={"resolve": "{{params.string}}", "participants": "{{params.array}}"},
                    fan_in={"policy": "{{params.any}}", "min_responses": "{{params.integer}}"},
                    timing={"timeout": "{{params.string}}", "on_timeout": "{{params.any}}"},
                    fulfillment="{{params.object}}",
                ),
                step("{{params.string}}", depends_on=["{{params.any}}"], input_from="ask"),
            ]
        },
    }
    assert problems(json.dumps(free)) == []


@pytest.mark.parametrize(
    ("changes", "place", "code"),
    [
        ({"plan": {"steps": [step(fan_in={})]}}, "   {", "missing-key"),
        ({"plan": {"steps": [step(depends_on=["b"])]}}, '"b"', "unknown-step"),
        ({"plan": {"steps": [step(timing={"timeout": "5 min"})]}}, '"timeout"', "bad-duration"),
        ({"plan": {"steps": []}}, "{", "no-steps"),
        ({"plan": {"steps": [step(colour="{{params.topic}}")]}}, '"colour"', "unknown-key"),
        (
            {
                "parameters": {"wait": {"type": "string", "default": "soon"}},
                "plan": {"steps": [step(timing={"timeout": "{{params.wait}}"})]},
            },
            '"timeout"',
            "bad-duration",
        ),
    ],
)
def test_what_is_wrong_for_all_parameters_is_found_before_any_are_given(
    changes: dict[str, Any], place: str, code: str
) -> None:
    document = {**TEMPLATE, **changes}
    found = problems(json.dumps(document, indent=1))
    assert found == [f"{line_of(document, place)}: {code}"]


# -- the normal form ---------------------------------------------------------------------------


def test_the_normal_form_has_one_spelling_and_means_the_same() -> None:
    story = {
        "definition_id": "story",
        "plan": {"deadline": "PT1H", "max_parallel_steps": 2},
        "steps": [
            {"id": "a", "service_type": "x/y", "retry": {"max_attempts": 2, "backoff_seconds": 3}},
            {
                "service_type": "x/y",
                "input_from_step": "a",
                "depends_on": "a",
                "request_input": {"n": 1},
                "id": "b",
            },
        ],
    }
    normal = normal_form(json.dumps(story))
    assert normal == {
        "workflow_id": "story",
        "deadline": "PT1H",
        "max_parallel_steps": 2,
        "plan": {
            "steps": [
                {
                    "step_id": "a",
                    "service_type": "x/y",
                    "timing": {"retry": {"max_attempts": 2, "backoff": "PT3S"}},
                },
                {
                    "step_id": "b",
                    "service_type": "x/y",
                    "input": {"n": 1},
                    "input_from": ["a"],
                    "depends_on": ["a"],
                },
            ]
        },
    }
    assert normal_form(json.dumps(normal)) == normal
    before, after = compile_source(json.dumps(story)), compile_source(json.dumps(normal))
    assert before.errors == after.errors == ()
    assert shape(before.net) == shape(after.net)

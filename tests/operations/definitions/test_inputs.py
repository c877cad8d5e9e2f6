"""What a definition wants to be given, in the words of each language."""

from __future__ import annotations

import json
from typing import Any

import pytest

import anabranch
from anabranch.dialects.arca.templates import read_template
from anabranch.errors import InputError
from anabranch.operations.definitions.input_check import require_input
from anabranch.operations.definitions.inputs import (
    RunInput,
    inputs_of,
    parameters_of,
)
from anabranch.operations.definitions.prepare import prepare

RULE = {
    "payload": {
        "amount": {"type": "int64"},
        "price": {"type": "uint256", "default": 1},
        "fast": {"type": "bool", "default": False},
    }
}


def wanted(text: str, rules: dict[str, Any] | None = None) -> dict[str, RunInput]:
    return {one.name: one for one in inputs_of(prepare(text, (), rules).net)}


def test_a_playbook_wants_its_workload_with_the_types_of_the_defaults() -> None:
    found = wanted(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a}\n"
        "workload: {s: x, n: 1, f: 1.5, b: true, o: {}, l: [], z: null, c: '{{ args.s }}-x'}\n"
        "workflow:\n  - step: a\n    tool: {kind: noop}\n"
    )
    types = {name: one.type for name, one in found.items()}
    assert types == {
        "s": "string", "n": "number", "f": "number", "b": "boolean", "o": "object", "l": "array",
        "z": "any", "c": "any",
    }  # fmt: skip
    assert not any(one.required for one in found.values())
    assert (found["c"].has_default, "worked out" in found["c"].description) == (False, True)


def test_an_orchestration_wants_what_its_first_rule_declares() -> None:
    text = '{"id": "a", "structure": {"A": {"rule": "cm:xrc137:A"}}}'
    found = wanted(text, {"A": RULE})
    assert found["amount"] == RunInput(
        "amount", "integer", required=True, has_default=False, description="int64"
    )
    assert (found["price"].type, found["price"].default) == ("string", 1)
    assert (found["fast"].type, found["fast"].default) == ("boolean", False)
    assert wanted(text) == {}  # its rule is not at hand


def test_a_workflow_wants_its_input_and_what_its_steps_read_of_it() -> None:
    step = {
        "step_id": "s",
        "service_type": "t",
        "input": {"a": "{{input.known}}", "b": {"from": "/input/needed/deep"}},
        "fulfillment": {
            "policy": "external_decision",
            "decision_source": {
                "kind": "capability", "capability_id": "v", "input": {"x": "{{input.judged}}"},
            },
            "result_match": {"path": "/ok", "fulfilled_values": [True]},
        },
    }  # fmt: skip
    text = json.dumps({"workflow_id": "w", "input": {"known": "x"}, "plan": {"steps": [step]}})
    found = wanted(text)
    assert {name: one.required for name, one in found.items()} == {
        "known": False,
        "needed": True,
        "judged": True,
    }


def test_a_template_wants_its_parameters() -> None:
    template = read_template(
        '{"schema": "workflow-template.v1", "template_id": "t.v1", "parameters": {"a": "integer", '
        '"b": {"type": "string", "default": "x", "description": "words"}, '
        '"c": {"type": "object", "required": false}}, "plan": {"steps": [{"step_id": "s", '
        '"service_type": "t", "input": {"a": "{{params.a}}"}}]}}'
    )
    a, b, c = parameters_of(template)
    assert (a.type, a.required) == ("integer", True)
    assert (b.default, b.has_default, b.description) == ("x", True, "words")
    assert (c.type, c.required, c.has_default) == ("object", False, False)


# -- input that a definition has no use for ----------------------------------------------------

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\n"
STEP = "workflow:\n  - step: a\n    tool: {kind: noop, result: '{{ workload.items }}'}\n"


def start(text: str, given: dict[str, Any], **more: Any) -> str:
    return anabranch.run(text, given, **more).status


def test_an_unknown_key_of_the_input_is_refused_with_the_closest_one() -> None:
    with pytest.raises(InputError, match=r"'itemz'; did you mean 'items'\?.*--allow-extra-input"):
        start(f"{HEAD}workload: {{items: [1]}}\n{STEP}", {"itemz": [2]})


def test_where_no_name_is_close_only_declared_inputs_are_listed() -> None:
    text = f"{HEAD}workload: {{items: [1], word: a}}\nworkflow:\n  - step: a\n    tool:\n"
    text += "      {kind: python, args: {n: '{{ workload.items }}'}, code: 'result = len(n)'}\n"
    with pytest.raises(InputError, match=r"'q'; its inputs are items, word\. A run can"):
        start(text, {"q": 1})


def test_an_unknown_key_can_be_allowed() -> None:
    text = f"{HEAD}workload: {{items: [1]}}\n{STEP}"
    assert start(text, {"itemz": [2]}, allow_extra_input=True) == "completed"


@pytest.mark.parametrize(
    "tool",
    [
        "{kind: noop, result: '{{ workload.more | default(1) }}'}",
        "{kind: noop, result: '{{ ctx.more }}'}",
        "{kind: noop, result: '{{ more }}'}",
        "{kind: noop, result: '{{ workload }}'}",
        "{kind: noop, result: '{{ workload[workload.key] }}'}",
        "{kind: python, code: \"result = context['workload']['more']\"}",
        "{kind: python, code: 'def main(more): return more'}",
    ],
)
def test_what_a_playbook_reads_without_declaring_it_is_no_unknown_input(tool: str) -> None:
    text = f"{HEAD}workload: {{key: more}}\nworkflow:\n  - step: a\n    tool: {tool}\n"
    require_input(prepare(text).net, {"more": 1})


def test_a_definition_that_declares_no_input_takes_anything() -> None:
    require_input(prepare(HEAD + "workflow:\n  - step: a\n    tool: {kind: noop}\n").net, {"x": 1})
    require_input(prepare('{"id": "a", "structure": {"A": {"rule": "cm:xrc137:A"}}}').net, {"x": 1})


def test_workflows_and_orchestrations_refuse_unknown_input_as_well() -> None:
    step = {"step_id": "s", "service_type": "t", "input": {"a": "{{input.text}}"}}
    workflow = json.dumps({"workflow_id": "w", "input": {"x": 1}, "plan": {"steps": [step]}})
    require_input(prepare(workflow).net, {"text": "a", "x": 2})
    with pytest.raises(InputError, match="did you mean 'text'"):
        require_input(prepare(workflow).net, {"txt": "a"})
    text = '{"id": "a", "structure": {"A": {"rule": "cm:xrc137:A"}}}'
    with pytest.raises(InputError, match="did you mean 'amount'"):
        require_input(prepare(text, (), {"A": RULE}).net, {"amuont": 1})

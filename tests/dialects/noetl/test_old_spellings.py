"""Older ways to write a playbook still work, each with a warning that names the canonical one."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.net.net import Branch

from ..support import codes, playbook, steps

NAMES: dict[str, Any] = {"run": "r", "workload": {}, "ctx": {}, "args": {}, "results": {}}
TARGETS = ("- {step: b, tool: {kind: noop}}", "- {step: c, tool: {kind: noop}}")


def routed(written: str) -> Branch:
    compiled = playbook(steps(f"- {{step: a, {written}}}", *TARGETS))
    assert compiled.net is not None, compiled.problems
    old = [problem for problem in compiled.problems if problem.code == "old-spelling"]
    assert old
    assert all(problem.severity == "warning" and "next: {spec:" in problem.hint for problem in old)
    return compiled.net.steps["a"].branches[0]


@pytest.mark.parametrize(
    ("written", "mode", "targets"),
    [
        ("next: b", "exclusive", ["b"]),
        ("next: [b, c]", "inclusive", ["b", "c"]),
        ("next: [{step: b, when: ctx.x}, {step: c}]", "exclusive", ["b", "c"]),
        ("next: {step: b}", "exclusive", ["b"]),
        ("next: [b, {step: c}]", "exclusive", ["b", "c"]),
        ("spec: {next_mode: inclusive}, next: [{step: b}, {step: c}]", "inclusive", ["b", "c"]),
        ("spec: {next_mode: exclusive}, next: [b, c]", "exclusive", ["b", "c"]),
        ("spec: {next_mode: inclusive}, next: {arcs: [{step: c}]}", "inclusive", ["c"]),
    ],
)
def test_next_as_name_list_or_arc(written: str, mode: str, targets: list[str]) -> None:
    branch = routed(written)
    assert branch.mode == mode
    assert [arc.target for arc in branch.arcs] == targets


def test_the_router_decides_over_the_old_mode() -> None:
    branch = routed(
        "spec: {next_mode: inclusive}, next: {spec: {mode: exclusive}, arcs: [{step: b}]}"
    )
    assert branch.mode == "exclusive"


def admitted(step: str, ctx: dict[str, Any]) -> bool:
    compiled = playbook(steps(f"- {{step: a, tool: {{kind: noop}}, {step}}}"))
    assert compiled.net is not None
    assert codes(compiled) == ["old-spelling"]
    admission = compiled.net.steps["a"].admission
    assert admission is not None
    for rule in admission.rules:
        if rule.guard is None or rule.guard.evaluate({**NAMES, "ctx": ctx}):
            return rule.allow
    raise AssertionError("no rule decided")


def test_when_on_a_step_is_a_gate() -> None:
    assert admitted("when: ctx.x", {"x": 1}) is True
    assert admitted("when: ctx.x", {}) is False


def test_when_and_admit_must_agree() -> None:
    both = "when: ctx.x, spec: {policy: {admit: {rules: [{when: ctx.y, then: {allow: true}}]}}}"
    assert admitted(both, {"x": 1, "y": 1}) is True
    assert admitted(both, {"x": 1}) is False
    assert admitted(both, {"y": 1}) is False


def test_the_opposite_of_a_guard_says_so() -> None:
    step = "when: ctx.x, spec: {policy: {admit: {rules: [{else: {then: {allow: true}}}]}}}"
    net = playbook(steps(f"- {{step: a, tool: {{kind: noop}}, {step}}}")).net
    assert net is not None
    assert net.steps["a"].admission is not None
    guard = net.steps["a"].admission.rules[0].guard
    assert guard is not None
    assert guard.text == "not (ctx.x)"


def inputs(step: str) -> Any:
    compiled = playbook(steps(f"- {{step: a, {step}}}"))
    assert compiled.net is not None, compiled.problems
    assert set(codes(compiled)) == {"old-spelling"}
    work = compiled.net.steps["a"].work
    assert work is not None
    assert work.inputs is not None
    return work.inputs.evaluate(NAMES)


def test_args_on_the_step_are_defaults_for_the_task() -> None:
    step = "args: {x: 1, y: 1}, tool: {kind: python, code: c, args: {y: 2}}"
    assert inputs(step) == {"code": "c", "args": {"x": 1, "y": 2}}
    assert inputs("input: {x: 1}, tool: {kind: python, code: c}")["args"] == {"x": 1}


def test_inputs_under_the_spec_of_a_task() -> None:
    assert inputs("tool: {kind: python, spec: {code: c, args: {x: 1}}}") == {
        "code": "c",
        "args": {"x": 1},
    }
    assert inputs("tool: {kind: http, spec: {endpoint: u, params: {a: 1}}}") == {
        "url": "u",
        "params": {"a": 1},
    }


def test_else_without_then() -> None:
    rules = "rules: [{when: ctx.x, then: {allow: true}}, {else: {allow: false}}]"
    compiled = playbook(
        steps(f"- {{step: a, tool: {{kind: noop}}, spec: {{policy: {{admit: {{{rules}}}}}}}}}")
    )
    assert compiled.net is not None
    assert codes(compiled) == []


def test_the_later_spellings_of_args_and_set_are_taken_as_they_are() -> None:
    step = "tool: {kind: python, code: c, input: {x: 1}}, set: {ctx.y: 2}"
    compiled = playbook(steps(f"- {{step: a, {step}}}"))
    assert compiled.net is not None
    assert codes(compiled) == []
    assert [patch.key for patch in compiled.net.steps["a"].patches] == ["y"]


@pytest.mark.parametrize("kind", ["local", "distributed", "hybrid"])
def test_executor_kind_and_profile(kind: str) -> None:
    body = f"executor: {{kind: {kind}, profile: auto, version: noetl-runtime/1}}\n"
    assert codes(playbook(body + steps("- {step: a, tool: {kind: noop}}"))) == []

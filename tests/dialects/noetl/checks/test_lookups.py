"""What templates look up and arguments of tools, held against what is known to be there."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.dialects.port import ToolSignature
from anabranch.dialects.registry import compile_source
from anabranch.net.problems import Problem
from anabranch.operations.definitions.prepare import check
from anabranch.work.kinds.callables import Toolbox

from ...support import HEAD, documented_severity

CODES = ("unknown-input", "unknown-field", "unknown-function", "tool-arguments", "bad-code")


def found(body: str, *tools: ToolSignature) -> list[Problem]:
    problems = compile_source(HEAD + body, tools=tools).problems
    known = [problem for problem in problems if problem.code in CODES]
    assert all(problem.severity == documented_severity(problem.code) for problem in known)
    return known


def reading(template: str, tool: str, more: str = "") -> list[Problem]:
    return found(
        f"workload: {{items: [1], n: 2}}\nworkflow:\n  - step: a\n    tool: {tool}\n{more}"
        f"    next: {{arcs: [{{step: b}}]}}\n"
        f'  - step: b\n    tool: {{kind: noop, result: "{template}"}}\n'
    )


@pytest.mark.parametrize(
    "template",
    ["{{ workload.itemz }}", "{{ workload['itemz'] | length }}", "{{ workload.itms }}"],
)
def test_an_input_close_to_a_declared_one_is_a_slip(template: str) -> None:
    (problem,) = reading(template, "{kind: noop}")
    assert (problem.code, problem.hint) == ("unknown-input", "did you mean 'items'?")


@pytest.mark.parametrize(
    "template",
    [
        "{{ workload.items }}",
        "{{ workload.itemz | default([]) }}",
        "{{ workload.itemz is defined }}",
        "{{ workload.unheard_of }}",
        "{{ workload.get('itemz') }}",
        "{% set workload = 1 %}{{ workload.itemz }}",
    ],
)
def test_what_may_be_there_is_no_slip(template: str) -> None:
    assert reading(template, "{kind: noop}") == []


@pytest.mark.parametrize(
    ("tool", "template", "hint"),
    [
        ("{kind: noop, result: {total: 1}}", "{{ steps.a.totl }}", "did you mean 'total'?"),
        ("{kind: noop, result: {total: 1}}", "{{ a.data.totl }}", "did you mean 'total'?"),
        ("{kind: noop, result: {x: {y: 1}}}", "{{ a.x.z }}", "it has `y`"),
        ("{kind: noop}", "{{ a.total }}", "it has `status`, `step`"),
        ("{kind: shell, command: ls}", "{{ steps['a'].stdot }}", "did you mean 'stdout'?"),
        ("{kind: http, url: 'http://x.test'}", "{{ a.status }}", "did you mean 'status_code'?"),
        ("{kind: decision, ask: ok?}", "{{ a.comment }}", "it has `decision`"),
    ],
)
def test_a_field_that_a_result_does_not_have_is_named(tool: str, template: str, hint: str) -> None:
    problems = reading(template, tool)
    assert [problem.code for problem in problems] == ["unknown-field"]
    assert hint in problems[0].hint


@pytest.mark.parametrize(
    ("tool", "template"),
    [
        ("{kind: noop, result: {total: 1}}", "{{ steps.a.total.deep }}"),
        ("{kind: noop, result: {total: '{{ workload }}'}}", "{{ steps.a.total.anything }}"),
        ("{kind: noop, result: '{{ workload }}'}", "{{ a.anything }}"),
        ("{kind: noop, result: {total: 1}}", "{{ a.items() | length }}"),
        ("{kind: noop, result: {total: 1}}", "{{ a.totl | default(1) }}"),
        ("{kind: http, url: 'http://x.test'}", "{{ a.data.rows[0].id }}"),
        ("[{kind: noop, result: {x: 1}}, {kind: noop, result: {y: 1}}]", "{{ a.y }}"),
        ("{kind: noop, spec: {result: {output_select: [x]}}, result: {x: 1}}", "{{ a.y }}"),
        ("{kind: python, code: 'result = {}'}", "{{ a.anything }}"),
    ],
)
def test_what_is_not_certain_is_left_alone(tool: str, template: str) -> None:
    assert reading(template, tool) == []


def test_results_of_loops_have_a_shape_of_their_own() -> None:
    loop = "    loop: {in: [1], iterator: n}\n"
    assert reading("{{ a.results }}", "{kind: noop, result: {x: 1}}", loop) == []


def test_a_name_that_something_else_has_is_not_the_step() -> None:
    body = (
        "workload: {a: {y: 1}}\nworkflow:\n  - step: a\n    tool: {kind: noop, result: {x: 1}}\n"
        "    next: {arcs: [{step: b}]}\n  - step: b\n    tool: {kind: noop, result: '{{ a.y }}'}\n"
    )
    assert found(body) == []


def toolbox() -> Toolbox:
    made = Toolbox()

    @made.tool("price")
    def price(sku: str, quantity: int = 1) -> float:
        return float(quantity)

    @made.tool("anything")
    def anything(task: object, **rest: object) -> None: ...

    return made


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("{kind: price, quantity: 2}", "does not give `sku`"),
        ("{kind: price, skuu: a, args: {sku: b}}", "no argument 'skuu'; did you mean 'sku'?"),
        ("{kind: price, args: {sku: b, qty: 1}}", "takes no argument 'qty'"),
    ],
)
def test_wrong_arguments_of_a_registered_tool_are_found(task: str, words: str) -> None:
    body = f"workflow:\n  - step: a\n    tool: {task}\n"
    (problem,) = found(body, *toolbox().signatures())
    assert problem.code == "tool-arguments"
    assert words in str(problem)


@pytest.mark.parametrize(
    "task",
    [
        "{kind: price, sku: a}",
        "{kind: price, args: {sku: a, quantity: 2}}",
        "{kind: price, args: '{{ workload }}'}",
        "{kind: anything, whatever: 1}",
    ],
)
def test_right_arguments_are_not_complained_about(task: str) -> None:
    body = f"workflow:\n  - step: a\n    tool: {task}\n"
    assert [problem.code for problem in found(body, *toolbox().signatures())] == []


def test_code_that_returns_at_the_top_or_is_a_template_is_good_code() -> None:
    codes = ["return 1", "await x", "x = {{ workload.n | py }}", "x = {'a': {1: 2}}"]
    for code in codes:
        body = f'workflow:\n  - step: a\n    tool: {{kind: python, code: "{code}"}}\n'
        assert found(f"workload: {{n: 1}}\n{body}") == [], code


def test_the_check_of_a_file_misses_children_that_are_not_there(tmp_path: Path) -> None:
    book = tmp_path / "a.yaml"
    (tmp_path / "there.yaml").write_text("x")
    book.write_text(
        HEAD + "workflow:\n  - step: a\n    tool:\n"
        "      - {kind: playbook, path: there.yaml}\n"
        "      - {kind: playbook, path: gone.yaml}\n"
        "      - {kind: playbook, path: '{{ workload.p }}'}\n"
    )
    (problem,) = [one for one in check(book).problems if one.code == "missing-child"]
    assert "gone.yaml" in problem.message
    assert problem.position.line == 8
    assert problem.severity == documented_severity("missing-child")
    assert not any(one.code == "missing-child" for one in check(book.read_text()).problems)

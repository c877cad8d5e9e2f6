"""A text of the data stays a text, and a value that is missing is said to be missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.app import RunResult

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: t}\n"


def run(body: str, given: dict[str, Any] | None = None) -> RunResult:
    return anabranch.run(HEAD + body, given)


@pytest.mark.parametrize("name", ["None", "False", "none", "true", "12", "[1]"])
def test_a_text_that_spells_a_literal_stays_what_it_was(name: str) -> None:
    body = (
        "workload: {name: x}\nworkflow:\n  - step: a\n    tool: {kind: noop, result: "
        "'{% if true %}{{ workload.name }}{% endif %}'}\n"
    )
    assert run(body, {"name": name}).result == name


@pytest.mark.parametrize(
    "tool",
    [
        "{kind: noop, result: '{{ workload.gone }}'}",
        "{kind: noop, result: {a: ['Hello {{ gone }}']}}",
        "{kind: python, args: {x: '{{ ctx.gone }}'}, code: 'result = x'}",
        "{kind: shell, command: 'echo {{ gone | sh }}'}",
        "{kind: noop, result: 1, set_ctx: {x: '{{ ctx.gone }}'}}",
    ],
)
def test_a_missing_value_fails_the_step_and_is_named(tool: str) -> None:
    ended = run(f"workflow:\n  - step: a\n    tool: {tool}\n")
    assert ended.status == "failed"
    assert ended.problem is not None
    assert "'gone' is undefined" in ended.problem["message"]
    assert "default(…)" in ended.problem["message"]


def test_a_missing_value_in_the_args_of_an_arc_is_named() -> None:
    ended = run(
        "workflow:\n  - step: a\n    tool: {kind: noop}\n"
        "    next: {arcs: [{step: b, args: {x: '{{ ctx.gone }}'}}]}\n"
        "  - step: b\n    tool: {kind: noop}\n"
    )
    assert ended.status == "failed"
    assert ended.problem is not None
    assert "'gone' is undefined" in ended.problem["message"]


def test_a_guard_that_reads_a_missing_value_does_not_hold() -> None:
    ended = run(
        "workflow:\n  - step: a\n    tool: {kind: noop}\n"
        "    next: {arcs: [{step: b, when: '{{ ctx.gone }}'}, {step: c, when: ctx.gone.deep}]}\n"
        "  - step: b\n    tool: {kind: noop}\n  - step: c\n    tool: {kind: noop}\n"
    )
    assert ended.status == "completed"
    assert "b" not in {name for name, one in ended.steps.items() if one["runs"]}


def test_a_whole_number_of_any_size_that_can_be_stored_can_be_used(tmp_path: Path) -> None:
    body = """workload: {n: 1}
workflow:
  - step: a
    tool: {kind: python, args: {n: "{{ workload.n }}"}, code: result = n * n}
    set_ctx: {kept: "{{ a + 1 }}"}
    next: {arcs: [{step: b, args: {n: "{{ a }}"}}]}
  - step: b
    tool: {kind: noop, result: ["{{ args.n }}", "{{ ctx.kept }}", "n={{ n }}"]}
"""
    large = 2**100
    for store in (":memory:", str(tmp_path / "s.db")):
        ended = anabranch.run(HEAD + body, {"n": large}, store=store)
        assert ended.result == [large**2, large**2 + 1, f"n={large**2}"]

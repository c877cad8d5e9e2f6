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
    assert "default('')" in ended.problem["message"]


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


EMPTY = "executor: {spec: {undefined: empty}}\n"


@pytest.mark.parametrize(
    ("tool", "result"),
    [
        ("{kind: noop, result: '{{ workload.gone }}'}", ""),
        ("{kind: noop, result: {a: ['Hello {{ gone }}']}}", {"a": ["Hello "]}),
        ("{kind: noop, result: '{{ [gone, dict(a=ctx.gone)] }}'}", ["", {"a": ""}]),
        ("{kind: noop, result: '{{ gone | upper }}{{ gone.a.b }}'}", ""),
        ("{kind: noop, result: {a: '{{ 1 if gone }}'}}", {"a": None}),
        ("{kind: noop, result: '{{ gone | default(3) }}'}", 3),
        ("{kind: python, args: {x: '{{ ctx.gone }}'}, code: 'result = [x]'}", [""]),
        ("{kind: noop, result: '{{ ctx.x }}', set_ctx: {x: '{{ ctx.gone }}'}}", ""),
    ],
)
def test_a_playbook_may_take_what_is_missing_as_empty(tool: str, result: Any) -> None:
    ended = run(f"{EMPTY}workflow:\n  - step: a\n    tool: {tool}\n")
    assert (ended.status, ended.result) == ("completed", result)


def test_items_arcs_and_pipelines_take_it_as_empty_too() -> None:
    ended = run(
        f"{EMPTY}workflow:\n"
        "  - step: each\n    loop: {in: [1, 2], iterator: n}\n"
        "    tool:\n"
        "      - one: {kind: noop, result: '{{ iter.n }}{{ iter.gone }}'}\n"
        "      - two: {kind: noop, result: '{{ _prev }}/{{ gone }}'}\n"
        "    next: {arcs: [{step: end, args: {x: '{{ ctx.gone }}'}}]}\n"
        '  - step: end\n    tool: {kind: noop, result: "[{{ args.x }}] {{ each }}"}\n'
    )
    assert ended.status == "completed"
    assert "1/" in str(ended.result)


def test_what_cannot_be_computed_without_a_value_still_fails() -> None:
    ended = run(
        f"{EMPTY}workflow:\n  - step: a\n    tool: {{kind: noop, result: '{{{{ gone + 1 }}}}'}}\n"
    )
    assert ended.status == "failed"


def test_lists_and_mappings_in_a_command_are_json() -> None:
    ended = run(
        "workload: {order: {id: 1, of: [{a: é, ok: true, none: null}]}, list: [1, two]}\n"
        "workflow:\n  - step: a\n    tool:\n      kind: shell\n"
        "      command: |\n"
        "        cat <<'END'\n"
        "        {{ workload.order }}\n"
        "        {{ order.of[0] }}{{ list }} {{ [list[0], 'x'] }}\n"
        "        END\n"
        "        echo {{ order | sh }}\n"
    )
    whole = '{"id": 1, "of": [{"a": "é", "ok": true, "none": null}]}'
    inner = '{"a": "é", "ok": true, "none": null}[1, "two"] [1, "x"]'
    assert ended.result["stdout"].splitlines() == [whole, inner, whole]

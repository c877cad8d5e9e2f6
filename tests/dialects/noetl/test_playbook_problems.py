"""Problems of a playbook as a whole, at their line and column."""

from __future__ import annotations

import pytest

from anabranch.dialects.registry import compile_source

from ..support import documented_severity, places, playbook, steps

NOOP = "tool: {kind: noop}"
A = f"- {{step: a, {NOOP}}}"
B = f"- {{step: b, {NOOP}}}"
C = f"- {{step: c, {NOOP}}}"
FORK = "- {step: a, next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: c}]}}"
B_TO_A = "- {step: b, next: {arcs: [{step: a}]}}"
B_TO_C = "- {step: b, next: {arcs: [{step: c}]}}"
TWO_ARCS = "- {step: a, next: {arcs: [{step: b}, {step: b}]}}"
ROUND = "- {step: a, next: {arcs: [{step: a}]}}"
CODE = "- {step: a, tool: {kind: python, code: 'result = 1'}, next: {arcs: [{step: b}]}}"
CODE_B = "- {step: b, tool: {kind: python, code: 'result = 1'}}"
VAULT = "name: k, kind: secret_manager, provider: vault"
KEY = "{name: k, kind: env, variable: V}"
GUARDED_ROUND = "- {step: a, next: {arcs: [{step: a, when: ctx.x}]}}"
SECRET = "inputs: {a: {secret: true}, token: string}"
READS = '- {step: a, tool: {kind: noop, result: "{{ workload.tokn }}"}}'

#: Templates read the workload by the name of the first task.
LABELLED = '{name: b, kind: noop}, {name: c, kind: noop, result: "{{ b }}"}'

#: (code, the playbook below its head of three lines, line, column, words of the problem)
IN_A_PLAYBOOK = [
    ("no-steps", "workflow: []\n", 4, 11, "no steps"),
    ("no-steps", "workload: {}\n", 1, 1, "no steps"),
    ("no-steps", "workflow:\n", 1, 1, "no steps"),
    ("wrong-type", "workflow: {a: 1}\n", 4, 11, "must be a list"),
    ("wrong-type", "workflow: [5]\n", 4, 12, "step 1 must be a mapping"),
    ("wrong-type", "workload: [1]\n" + steps(A), 4, 11, "`workload`"),
    ("wrong-type", "executor: {spec: {fail_fast: 1}}\n" + steps(A), 4, 30, "true or false"),
    ("missing-key", steps(f"- {{{NOOP}}}"), 5, 3, "step 1 has no `step`"),
    ("bad-name", steps(f"- {{step: '', {NOOP}}}"), 5, 10, "'' is not a name"),
    ("bad-name", steps(f'- {{step: "a\\nb", {NOOP}}}'), 5, 10, "not a name"),
    ("empty-step", steps("- step: a"), 5, 3, "neither `tool` nor `next`"),
    ("duplicate-step", steps(A, A), 6, 10, "first in line 5"),
    ("duplicate-key", steps(f"- {{step: a, step: b, {NOOP}}}"), 5, 13, "'step'"),
    ("unknown-key", "vars: {a: 1}\n" + steps(A), 4, 1, "no `vars`"),
    ("unknown-key", "workflows: []\n" + steps(A), 4, 1, "'workflows'"),
    ("unknown-key", "executor: {spec: {entry: a}}\n" + steps(A), 4, 19, "'entry'"),
    ("bad-choice", "executor: {spec: {held: drop}}\n" + steps(A), 4, 25, "`held`"),
    ("bad-duration", "executor: {spec: {deadline: x}}\n" + steps(A), 4, 29, "`deadline`"),
    ("bad-schedule", "schedule: {cron: 0 0 31 2 *}\n" + steps(A), 4, 12, "no day 31 in month Feb"),
    ("bad-schedule", "schedule: {every: 1h, timezone: Asia/Tokio}\n" + steps(A), 4, 23, "Tokyo"),
    ("unknown-step", "executor: {spec: {final_step: z}}\n" + steps(A), 4, 31, "`final_step`"),
    ("ignored-key", "executor: {requires: {tools: [x]}}\n" + steps(A), 4, 12, "`requires`"),
    ("hidden-name", steps(f"- {{step: event, {NOOP}}}"), 5, 4, "a meaning of its own"),
    ("hidden-name", "workload: {a: 1}\n" + steps(A), 6, 4, "a workload key"),
    ("failure-goes-on", steps(CODE, CODE_B), 5, 69, "'a' fails the run goes on to 'b'"),
    (
        "hidden-name",
        "workload: {b: 1}\n" + steps(f"- {{step: a, tool: [{LABELLED}]}}"),
        *(6, 20, "the task 'b' has"),
    ),
    ("old-spelling", steps(f"- {{step: a, when: ctx.b, {NOOP}}}"), 5, 13, "`when`"),
    ("wrong-type", "inputs: [a]\n" + steps(A), 4, 9, "`inputs` of the playbook must be a mapping"),
    ("bad-choice", "inputs: {a: strin}\n" + steps(A), 4, 13, "did you mean 'string'?"),
    ("unknown-key", "inputs: {a: {typ: string}}\n" + steps(A), 4, 14, "did you mean 'type'?"),
    ("wrong-type", "inputs: {a: {type: integer, default: x}}\n" + steps(A), 4, 38, "whole number"),
    ("wrong-type", "workload: {a: x}\ninputs: {a: number}\n" + steps(A), 4, 15, "not a number"),
    ("wrong-type", "inputs: {a: {type: string, enum: [1]}}\n" + steps(A), 4, 35, "not a text"),
    ("bad-choice", "inputs: {a: {enum: []}}\n" + steps(A), 4, 14, "is empty"),
    ("bad-choice", "inputs: {a: {enum: [1], default: 2}}\n" + steps(A), 4, 34, "none of its"),
    ("conflicting-keys", "inputs: {a: {required: true, default: 1}}\n" + steps(A), 4, 14, "never"),
    (
        "conflicting-keys",
        "workload: {a: 1}\ninputs: {a: {default: 2}}\n" + steps(A),
        5,
        14,
        "two",
    ),
    (
        "wrong-type",
        "inputs: {a: {secret: true, type: number}}\n" + steps(A),
        4,
        14,
        "always a text",
    ),
    ("secret-default", "inputs: {a: {secret: true, default: x}}\n" + steps(A), 4, 14, "stands in"),
    ("secret-read", f"{SECRET}\nworkload: {{b: '{{{{ args.a }}}}'}}\n" + steps(A), 5, 15, "'a'"),
    ("unknown-input", f"{SECRET}\n" + steps(READS), 6, 40, "'tokn'"),
    ("missing-key", "keychain: [{name: k}]\n" + steps(A), 4, 12, "has no `kind`"),
    ("missing-key", "keychain: [{name: k, kind: bearer}]\n" + steps(A), 4, 12, "no `token`"),
    ("missing-key", "keychain: [{kind: env, variable: V}]\n" + steps(A), 4, 12, "no `name`"),
    ("bad-choice", "keychain: [{name: k, kind: bearr}]\n" + steps(A), 4, 28, "'bearer'"),
    ("credential-instead", f"keychain: [{{{VAULT}}}]\n" + steps(A), 4, 54, "cannot be reached"),
    ("bad-name", "keychain: [{name: a b, kind: env}]\n" + steps(A), 4, 19, "for a secret"),
    ("duplicate-label", f"keychain: [{KEY}, {KEY}]\n" + steps(A), 4, 54, "twice"),
    ("wrong-type", "keychain: 5\n" + steps(A), 4, 11, "`keychain` must be a list"),
    ("unknown-name", "workload: {a: '{{ env.B }}'}\n" + steps(A), 4, 15, "keychain only"),
    ("bad-template", "workload: {a: '{{ b'}\n" + steps(A), 4, 15, "expected"),
    ("bad-choice", "executor: {spec: {loop_mode: fan}}\n" + steps(A), 4, 30, "`loop_mode`"),
    ("unknown-key", "executor: {spec: {fanout: {x: 1}}}\n" + steps(A), 4, 28, "'x'"),
    ("bad-name", "executor: {spec: {pool: 'g p'}}\n" + steps(A), 4, 25, "name of a pool"),
    ("wrong-type", "executor: {spec: {pool: [gpu]}}\n" + steps(A), 4, 25, "`pool` must be"),
    ("root-extension", "spec: {state: 1}\n" + steps(A), 4, 1, "can be read as `spec`"),
    ("unknown-key", "worklod: {a: 1}\n" + steps(A), 4, 1, "did you mean 'workload'?"),
    ("missing-key", "workbook: {tasks: {t: {code: x}}}\n" + steps(A), 4, 23, "no `kind`"),
    ("missing-key", "workbook: {t: {kind: noop}}\n" + steps(A), 4, 11, "no `tasks`"),
    ("duplicate-label", "workbook: [{name: t}, {name: t}]\n" + steps(A), 4, 11, "of their own"),
    ("unreachable-step", steps(A, B), 6, 4, "'b'"),
    ("dead-arc", steps(TWO_ARCS, B), 5, 38, "never is"),
    ("endless-cycle", steps(ROUND), 5, 4, "nothing leads out"),
    ("idle-cycle", steps(GUARDED_ROUND), 5, 4, "as fast as it can"),
    ("final-step-routed", "executor: {spec: {final_step: a}}\n" + steps(A), 6, 4, "entry step"),
    ("final-step-routes", "executor: {spec: {final_step: b}}\n" + steps(A, B_TO_A), 7, 4, "never"),
    ("several-tokens", steps(FORK, B_TO_C, C), 7, 4, "the inclusive fork at 'a' (line 5)"),
]


@pytest.mark.parametrize(("code", "body", "line", "column", "words"), IN_A_PLAYBOOK)
def test_problems_of_a_playbook(code: str, body: str, line: int, column: int, words: str) -> None:
    found = playbook(body).problems
    assert (line, column, code) in places(found), list(map(str, found))
    assert any(words in str(problem) for problem in found if problem.code == code)
    assert {p.severity for p in found if p.code == code} == {documented_severity(code)}


@pytest.mark.parametrize(
    ("head", "place"),
    [
        ("apiVersion: apps/v1\nkind: Playbook\nmetadata: {name: x}\n", (1, 13, "bad-choice")),
        ("kind: Agent\nmetadata: {name: x}\n", (1, 7, "bad-choice")),
        ("kind: Playbook\n", (1, 1, "no-name")),
        ("metadata: {path: x}\n", (1, 11, "no-name")),
    ],
)
def test_problems_of_the_head(head: str, place: tuple[int, int, str]) -> None:
    assert places(compile_source(head + steps(A)).problems) == [place]


def test_a_misspelt_arc_is_not_reported_twice() -> None:
    compiled = playbook(steps("- {step: a, next: {arcs: [{step: bb}]}}", B))
    assert [problem.code for problem in compiled.problems] == ["unknown-step"]


def test_an_empty_section_is_as_good_as_none() -> None:
    compiled = playbook("executor:\nworkload:\nkeychain:\nworkbook:\n" + steps(A))
    assert compiled.problems == ()

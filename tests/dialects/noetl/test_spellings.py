"""All four ways to write a playbook come to one model; what is older says so at its place."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.dialects.registry import compile_source
from anabranch.net.net import Net

from ..support import HEAD, codes, places, playbook, shape

VERSION_TEN = """
workflow:
  - step: fetch
    spec:
      policy: {admit: {rules: [{when: "{{ ctx.go }}", then: {allow: true}}, {else: {then: {allow: false}}}]}}
    tool:
      - name: get
        kind: http
        url: u
        args: {q: 1}
        spec:
          policy:
            rules:
              - when: "{{ outcome.error.status == 429 }}"
                then: {do: retry, attempts: 5, backoff: fixed, delay: 2}
              - else: {then: {do: fail, set_iter: {bad: 1}}}
      - {name: task_1, kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}
  - {step: a, tool: {kind: noop}}
  - {step: b, tool: {kind: noop}}
"""  # noqa: E501

VERSION_TWO = """
workflow:
  - step: fetch
    when: "{{ ctx.go }}"
    args: {q: 1}
    tool:
      - get:
          kind: http
          spec: {url: u}
          eval:
            - {expr: "{{ outcome.error.status == 429 }}", do: retry, attempts: 5, backoff: fixed, delay: 2}
            - else: {do: fail, set_vars: {bad: 1}}
      - {kind: noop}
    next: [a, b]
  - {step: a, tool: {kind: noop}}
  - {step: b, tool: {kind: noop}}
"""  # noqa: E501


def net_without_args_of_noop(text: str) -> Any:
    compiled = compile_source(HEAD + text)
    assert compiled.net is not None, compiled.problems
    found = shape(compiled.net)
    program = found[1]["steps"]["fetch"][1]["work"][1]["program"]
    program[1]["tasks"][1][1].pop("inputs")  # arguments on a step go to all of its tasks
    return found


def test_version_two_and_version_ten_come_to_one_net() -> None:
    assert net_without_args_of_noop(VERSION_TWO) == net_without_args_of_noop(VERSION_TEN)
    assert playbook(VERSION_TEN).problems == ()


def test_every_older_spelling_is_named_at_its_place() -> None:
    found = playbook(VERSION_TWO).problems
    assert {problem.code for problem in found} == {"old-spelling"}
    assert [(line, column) for line, column, _ in places(found)] == [
        (7, 5),  # when
        (8, 5),  # args
        (10, 9),  # the label
        (12, 18),  # inputs under spec
        (13, 11),  # eval
        (15, 32),  # set_vars
        (17, 5),  # next
    ]
    assert all(problem.hint.startswith("write `") for problem in found)


@pytest.mark.parametrize(
    ("rule", "do"),
    [
        ("{when: ctx.a, do: fail}", "fail"),
        ("{do: fail}", "fail"),
        ("{else: {do: break}}", "break"),
        ("{expr: ctx.a, then: {do: continue}}", "continue"),
        ("{when: ctx.a, then: {do: jump, target: s_task}}", "jump"),
    ],
)
def test_rules_of_every_shape(rule: str, do: str) -> None:
    for holder in (f"spec: {{policy: {{rules: [{rule}]}}}}", f"eval: [{rule}]"):
        compiled = playbook(f"workflow: [{{step: s, tool: {{kind: noop, {holder}}}}}]\n")
        assert compiled.net is not None, compiled.problems
        assert set(codes(compiled)) == {"old-spelling"}
        work = compiled.net.steps["s"].work
        assert work is not None
        assert work.program.tasks[0].rules[0].do == do


# -- the later spelling ----------------------------------------------------------------------

DIAMOND = """
workflow:
  - step: a
    tool: {kind: python, code: c, KEY: {x: 1}}
    next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: c}]}
  - {step: b, tool: {kind: noop}, next: {arcs: [{step: d}]}}
  - {step: c, tool: {kind: noop}, next: {arcs: [{step: d}]}}
  - {step: d, tool: {kind: noop}}
"""


def joins(net: Net | None) -> list[str]:
    assert net is not None
    return [name for name, step in net.steps.items() if step.barrier is not None]


def test_documents_in_the_later_spelling_join_where_branches_meet() -> None:
    later = playbook(DIAMOND.replace("KEY", "input"))
    assert joins(later.net) == ["d"]
    assert codes(later) == ["join-reading"]
    assert "`input` (line " in later.problems[0].message
    earlier = playbook(DIAMOND.replace("KEY", "args"))
    assert joins(earlier.net) == []
    assert sorted(codes(earlier)) == ["join-reading", "several-tokens"]


def test_the_join_can_still_be_said() -> None:
    said = "executor: {spec: {join: each}}" + DIAMOND.replace("KEY", "input")
    assert joins(playbook(said).net) == []


def test_a_document_that_mixes_both_is_read_by_the_letter() -> None:
    mixed = DIAMOND.replace("KEY: {x: 1}", "input: {x: 1}, set_ctx: {y: 1}")
    assert joins(playbook(mixed).net) == []


def test_scoped_writes_go_to_their_places() -> None:
    body = """
    workflow:
      - step: s
        tool:
          - kind: noop
            set: {ctx.a: 1, iter.b: 2, step.c: 3, d: 4}
            spec: {policy: {rules: [{else: {then: {do: continue, set: {ctx.e: 5, f: 6}}}}]}}
        set: {ctx.g: 7, h: 8}
        next: {arcs: [{step: t, set: {ctx.i: 9, j: 10}}]}
      - {step: t, tool: {kind: noop}}
    """
    compiled = playbook(body)
    assert compiled.net is not None, compiled.problems
    assert compiled.problems == ()
    step = compiled.net.steps["s"]
    assert step.work is not None
    (task,) = step.work.program.tasks
    (rule,) = task.rules
    assert [write.key for write in task.set_ctx] == ["a"]
    assert [write.key for write in task.set_iter] == ["b", "c", "d"]
    assert [write.key for write in rule.set_ctx] == ["e"]
    assert [write.key for write in rule.set_iter] == ["f"]
    assert [patch.key for patch in step.patches] == ["g", "h"]
    assert [patch.key for patch in step.branches[0].arcs[0].patches] == ["i", "j"]


def test_setting_a_key_twice_is_refused() -> None:
    body = "workflow: [{step: s, tool: {kind: noop}, set_ctx: {a: 1}, set: {ctx.a: 2}}]\n"
    assert codes(playbook(body)) == ["conflicting-keys"]


def test_arguments_of_a_step_need_a_mapping_on_the_task() -> None:
    tool = '{kind: python, code: c, args: "{{ args }}"}'
    found = playbook(f"workflow: [{{step: s, args: {{x: 1}}, tool: {tool}}}]\n")
    assert "conflicting-keys" in codes(found, "error")


# -- the root --------------------------------------------------------------------------------


def test_defaults_may_be_templates_over_the_run_and_its_input() -> None:
    body = """
    workload:
      id: "{{ job.uuid }}"
      size: "{{ args.size | default(10) }}"
      plain: 1
    workflow: [{step: s, tool: {kind: noop, result: "{{ workload.id }}"}}]
    """
    compiled = playbook(body)
    assert compiled.problems == ()
    assert compiled.net is not None
    assert compiled.net.workload == {"plain": 1}
    computed = compiled.net.computed
    names = {"run": "r1", "args": {"size": 3}}
    assert {key: value.evaluate(names) for key, value in computed.items()} == {
        "id": "r1",
        "size": 3,
    }


def test_the_environment_is_empty_outside_the_keychain() -> None:
    body = """
    workload: {x: "{{ env.X | default(5) }}"}
    workflow: [{step: s, tool: {kind: noop, result: "{{ env.Y }}"}}]
    """
    compiled = playbook(body)
    assert codes(compiled) == ["unknown-name", "unknown-name"]
    assert compiled.net is not None
    assert compiled.net.computed["x"].evaluate({"run": "r", "args": {}}) == 5


def test_mappings_the_language_does_not_have_can_be_read() -> None:
    body = 'spec: {state: 1}\nworkflow: [{step: s, tool: {kind: noop, result: "{{ spec.state }}"}}]'
    compiled = playbook(body + "\n")
    assert codes(compiled) == ["root-extension"]
    assert compiled.net is not None
    work = compiled.net.steps["s"].work
    assert work is not None
    assert work.inputs is not None
    names = {"run": "r", "workload": compiled.net.workload, "ctx": {}, "args": {}}
    assert work.inputs.evaluate(names) == {"result": 1}

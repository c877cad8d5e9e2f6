"""What a step's tool compiles to: kinds, inputs, times, retries, decisions."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from anabranch.net.net import Barrier, Decision, Retry, Work

from ..support import codes, net_of, places, playbook, problems_of, step_of

NAMES: dict[str, Any] = {
    "run": "r",
    "workload": {"n": 3, "url": "http://h"},
    "ctx": {"rows": [1]},
    "args": {"k": "v"},
    "results": {},
}


def work_of(step: str, **options: Any) -> Work:
    work = step_of(step, **options).work
    assert work is not None
    return work


def inputs_of(task: str, **options: Any) -> Any:
    inputs = work_of(f"tool: {task}", **options).inputs
    return {} if inputs is None else inputs.evaluate(NAMES)


@pytest.mark.parametrize(
    ("task", "inputs"),
    [
        ("{kind: noop}", {}),
        ('{kind: noop, result: {a: "{{ workload.n }}"}}', {"result": {"a": 3}}),
        ("{kind: python, code: x = 1}", {"code": "x = 1"}),
        (
            '{kind: python, code: c, args: {rows: "{{ ctx.rows }}", m: 1}, libs: {j: json}}',
            {"code": "c", "args": {"rows": [1], "m": 1}, "libs": {"j": "json"}},
        ),
        ('{kind: python, code: c, args: "{{ args }}"}', {"code": "c", "args": {"k": "v"}}),
        ("{kind: python, script: {uri: a.py}}", {"script": {"uri": "a.py"}}),
        ('{kind: shell, command: "echo {{ n }}"}', {"command": "echo 3"}),
        ('{kind: shell, command: "{{ n }}"}', {"command": "3"}),
        (
            '{kind: shell, cmds: [a, "b {{ n }}"], cwd: /tmp, env: {N: "{{ n }}"}, shell: sh}',
            {"cmds": ["a", "b 3"], "cwd": "/tmp", "env": {"N": 3}, "shell": "sh"},
        ),
        (
            '{kind: http, method: POST, url: "{{ workload.url }}/x", json: {n: "{{ n }}"}}',
            {"method": "POST", "url": "http://h/x", "json": {"n": 3}},
        ),
        ("{kind: http, endpoint: http://x, payload: a}", {"url": "http://x", "body": "a"}),
        (
            "{kind: http, url: u, auth: {type: bearer, token: t}, timeout: {connect: 1s, read: 2}}",
            {
                "url": "u",
                "auth": {"type": "bearer", "token": "t"},
                "timeout": {"connect": 1.0, "read": 2.0},
            },
        ),
    ],
)
def test_inputs_of_the_kinds(task: str, inputs: dict[str, Any]) -> None:
    assert inputs_of(task) == inputs


def test_code_is_templated_only_if_it_is_a_template() -> None:
    assert inputs_of('{kind: python, code: "x = {{ n }}"}') == {"code": "x = 3"}
    untouched = "y = 1 # {{ ctx.* }} {% nope %}"
    assert inputs_of(f"{{kind: python, code: '{untouched}'}}") == {"code": untouched}
    assert inputs_of('{kind: python, code: "d = {#1: 2\\n}"}') == {"code": "d = {#1: 2\n}"}
    encoded = base64.b64encode(b"z = '{{ n }}'").decode()
    assert inputs_of(f"{{kind: python, code_b64: {encoded}}}") == {"code": "z = '{{ n }}'"}


def test_code_keeps_its_last_line_end() -> None:
    work = work_of("tool:\n  kind: python\n  code: |\n    a = {{ n }}\n    b = 2\n")
    assert work.inputs is not None
    assert work.inputs.evaluate(NAMES) == {"code": "a = 3\nb = 2\n"}


@pytest.mark.parametrize(
    ("tool", "label"),
    [
        ("{kind: noop}", "s_task"),
        ("[{kind: noop}]", "task_0"),
        ("{name: t, kind: noop}", "t"),
        ("{label: {kind: noop}}", "label"),
        ("[{label: {kind: noop}}]", "label"),
    ],
)
def test_shapes_of_a_single_task(tool: str, label: str) -> None:
    assert work_of(f"tool: {tool}") == Work("noop", label=label)


def test_registered_tools_are_kinds_and_take_their_keys_as_arguments() -> None:
    task = '{kind: mail, to: "{{ args.k }}", args: {subject: hi}, timeout: 5}'
    work = work_of(f"tool: {task}", tools={"mail"})
    assert work.kind == "mail"
    assert work.timeout_ms == 5_000
    assert inputs_of(task, tools={"mail"}) == {"to": "v", "subject": "hi"}
    unknown = problems_of("tool: {kind: mial}", tools={"mail"})
    assert unknown[0].hint == "did you mean 'mail'?"


def test_any_tool_takes_unknown_kinds_on_trust() -> None:
    assert work_of("tool: {kind: whatever, x: 1}", any_tool=True).kind == "whatever"
    known = problems_of("tool: {kind: postgres}", any_tool=True)
    assert [p.code for p in known] == ["missing-key"]


# -- time ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "time", ["timeout: 1m30s", "timeout_seconds: 90", "spec: {timeout: PT90S}", "timeout: 90"]
)
def test_task_timeouts_count_per_attempt(time: str) -> None:
    assert work_of(f"tool: {{kind: noop, {time}}}").timeout_ms == 90_000


def test_the_total_of_an_http_timeout_counts_too() -> None:
    work = work_of("tool: {kind: http, url: u, spec: {timeout: {connect: 1, total: 4}}}")
    assert work.timeout_ms == 4_000


def test_step_timeouts_and_what_follows_them() -> None:
    step = step_of("spec: {timeout: 250ms, on_timeout: skip}\ntool: {kind: noop}")
    assert (step.timeout_ms, step.on_timeout) == (250, "skip")
    assert step_of("tool: {kind: noop}").on_timeout == "fail"
    aborting = net_of("workflow: [{step: a, spec: {on_timeout: abort_run}, tool: {kind: noop}}]")
    assert aborting.steps["a"].on_timeout == "abort_run"


def test_retry_in_full_and_by_default() -> None:
    full = "{attempts: 5, delay: 2s, backoff: exponential, multiplier: 3, max_delay: 1m}"
    work = work_of(f"spec: {{retry: {full}}}\ntool: {{kind: noop}}")
    assert work.retry == Retry(5, 2_000, "exponential", 3.0, 60_000)
    assert work_of("spec: {retry: {}}\ntool: {kind: noop}").retry == Retry(3, 1_000)
    assert work_of("tool: {kind: noop}").retry == Retry(1)


@pytest.mark.parametrize(
    ("word", "meaning"),
    [("none", "constant"), ("fixed", "constant"), ("constant", "constant"), ("linear", "linear")],
)
def test_backoff_words(word: str, meaning: str) -> None:
    assert work_of(f"spec: {{retry: {{backoff: {word}}}}}\ntool: {{kind: noop}}").retry.backoff == (
        meaning
    )


# -- decisions, joins, patches ---------------------------------------------------------------


def test_a_decision_has_no_work() -> None:
    step = step_of("tool: {kind: decision, ask: Go?, actors: [kim, sam], on_reject: pause}")
    assert step.work is None
    assert step.decision == Decision("Go?", ("kim", "sam"), "pause")
    assert step_of("tool: {kind: decision, ask: Go?, actors: kim}").decision == (
        Decision("Go?", ("kim",))
    )


def test_a_join_is_a_barrier_over_the_branches() -> None:
    assert step_of("spec: {join: all}\ntool: {kind: noop}").barrier == Barrier()
    assert step_of("spec: {join: each}\ntool: {kind: noop}").barrier is None


def test_the_executor_can_join_every_meeting_point() -> None:
    body = """
    executor: {spec: {join: all}}
    workflow:
      - {step: a, next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: c}]}}
      - {step: b, next: {arcs: [{step: d}]}}
      - {step: c, next: {arcs: [{step: d}]}}
      - {step: d, tool: {kind: noop}}
    """
    compiled = playbook(body)
    assert compiled.net is not None
    assert [n for n, s in compiled.net.steps.items() if s.barrier] == ["d"]
    assert codes(compiled) == []


def test_patches_in_both_spellings_and_with_reducers() -> None:
    step = step_of(
        """
        tool: {kind: noop}
        set_ctx:
          a: "{{ workload.n }}"
          b: {reduce: sum, value: "{{ workload.n * 2 }}"}
          c: {reduce: append}
        set: {ctx.d: 1}
        """
    )
    found = [(p.key, p.reducer, p.value.evaluate(NAMES)) for p in step.patches]
    assert found == [
        ("a", "set", 3),
        ("b", "sum", 6),
        ("c", "set", {"reduce": "append"}),
        ("d", "set", 1),
    ]


def test_steps_keep_description_and_position() -> None:
    step = step_of("desc: Does nothing.\ntool: {kind: noop}")
    assert step.description == "Does nothing."
    assert str(step.position) == "<text>:5:3"


def test_a_step_may_have_both_words_for_its_description() -> None:
    both = step_of("desc: short\ndescription: long\ntool: {kind: noop}")
    assert both.description == "short"


def test_steps_of_every_shape_find_their_unknown_keys() -> None:
    found = problems_of("tool: {kind: noop}\nnext: {arc: []}\ntols: 1\ndsc: x")
    assert places(found) == [
        (7, 9, "missing-key"),
        (7, 10, "unknown-key"),
        (8, 3, "unknown-key"),
        (9, 3, "unknown-key"),
    ]
    assert [p.hint for p in found][1:] == [
        "did you mean 'arcs'?",
        "did you mean 'tool'?",
        "did you mean 'desc'?",
    ]

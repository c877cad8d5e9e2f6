"""What a list of tasks compiles to, and that the worker runs it as the page says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.kernel.values import Answer, failed, succeeded
from anabranch.net.net import Retry, Step, Work
from anabranch.net.program import Program, TaskSpec
from anabranch.work.pipeline.pipeline import Pipeline, Services
from anabranch.work.port import Task

from ..support import net_of, shape, step_of

NAMES: dict[str, Any] = {"run": "r", "workload": {"n": 3}, "ctx": {}, "args": {}, "results": {}}


class Script:
    """A kind of work that answers from a list and remembers its inputs."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.seen: list[Any] = []

    async def perform(self, task: Task) -> Answer:
        self.seen.append(dict(task.inputs))
        answer = self.answers.pop(0) if self.answers else task.inputs.get("result")
        return answer if isinstance(answer, Answer) else succeeded(answer)


def program_of(step: Step) -> Program:
    assert step.work is not None
    assert step.work.kind == "pipeline"
    program: Program = step.work.program
    return program


def task_of(step: str, **options: Any) -> TaskSpec:
    return program_of(step_of(step, **options)).tasks[0]


def run(step: str, **performers: Any) -> Answer:
    work = step_of(step, tools=set(performers)).work
    assert work is not None
    known = {"noop": Script(), **performers}
    fields: dict[str, Any] = {"run": "r", "step": "s", "job": "j", "attempt": 1, "key": "k"}
    task = Task(**fields, kind=work.kind, inputs={}, names=NAMES, program=work.program)
    answer = asyncio.run(Pipeline(Services(performers=known)).perform(task))
    assert isinstance(answer, Answer)
    return answer


# -- what it compiles to ---------------------------------------------------------------------


def test_a_task_alone_is_plain_work_of_its_kind() -> None:
    labels = {"{kind: noop}": "s_task", "[{kind: noop}]": "task_0", "{name: x, kind: noop}": "x"}
    for tool, label in {**labels, "{b: {kind: noop}}": "b"}.items():
        assert step_of(f"tool: {tool}").work == Work("noop", label=label)


@pytest.mark.parametrize(
    "more",
    [
        "spec: {policy: {rules: [{else: {then: {do: fail}}}]}}",
        "spec: {policy: {on_unmatched: continue}}",
        "spec: {result: {inline_max_bytes: 10}}",
        "set_ctx: {a: 1}",
        "set: {b: 1}",
    ],
)
def test_a_task_that_says_what_follows_is_a_program(more: str) -> None:
    assert len(program_of(step_of(f"tool: {{kind: noop, {more}}}")).tasks) == 1


def test_labels_are_names_or_numbers() -> None:
    tool = "[{kind: noop}, {name: b, kind: noop}, {c: {kind: noop}}, {kind: noop}]"
    labels = [task.label for task in program_of(step_of(f"tool: {tool}")).tasks]
    assert labels == ["task_0", "b", "c", "task_3"]
    assert task_of("tool: {kind: noop, set_ctx: {a: 1}}").label == "s_task"


def test_the_jobs_of_a_pipeline_keep_the_retry_of_the_step() -> None:
    step = step_of("spec: {retry: {attempts: 2}}\ntool: [{kind: noop}, {kind: noop}]")
    assert step.work is not None
    assert step.work.retry == Retry(2, 1_000)


def test_rules_in_full() -> None:
    task = task_of(
        """
        tool:
          kind: noop
          spec:
            policy:
              on_unmatched: continue
              rules:
                - when: "{{ outcome.error.retryable }}"
                  then: {do: retry, attempts: 5, backoff: exponential, delay: 250ms}
                - when: outcome.status == 'ok'
                  then: {do: break, set_ctx: {a: {reduce: sum, value: 1}}, set_iter: {b: 2}}
                - else: {then: {do: jump, to: s_task, delay: "{{ workload.n }}"}}
        """
    )
    retry, ends, jump = task.rules
    assert (retry.do, retry.attempts, retry.backoff) == ("retry", 5, "exponential")
    assert retry.delay is not None
    assert retry.delay.evaluate(NAMES) == 0.25
    assert [(w.key, w.reducer) for w in (*ends.set_ctx, *ends.set_iter)] == [
        ("a", "sum"),
        ("b", "set"),
    ]
    assert (jump.when, jump.to) == (None, "s_task")
    assert jump.delay is not None
    assert jump.delay.evaluate(NAMES) == 3
    assert task.on_unmatched_error == "continue"


def test_previous_is_the_task_before() -> None:
    rule = "spec: {policy: {rules: [{else: {then: {do: jump, to: previous}}}]}}"
    tasks = program_of(step_of(f"tool: [{{kind: noop}}, {{kind: noop, {rule}}}]")).tasks
    assert tasks[1].rules[0].to == "task_0"


def test_times_of_tasks_and_steps() -> None:
    step = step_of(
        """
        spec: {timeout: 1h, policy: {lifecycle: {timeout_s: 60, deadline_s: 600}}}
        tool: [{kind: noop, timeout: 5}, {kind: noop, spec: {timeout: 7s}}]
        """
    )
    assert step.timeout_ms == 600_000
    assert step.work is not None
    assert step.work.timeout_ms == 60_000
    assert [task.timeout_ms for task in program_of(step).tasks] == [5_000, 7_000]
    alone = step_of("spec: {policy: {lifecycle: {timeout_s: 9}}}\ntool: {kind: noop, timeout: 20}")
    assert alone.work is not None
    assert alone.work.timeout_ms == 9_000


# -- spec layering ---------------------------------------------------------------------------


def test_inner_specs_are_laid_over_outer_ones() -> None:
    net = net_of(
        """
        executor:
          spec:
            result: {inline_max_bytes: 1, store: {kind: disk, ttl: 1h}}
            policy: {defaults: {timeout: 9s}, rules: [{else: {then: {do: fail}}}]}
            http: {timeout: {connect: 1s}}
        workflow:
          - step: s
            spec: {result: {preview_max_bytes: 2, store: {scope: step}}}
            tool:
              - {name: a, kind: noop, spec: {result: {inline_max_bytes: 3}}}
              - {name: b, kind: http, url: u, spec: {policy: {rules: []}}}
        """
    )
    first, second = program_of(net.steps["s"]).tasks
    assert first.output == {
        "inline_max_bytes": 3,
        "preview_max_bytes": 2,
        "store": {"kind": "disk", "ttl": "1h", "scope": "step"},
    }
    assert [rule.do for rule in first.rules] == ["fail"]
    assert first.timeout_ms == 9_000
    assert second.rules == ()
    assert second.inputs is not None
    assert second.inputs.evaluate(NAMES)["timeout"] == {"connect": 1.0}


@pytest.mark.parametrize("place", ["result: {output_select: [a, b.c]}", "output: {select: [a]}"])
def test_result_policies_of_older_places(place: str) -> None:
    output = task_of(f"{place}\ntool: {{kind: python, code: c}}").output
    assert output in ({"output_select": ["a", "b.c"]}, {"select": ["a"]})


def test_a_result_policy_in_full() -> None:
    task = task_of(
        """
        tool:
          kind: python
          code: c
          output:
            inline_max_bytes: 100
            preview_max_bytes: 10
            store: {kind: object, scope: execution, ttl: 2d, compression: gzip}
            select: [{path: "$.a.b", as: ab}, c]
            accumulate: {strategy: append, merge_path: data, manifest_as: m, max_items: 5}
        """
    )
    assert task.output is not None
    assert set(task.output) == {
        *("inline_max_bytes", "preview_max_bytes", "store", "select", "accumulate")
    }


# -- the workbook ----------------------------------------------------------------------------

BOOKS = [
    "{tasks: {add: {kind: python, args: {a: 1, b: 2}, code: c}}}",
    "[{name: add, tool: {kind: python, args: {a: 1, b: 2}, code: c}}]",
    "[{name: add, kind: python, args: {a: 1, b: 2}, code: c}]",
]


@pytest.mark.parametrize("book", BOOKS)
def test_workbook_tasks_stand_where_they_are_named(book: str) -> None:
    use = "{kind: workbook, name: add, args: {b: 3}}"
    net = net_of(f"workbook: {book}\nworkflow: [{{step: s, tool: {use}}}]\n")
    work = net.steps["s"].work
    assert work is not None
    assert work.kind == "python"
    assert work.inputs is not None
    assert work.inputs.evaluate(NAMES) == {"code": "c", "args": {"a": 1, "b": 3}}


def test_a_workbook_task_can_be_used_twice_under_labels() -> None:
    uses = "[{name: x, kind: workbook, task: add}, {name: y, kind: workbook, task: add}]"
    net = net_of(f"workbook: {BOOKS[0]}\nworkflow: [{{step: s, tool: {uses}}}]\n")
    first, second = program_of(net.steps["s"]).tasks
    assert (first.label, second.label) == ("x", "y")
    assert shape(first.inputs) == shape(second.inputs)


# -- how it runs -----------------------------------------------------------------------------


def test_later_tasks_see_what_earlier_ones_gave() -> None:
    last = Script()
    run(
        """
        tool:
          - {name: fetch, kind: noop, result: {rows: [1, 2]}}
          - name: show
            kind: last
            a: "{{ _prev.rows }}"
            b: "{{ fetch.data.rows[1] }}"
            c: "{{ results.fetch.rows | length }}"
            d: "{{ _task }}/{{ _attempt }}"
        """,
        last=last,
    )
    assert last.seen == [{"a": [1, 2], "b": 2, "c": 2, "d": "show/1"}]


def test_pages_are_fetched_by_jumping_back() -> None:
    pages = Script({"rows": [1], "more": True}, {"rows": [2], "more": True}, {"rows": [3]})
    answer = run(
        """
        tool:
          - {name: start, kind: noop, set_iter: {page: 1}}
          - name: fetch
            kind: pages
            page: "{{ iter.page }}"
            set_ctx: {rows: {reduce: append, value: "{{ outcome.result.rows[0] }}"}}
            spec:
              policy:
                rules:
                  - when: "{{ outcome.result.more }}"
                    then: {do: jump, to: fetch, set_iter: {page: "{{ page + 1 }}"}}
        """,
        pages=pages,
    )
    assert [seen["page"] for seen in pages.seen] == [1, 2, 3]
    assert [patch.value for patch in answer.patches] == [1, 2, 3]


RETRY = """
tool:
  kind: call
  spec:
    policy:
      rules:
        - when: "{{ outcome.status == 'error' and outcome.error.kind == 'rate_limit' }}"
          then: {do: retry, attempts: 3, delay: 0}
        - when: "{{ outcome.status == 'success' and outcome.error is none }}"
          then: {do: break}
"""


def test_rules_retry_and_an_unmatched_error_fails() -> None:
    slow = failed("rate_limit", "slow down", details={"http_status": 429})
    assert run(RETRY, call=Script(slow, slow, "ok")).result == "ok"
    spent = run(RETRY, call=Script(slow, slow, slow, "ok"))
    assert (spent.status, spent.fault and spent.fault.kind) == ("error", "rate_limit")
    other = run(RETRY, call=Script(failed("auth", "no")))
    assert (other.status, other.fault and other.fault.kind) == ("error", "auth")


def test_a_rule_reads_the_outcome_in_every_spelling() -> None:
    whens = [
        "outcome.status == 'ok' and outcome.status == 'success'",
        "output.data.id == 7 and outcome.result.data.id == 7",
        "outcome.http.status == 200 and outcome.result.status_code == 200",
        "outcome.meta.attempt == 1 and _attempt == 1 and outcome.meta.duration_ms >= 0",
    ]
    response = {"status_code": 200, "headers": {}, "data": {"id": 7}}
    for when in whens:
        rule = f'[{{when: "{when}", then: {{do: break, set_ctx: {{hit: 1}}}}}}]'
        step = f"tool: {{kind: call, spec: {{policy: {{rules: {rule}}}}}}}"
        assert run(step, call=Script(response)).patches, when


def test_a_rule_reads_the_error_in_every_spelling() -> None:
    details = {"http_status": 503, "retry_after": 2, "exception_type": "X", "pg_code": "40P01"}
    whens = [
        "outcome.error.http_status == 503 and outcome.error.status == 503",
        "outcome.error.retry_after == 2 and outcome.http.status == 503",
        "outcome.py.exception_type == 'X' and outcome.error.exception_type == 'X'",
        "outcome.pg.code == '40P01' and outcome.error.pg_code == '40P01'",
        "outcome.error.message == 'm' and outcome.error.retryable",
    ]
    for when in whens:
        rule = f'[{{when: "{when}", then: {{do: continue, set_ctx: {{hit: 1}}}}}}]'
        step = f"tool: {{kind: call, spec: {{policy: {{rules: {rule}}}}}}}"
        wrong = failed("server_error", "m", details=details)
        assert run(step, call=Script(wrong)).patches, when


def test_a_waiting_child_is_work_of_its_own_or_a_task_that_says_so() -> None:
    alone = step_of("tool: {kind: playbook, path: a/b, args: {x: 1}, return_step: e}").work
    assert alone is not None
    assert alone.kind == "playbook"
    assert alone.inputs is not None
    assert alone.inputs.evaluate(NAMES) == {"path": "a/b", "args": {"x": 1}, "return_step": "e"}
    last = "tool: [{kind: noop}, {kind: playbook, path: p, payload: {y: 2}, wait: true}]"
    task = program_of(step_of(last)).tasks[1]
    assert task.inputs is not None
    assert task.inputs.evaluate(NAMES)["args"] == {"y": 2}
    assert task.waits
    started = "tool: [{kind: playbook, path: p}, {kind: noop}]"
    assert [task.waits for task in program_of(step_of(started)).tasks] == [False, False]


# -- what travels to the arcs ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("routes", "wanted"),
    [
        ("", frozenset()),
        ("next: {arcs: [{step: s, when: '{{ vars.a > 1 }}'}]}", frozenset({"vars", "a"})),
        ("next: {arcs: [{step: s, args: {q: \"{{ iter['b'] }}\"}}]}", frozenset({"iter", "b"})),
        ("set_ctx: {x: '{{ c }}'}", frozenset({"c"})),
        ("next: {arcs: [{step: s, when: '{{ iter[ctx.name] }}'}]}", None),
        ("set_ctx: {x: '{{ vars | tojson }}'}", None),
    ],
)
def test_only_values_that_may_be_asked_for_travel(
    routes: str, wanted: frozenset[str] | None
) -> None:
    task = "tool: {kind: noop, set_iter: {a: 1, b: 2, c: 3, d: 4}}\n"
    found = program_of(step_of(task + routes)).exports
    assert found is None if wanted is None else found is not None and wanted <= found
    assert found is None or "d" not in found

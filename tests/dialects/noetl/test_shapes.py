"""Shapes of results: the same value under the names that versions of the language have for it."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.dialects.noetl.names import view
from anabranch.dialects.registry import compile_source
from anabranch.errors import ExpressionError
from anabranch.expressions.jinja.jinja import Jinja
from anabranch.ids import run_number
from anabranch.work.pipeline.controls import delay_seconds

RESPONSE = {
    "status_code": 201,
    "headers": {"x": "y"},
    "url": "u",
    "elapsed": 0.5,
    "data": {"items": [1, 2], "next": None},
}
ROWS = {
    "command_0": {"rows": [{"n": 1}, {"n": 2}]},
    "rows": [{"n": 1}, {"n": 2}],
    "row_count": 2,
}
NAMES: dict[str, Any] = {
    "run": "run-1",
    "workload": {},
    "ctx": {},
    "args": {},
    "results": {"call": RESPONSE, "query": ROWS, "other": {"rows": [1], "row_count": 1}},
}


def value(template: str, result: Any = None, *, task: bool = True, **names: Any) -> Any:
    outcome = {"status": "ok", "result": result, "error": None, "meta": {"attempt": 1}}
    event = {"ending": "done", "step": "s", "result": result, "error": None}
    given = {"local": {"outcome": outcome, "results": {}}} if task else {"event": event}
    return Jinja(view).value(template).evaluate({**NAMES, **given, **names})


@pytest.mark.parametrize("task", [True, False], ids=["in rules", "while routing"])
@pytest.mark.parametrize(
    ("template", "result", "expected"),
    [
        ("{{ output }}", [1, 2], [1, 2]),
        ("{{ output }}", "text", "text"),
        ("{{ output }}", None, None),
        ("{{ output }}", {"a": 1}, {"a": 1}),
        ("{{ output | length }}", [1, 2], 2),
        ("{{ output[0] }}", [7], 7),
        ("{{ output[-1:] }}", [7, 8], [8]),
        ("{{ output + 1 }}", 4, 5),
        ("{{ output == 4 and 4 == output }}", 4, True),
        ("{{ 'a' in output }}", ["a"], True),
        ("got {{ output }}!", 4, "got 4!"),
        ("{{ [output, 1] }}", 4, [4, 1]),
        ("{{ output.status }}", 4, "ok"),
        ("{{ output['status'] == 'success' }}", 4, True),
        ("{{ output.data }}", 4, 4),
        ("{{ output.data.total }}", {"total": 3}, 3),
        ("{{ output.total }}", {"total": 3}, 3),
        ("{{ output.status }}", {"status": "mine"}, "ok"),
        ("{{ output.get('total', 0) }}", {"total": 3}, 3),
        ("{{ output.missing | default(9) }}", {"total": 3}, 9),
        ("{{ output.missing | default(9) }}", 4, 9),
        ("{{ output | default(9) }}", 4, 4),
        ("{{ output is defined }}", None, True),
        ("{{ output.data.items }}", RESPONSE, [1, 2]),
        ("{{ output.data.data.items }}", RESPONSE, [1, 2]),
        ("{{ output.data.status_code }}", RESPONSE, 201),
        ("{{ output.data.body.items }}", RESPONSE, [1, 2]),
        ("{{ output.body.items }}", RESPONSE, [1, 2]),
        ("{{ output.status_code }}", RESPONSE, 201),
        ("{{ output.data }}", RESPONSE, RESPONSE["data"]),
        ("{{ output }}", RESPONSE, RESPONSE),
        ("{{ result.total }}", {"total": 3}, 3),
        ("{{ result }}", [1], [1]),
    ],
)
def test_the_outcome_under_its_later_names(
    template: str, result: Any, expected: Any, task: bool
) -> None:
    assert value(template, result, task=task) == expected


def test_the_earlier_name_stays_the_envelope() -> None:
    assert value("{{ outcome.result }}", [1]) == [1]
    assert set(value("{{ outcome }}", 1)) >= {"status", "result", "error"}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ call.body.items }}", [1, 2]),
        ("{{ steps.call.body == call.data }}", True),
        ("{{ query | length }}", 2),
        ("{{ query[1].n }}", 2),
        ("{{ query | map(attribute='n') | list }}", [1, 2]),
        ("{{ (query | first).n + (query | last).n }}", 3),
        ("{% for row in query %}{{ row.n }};{% endfor %}", "1;2;"),
        ("{{ query.rows | length }}", 2),
        ("{{ query.row_count }}", 2),
        ("{{ query.command_0.rows[0].n }}", 1),
        ("{{ query }}", ROWS),
        ("{{ query.keys() | sort }}", ["command_0", "row_count", "rows"]),
        ("{{ query | tojson | fromjson == query }}", True),
        ("{{ 'rows' in query }}", True),
        ("{{ other | length }}", 2),
    ],
)
def test_results_of_steps(template: str, expected: Any) -> None:
    assert value(template) == expected


def test_an_empty_answer_of_a_query_is_an_answer() -> None:
    empty = {"command_0": {"rows": []}, "rows": [], "row_count": 0}
    assert value("{{ query | length }}", results={"query": empty}) == 0
    assert value("{{ 'there' if query else 'not' }}", results={"query": empty}) == "there"


def test_a_body_is_looked_for_only_in_answers() -> None:
    with pytest.raises(ExpressionError, match="undefined"):
        value("{{ other.body }}")


# -- the number of a run ---------------------------------------------------------------------


def test_the_number_of_a_run_never_changes() -> None:
    assert run_number("run-1") == 5_649_154_386_500_085_046
    assert all(0 < run_number(f"r{n}") < 2**63 for n in range(1000))
    assert len({run_number(f"r{n}") for n in range(1000)}) == 1000


def test_a_run_is_one_number_under_all_of_its_names() -> None:
    numbers = "{{ execution_id }} {{ job.execution_id }} {{ execution_number }}"
    number = run_number("run-1")
    assert Jinja(view).rendered(numbers).evaluate(NAMES) == f"{number} {number} {number}"
    assert Jinja(view).rendered("{{ job.uuid }} {{ run_id }}").evaluate(NAMES) == "run-1 run-1"


def test_a_name_of_the_playbook_comes_before_ours() -> None:
    assert value("{{ execution_number }}", workload={"execution_number": "mine"}) == "mine"
    assert value("{{ run_id }}", workload={"run_id": "mine"}) == "mine"


# -- retries of a task -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retry", "seconds"),
    [
        ("{max_attempts: 4}", 1 + 2 + 4),
        ("true", 1 + 2),
        ("4", 1 + 2 + 4),
        (
            "{max_attempts: 4, initial_delay: 10, backoff_multiplier: 3, max_delay: 40}",
            10 + 30 + 40,
        ),
        ("{max_attempts: 3, delay: 5, backoff: fixed}", 5 + 5),
        ("{max_attempts: 3, delay: 5, backoff: linear}", 5 + 10),
        ("[{when: '{{ error.type == \"OSError\" }}', then: {attempts: 2, delay: 7}}]", 7),
        ("{max_attempts: 9, stop_when: '{{ attempt >= 2 }}'}", 1),
        ("{max_attempts: 9, retry_when: '{{ success }}'}", 0),
        ("{max_attempts: 9, retry_when: '{{ status_code >= 500 }}'}", 0),
        ("false", 0),
    ],
)
def test_pauses_of_a_retry_are_as_long_as_it_says(retry: str, seconds: float) -> None:
    compiled = compile_source(f"""
    metadata: {{name: t}}
    workflow:
      - step: s
        tool: {{kind: python, code: "raise OSError('busy')", retry: {retry}}}
    """)
    assert compiled.errors == ()
    assert compiled.net is not None
    work = compiled.net.steps["s"].work
    assert work is not None
    rules = work.program.tasks[0].rules if work.program is not None else ()
    error = {"kind": "python", "message": "busy", "exception_type": "OSError"}
    waited, attempt = 0.0, 1
    while True:
        outcome = {"status": "error", "error": error, "result": None}
        names = {**NAMES, "local": {"attempt": attempt, "outcome": outcome}}
        rule = next((one for one in rules if one.when and one.when.evaluate(names)), None)
        if rule is None:
            break
        waited += delay_seconds(rule, names, attempt)
        attempt += 1
    assert waited == seconds

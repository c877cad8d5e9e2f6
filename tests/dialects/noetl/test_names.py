"""The names a playbook's templates see."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.dialects.noetl.names import Names, view
from anabranch.dialects.noetl.outcomes import DONE, FAILED, Synonym
from anabranch.errors import ExpressionError
from anabranch.expressions.jinja.jinja import Jinja
from anabranch.ids import run_number

EVENT: dict[str, Any] = {
    "ending": "done",
    "outcome": "ok",
    "step": "fetch",
    "result": {"rows": 3},
    "error": None,
    "at": 1_700_000_000_123,
}
NAMES: dict[str, Any] = {
    "run": "run-1",
    "workload": {"size": 10, "shade": "workload", "only_workload": 1},
    "ctx": {"x": 5, "shade": "ctx"},
    "args": {"shade": "args", "k": 1},
    "payload": {"p": 1},
    "results": {
        "fetch": {"rows": 1},
        "has_data": {"data": {"inner": 1}, "n": 2},
        "plain": 7,
        "listed": [1, 2],
        "shade": {"from": "step"},
        "event": {"from": "step"},
    },
}


def value(template: str, **names: Any) -> Any:
    return Jinja(view).value(template).evaluate({**NAMES, **names})


def routed(template: str, **changes: Any) -> Any:
    return value(template, event={**EVENT, **changes})


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ workload.size }}", 10),
        ("{{ ctx.x }}", 5),
        ("{{ args.k }}", 1),
        ("{{ execution_id }}", run_number("run-1")),
        ("{{ run_id }}", "run-1"),
        ("{{ job.uuid }}", "run-1"),
        ("{{ job }}", {"uuid": "run-1", "id": "run-1", "execution_id": run_number("run-1")}),
        ("{{ ctx.size }}", 10),
        ("{{ ctx.shade }}", "ctx"),
        ("{{ ctx.nothing is defined }}", False),
        ("{{ shade }}", "args"),
        ("{{ x }}", 5),
        ("{{ size }}", 10),
        ("{{ only_workload }}", 1),
        ("{{ fetch.rows }}", 1),
        ("{{ steps.fetch.rows }}", 1),
        ("{{ fetch.data.rows }}", 1),
        ("{{ fetch.result }}", {"rows": 1}),
        ("{{ has_data.data.inner }}", 1),
        ("{{ has_data.result.n }}", 2),
        ("{{ plain }}", 7),
        ("{{ plain.data is defined }}", False),
        ("{{ listed[1] }}", 2),
        ("{{ steps.shade['from'] }}", "step"),
        ("{{ steps['event']['from'] }}", "step"),
        ("{{ fetch }}", {"rows": 1}),
        ("{{ fetch.items() }}", [["rows", 1]]),
        ("{{ fetch | length }}", 1),
        ("{{ steps | length }}", 6),
        ("{{ unknown.deep | default(none) }}", None),
    ],
)
def test_names_outside_routing(template: str, expected: Any) -> None:
    assert value(template) == expected


def test_ctx_shows_workload_only_where_it_has_nothing_itself() -> None:
    assert value("{{ ctx }}") == {"size": 10, "shade": "ctx", "only_workload": 1, "x": 5}
    assert value("{{ workload.shade }}") == "workload"


@pytest.mark.parametrize("name", ["event", "outcome", "output"])
def test_routing_names_are_undefined_elsewhere(name: str) -> None:
    assert value(f"{{{{ {name} is defined }}}}") is False


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ event.name }}", "step.done"),
        ("{{ event.step }}", "fetch"),
        ("{{ event.payload.result.rows }}", 3),
        ("{{ event.payload.error }}", None),
        ("{{ event.timestamp }}", "2023-11-14T22:13:20.123Z"),
        ("{{ outcome.status }}", "ok"),
        ("{{ outcome.result.rows }}", 3),
        ("{{ output.data.rows }}", 3),
        ("{{ fetch.rows }}", 3),
        ("{{ steps.fetch.rows }}", 3),
        ("{{ plain }}", 7),
    ],
)
def test_names_while_routing(template: str, expected: Any) -> None:
    found = routed(template)
    assert found == expected
    assert type(found) is type(expected)  # never one of our own kinds of text


@pytest.mark.parametrize(
    ("ending", "equal", "unequal"),
    [
        ("done", ["step.done", "call.done", "step.exit"], ["step.failed", "call.error", "x"]),
        ("failed", ["step.failed", "call.error"], ["step.done", "call.done"]),
        ("skipped", ["step.skipped"], ["step.done", "step.failed"]),
    ],
)
def test_event_names_have_aliases(ending: str, equal: list[str], unequal: list[str]) -> None:
    for name in equal:
        assert routed(f"{{{{ event.name == '{name}' }}}}", ending=ending) is True
        assert routed(f"{{{{ '{name}' == event.name }}}}", ending=ending) is True
        assert routed(f"{{{{ event.name != '{name}' }}}}", ending=ending) is False
        assert routed(f"{{{{ event.name in ['x', '{name}'] }}}}", ending=ending) is True
    for name in unequal:
        assert routed(f"{{{{ event.name == '{name}' }}}}", ending=ending) is False


def test_statuses_have_aliases() -> None:
    assert routed("{{ outcome.status == 'ok' and outcome.status == 'success' }}") is True
    assert routed("{{ outcome.status == 'error' }}", ending="failed") is True
    assert routed("{{ output.status == 'success' }}", ending="failed") is False
    assert routed("{{ outcome.status }}", ending="skipped") == "skipped"


def test_errors_are_readable_with_their_http_status() -> None:
    error = {"kind": "rate_limit", "message": "slow down", "details": {"http_status": 429}}
    names = {"ending": "failed", "result": None, "error": error}
    assert routed("{{ outcome.error.kind }}", **names) == "rate_limit"
    assert routed("{{ outcome.error.status }}", **names) == 429
    assert routed("{{ event.payload.error.http_status }}", **names) == 429
    bare = {"kind": "x", "message": "m", "details": None}
    assert routed("{{ outcome.error.status is defined }}", ending="failed", error=bare) is False


def test_data_of_an_http_result_is_its_body() -> None:
    result = {"status_code": 200, "headers": {}, "data": {"id": 9}}
    assert routed("{{ output.data.id }}", result=result) == 9
    assert routed("{{ outcome.result.status_code }}", result=result) == 200
    assert routed("{{ outcome.result.data.id }}", result=result) == 9


def test_whole_facades_leave_as_plain_data() -> None:
    found = routed("{{ [event, outcome, steps] }}")
    assert found[0]["name"] == "step.done"
    assert type(found[0]["name"]) is str
    assert found[1]["status"] == "ok"
    assert found[2]["fetch"] == {"rows": 3}


def test_laying_the_names_twice_changes_nothing() -> None:
    once = view(NAMES)
    assert isinstance(once, Names)
    assert view(once) is once


def test_the_view_is_a_mapping() -> None:
    names = view(NAMES)
    assert "event" not in set(names)
    assert {"ctx", "workload", "shade", "x", "steps"} <= set(names)
    assert len(names) == len(set(names))
    with pytest.raises(KeyError):
        names["nothing at all"]


def test_missing_kernel_names_are_undefined() -> None:
    for name in ("ctx.a", "b", "steps.c"):
        assert Jinja(view).value(f"{{{{ {name} is defined }}}}").evaluate({}) is False
    assert Jinja(view).rendered("{{ args }}").evaluate({}) == "{}"


def test_synonyms_are_ordinary_text_otherwise() -> None:
    assert isinstance(DONE, Synonym)
    assert DONE.startswith("step.")
    assert DONE != FAILED
    by_name: dict[str, int] = {DONE: 1}
    assert by_name["step.done"] == 1


def test_computing_with_nothing_is_an_error_and_not_false() -> None:
    guard = Jinja(view).condition("{{ ctx.gone > 3 }}")
    with pytest.raises(ExpressionError, match="undefined"):
        guard.evaluate(NAMES)

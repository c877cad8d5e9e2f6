"""The names templates see inside a pipeline, in a loop, and while routing after one."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.dialects.noetl.names import view
from anabranch.expressions.jinja.jinja import Jinja

ITER = {"city": "Rome", "item": "Rome", "index": 4, "_first": False, "loop_id": "l1", "page": 2}
LOCAL: dict[str, Any] = {
    "prev": {"rows": [1]},
    "task": "show",
    "attempt": 2,
    "results": {"fetch": {"rows": [1]}, "plain": 5, "shade": {"from": "task"}},
    "iter": ITER,
    "outcome": None,
}
NAMES: dict[str, Any] = {
    "run": "r",
    "workload": {"shade": "workload", "city": "workload"},
    "ctx": {"page": "ctx", "c": 1},
    "args": {"page": "args"},
    "results": {"fetch": {"rows": "step"}, "other": {"n": 1}},
    "local": LOCAL,
}


def value(template: str, **names: Any) -> Any:
    return Jinja(view).value(template).evaluate({**NAMES, **names})


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ _prev.rows }}", [1]),
        ("{{ _prev.data.rows }}", [1]),
        ("{{ _task }} {{ _attempt }}", "show 2"),
        ("{{ results.fetch.rows }}", [1]),
        ("{{ results.fetch.result.rows }}", [1]),
        ("{{ fetch.rows }}", [1]),
        ("{{ plain }}", 5),
        ("{{ steps.fetch.rows }}", "step"),
        ("{{ other.n }}", 1),
        ("{{ iter.city }} {{ city }}", "Rome Rome"),
        ("{{ iter.index }}", 4),
        ("{{ loop_index }}", 4),
        ("{{ loop.index }}", 4),
        ("{{ loop.first }}", False),
        ("{{ loop_id }}", "l1"),
        ("{{ page }}", 2),
        ("{{ ctx.page }}", "ctx"),
        ("{{ args.page }}", "args"),
        ("{{ vars.page }}", 2),
        ("{{ vars.c }}", 1),
        ("{{ shade }}", "workload"),
        ("{{ iter.parent.index | default(none) }}", None),
    ],
)
def test_names_in_a_pipeline(template: str, expected: Any) -> None:
    assert value(template) == expected


def test_pipeline_names_are_undefined_elsewhere() -> None:
    for name in ("_prev", "_task", "_attempt", "results", "loop", "loop_index", "fanin"):
        assert value(f"{{{{ {name} is defined }}}}", local={}) is False, name
    assert value("{{ iter }}", local={}) == {}
    assert value("{{ iter.page | default(1) }}", local={}) == 1
    assert value("{{ outcome is defined }}") is False


def test_the_quick_way_through_a_shard_has_its_item() -> None:
    assert value("{{ iter.city }}/{{ city }}/{{ loop_index }}", local={"iter": ITER}) == (
        "Rome/Rome/4"
    )


def routed(template: str, ending: str = "done", **fanin: Any) -> Any:
    found = {"status": "complete", "total": 5, "done": 5, "succeeded": 5, "failed": 0, **fanin}
    event = {"ending": ending, "step": "s", "result": {}, "error": None, "at": 0, "fanin": found}
    return value(template, event=event, local={})


def test_a_finished_loop_has_every_name_of_done() -> None:
    for name in ("loop.done", "step.done", "call.done", "step.exit"):
        assert routed(f"{{{{ event.name == '{name}' }}}}") is True
        assert routed(f"{{{{ event.name == '{name}' }}}}", "failed") is False
    for name in ("step.failed", "call.error"):
        assert routed(f"{{{{ event.name == '{name}' }}}}", "failed") is True
    assert routed("{{ event.name }}") == "loop.done"


def test_a_step_without_a_loop_is_not_loop_done() -> None:
    event: dict[str, Any] = {
        "ending": "done",
        "step": "s",
        "result": {},
        "error": None,
        "at": 0,
        "fanin": None,
    }
    assert value("{{ event.name == 'loop.done' }}", event=event) is False
    assert value("{{ fanin is defined }}", event=event) is False


def test_guards_see_what_a_loop_came_to() -> None:
    assert routed("{{ fanin.status == 'complete' and fanin.failed == 0 }}") is True
    assert routed("{{ fanin.succeeded == fanin.done and fanin.total == 5 }}") is True
    assert routed("{{ fanin.shared.total }}", shared={"total": 10}) == 10
    assert routed("{{ loop.done }}/{{ loop.length }}") == "5/5"

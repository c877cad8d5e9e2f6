"""A definition in its normal form: one spelling for each thing, in one order.

`plan.steps` is a list of steps with `step_id`, `input`, and lists in `input_from` and `depends_on`;
`deadline` and `max_parallel_steps` stand at the root, `retry` within `timing`. It compiles to the
same net.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.dialects.arca.spelling import step_nodes
from anabranch.dialects.findings import Findings
from anabranch.dialects.nodes import plain
from anabranch.dialects.source import read_source

_ROOT = (
    *("workflow_id", "workflow_kind", "label", "description", "deadline", "max_parallel_steps"),
    "input",
)
_STEP = (
    *("step_id", "label", "description", "service_type", "input", "input_from", "depends_on"),
    *("offer_ref", "request_units", "max_amount", "currency"),
    *("target", "fan_in", "timing", "fulfillment", "max_retries", "retry_delay_ms", "fail_policy"),
)
_FROM_PLAN = ("deadline", "max_parallel_steps")


def normal_form(text: str) -> dict[str, Any]:
    """Of a definition that compiles; what it says twice is kept once."""
    document = read_source(text)
    findings = Findings()
    root = None if document.root is None else findings.section(document.root, "the definition")
    assert root is not None, "a definition is a mapping"
    steps = [_step(plain(node)) for node in step_nodes(root, findings)]
    found: dict[str, Any] = plain(root.node)
    plan = found.get("plan") or {}
    given = {key: plan[key] for key in _FROM_PLAN if key in plan} | found
    given["workflow_id"] = found.get("workflow_id") or found.get("definition_id")
    known = {key: given[key] for key in _ROOT if given.get(key) is not None}
    others = {key: value for key, value in found.items() if key not in _MOVED}
    return {**known, **others, "plan": {"steps": steps}}


_MOVED = frozenset((*_ROOT, "definition_id", "plan", "steps"))


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    named = {"input" if key == "request_input" else key: step[key] for key in step}
    for key in ("input_from", "depends_on"):
        if isinstance(named.get(key), str):
            named[key] = [named[key]]
    known = {key: named[key] for key in _STEP if named.get(key) is not None}
    return {**known, **{key: named[key] for key in named if key not in _STEP}}

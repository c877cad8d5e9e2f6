"""What the templates of a playbook look up, held against what is known to be there.

The keys of the workload are known, and so are the fields of a result that the playbook writes out
(a `noop`) or whose kind always answers in the same shape. Whatever is only sometimes known is left
alone: a finding that is wrong costs more than one that is missing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Node, Scalar
from anabranch.dialects.noetl.error_kinds import ERROR_KINDS
from anabranch.dialects.noetl.tasks.code_reads import HOLDERS
from anabranch.expressions.jinja.jinja import has_template
from anabranch.expressions.jinja.template import TemplateLookup
from anabranch.net.problems import Position, closest

#: Fields of a result by kind; None stands for a value about which nothing is known.
Shape = Mapping[str, Any]
ANY = None
SHAPES: Mapping[str, Shape] = {
    "noop": {"status": ANY, "step": ANY},  # without a `result`
    "shell": {
        f"{stream}{what}": ANY
        for stream in ("stdout", "stderr")
        for what in ("", "_truncated", "_bytes")
    }
    | {"exit_code": ANY},
    "http": dict.fromkeys(("status_code", "headers", "url", "elapsed", "data", "body", "encoding")),
    "decision": dict.fromkeys(("decision", "actor", "reason", "evidence")),
    "wait": dict.fromkeys(("until", "waited_seconds")),  # for time
}
#: Other names for a whole result.
WHOLE = ("data", "result")
#: What a result has that is kept beside the log.
OF_REFERENCES = ("_ref", "_preview", "_size_bytes", "_store")
#: What changes the result of a task, or makes a loop of it.
_CHANGES = ("loop", "set_prev", "tool")
#: Functions that templates have.
FUNCTIONS = ("dict", "range")
_WORD = re.compile(r"[A-Za-z_]\w*")

Readings = Iterable[tuple[TemplateLookup, Position]]


def shape_of(step: Section) -> Shape | None:
    """The fields of a step's result, where they are certain."""
    tool = step.node.get("tool")
    if not isinstance(tool, Fields) or "loop" in step.node.fields:
        return None
    kind, spec = tool.get("kind"), tool.get("spec")
    changed = any(key in tool.fields for key in _CHANGES)
    if changed or not isinstance(kind, Scalar) or not (spec is None or _is_plain(spec)):
        return None
    result = tool.get("result")
    if kind.value == "noop" and result is not None:
        return _fields(result) if isinstance(result, Fields) else None
    if kind.value == "wait" and "event" in tool.fields:
        return dict.fromkeys(("event", "payload", "id", "actor", "received_at"))
    return SHAPES.get(str(kind.value))


def _is_plain(spec: Node) -> bool:
    return isinstance(spec, Fields) and not spec.fields.keys() & {"policy", "result"}


def _fields(node: Fields) -> Shape:
    return {
        key: _fields(inner) if isinstance(inner, Fields) else ANY
        for key, inner in node.fields.items()
    }


def reads_of(
    readings: Readings, code: Iterable[str], also: Collection[str] = ()
) -> frozenset[str] | None:
    """The keys of the input that templates and Python code may read; None: they may read any."""
    found = set(also)
    for one, _ in readings:
        if one.root in ("workload", "ctx", "args") and len(one.path) > 1:
            found.add(str(one.path[1]))
        elif one.root in ("workload", "ctx"):
            return None
        else:
            found.add(one.root)
    for text in code:
        words = set(_WORD.findall(text))
        if words & HOLDERS:
            return None
        found |= words
    return frozenset(found)


class Lookups:
    """Warns of what is not there."""

    def __init__(
        self,
        steps: Collection[str],
        workload: Iterable[str],
        shapes: Mapping[str, Shape],
        hidden: Iterable[str],
    ) -> None:
        self._steps = steps
        self._workload = list(workload)
        self._shapes = shapes
        self._hidden = set(hidden)  # names that mean something else than the step of that name

    def check(self, readings: Readings, findings: Findings) -> None:
        for one, at in dict.fromkeys(readings):
            _check_error_kinds(one, at, findings)
            if one.called:
                self._function(one, at, findings)
            elif not one.allowed_missing:
                self._input(one, at, findings)
                self._step(one, at, findings)
                self._field(one, at, findings)

    def _function(self, one: TemplateLookup, at: Position, findings: Findings) -> None:
        if one.root in FUNCTIONS:
            return
        message = f"templates have no function {one.root!r}"
        words = " and ".join(f"`{name}`" for name in FUNCTIONS)
        hint = closest(one.root, FUNCTIONS) or f"there are {words}; filters do the rest"
        findings.add(at, "unknown-function", message, hint)

    def _input(self, one: TemplateLookup, at: Position, findings: Findings) -> None:
        if one.root != "workload" or len(one.path) < 2 or one.path[1] in self._workload:
            return
        if hint := closest(str(one.path[1]), self._workload):  # any other may be given as input
            message = f"the workload has no key {one.path[1]!r}"
            findings.warn(at, "unknown-input", message, hint)

    def _step(self, one: TemplateLookup, at: Position, findings: Findings) -> None:
        if one.root != "steps" or len(one.path) < 2 or one.path[1] in self._steps:
            return
        message = f"there is no step {one.path[1]!r}"
        hint = closest(str(one.path[1]), self._steps) or "name a step of the workflow"
        findings.warn(at, "unknown-name", message, hint)

    def _field(self, one: TemplateLookup, at: Position, findings: Findings) -> None:
        path = one.path[1:] if one.root == "steps" else one.path
        if not path or (one.root != "steps" and one.root in self._hidden):
            return
        step, shape = str(path[0]), self._shapes.get(str(path[0]))
        for place, key in enumerate(path[1:]):
            if shape is None or not isinstance(key, str):
                return
            if place == 0 and key in WHOLE and key not in shape:
                continue
            if place == 0 and key in OF_REFERENCES:
                return
            if key not in shape:
                message = f"the result of step {step!r} has no field {key!r}"
                known = "it has " + ", ".join(f"`{name}`" for name in shape)
                hint = closest(key, shape) or (known if shape else "it is empty")
                findings.warn(at, "unknown-field", message, hint)
                return
            shape = shape[key]


def is_literal(node: Node | None) -> bool:
    return isinstance(node, Scalar) and isinstance(node.value, str) and not has_template(node.value)


def _check_error_kinds(one: TemplateLookup, at: Position, findings: Findings) -> None:
    if one.path[-2:] != ("error", "kind"):
        return
    for text in one.compared:
        hint = "" if text in ERROR_KINDS else closest(text, ERROR_KINDS)
        if hint:  # others may be those of a registered callable
            message = f"no error has the kind {text!r}"
            findings.warn(at, "unknown-error-kind", message, hint)

"""Helpers for short workflow definitions."""

from __future__ import annotations

import json
from typing import Any

from anabranch.dialects.port import Compiled
from anabranch.dialects.registry import compile_source
from anabranch.net.net import Net, Step
from anabranch.net.problems import Problem

STATIC = {"resolve": "static", "participants": ["p1", "p2", "p3"]}


def step(step_id: str = "s", **fields: Any) -> dict[str, Any]:
    return {"step_id": step_id, "service_type": "text/summarise", **fields}


def fan_out(step_id: str = "s", fan_in: dict[str, Any] | None = None, **fields: Any) -> Any:
    return step(step_id, **{"target": STATIC, "fan_in": fan_in or {}, **fields})


def definition(*steps: Any, **root: Any) -> dict[str, Any]:
    return {"workflow_id": "test", **root, "plan": {"steps": list(steps)}}


def read(document: Any) -> Compiled:
    """One line for each value, so that positions mean something."""
    return compile_source(json.dumps(document, indent=1), file="d.json")


def net_of(*steps: Any, **root: Any) -> Net:
    compiled = read(definition(*steps, **root))
    assert compiled.net is not None, "\n".join(map(str, compiled.problems))
    return compiled.net


def lowered(**fields: Any) -> Step:
    """The one step of a definition, with these fields."""
    return net_of(step(**fields)).steps["s"]


def problem_of(document: Any, code: str, severity: str = "error") -> Problem:
    """The one problem there is."""
    compiled = read(document)
    (problem,) = compiled.problems
    assert (problem.code, problem.severity) == (code, severity), str(problem)
    assert (compiled.net is None) == (severity == "error")
    return problem


def line_of(document: Any, text: str, *, last: bool = False) -> int:
    """Where that text stands in the document as it is read."""
    lines = json.dumps(document, indent=1).splitlines()
    found = [number for number, line in enumerate(lines, start=1) if text in line]
    return found[-1 if last else 0]

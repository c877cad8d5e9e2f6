"""Words that are read and turned into others before a playbook is compiled.

They never reach the readers, so they are looked for in the documents as they were written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anabranch.dialects.noetl.respell.cursor import UNUSED
from anabranch.dialects.noetl.respell.playbook import FANOUT_ALIASES, LOOP_ALIASES
from anabranch.dialects.noetl.tasks.keys import ALIASES

SPELLINGS = frozenset(
    {"step.when", "step.args", "step.input", "step.set", "step.result", "step.output"}
    | {"step.spec.next_mode", "step.spec.fanout.…", "next: name", "next: arc", "next: names"}
    | {"next: arcs", "task.label", "task.input", "task.credential", "task.eval", "task.policy"}
    | {"task.set", "task.set_vars", "task.output", "task.spec.inputs", "rule.expr", "rule.flat"}
    | {"rule.else without then", "then.target", "then.set", "then.set_vars", "arc.set"}
    | {"loop.mode", "loop.concurrency", "loop.max_in_flight", "loop: async", "workbook: list"}
    | {"loop.cursor", "loop: cursor", "frame.max_rows", "frame.lease_seconds", "frame.max_attempts"}
    | {"frame.row_concurrency", "frame.process", *(f"frame.{key}" for key in UNUSED)}
    | {f"loop.{alias}" for alias in LOOP_ALIASES}
    | {f"fanout.{alias}" for alias in FANOUT_ALIASES}
    | {f"{kind}.{alias}" for kind, aliases in ALIASES.items() for alias in aliases}
)
THEN = ("do", "to", "target", "attempts", "set_vars", "set_ctx")


def spellings_in(document: Any) -> Iterator[str]:
    """The spellings a document uses."""
    book = document.get("workbook")
    if isinstance(book, list):
        yield "workbook: list"
    yield from _spec("executor", (document.get("executor") or {}).get("spec") or {})
    for step in document["workflow"]:
        yield from (f"step.{key}" for key in step)
        yield from _spec("step", step.get("spec") or {})
        yield from _next(step.get("next"))
        yield from _loop(step.get("loop") or {})
        yield from _tasks(step.get("tool"))


def _spec(holder: str, spec: dict[str, Any]) -> Iterator[str]:
    for key, value in spec.items():
        yield f"{holder}.spec.{key}"
        yield f"{holder}_spec.{key}"
        if key.startswith("fanout."):
            yield "step.spec.fanout.…"
            yield key
        if key == "fanout":
            yield from (f"fanout.{name}" for name in value)


def _next(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield "next: name"
    elif isinstance(node, list):
        yield "next: names" if isinstance(node[0], str) else "next: arcs"
        yield from (f"arc.{key}" for arc in node if isinstance(arc, dict) for key in arc)
    elif isinstance(node, dict) and "step" in node:
        yield "next: arc"
    elif isinstance(node, dict):
        yield from (f"arc.{key}" for arc in node["arcs"] for key in arc)


def _loop(loop: dict[str, Any]) -> Iterator[str]:
    yield from (f"loop.{key}" for key in loop)
    if loop.get("mode") == "async":
        yield "loop: async"
    spec = loop.get("spec") or {}
    if spec.get("mode") == "cursor":
        yield "loop: cursor"
    yield from (f"frame.{key}" for key in spec.get("frame") or ())
    yield from _spec("loop", spec)


def _tasks(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield "tool: kind"
        return
    for task in node if isinstance(node, list) else [node] if node else []:
        inner = task
        if "kind" not in task and "tool" not in task:
            yield "task.label"
            (inner,) = task.values()
        kind = inner.get("kind")
        spec = inner.get("spec") or {}
        yield from (f"task.{key}" for key in inner)
        yield from (f"{kind}.{key}" for key in inner)
        if set(spec) - {"policy", "timeout", "result"}:
            yield "task.spec.inputs"
        policy = inner.get("policy") or inner.get("eval") or spec.get("policy") or {}
        for rule in policy if isinstance(policy, list) else policy.get("rules") or []:
            yield from _rule(rule)


def _rule(rule: dict[str, Any]) -> Iterator[str]:
    yield from (f"rule.{key}" for key in rule)
    otherwise = rule.get("else")
    then = rule.get("then") or otherwise or {}
    if any(key in rule for key in THEN):
        yield "rule.flat"
        then = rule
    if otherwise is not None and "then" not in otherwise:
        yield "rule.else without then"
    yield from (f"then.{key}" for key in then.get("then", then))

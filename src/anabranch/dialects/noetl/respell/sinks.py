"""`sink`: what becomes of a result, as a task of its own behind the one that gives it.

    tool: {kind: http, url: …, sink: {tool: {kind: postgres, auth: db, command: "… {{ result }}"}}}

The sink sees the result as `result` (and `_prev`, `response`). It gives none itself: the rule
`do: skip` leaves that of the task before. One that fails, fails the step. A sink that names a table
and leaves the statement to the runtime stays as it is, for the reader to refuse.
"""

from __future__ import annotations

import re

from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.respell.shape import Shape, fields, items
from anabranch.dialects.noetl.respell.tasks import RespellReport
from anabranch.dialects.noetl.tasks.keys import KINDS

CANONICAL = "a task after it, with the rule {when: …, then: {do: skip}}"
#: A condition of `case` that holds after every success.
_SUCCESS = re.compile(
    r"\s*\{\{-?\s*event\.name\s*==\s*['\"](?:step\.exit|call\.done|step\.done)['\"]"
    r"(?:\s+and\s+(?:response|result)\s+is\s+defined)?\s*-?\}\}\s*"
)


def after_success(when: Node | None) -> bool:
    """Whether a condition says no more than that the step ended well."""
    return when is None or (isinstance(when, Scalar) and bool(_SUCCESS.fullmatch(str(when.value))))


def with_sinks(tool: Node, what: str, seen: RespellReport) -> Node:
    """The tasks, each with its sink behind it."""
    tasks = list(tool) if isinstance(tool, Items) else [tool]
    found: list[Node] = []
    for each in tasks:
        sink = sink_task(each.get("sink")) if isinstance(each, Fields) and "sink" in each else None
        if sink is None or not isinstance(each, Fields):
            found.append(each)
            continue
        shape = Shape(each)
        _, at = shape.take("sink")
        found += [shape.node(), sink]
        seen.old(at, f"`sink` in {what}", CANONICAL)
    return tool if len(found) == len(tasks) else items(found, tool.position)


def sink_task(node: Node | None) -> Fields | None:
    """The task that a sink is; None for one that cannot be said so."""
    if not isinstance(node, Fields):
        return None
    inner = node.get("tool")
    task = Shape(inner if isinstance(inner, Fields) else node)
    if isinstance(inner, Scalar):
        task.rename("tool", "kind")
    kind = task.fields.get("kind")
    known = isinstance(kind, Scalar) and kind.value in KINDS
    if not known or "table" in task or task.find("spec", "policy") is not None:
        return None
    at = task.position
    when = Scalar("{{ outcome.status == 'ok' }}", at)
    skip = fields({"do": Scalar("skip", at)}, at)
    rule = fields({"when": when, "then": skip}, at)
    task.deepen(("spec", "policy", "rules"), items([rule], at), at)
    return task.node()

"""`set_ctx`: what a step writes into the context when it ends well, before its arcs are looked at.

    set_ctx:
      customer: "{{ outcome.result.name }}"          # the last writer wins
      total: {reduce: sum, value: "{{ output.data.amount }}"}

A value that is a mapping with exactly the keys `reduce` and `value` does not replace what is there
but is combined with it: sum, min, max (numbers), append (to a list) or merge (into a mapping). The
result does not depend on the order in which branches arrive, apart from the order of a list.

`set: {ctx.customer: …}` is the later spelling of the same.
"""

from __future__ import annotations

import re

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Node, Scalar
from anabranch.dialects.noetl.templates import Templates
from anabranch.net.net import Patch, Reducer
from anabranch.net.problems import Position, did_you_mean

REDUCERS: tuple[Reducer, ...] = ("set", "sum", "min", "max", "append", "merge")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def read_patches(step: Section, templates: Templates) -> tuple[Patch, ...]:
    patches: list[Patch] = []
    set_ctx = step.section("set_ctx")
    if set_ctx is not None:
        for key, node in set_ctx.node.fields.items():
            patches += _patch(key, set_ctx.key_position(key), node, templates, step.findings)
    later = step.section("set")
    if later is not None:
        for key, node in later.node.fields.items():
            at = later.key_position(key)
            if key.startswith("ctx."):
                patches += _patch(key.removeprefix("ctx."), at, node, templates, step.findings)
            else:
                hint = f"write `ctx.{key}` to set it in the context"
                step.findings.not_yet(at, f"`set` of {key!r} outside the context", hint)
    return tuple(patches)


def _patch(
    key: str, at: Position, node: Node, templates: Templates, findings: Findings
) -> list[Patch]:
    if not _NAME.fullmatch(key):
        hint = "use letters, digits, `_` and `-`"
        findings.add(at, "bad-name", f"{key!r} is not a name for the context", hint)
        return []
    if isinstance(node, Fields) and set(node.fields) == {"reduce", "value"}:
        value = templates.tree(node.fields["value"])
        return [Patch(key, value, _reducer(node.fields["reduce"], findings))]
    return [Patch(key, templates.tree(node))]


def _reducer(node: Node, findings: Findings) -> Reducer:
    word = node.value if isinstance(node, Scalar) else None
    for reducer in REDUCERS:
        if word == reducer:
            return reducer
    hint = did_you_mean(str(word), REDUCERS)
    findings.add(node.position, "bad-choice", f"there is no reducer {word!r}", hint)
    return "set"

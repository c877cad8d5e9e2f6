"""Context writes: of a step, of an arc, of a task and of the rules after a task.

    set_ctx:
      customer: "{{ outcome.result.name }}"          # the last writer wins
      total: {reduce: sum, value: "{{ outcome.result.amount }}"}

A value that is a mapping with exactly the keys `reduce` and `value` does not replace what is there
but is combined with it: sum, min, max (numbers), append (to a list) or merge (into a mapping). The
result does not depend on the order in which branches arrive, apart from the order of a list.

`set_iter` writes into the iteration (or the step run, where there is no loop: then the step's own
writes and arcs see it too), `set_shared` into what a loop reduces over all its items, `set_prev`
replaces what the next task sees as the result before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Node, Scalar
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.expressions.port import Expression
from anabranch.literals import Reducer
from anabranch.net.net import Patch
from anabranch.net.problems import Position, did_you_mean
from anabranch.net.program import Write

REDUCERS: tuple[Reducer, ...] = ("set", "sum", "min", "max", "append", "merge")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def read_patches(holder: Section, templates: TemplateCompiler) -> tuple[Patch, ...]:
    """`set_ctx` of a step or an arc."""
    patches: list[Patch] = []
    set_ctx = holder.section("set_ctx")
    if set_ctx is not None:
        for key, node in set_ctx.node.fields.items():
            at = set_ctx.key_position(key)
            patches += _patch(key, at, node, templates, holder.findings)
    return tuple(patches)


def read_locals(holder: Section, templates: TemplateCompiler) -> tuple[Patch, ...]:
    """`set_iter` of a step: values of the step run, for its own writes and arcs."""
    return tuple(Patch(w.key, w.value) for w in _plain_writes(holder, "set_iter", templates))


def refuse_scopes(holder: Section) -> None:
    """What is left of `set` could not be moved: its place holds something else than a mapping."""
    left = holder.section("set")
    for key in left.node.fields if left is not None else ():
        assert left is not None, "there is a key"
        message = f"`set` of {key!r} in {holder.what} has no place: what is there is no mapping"
        left.report(key, "conflicting-keys", message, "keep one of them")


class Around(msgspec.Struct, frozen=True):
    """What writes of a task need to know about the loop around it, if there is one."""

    loops: bool = False
    together: bool = False  # several items at once, in an order nobody knows
    inside: str = ""  # a hook or an inner loop, where nothing can wait for an answer from outside
    reducers: Mapping[str, Reducer] = {}


class Writes(msgspec.Struct, frozen=True):
    ctx: tuple[Write, ...] = ()
    iteration: tuple[Write, ...] = ()
    shared: tuple[Write, ...] = ()
    prev: Expression | None = None


def read_writes(holder: Section, templates: TemplateCompiler, around: Around) -> Writes:
    """The writes of a task, or of a rule after it."""
    refuse_scopes(holder)
    holder.section("set_vars")  # left where it could not be renamed; `section` says why
    ctx = tuple(Write(p.key, p.value, p.reducer) for p in read_patches(holder, templates))
    if around.together and any(write.reducer == "set" for write in ctx):
        message = f"{holder.what} writes the context from items that run at once: the last one wins"
        hint = "use `set_iter`, a reducer ({reduce: sum, value: …}), or a step after the loop"
        holder.warn("set_ctx", "shared-write", message, hint)
    iteration = _plain_writes(holder, "set_iter", templates)
    node = holder.ask("set_prev")
    prev = None if node is None else templates.tree(node)
    return Writes(ctx, iteration, _shared(holder, templates, around), prev)


def _plain_writes(holder: Section, key: str, templates: TemplateCompiler) -> tuple[Write, ...]:
    section = holder.section(key)
    writes: list[Write] = []
    for name, node in section.node.fields.items() if section is not None else ():
        assert section is not None, "there is a name"
        if _is_name(name, section.key_position(name), holder.findings):
            writes.append(Write(name, templates.tree(node)))
    return tuple(writes)


def _shared(holder: Section, templates: TemplateCompiler, around: Around) -> tuple[Write, ...]:
    writes = _plain_writes(holder, "set_shared", templates)
    if writes and not around.loops:
        message = f"`set_shared` of {holder.what}: there is no loop to share with"
        holder.report("set_shared", "no-reducer", message, "write `set_ctx`")
        return ()
    found: list[Write] = []
    for write in writes:
        reducer = around.reducers.get(write.key)
        if reducer is None:
            message = f"`set_shared` of {write.key!r} in {holder.what} has no reducer"
            hint = f"allow it with `fanout: {{reducers: {{{write.key}: sum}}}}` in the step's spec"
            holder.report("set_shared", "no-reducer", message, hint)
        else:
            found.append(Write(write.key, write.value, reducer))
    return tuple(found)


def _is_name(key: str, at: Position, findings: Findings) -> bool:
    if NAME.fullmatch(key):
        return True
    hint = "use letters, digits, `_` and `-`"
    findings.add(at, "bad-name", f"{key!r} is not a name for the context", hint)
    return False


def _patch(
    key: str, at: Position, node: Node, templates: TemplateCompiler, findings: Findings
) -> list[Patch]:
    if not _is_name(key, at, findings):
        return []
    if isinstance(node, Fields) and set(node.fields) == {"reduce", "value"}:
        value = templates.tree(node.fields["value"])
        return [Patch(key, value, read_reducer(node.fields["reduce"], findings))]
    return [Patch(key, templates.tree(node))]


def read_reducer(node: Node, findings: Findings) -> Reducer:
    word = node.value if isinstance(node, Scalar) else None
    for reducer in REDUCERS:
        if word == reducer:
            return reducer
    hint = did_you_mean(str(word), REDUCERS)
    findings.add(node.position, "bad-choice", f"there is no reducer {word!r}", hint)
    return "set"

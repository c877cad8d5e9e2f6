"""Durations of tasks: in milliseconds where they are plain, else templates that work evaluates."""

from __future__ import annotations

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Node, Scalar
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.expressions.jinja.jinja import has_template
from anabranch.expressions.port import Constant, Expression


def duration(
    holder: Section, key: str, node: Node, templates: TemplateCompiler, *, zero: bool = False
) -> int | Expression | None:
    """None where it is neither, which is a finding."""
    if isinstance(node, Scalar) and isinstance(node.value, str) and has_template(node.value):
        expression: Expression = templates.structure(node)
        return expression
    return holder.duration_of(key, node, zero=zero)


def seconds(
    holder: Section, key: str, templates: TemplateCompiler, *, zero: bool = False
) -> Expression | None:
    """The duration under a key, as rules have it; None where there is none."""
    node = holder.ask(key)
    found = None if node is None else duration(holder, key, node, templates, zero=zero)
    return Constant(found / 1000) if isinstance(found, int) else found

"""Templates inside the text of another language: which of them bring in more than a value.

A command, a query or code that is put together from data does whatever the data says, unless each
value is quoted for the language it lands in. This finds the outputs of a template that are not:
neither quoted (`| sh`), nor certain to be a number or true or false, nor written out.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from jinja2 import TemplateSyntaxError, nodes

from anabranch.expressions.jinja.limits import TemplateLimits
from anabranch.expressions.jinja.program import sandbox_of

#: Filters that give a number, whatever they are given.
NUMERIC = frozenset({"abs", "count", "float", "int", "length", "round", "wordcount"})
#: Names with values that the engine made up: ids and positions.
OURS = frozenset({"execution_id", "job", "loop"})
_WRAPPERS = frozenset({"d", "default", "trim", "string", "indent"})


class Loose(msgspec.Struct, frozen=True):
    """An output that is not quoted, or one that stands between quotes although it is."""

    expression: str
    line: int
    twice: bool = False


def loose_outputs(text: str, quoting: str) -> list[Loose]:
    """The outputs of a template that are not safe in a text whose filter for quoting this is.

    None in what is no template: code may only look like one."""
    try:
        tree = sandbox_of(TemplateLimits()).parse(text)
    except (TemplateSyntaxError, RecursionError, ValueError):
        return []
    return list(_loose(tree, quoting))


def _loose(tree: nodes.Template, quoting: str) -> Iterator[Loose]:
    for output in tree.find_all(nodes.Output):
        before = ""
        for part in output.nodes:
            if isinstance(part, nodes.TemplateData):
                before = part.data
                continue
            doubled = quoting == "sql" and before.endswith("'") and _is_doubled(part)
            if not doubled and not _is_safe(part, quoting):
                yield Loose(_spelled(part), part.lineno)
            elif quoting != "py" and before[-1:] in ("'", '"') and _is_quoted(part, quoting):
                yield Loose(_spelled(part), part.lineno, twice=True)
            before = ""


def _is_doubled(node: nodes.Node) -> bool:
    """`'{{ name | replace("'", "''") }}'`: quoted by hand."""
    if not isinstance(node, nodes.Filter) or node.name != "replace":
        return False
    given = [arg.value for arg in node.args if isinstance(arg, nodes.Const)]
    return given == ["'", "''"]


def _is_quoted(node: nodes.Node, quoting: str) -> bool:
    return isinstance(node, nodes.Filter) and node.name == quoting


def _is_safe(node: nodes.Node | None, quoting: str) -> bool:
    match node:
        case nodes.Const() | nodes.Compare() | nodes.Test() | nodes.Not():
            return True
        case nodes.Filter(name=name, node=inner, args=args):
            if name == quoting or name in NUMERIC:
                return True
            if name == "join" and _is_each_quoted(inner, quoting):
                return all(isinstance(arg, nodes.Const) for arg in args)
            return name in _WRAPPERS and all(_is_safe(each, quoting) for each in (inner, *args))
        case nodes.CondExpr(expr1=yes, expr2=no):
            return _is_safe(yes, quoting) and (no is None or _is_safe(no, quoting))
        case nodes.BinExpr(left=left, right=right):
            return _is_safe(left, quoting) and _is_safe(right, quoting)
        case nodes.UnaryExpr(node=inner):
            return _is_safe(inner, quoting)
        case nodes.Concat(nodes=parts):
            return all(_is_safe(part, quoting) for part in parts)
        case nodes.Name() | nodes.Getattr() | nodes.Getitem():
            return _root(node) in OURS
    return False


def _is_each_quoted(node: nodes.Node | None, quoting: str) -> bool:
    """`words | map('sh') | join(' ')`."""
    if not isinstance(node, nodes.Filter) or node.name != "map" or not node.args:
        return False
    first = node.args[0]
    return isinstance(first, nodes.Const) and (first.value == quoting or first.value in NUMERIC)


def _root(node: nodes.Node) -> str:
    while isinstance(node, (nodes.Getattr, nodes.Getitem)):
        node = node.node
    return node.name if isinstance(node, nodes.Name) else ""


def _spelled(node: nodes.Node) -> str:
    """The expression roughly as it was written, for messages."""
    match node:
        case nodes.Name(name=name):
            return str(name)
        case nodes.Getattr(node=inner, attr=attr):
            return f"{_spelled(inner)}.{attr}"
        case nodes.Getitem(node=inner, arg=nodes.Const(value=value)):
            return f"{_spelled(inner)}[{value!r}]"
        case nodes.Filter(node=inner, name=name) if inner is not None:
            return f"{_spelled(inner)} | {name}"
    return "…"

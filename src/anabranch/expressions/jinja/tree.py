"""What a template may contain, and how its tree is changed before it becomes code."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from jinja2 import TemplateSyntaxError, nodes
from jinja2.visitor import NodeTransformer

from anabranch.expressions.jinja.spending import ELEMENT
from anabranch.expressions.jinja.template import ENVELOPES

_REFUSED: Mapping[type[nodes.Node], str] = {
    nodes.Macro: "macro",
    nodes.CallBlock: "call",
    nodes.FilterBlock: "filter",
    nodes.AssignBlock: "set … endset",
    nodes.Block: "block",
    nodes.Extends: "extends",
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "from",
    nodes.ScopedEvalContextModifier: "autoescape",
    nodes.NSRef: "set with a dot",
}


class Survey(msgspec.Struct):
    """What a template uses, found in one walk."""

    loaded: set[str] = set()
    stored: set[str] = set()
    filters: dict[str, int] = {}  # name → line
    tests: dict[str, int] = {}
    loops: bool = False


def survey(tree: nodes.Node, bits_max: int) -> Survey:
    """Walk a template; refuse the statements that could recurse or buffer without measure."""
    found = Survey()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        kind = type(node)
        if kind is nodes.Name:
            _note_name(node, found)  # type: ignore[arg-type]
        elif kind is nodes.Filter:
            found.filters.setdefault(node.name, node.lineno)  # type: ignore[attr-defined]
        elif kind is nodes.Test:
            found.tests.setdefault(node.name, node.lineno)  # type: ignore[attr-defined]
        elif kind is nodes.Const:
            _check_number(node, bits_max)  # type: ignore[arg-type]
        elif kind in _REFUSED:
            message = f"{{% {_REFUSED[kind]} %}} is not available here"
            raise TemplateSyntaxError(message, node.lineno)
        elif kind is nodes.For and node.recursive:  # type: ignore[attr-defined]
            raise TemplateSyntaxError("a recursive loop is not available here", node.lineno)
        found.loops = found.loops or kind is nodes.For
        waiting.extend(node.iter_child_nodes())
    return found


def _check_number(node: nodes.Const, bits_max: int) -> None:
    value = node.value
    if type(value) is int and value.bit_length() > bits_max:
        bits = value.bit_length()
        message = f"a whole number of {bits:,} bits is too much; the limit bits_max is {bits_max:,}"
        raise TemplateSyntaxError(message, node.lineno)


def _note_name(node: nodes.Name, found: Survey) -> None:
    if node.name == "self":  # Jinja gives it a meaning of its own
        raise TemplateSyntaxError("the name 'self' is not available here", node.lineno)
    (found.loaded if node.ctx == "load" else found.stored).add(node.name)


#: Filters that say what to take where something is missing.
DEFAULTS = frozenset({"d", "default"})
#: Expressions whose value may be undefined.
_MAY_BE_MISSING = (nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Call, nodes.CondExpr)
_MAY_FIND_NOTHING = frozenset({"first", "get", "last", "max", "min", "_whole"})


class Counting(NodeTransformer):
    """Routes loops, `~`, comparisons and slices through the internal filters that count, and what
    a filter works on through the one that refuses undefined values."""

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if node.name not in DEFAULTS and node.node is not None and _may_be_missing(node.node):
            node.node = _filtered(node.node, "_defined")
        return node

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - the visitor's naming
        parts = (*node.body, *([node.test] if node.test else ()))
        cost = ELEMENT * (_TURN_SIZE + sum(_size(part) for part in parts))
        self.generic_visit(node)
        if _may_be_missing(node.iter):
            node.iter = _filtered(node.iter, "_defined")
        node.iter = _filtered(node.iter, "_turns", nodes.Const(cost))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "_concat")

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if _is_cheap_chain(node):
            return node
        sides = [node.expr, *(operand.expr for operand in node.ops)]
        made: nodes.Expr | None = None
        for left, op, right in _pairs(sides, node.ops):
            one = _filtered(left, f"_{op}", right)
            made = one if made is None else nodes.And(made, one, lineno=node.lineno)
        return made or node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if all(isinstance(pair.key, nodes.Const) for pair in node.items):
            return node
        pairs: list[nodes.Expr] = [
            nodes.List([pair.key, pair.value], lineno=pair.lineno) for pair in node.items
        ]
        return _filtered(nodes.List(pairs, lineno=node.lineno), "_mapping")

    def visit_CondExpr(self, node: nodes.CondExpr) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if node.expr2 is None:
            node.expr2 = _filtered(nodes.Const(None, lineno=node.lineno), "_nothing")
        return node

    def visit_Name(self, node: nodes.Name) -> nodes.Node:  # noqa: N802
        if node.name in ENVELOPES and node.ctx == "load":
            return _filtered(node, "_whole")
        return node

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:  # noqa: N802
        if not isinstance(node.node, nodes.Name):
            self.generic_visit(node)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        if isinstance(node.node, nodes.Name) and not isinstance(node.arg, nodes.Slice):
            node.arg = self.visit(node.arg)
            return node
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        part = node.arg
        ends = [end or nodes.Const(None) for end in (part.start, part.stop, part.step)]
        return _filtered(node.node, "_sliced", *ends)


def _may_be_missing(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Filter):
        return node.name in _MAY_FIND_NOTHING
    return isinstance(node, _MAY_BE_MISSING)


def _pairs(
    sides: list[nodes.Expr], operands: list[nodes.Operand]
) -> list[tuple[nodes.Expr, str, nodes.Expr]]:
    return [(sides[n], operand.op, sides[n + 1]) for n, operand in enumerate(operands)]


def _is_cheap_chain(node: nodes.Compare) -> bool:
    sides = [node.expr, *(operand.expr for operand in node.ops)]
    return all(_is_cheap(left, op, right) for left, op, right in _pairs(sides, node.ops))


def _is_cheap(left: nodes.Expr, op: str, right: nodes.Expr) -> bool:
    """Comparing with what stands in the template is bounded by the template."""
    if op in ("in", "notin"):
        return _is_written_out(right)
    return _is_written_out(left) or _is_written_out(right)


def _is_written_out(node: nodes.Expr) -> bool:
    if isinstance(node, nodes.Const):
        return True
    return isinstance(node, (nodes.List, nodes.Tuple)) and all(
        isinstance(item, nodes.Const) for item in node.items
    )


#: Parts that are calls of Python code, and about how many plain parts one of them is.
_CALLS: Mapping[type[nodes.Node], int] = {
    nodes.Call: 12,
    nodes.Concat: 12,
    nodes.Filter: 12,
    nodes.Getattr: 6,
    nodes.Getitem: 6,
    nodes.Slice: 12,
    nodes.Test: 8,
    **dict.fromkeys((nodes.Add, nodes.Mul, nodes.FloorDiv, nodes.Mod, nodes.Pow), 12),
}
_OUTPUT_SIZE = 16  # of each piece of text
_TURN_SIZE = 4  # of a turn with nothing in it
_LOOP_SIZE = 16  # of each use of `loop`


def _size(node: nodes.Node) -> int:
    """The parts of a loop's body that one turn goes through; inner loops pay for themselves."""
    total = 0
    waiting = [node]
    while waiting:
        part = waiting.pop()
        total += _CALLS.get(type(part), 1)
        if isinstance(part, nodes.Output):
            total += _OUTPUT_SIZE * len(part.nodes)
        elif isinstance(part, nodes.Name) and part.name == "loop":
            total += _LOOP_SIZE
        elif isinstance(part, nodes.Compare) and not _is_cheap_chain(part):
            total += 8 * len(part.ops)
        waiting += [part.iter] if isinstance(part, nodes.For) else part.iter_child_nodes()
    return total


def _filtered(node: nodes.Node, name: str, *args: nodes.Expr) -> nodes.Expr:
    for arg in args:
        arg.set_lineno(node.lineno)
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)

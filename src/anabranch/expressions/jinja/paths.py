"""What a template reads, as paths: `workload.rows[0].id` is `("workload", "rows", 0, "id")`."""

from __future__ import annotations

from jinja2 import nodes

from anabranch.expressions.jinja.template import TemplateLookup
from anabranch.expressions.jinja.tree import DEFAULTS

_ASKS_WHETHER = frozenset({"defined", "undefined"})


def readings(tree: nodes.Node) -> tuple[TemplateLookup, ...]:
    """In no particular order. Names that the template sets itself are among them."""
    found: list[TemplateLookup] = []
    waiting: list[tuple[nodes.Node, bool, tuple[str, ...]]] = [(tree, False, ())]
    while waiting:
        node, allowed, texts = waiting.pop()
        if isinstance(node, (nodes.Name, nodes.Getattr, nodes.Getitem)):
            waiting += [(inner, False, ()) for inner in _looked_up(node, allowed, found, texts)]
        elif isinstance(node, nodes.Call):
            waiting += [(inner, False, ()) for inner in _called(node, found)]
        elif isinstance(node, nodes.Compare):
            waiting += [(side, allowed, texts) for side, texts in _sides_with_texts(node)]
        else:
            first = _may_be_missing(node)
            for inner in node.iter_child_nodes():
                waiting.append((inner, allowed or inner is first, ()))
    return tuple(found)


def _sides_with_texts(node: nodes.Compare) -> list[tuple[nodes.Node, tuple[str, ...]]]:
    """The sides of a comparison, each with the texts that stand beside it."""
    sides: list[nodes.Node] = [node.expr, *(operand.expr for operand in node.ops)]
    texts: list[tuple[str, ...]] = [() for _ in sides]
    for at, operand in enumerate(node.ops):
        if operand.op in ("eq", "ne", "in", "notin"):
            texts[at] += _texts(sides[at + 1])
        if operand.op in ("eq", "ne"):
            texts[at + 1] += _texts(sides[at])
    return list(zip(sides, texts, strict=True))


def _texts(node: nodes.Node) -> tuple[str, ...]:
    match node:
        case nodes.Const(value=str() as text):
            return (text,)
        case nodes.List(items=items) | nodes.Tuple(items=items):
            return tuple(text for item in items for text in _texts(item))
    return ()


def _may_be_missing(node: nodes.Node) -> nodes.Node | None:
    """The part of an expression that says what happens when it is missing."""
    match node:
        case nodes.Filter(name=name, node=inner) if name in DEFAULTS:
            return inner
        case nodes.Test(name=name, node=inner) if name in _ASKS_WHETHER:
            return inner
        case nodes.Or(left=left):
            return left
    return None


def _looked_up(
    node: nodes.Node, allowed: bool, found: list[TemplateLookup], texts: tuple[str, ...] = ()
) -> list[nodes.Node]:
    """Notes what is read; what is left to look at are the keys that are worked out."""
    path: list[str | int] = []
    left: list[nodes.Node] = []
    opened = False
    while not isinstance(node, nodes.Name):
        match node:
            case nodes.Getattr(node=inner, attr=attr):
                path.append(attr)
            case nodes.Getitem(node=inner, arg=nodes.Const(value=str() | int() as key)):
                path.append(key)
            case nodes.Getitem(node=inner, arg=arg):
                path, opened = [], True
                left.append(arg)
            case nodes.Call():
                return [*left, node]
            case _:  # a key of something that is made on the spot
                return [*left, node]
        node = inner
    if node.ctx == "load":
        whole = (node.name, *reversed(path))
        found.append(
            TemplateLookup(whole, node.lineno, allowed_missing=allowed, open=opened, compared=texts)
        )
    return left


def _called(node: nodes.Call, found: list[TemplateLookup]) -> list[nodes.Node]:
    parts = list(node.iter_child_nodes())
    match node.node:
        case nodes.Name(name=name):
            found.append(TemplateLookup((name,), node.lineno, called=True))
            return parts[1:]
        case nodes.Getattr(node=nodes.Name() | nodes.Getattr() | nodes.Getitem() as owner):
            before = len(found)
            left = _looked_up(owner, True, found)
            found[before:] = [
                TemplateLookup(one.path, one.line, allowed_missing=True, open=True)
                for one in found[before:]
            ]
            return [*left, *parts[1:]]
    return parts

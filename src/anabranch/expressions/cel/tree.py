"""The tree of a CEL expression, which names it uses, and the tree written out again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from anabranch.expressions.cel.values import Int256, UInt, Uint256


class Literal(msgspec.Struct, frozen=True):
    value: Any


class Name(msgspec.Struct, frozen=True):
    name: str
    outside: bool = False  # `.name`: never the variable of a macro


class Select(msgspec.Struct, frozen=True):
    operand: Node
    field: str
    test: bool = False  # `has(operand.field)`


class Index(msgspec.Struct, frozen=True):
    operand: Node
    index: Node


class Call(msgspec.Struct, frozen=True):
    """A function, or a method when the call has a target (which is then the first argument)."""

    function: str
    args: tuple[Node, ...]
    method: bool = False


class Unary(msgspec.Struct, frozen=True):
    op: str
    operand: Node


class Binary(msgspec.Struct, frozen=True):
    op: str
    left: Node
    right: Node


class Logic(msgspec.Struct, frozen=True):
    """`&&` or `||` over two or more terms, so that long chains stay flat."""

    op: str
    terms: tuple[Node, ...]


class Conditional(msgspec.Struct, frozen=True):
    test: Node
    yes: Node
    no: Node


class ListOf(msgspec.Struct, frozen=True):
    items: tuple[Node, ...]


class MapOf(msgspec.Struct, frozen=True):
    entries: tuple[tuple[Node, Node], ...]


class Macro(msgspec.Struct, frozen=True):
    """`range.macro(variable, condition?, body)`; only `map` may have a condition."""

    macro: str
    range: Node
    variable: str
    body: Node
    condition: Node | None = None


Node = (
    Literal | Name | Select | Index | Call | Unary | Binary | Logic | Conditional | ListOf
    | MapOf | Macro
)  # fmt: skip


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Literal() | Name():
            return ()
        case Select(operand) | Unary(_, operand):
            return (operand,)
        case Index(operand, index):
            return (operand, index)
        case Call(_, args):
            return args
        case Binary(_, left, right):
            return (left, right)
        case Logic(_, terms):
            return terms
        case Conditional(test, yes, no):
            return (test, yes, no)
        case ListOf(items):
            return items
        case MapOf(entries):
            return tuple(each for entry in entries for each in entry)
        case Macro(_, over, _, body, condition):
            return (over, body) if condition is None else (over, condition, body)


def count(node: Node) -> int:
    return sum(1 for _ in walk(node))


def walk(node: Node) -> Iterator[Node]:
    """Every node of the tree."""
    open_nodes = [node]
    while open_nodes:
        each = open_nodes.pop()
        yield each
        open_nodes.extend(children(each))


def free_names(node: Node) -> frozenset[str]:
    """The names that must come from outside: all but the variables of macros."""
    found: set[str] = set()
    open_nodes: list[tuple[Node, frozenset[str]]] = [(node, frozenset())]
    while open_nodes:
        each, bound = open_nodes.pop()
        if isinstance(each, Name):
            if each.outside or each.name not in bound:
                found.add(each.name)
        elif isinstance(each, Macro):
            inner = bound | {each.variable}
            open_nodes.append((each.range, bound))
            open_nodes.append((each.body, inner))
            if each.condition is not None:
                open_nodes.append((each.condition, inner))
        else:
            open_nodes.extend((child, bound) for child in children(each))
    return frozenset(found)


# -- written out -----------------------------------------------------------------------------


def written(node: Node) -> str:
    """The tree as a text that parses to the same tree. Parentheses are not spared."""
    match node:
        case Literal(value):
            return _literal(value)
        case Name(name, outside):
            return f".{name}" if outside else name
        case Select(operand, field, test):
            text = f"{_operand(operand)}.{field}"
            return f"has({text})" if test else text
        case Index(operand, index):
            return f"{_operand(operand)}[{written(index)}]"
        case Call(function, args, method):
            return _call(function, args, method)
        case Unary(op, operand):
            return f"{op}({written(operand)})"
        case Binary(op, left, right):
            return f"({written(left)}) {op} ({written(right)})"
        case Logic(op, terms):
            return f" {op} ".join(f"({written(term)})" for term in terms)
        case Conditional(test, yes, no):
            return f"({written(test)}) ? ({written(yes)}) : ({written(no)})"
        case ListOf(items):
            return f"[{', '.join(map(written, items))}]"
        case MapOf(entries):
            return "{" + ", ".join(f"{written(k)}: {written(v)}" for k, v in entries) + "}"
        case Macro(macro, over, variable, body, condition):
            parts = [variable, *([] if condition is None else [written(condition)]), written(body)]
            return f"{_operand(over)}.{macro}({', '.join(parts)})"


def _operand(node: Node) -> str:
    plain = isinstance(node, Name | Select | Index | Call | ListOf | Macro)
    return written(node) if plain else f"({written(node)})"


def _call(function: str, args: tuple[Node, ...], method: bool) -> str:
    if not method:
        return f"{function}({', '.join(map(written, args))})"
    return f"{_operand(args[0])}.{function}({', '.join(map(written, args[1:]))})"


def _literal(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case UInt():
            return f"{int(value)}u"
        case Int256() | Uint256() | int():
            return str(int(value))
        case float():
            return repr(value)
        case bytes():
            return 'b"' + "".join(f"\\x{byte:02x}" for byte in value) + '"'
    return json.dumps(value, ensure_ascii=False)

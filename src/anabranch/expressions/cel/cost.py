"""What an expression costs by its form alone, in the units of a price list.

Nothing is evaluated: a loop counts as often as its literal list is long, or 64 times. The loops are
priced as CEL expands its macros, with the operations of the expansion included. Names cost nothing:
what is billed for them is the placeholders of the source (`placeholders.placeholders_in`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from anabranch.expressions.cel.tree import (
    Binary,
    Call,
    Conditional,
    Index,
    ListOf,
    Logic,
    Macro,
    Node,
    Unary,
    children,
    walk,
)
from anabranch.expressions.cel.values import LIST_MAX


class Prices(msgspec.Struct, frozen=True):
    operator: int
    function: int
    matches: int  # on top of the functions, once where an expression uses it at all


class _Expansion(msgspec.Struct, frozen=True):
    """Operations that a macro adds: per turn and once at the end."""

    functions: int  # per turn: looking whether to go on
    operators: int  # per turn: gathering the result
    result: int = 0  # operators at the end


_EXPANSIONS: Final[Mapping[str, _Expansion]] = {
    "all": _Expansion(functions=1, operators=1),
    "exists": _Expansion(functions=1, operators=2),
    "exists_one": _Expansion(functions=0, operators=2, result=1),
    "filter": _Expansion(functions=0, operators=2),
    "map": _Expansion(functions=0, operators=1),
}


def cost(node: Node, prices: Prices) -> int:
    """The price of the tree."""
    surcharge = prices.matches if any(_is_matches(each) for each in walk(node)) else 0
    return _price(node, prices) + surcharge


def _is_matches(node: Node) -> bool:
    return isinstance(node, Call) and node.function == "matches"


def _price(node: Node, prices: Prices) -> int:
    match node:
        case Macro():
            return _loop(node, prices)
        case Call():
            own = prices.function
        case Logic(_, terms):
            own = prices.operator * (len(terms) - 1)
        case Unary() | Binary() | Conditional() | Index():
            own = prices.operator
        case _:
            own = 0
    return own + sum(_price(child, prices) for child in children(node))


def _loop(node: Macro, prices: Prices) -> int:
    turns = len(node.range.items) if isinstance(node.range, ListOf) else LIST_MAX
    added = _EXPANSIONS[node.macro]
    turn = added.functions * prices.function + added.operators * prices.operator
    turn += _price(node.body, prices)
    if node.condition is not None:
        turn += prices.operator + _price(node.condition, prices)
    once = prices.function + added.result * prices.operator
    return _price(node.range, prices) + once + turns * turn

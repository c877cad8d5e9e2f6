"""From the text of a CEL expression to its tree.

Precedence climbing with two bounds instead of Python's recursion limit: how deep a text may nest,
and how deep the tree may become. Functions and the number of their arguments are checked here, so
that a misspelt function is found when a document is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from anabranch.expressions.cel import tree
from anabranch.expressions.cel.functions import FUNCTIONS, METHODS
from anabranch.expressions.cel.lexer import LexerToken, tokens
from anabranch.expressions.cel.values import (
    INT64,
    INT256,
    NODES_MAX,
    SOURCE_BYTES_MAX,
    CelLimitError,
    CelSyntaxError,
    Int256,
    UInt,
    Uint256,
)

NESTING_MAX: Final = 32
TREE_DEPTH_MAX: Final = 150
MACROS: Final = ("map", "filter", "exists", "exists_one", "all")
_BINARY: Final = (
    frozenset({"==", "!=", "<", "<=", ">", ">=", "in"}),
    frozenset({"+", "-"}),
    frozenset({"*", "/", "%"}),
)


def parse(source: str, *, nodes_max: int = NODES_MAX) -> tree.Node:
    """The tree. Raises `CelSyntaxError` or `CelLimitError`, nothing else."""
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > SOURCE_BYTES_MAX:
        raise CelLimitError(f"the expression has {size} bytes; at most {SOURCE_BYTES_MAX} work")
    if not source.isascii() and any("\ud800" <= letter <= "\udfff" for letter in source):
        raise CelSyntaxError("half of a surrogate pair is not a character")
    return _Parser(tokens(source), nodes_max).whole()


class _Parser:
    def __init__(self, found: list[LexerToken], nodes_max: int) -> None:
        self._tokens = found
        self._at = 0
        self._nesting = -1  # the expression itself is not nested
        self._nodes = 0
        self._nodes_max = nodes_max
        self._depths: dict[int, int] = {}

    def whole(self) -> tree.Node:
        if len(self._tokens) == 1:
            raise CelSyntaxError("the expression is empty", 1)
        node = self._expression()
        if self._next.sort != "end":
            raise self._unexpected("the end of the expression")
        return node

    # -- tokens ------------------------------------------------------------------------------

    @property
    def _next(self) -> LexerToken:
        return self._tokens[self._at]

    def _is(self, *symbols: str) -> bool:
        token = self._next
        return token.sort == "symbol" and token.value in symbols

    def _take(self) -> LexerToken:
        token = self._next
        self._at += 1
        return token

    def _taken(self, symbol: str) -> bool:
        if self._is(symbol):
            self._at += 1
            return True
        return False

    def _expect(self, symbol: str) -> None:
        if not self._taken(symbol):
            raise self._unexpected(f"`{symbol}`")

    def _unexpected(self, expected: str) -> CelSyntaxError:
        token = self._next
        found = {"end": "the expression ends", "literal": "a value stands"}.get(
            token.sort, f"`{token.value}` stands"
        )
        return CelSyntaxError(f"{found} where {expected} is expected", token.column)

    def _made(self, node: tree.Node) -> tree.Node:
        """Count a node and bound the depth of the tree."""
        self._nodes += 1
        if self._nodes > self._nodes_max:
            raise CelLimitError(f"the expression has more than {self._nodes_max} nodes")
        depth = 1 + max((self._depths[id(child)] for child in tree.children(node)), default=0)
        if depth > TREE_DEPTH_MAX:
            raise CelLimitError(f"the expression is more than {TREE_DEPTH_MAX} operations deep")
        self._depths[id(node)] = depth
        return node

    # -- operators ---------------------------------------------------------------------------

    def _expression(self) -> tree.Node:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise CelLimitError(f"the expression is nested more than {NESTING_MAX} deep")
        decisions: list[tuple[tree.Node, tree.Node]] = []
        node = self._logic("||")
        while self._taken("?"):
            yes = self._expression()
            self._expect(":")
            decisions.append((node, yes))
            node = self._logic("||")
        for test, yes in reversed(decisions):
            node = self._made(tree.Conditional(test, yes, node))
        self._nesting -= 1
        return node

    def _logic(self, op: str) -> tree.Node:
        terms = [self._logic("&&") if op == "||" else self._binary(0)]
        while self._taken(op):
            terms.append(self._logic("&&") if op == "||" else self._binary(0))
        return terms[0] if len(terms) == 1 else self._made(tree.Logic(op, tuple(terms)))

    def _binary(self, level: int) -> tree.Node:
        if level == len(_BINARY):
            return self._unary()
        node = self._binary(level + 1)
        while self._is(*_BINARY[level]):
            op = str(self._take().value)
            node = self._made(tree.Binary(op, node, self._binary(level + 1)))
        return node

    def _unary(self) -> tree.Node:
        ops: list[str] = []
        while self._is("!", "-"):
            ops.append(str(self._take().value))
        node = self._postfix()
        for op in reversed(ops):
            number = _negated(node) if op == "-" else None
            node = self._made(number or tree.Unary(op, node))
        return node

    def _postfix(self) -> tree.Node:
        node = self._primary()
        while True:
            if self._taken("."):
                node = self._member(node)
            elif self._taken("["):
                index = self._expression()
                self._expect("]")
                node = self._made(tree.Index(node, index))
            else:
                return node

    def _member(self, operand: tree.Node) -> tree.Node:
        if self._next.sort != "name":
            raise self._unexpected("a name")
        token = self._take()
        name = str(token.value)
        if not self._taken("("):
            return self._made(tree.Select(operand, name))
        if name in MACROS:
            return self._macro(operand, name)
        args = (operand, *self._list_until(")"))
        _check_call(name, len(args), token, METHODS, "method")
        return self._made(tree.Call(name, args, method=True))

    def _macro(self, over: tree.Node, macro: str) -> tree.Node:
        if self._next.sort != "name":
            raise self._unexpected(f"the variable of {macro}")
        variable = str(self._take().value)
        self._expect(",")
        token = self._next
        parts = self._list_until(")")
        if len(parts) == 1:
            return self._made(tree.Macro(macro, over, variable, parts[0]))
        if len(parts) == 2 and macro == "map":
            return self._made(tree.Macro(macro, over, variable, parts[1], parts[0]))
        raise CelSyntaxError(f"{macro} takes a variable and an expression", token.column)

    # -- operands ----------------------------------------------------------------------------

    def _primary(self) -> tree.Node:
        if self._taken("("):
            node = self._expression()
            self._expect(")")
            return node
        if self._taken("["):
            return self._made(tree.ListOf(self._list_until("]")))
        if self._taken("{"):
            return self._map()
        if self._next.sort == "literal":
            return self._made(tree.Literal(self._take().value))
        if self._next.sort == "name":
            token = self._take()
            name = str(token.value)
            return self._call(token) if self._taken("(") else self._made(tree.Name(name))
        if self._taken("."):
            return self._outside()
        raise self._unexpected("a value")

    def _outside(self) -> tree.Node:
        """`.name`: the name from outside, though a macro has a variable of that name."""
        if self._next.sort != "name":
            raise self._unexpected("a name")
        token = self._take()
        if self._taken("("):
            return self._call(token)
        return self._made(tree.Name(str(token.value), outside=True))

    def _call(self, token: LexerToken) -> tree.Node:
        name = str(token.value)
        args = self._list_until(")")
        if name == "has":
            if len(args) != 1 or not isinstance(args[0], tree.Select) or args[0].test:
                raise CelSyntaxError("has() takes one field, such as has(a.b)", token.column)
            return self._made(tree.Select(args[0].operand, args[0].field, test=True))
        _check_call(name, len(args), token, FUNCTIONS, "function")
        return self._made(tree.Call(name, args))

    def _list_until(self, closing: str) -> tuple[tree.Node, ...]:
        items: list[tree.Node] = []
        while not self._taken(closing):
            items.append(self._expression())
            if not self._is(closing):
                self._expect(",")
        return tuple(items)

    def _map(self) -> tree.Node:
        entries: list[tuple[tree.Node, tree.Node]] = []
        while not self._taken("}"):
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression()))
            if not self._is("}"):
                self._expect(",")
        return self._made(tree.MapOf(tuple(entries)))


def _negated(node: tree.Node) -> tree.Node | None:
    """`-5` is a number, not an operation; None when the operand is no number to negate."""
    if not isinstance(node, tree.Literal):
        return None
    if type(node.value) in (bool, str, bytes, UInt, type(None)):
        return None
    if isinstance(node.value, float):
        return tree.Literal(-node.value)
    number = -int(node.value)
    if type(node.value) is int and number > INT64[1]:
        return None  # -2^63 has no negative: an overflow when it is evaluated
    if INT64[0] <= number <= INT64[1]:
        return tree.Literal(number)
    if INT256[0] <= number <= INT256[1]:
        return tree.Literal(Int256(number))
    return tree.Literal(Uint256(number)) if number > 0 else None


def _check_call(
    name: str, given: int, token: LexerToken, known: Mapping[str, tuple[int, int]], what: str
) -> None:
    arity = known.get(name)
    if arity is None:
        close = get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise CelSyntaxError(f"there is no {what} {name}{hint}", token.column)
    least, most = arity
    if not least <= given <= most:
        extra = 1 if what == "method" else 0
        wanted = str(least - extra) if least == most else f"{least - extra} to {most - extra}"
        message = f"{name} takes {wanted} argument(s), not {given - extra}"
        raise CelSyntaxError(message, token.column)

"""CEL: the expression language of rule documents.

An own small evaluator (see docs/decisions/0007-cel.md). A text is parsed once into a tree and the
tree into closures; evaluating never raises anything but `CelError`. Its work is bounded without a
clock: sizes of source, tree, lists and texts, and a number of steps.

    price = compile_cel("median([A, B, C]) > 100.0 && quorum([A, B, C], 'rel', 0.02, 2)")
    price.evaluate({"A": 101.0, "B": 102.5, "C": 99.0})
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec

from anabranch.expressions.budget import TooMuch, shared_budget
from anabranch.expressions.cel import tree
from anabranch.expressions.cel.functions import IMPLEMENTATIONS
from anabranch.expressions.cel.operators import (
    Operator,
    arithmetic,
    comparison,
    contained,
    element,
    equal,
    negative,
    spend_operands,
)
from anabranch.expressions.cel.parser import parse
from anabranch.expressions.cel.values import (
    LIST_MAX,
    NODES_MAX,
    NUMBERS,
    STEP_WORK,
    STEPS_MAX,
    BoolKey,
    CelError,
    CelEvalError,
    CelLimitError,
    CelMissingName,
    check_lists,
    key_value,
    kind_of,
    map_key,
)

__all__ = ["Cel", "CelError", "compile_cel"]

T = TypeVar("T")


class EvaluationFrame:
    """One evaluation: the names from outside, the variables of macros, the steps left."""

    __slots__ = ("left", "names", "turn", "variables")

    def __init__(self, names: Mapping[str, Any], steps: int = STEPS_MAX) -> None:
        self.names = names
        self.variables: dict[str, Any] = {}
        self.left = steps
        self.turn = shared_budget()

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise CelLimitError(f"the expression takes more than {STEPS_MAX:,} steps")
        if self.turn is not None:
            try:
                self.turn.charge(STEP_WORK * steps)
            except TooMuch as error:
                raise CelLimitError(str(error)) from None


Run = Callable[[EvaluationFrame], Any]


@dataclass(frozen=True, slots=True)
class Cel:
    """A compiled expression."""

    text: str  # as the author wrote it
    tree: tree.Node
    names: frozenset[str]  # what it reads from outside
    run: Run = field(repr=False, compare=False)

    def missing(self, names: Mapping[str, Any]) -> frozenset[str]:
        """The names it uses that are not there."""
        return self.names.difference(names)

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """The value, after a look at the lists that come from outside."""
        for name in self.names:
            check_lists(names.get(name))
        return self.evaluate_checked(names)

    def evaluate_checked(self, names: Mapping[str, Any]) -> Any:
        """The value, for a caller that has checked its names once for many expressions."""
        try:
            return self.run(EvaluationFrame(names))
        except CelError as error:
            error.message = f"{error.message} (in `{self.text}`)"
            error.args = (error.message,)
            raise


def compile_cel(
    text: str, *, shown: str | None = None, strict: bool = False, nodes_max: int = NODES_MAX
) -> Cel:
    """Parse and compile. `shown` is what messages quote instead of the text itself.

    `strict` refuses arithmetic that mixes double with integers or int with uint."""
    root = parse(text, nodes_max=nodes_max)
    run = _Compiler(strict).run_of(root)
    return Cel(text if shown is None else shown, root, tree.free_names(root), run)


def _missing(name: str) -> CelMissingName:
    return CelMissingName(f"there is no {name}")


class _Compiler:
    def __init__(self, strict: bool) -> None:
        self._strict = strict
        self._bound: list[str] = []

    def run_of(self, node: tree.Node) -> Run:
        match node:
            case tree.Literal(value):
                return lambda _frame: value
            case tree.Name(name, outside):
                return _outside(name) if outside or name not in self._bound else _variable(name)
            case tree.Select(operand, field_name, test):
                work = _has if test else _selected
                return work(self.run_of(operand), field_name)
            case tree.Index(operand, index):
                return _indexed(self.run_of(operand), self.run_of(index))
            case tree.Call(function, args):
                return _called(function, [self.run_of(arg) for arg in args])
            case tree.Unary(op, operand):
                return _not(self.run_of(operand)) if op == "!" else _minus(self.run_of(operand))
            case tree.Binary(op, left, right):
                return self._binary(op, self.run_of(left), self.run_of(right))
            case tree.Logic(op, terms):
                return _logic([self.run_of(term) for term in terms], decides=op == "||")
            case tree.Conditional(test, yes, no):
                return _conditional(self.run_of(test), self.run_of(yes), self.run_of(no))
            case tree.ListOf(items):
                runs = [self.run_of(item) for item in items]
                return lambda frame: [run(frame) for run in runs]
            case tree.MapOf(entries):
                return _mapping([(self.run_of(key), self.run_of(item)) for key, item in entries])
            case tree.Macro():
                return self._macro(node)

    def _binary(self, op: str, left: Run, right: Run) -> Run:
        match op:
            case "==":
                return lambda frame: equal(left(frame), right(frame), frame.spend)
            case "!=":
                return lambda frame: not equal(left(frame), right(frame), frame.spend)
            case "in":
                return lambda frame: contained(left(frame), right(frame), frame.spend)
            case "<" | "<=" | ">" | ">=":
                return _paid(comparison(op), left, right, both=False)
            case "+":
                return _paid(arithmetic(op, strict=self._strict), left, right, both=True)
        work = arithmetic(op, strict=self._strict)
        return lambda frame: work(left(frame), right(frame))

    def _macro(self, node: tree.Macro) -> Run:
        over = self.run_of(node.range)
        self._bound.append(node.variable)
        body = self.run_of(node.body)
        condition = None if node.condition is None else self.run_of(node.condition)
        self._bound.pop()
        cost = (
            1
            + tree.count(node.body)
            + (0 if node.condition is None else tree.count(node.condition))
        )
        loop = _Loop(over, node.variable, body, cost)
        match node.macro:
            case "map":
                return loop.mapped(condition)
            case "filter":
                return loop.filtered
            case "exists":
                return loop.exists
            case "all":
                return loop.holds_for_all
        return loop.exists_one


def _paid(work: Operator, left: Run, right: Run, *, both: bool) -> Run:
    """An operator that reads texts and lists, not numbers only."""

    def run(frame: EvaluationFrame) -> Any:
        one, other = left(frame), right(frame)
        if type(one) not in NUMBERS:
            spend_operands(frame.spend, one, other, both=both)
        return work(one, other)

    return run


def _outside(name: str) -> Run:
    def run(frame: EvaluationFrame) -> Any:
        try:
            return frame.names[name]
        except KeyError:
            raise _missing(name) from None

    return run


def _variable(name: str) -> Run:
    return lambda frame: frame.variables[name]


def _selected(operand: Run, name: str) -> Run:
    def run(frame: EvaluationFrame) -> Any:
        value = operand(frame)
        if type(value) is not dict:
            raise CelEvalError(f"a {kind_of(value)} has no field {name}")
        if name not in value:
            raise CelEvalError(f"there is no field {name}")
        return value[name]

    return run


def _has(operand: Run, name: str) -> Run:
    def run(frame: EvaluationFrame) -> bool:
        value = operand(frame)
        if type(value) is not dict:
            raise CelEvalError(f"a {kind_of(value)} has no field {name}")
        return name in value

    return run


def _indexed(operand: Run, index: Run) -> Run:
    return lambda frame: element(operand(frame), index(frame))


def _called(function: str, args: list[Run]) -> Run:
    work = IMPLEMENTATIONS[function]
    if len(args) == 1:
        (only,) = args
        return lambda frame: work(frame.spend, only(frame))
    return lambda frame: work(frame.spend, *[arg(frame) for arg in args])


def _truth(value: Any, what: str) -> bool:
    if value is True or value is False:
        return bool(value)
    raise CelEvalError(f"{what} needs true or false, not {kind_of(value)}")


def _not(operand: Run) -> Run:
    return lambda frame: not _truth(operand(frame), "`!`")


def _minus(operand: Run) -> Run:
    return lambda frame: negative(operand(frame))


def _logic(terms: list[Run], *, decides: bool) -> Run:
    """`||` (true decides) and `&&` (false decides): a term that decides absorbs errors of the
    others, before it or after it."""
    sign = "`||`" if decides else "`&&`"

    return lambda frame: _decided(terms, lambda term: term(frame), sign, decides=decides)


def _decided(each: Iterable[T], run: Callable[[T], Any], what: str, *, decides: bool) -> bool:
    error: CelEvalError | None = None
    for one in each:
        try:
            if _truth(run(one), what) is decides:
                return decides
        except CelEvalError as found:
            error = error or found
    if error is not None:
        raise error
    return not decides


def _conditional(test: Run, yes: Run, no: Run) -> Run:
    return lambda frame: yes(frame) if _truth(test(frame), "`?`") else no(frame)


def _mapping(entries: list[tuple[Run, Run]]) -> Run:
    def run(frame: EvaluationFrame) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key_of, value_of in entries:
            key = map_key(key_of(frame))
            if not isinstance(key, str | int | BoolKey):
                raise CelEvalError(f"{kind_of(key)} cannot be the key of a map")
            if key in made:
                raise CelEvalError("a key stands twice in a map")
            made[key] = value_of(frame)
        return made

    return run


class _Loop(msgspec.Struct, frozen=True):
    """What the macros share: the body once per element, paid for in steps."""

    over: Run
    variable: str
    body: Run
    cost: int

    def _items(self, frame: EvaluationFrame) -> list[Any]:
        value = self.over(frame)
        if isinstance(value, list | tuple | dict):
            if len(value) > LIST_MAX:  # a map from outside may have any number of keys
                frame.spend(len(value) // 2)
            return [key_value(key) for key in value] if isinstance(value, dict) else list(value)
        raise CelEvalError(f"a {kind_of(value)} has no elements to go through")

    def _each(self, frame: EvaluationFrame, run: Run, item: Any) -> Any:
        """The body for one element. An outer variable of the same name comes back after it."""
        frame.spend(self.cost)
        variables = frame.variables
        frame.variables = {**variables, self.variable: item}
        try:
            return run(frame)
        finally:
            frame.variables = variables

    def mapped(self, condition: Run | None) -> Run:
        def run(frame: EvaluationFrame) -> list[Any]:
            items = self._items(frame)
            if condition is not None:
                items = [
                    item
                    for item in items
                    if _truth(self._each(frame, condition, item), "the condition of map")
                ]
            return [self._each(frame, self.body, item) for item in items]

        return run

    def filtered(self, frame: EvaluationFrame) -> list[Any]:
        items = self._items(frame)
        return [item for item in items if _truth(self._each(frame, self.body, item), "filter")]

    def exists(self, frame: EvaluationFrame) -> bool:
        return self._decided(frame, decides=True, what="exists")

    def holds_for_all(self, frame: EvaluationFrame) -> bool:
        return self._decided(frame, decides=False, what="all")

    def _decided(self, frame: EvaluationFrame, *, decides: bool, what: str) -> bool:
        items = self._items(frame)
        return _decided(items, partial(self._each, frame, self.body), what, decides=decides)

    def exists_one(self, frame: EvaluationFrame) -> bool:
        found = [
            item
            for item in self._items(frame)
            if _truth(self._each(frame, self.body, item), "exists_one")
        ]
        return len(found) == 1

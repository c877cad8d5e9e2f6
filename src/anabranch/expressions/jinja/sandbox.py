"""The sandbox Jinja templates run in.

Jinja's own sandbox asks Python for an attribute and then judges it. This one never asks: values in
a template are JSON-like, so a name after a dot is a key of a mapping, one of the few methods listed
here, or undefined. There is no way from a value to its class, and nothing can be called that is not
in the tables below.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sized
from itertools import islice
from typing import Any

from jinja2 import ChainableUndefined, Undefined, pass_context
from jinja2.exceptions import SecurityError
from jinja2.nodes import EvalContext
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing

from anabranch.expressions.budget import TooMuch
from anabranch.expressions.jinja.costs import (
    FLOAT_METHODS,
    MAPPING_METHODS,
    SEQUENCE_METHODS,
    TEXT_METHODS,
    charge_comparison,
    charge_search,
    sliced,
)
from anabranch.expressions.jinja.filters import filters
from anabranch.expressions.jinja.limits import TemplateLimits
from anabranch.expressions.jinja.meter import Meter, json_text, require_defined
from anabranch.expressions.jinja.spending import (
    CHUNK,
    SCALARS,
    SMALL,
    Spending,
    bounded_list,
    check_key,
)
from anabranch.expressions.jinja.tests import tests
from anabranch.expressions.port import Envelope

_SHORT = 10**9  # a number that is written in the time of a few characters


class Missing(ChainableUndefined):
    """An undefined value: false, and undefined again whatever is looked up in it. It leaves no
    template: a value that may be missing needs `default`."""

    __slots__ = ()


class EmptyValue(Missing):
    """What `{{ a if b }}` gives when b does not hold: no name is missing, so it is empty."""

    __slots__ = ()


class Function:
    """Something a template may call, with the scope first. Nothing else can be called."""

    __slots__ = ("bound", "name", "run")

    def __init__(self, name: str, run: Callable[..., Any], *bound: Any) -> None:
        self.name = name
        self.run = run
        self.bound = bound


class _NoExports:
    """Jinja notes the names that a template sets, for imports. There are none here, and a look into
    an empty mapping is the quickest way to do nothing with a name."""

    add: Callable[[Any], object] = {}.get
    update = add


class EvaluationScope(Context, Spending):
    """The names of one evaluation and its budget. Much cheaper to make than Jinja's own context:
    what is the same for all stands in the class."""

    name = None
    globals_keys: set[str] = set()  # noqa: RUF012 - nobody writes to it
    blocks: dict[str, Any] = {}  # noqa: RUF012 - nor to this one
    exported_vars = _NoExports()  # type: ignore[assignment]
    turns = 0
    lenient = False  # undefined values are empty text: in conditions
    writes_json = False  # lists and mappings inside text: in commands
    wrote_data = False  # the text that came out last was a value, not the author's own words

    def __init__(self, sandbox: Sandbox, names: Mapping[str, Any]) -> None:
        self.parent = names  # type: ignore[assignment]  # read by name only, so any mapping will do
        self.vars: dict[str, Any] = {}
        self.environment = sandbox
        self.eval_ctx = sandbox.shared_eval_ctx
        self.limits = sandbox.limits

    def resolve_or_missing(self, key: str) -> Any:
        if key in self.vars:
            return self.vars[key]
        try:
            return self.parent[key]
        except KeyError:
            return self.environment.globals.get(key, missing)

    def take_turns(self, count: int, cost: int = 1) -> None:
        self.turns += count
        if self.turns > self.limits.turns_max:
            most = self.limits.turns_max
            raise TooMuch("a count of loop turns of", self.turns, "turns_max", most)
        self.charge(count * cost)


class Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "//", "**", "%"})

    def __init__(self, limits: TemplateLimits) -> None:
        self.limits = limits
        self.meter = Meter(limits)
        super().__init__(
            undefined=Missing,
            autoescape=False,
            keep_trailing_newline=True,
            cache_size=0,
            optimized=False,
            finalize=_written,
        )
        self.words = filters(self.meter)  # the filters that a template may name
        self.filters = self.words | INTERNAL
        self.tests = tests(self.meter)  # type: ignore[assignment]
        self.globals = {"range": Function("range", self._range), "dict": Function("dict", _dict)}
        self._operators: dict[str, Callable[[Any, Any, Any], Any]] = {
            "+": self.meter.add,
            "*": self.meter.multiply,
            "//": self.meter.floor_divide,
            "**": self.meter.power,
            "%": self.meter.remainder,
        }
        self.shared_eval_ctx = EvalContext(self)

    # -- looking things up -------------------------------------------------------------------

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Keys before methods: `order.items` is the order's items when it has such a key."""
        if type(obj) is dict or isinstance(obj, Mapping):
            try:
                return obj[attribute]
            except KeyError:
                pass
        _refuse_private(obj, attribute)
        if isinstance(obj, Undefined):
            return _below(obj, attribute)
        if isinstance(obj, LoopContext):
            known = attribute in LOOP_ATTRIBUTES
            return getattr(obj, attribute) if known else Missing(name=attribute)
        if _is_group_field(obj, attribute):
            return getattr(obj, attribute)
        return self._method(obj, attribute) or Missing(name=attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        check_key(argument)
        if isinstance(obj, (dict, list, tuple, str, range, Mapping)):
            try:
                return obj[argument]
            except (LookupError, TypeError):
                pass
        if isinstance(argument, str):
            _refuse_private(obj, argument)
            if _is_group_field(obj, argument):
                return getattr(obj, argument)
        if isinstance(obj, Undefined):
            return _below(obj, argument)
        return Missing(name=str(argument))

    def _method(self, obj: Any, name: str) -> Function | None:
        for kind, methods in METHODS:
            if isinstance(obj, kind) and name in methods:
                return Function(name, methods[name], obj)
        return None

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        kwargs.pop("_loop_vars", None)
        kwargs.pop("_block_vars", None)
        if isinstance(__obj, Function):
            return __obj.run(__context, *__obj.bound, *args, **kwargs)
        if isinstance(getattr(__obj, "__self__", None), LoopContext):
            __context.charge_value(args)  # type: ignore[attr-defined]  # `changed` compares
            return __obj(*args, **kwargs)
        if isinstance(__obj, Undefined):
            raise SecurityError(f"{_name_of(__obj)!r} cannot be called here")
        raise SecurityError(f"a {type(__obj).__name__} cannot be called")

    # -- operations --------------------------------------------------------------------------

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        return self._operators[operator](context, left, right)

    def _range(self, scope: EvaluationScope, *args: Any) -> range:
        numbers = self.meter.numbers(*args)
        scope.take_turns(len(numbers))
        return numbers


def _dict(scope: EvaluationScope, *args: Any, **kwargs: Any) -> dict[Any, Any]:
    if len(args) > 1:
        raise TypeError(f"dict takes one mapping or list of pairs, not {len(args)}")
    pairs = args[0] if args else ()
    items = bounded_list(scope, pairs.items() if isinstance(pairs, Mapping) else pairs)
    return _mapping_of(scope, [bounded_list(scope, item) for item in items]) | kwargs


def _mapping_of(scope: EvaluationScope, pairs: list[list[Any]]) -> dict[Any, Any]:
    keys = [pair[0] for pair in pairs if pair]
    for key in keys:
        check_key(key)
    scope.charge_distinct(keys)
    return dict(pairs)


def meter_of(scope: EvaluationScope) -> Meter:
    meter: Meter = scope.environment.meter  # type: ignore[attr-defined]
    return meter


# -- what the compiler puts into templates -----------------------------------------------------


@pass_context
def _written(scope: EvaluationScope, value: Any) -> str:
    """The text of `{{ value }}` inside other text."""
    if type(value) is str:
        scope.wrote_data = True
        return value
    if type(value) in SCALARS and (type(value) is not int or -_SHORT < value < _SHORT):
        scope.wrote_data = False
        return str(value)
    if isinstance(value, Undefined):
        if not scope.lenient:
            require_defined(value)
        return ""
    scope.wrote_data = isinstance(value, str)
    if scope.writes_json and isinstance(value, (Mapping, list, tuple)):
        return meter_of(scope).written_out(scope, value, json_text)
    return meter_of(scope).text(scope, value)


@pass_context
def _nothing(_scope: EvaluationScope, _value: Any) -> EmptyValue:
    return EmptyValue()


@pass_context
def _turns(scope: EvaluationScope, iterable: Any, cost: int) -> list[Any]:
    """What a loop goes over, counted for the whole evaluation."""
    if isinstance(iterable, Sized):
        scope.take_turns(len(iterable), cost)
        whole: list[Any] = list(iterable)  # type: ignore[call-overload]  # it is iterable, too
        return whole
    items: list[Any] = []
    elements = iter(iterable)
    while chunk := list(islice(elements, CHUNK)):
        scope.take_turns(len(chunk), cost)
        items += chunk
    return items


@pass_context
def _defined(scope: EvaluationScope, value: Any) -> Any:
    if isinstance(value, Undefined) and not scope.lenient:
        require_defined(value)
    return value


@pass_context
def _concat(scope: EvaluationScope, parts: list[Any]) -> str:
    for part in parts:
        _defined(scope, part)
    return meter_of(scope).join(scope, "", parts)


@pass_context
def _mapping(scope: EvaluationScope, pairs: list[list[Any]]) -> dict[Any, Any]:
    """`{a: b}`, where keys are worked out."""
    return _mapping_of(scope, pairs)


@pass_context
def _whole(_scope: EvaluationScope, value: Any) -> Any:
    return value.whole if isinstance(value, Envelope) else value


def _compared(work: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    @pass_context
    def run(scope: EvaluationScope, left: Any, right: Any) -> Any:
        if type(left) is not str or len(left) > SMALL:
            charge_comparison(scope, left, right)
        return work(left, right)

    return run


def _searched(work: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    @pass_context
    def run(scope: EvaluationScope, item: Any, container: Any) -> Any:
        charge_search(scope, item, container)
        return work(item, container)

    return run


INTERNAL = {
    "_defined": _defined,
    "_nothing": _nothing,
    "_turns": _turns,
    "_concat": _concat,
    "_mapping": _mapping,
    "_whole": _whole,
    "_eq": _compared(operator.eq),
    "_ne": _compared(operator.ne),
    "_lt": _compared(operator.lt),
    "_lteq": _compared(operator.le),
    "_gt": _compared(operator.gt),
    "_gteq": _compared(operator.ge),
    "_in": _searched(lambda item, container: item in container),
    "_notin": _searched(lambda item, container: item not in container),
    "_sliced": pass_context(sliced),
}


# -- attributes ------------------------------------------------------------------------------


def _refuse_private(obj: Any, attribute: str) -> None:
    if attribute.startswith("__"):
        raise SecurityError(f"{attribute!r} of a {type(obj).__name__} is out of reach")


def _is_group_field(obj: Any, attribute: str) -> bool:
    """`groupby` yields pairs whose halves also have the names `grouper` and `list`."""
    return isinstance(obj, tuple) and attribute in getattr(obj, "_fields", ())


def _below(undefined: Undefined, attribute: Any) -> Missing:
    return Missing(name=f"{_name_of(undefined)}.{attribute}")


def _name_of(undefined: Undefined) -> str:
    return str(undefined._undefined_name)


LOOP_ATTRIBUTES = frozenset(
    {"index", "index0", "revindex", "revindex0", "first", "last", "length", "depth", "depth0"}
    | {"previtem", "nextitem", "cycle", "changed"}
)

#: The methods values have in templates; each takes the scope first.
METHODS: tuple[tuple[type, Mapping[str, Callable[..., Any]]], ...] = (
    (str, TEXT_METHODS),
    (Mapping, MAPPING_METHODS),
    (list, SEQUENCE_METHODS),
    (tuple, SEQUENCE_METHODS),
    (float, FLOAT_METHODS),
)

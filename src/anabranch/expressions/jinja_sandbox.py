"""The sandbox Jinja templates run in.

Jinja's own sandbox asks Python for an attribute and then judges it. This one never asks: values in
a template are JSON-like, so a name after a dot is a key of a mapping, one of the few methods listed
here, or undefined. There is no way from a value to its class, and nothing can be called that is not
in the tables below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from jinja2 import ChainableUndefined, TemplateSyntaxError, Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.nodes import EvalContext
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing
from jinja2.visitor import NodeTransformer

from anabranch.expressions.jinja_filters import filters
from anabranch.expressions.jinja_limits import Limits, Meter, TooMuch


class Missing(ChainableUndefined):
    """An undefined value: empty, false, and undefined again whatever is looked up in it."""

    __slots__ = ()


class Function:
    """Something a template may call. Nothing else can be called."""

    __slots__ = ("name", "run", "wants_scope")

    def __init__(self, name: str, run: Callable[..., Any], *, wants_scope: bool = False) -> None:
        self.name = name
        self.run = run
        self.wants_scope = wants_scope


class Scope(Context):
    """The names of one evaluation. Much cheaper to make than Jinja's own context."""

    def __init__(self, sandbox: Sandbox, names: Mapping[str, Any]) -> None:
        self.parent = names  # type: ignore[assignment]  # read by name only, so any mapping will do
        self.vars: dict[str, Any] = {}
        self.environment = sandbox
        self.eval_ctx = sandbox.shared_eval_ctx
        self.exported_vars: set[str] = set()
        self.name = None
        self.globals_keys = set()
        self.blocks = {}
        self.turns = 0

    def resolve_or_missing(self, key: str) -> Any:
        if key in self.vars:
            return self.vars[key]
        try:
            return self.parent[key]
        except KeyError:
            return self.environment.globals.get(key, missing)

    def take_turns(self, count: int, limits: Limits) -> None:
        self.turns += count
        if self.turns > limits.turns_max:
            raise TooMuch("a count of loop turns of", self.turns, "turns_max", limits.turns_max)


class Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, limits: Limits) -> None:
        self.meter = Meter(limits)
        super().__init__(
            undefined=Missing,
            autoescape=False,
            keep_trailing_newline=True,
            cache_size=0,
            optimized=False,
            finalize=self.meter.text,
        )
        self.filters = filters(self.meter) | {"_turns": _turns, "_concat": partial(self._concat)}
        self.globals = {
            "range": Function("range", self._range, wants_scope=True),
            "dict": Function("dict", dict),
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
                bounded = kind is str and name in BOUNDED
                run = getattr(self.meter, name) if bounded else methods[name]
                return Function(name, partial(run, obj))
        return None

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        kwargs.pop("_loop_vars", None)
        kwargs.pop("_block_vars", None)
        if isinstance(__obj, Function):
            if __obj.wants_scope:
                return __obj.run(__context, *args, **kwargs)
            return __obj.run(*args, **kwargs)
        if isinstance(getattr(__obj, "__self__", None), LoopContext):
            return __obj(*args, **kwargs)
        if isinstance(__obj, Undefined):
            raise SecurityError(f"{_name_of(__obj)!r} cannot be called here")
        raise SecurityError(f"a {type(__obj).__name__} cannot be called")

    # -- operations --------------------------------------------------------------------------

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ARG002
        match operator:
            case "+":
                return self.meter.add(left, right)
            case "*":
                return self.meter.multiply(left, right)
            case "**":
                return self.meter.power(left, right)
            case _:
                return self.meter.remainder(left, right)

    def _range(self, scope: Scope, *args: Any) -> range:
        numbers = self.meter.numbers(*args)
        scope.take_turns(len(numbers), self.meter.limits)
        return numbers

    def _concat(self, parts: list[Any]) -> str:
        return self.meter.join("", parts)


@pass_context
def _turns(scope: Scope, iterable: Any) -> list[Any]:
    """What a loop goes over, counted for the whole evaluation."""
    limits = scope.environment.meter.limits  # type: ignore[attr-defined]
    items = list(islice(iterable, limits.turns_max + 1))
    scope.take_turns(len(items), limits)
    return items


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

#: Methods of text that can grow; the meter has a bounded twin of the same name.
BOUNDED = frozenset({"replace", "join", "ljust", "rjust", "center", "zfill"})


def _named(kind: type, *names: str) -> dict[str, Callable[..., Any]]:
    return {name: getattr(kind, name) for name in names}


#: The methods values have in templates.
METHODS: tuple[tuple[type, Mapping[str, Callable[..., Any]]], ...] = (
    (
        str,
        _named(str, "upper", "lower", "title", "capitalize", "swapcase", "casefold")
        | _named(str, "strip", "lstrip", "rstrip", "removeprefix", "removesuffix")
        | _named(str, "split", "rsplit", "splitlines", "partition", "rpartition")
        | _named(str, "startswith", "endswith", "find", "rfind", "index", "count")
        | _named(str, "isdigit", "isalpha", "isalnum", "isnumeric", "isspace", "islower", "isupper")
        | _named(str, *BOUNDED),
    ),
    (
        Mapping,
        {
            "get": lambda mapping, key, default=None: mapping.get(key, default),
            "keys": list,
            "values": lambda mapping: list(mapping.values()),
            "items": lambda mapping: list(mapping.items()),
        },
    ),
    (list, _named(list, "index", "count")),
    (tuple, _named(tuple, "index", "count")),
    (float, _named(float, "is_integer")),
)


# -- what a template may contain -------------------------------------------------------------

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


@dataclass(slots=True)
class Survey:
    """What a template uses, found in one walk."""

    loaded: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    filters: dict[str, int] = field(default_factory=dict)  # name → line
    tests: dict[str, int] = field(default_factory=dict)


def survey(tree: nodes.Node) -> Survey:
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
        elif kind in _REFUSED:
            message = f"{{% {_REFUSED[kind]} %}} is not available here"
            raise TemplateSyntaxError(message, node.lineno)
        elif kind is nodes.For and node.recursive:  # type: ignore[attr-defined]
            raise TemplateSyntaxError("a recursive loop is not available here", node.lineno)
        waiting.extend(node.iter_child_nodes())
    return found


def _note_name(node: nodes.Name, found: Survey) -> None:
    if node.name == "self":  # Jinja gives it a meaning of its own
        raise TemplateSyntaxError("the name 'self' is not available here", node.lineno)
    (found.loaded if node.ctx == "load" else found.stored).add(node.name)


class Counting(NodeTransformer):
    """Routes loops and `~` through the two internal filters that count."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - the visitor's naming
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_turns")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "_concat")


def _filtered(node: nodes.Node, name: str) -> nodes.Expr:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)

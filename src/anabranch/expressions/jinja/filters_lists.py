"""The filters over sequences and mappings, charged by element; sorting by n · log n."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from jinja2 import Undefined, pass_context
from jinja2.exceptions import FilterArgumentError, TemplateRuntimeError
from jinja2.filters import _GroupTuple
from jinja2.utils import _PassArg

from anabranch.expressions.jinja.costs import MAPPING_METHODS
from anabranch.expressions.jinja.getters import attribute_getter, folded, several_getter
from anabranch.expressions.jinja.spending import (
    CALL,
    ELEMENT,
    LOOKUP,
    Spending,
    bounded_list,
    each_paid,
)


def list_filters() -> dict[str, Callable[..., Any]]:
    return {
        "dictsort": _dictsort,
        "groupby": _groupby,
        "items": _of_mapping("items"),
        "keys": _of_mapping("keys"),
        "list": pass_context(bounded_list),
        "map": _map,
        "max": _extreme(max),
        "min": _extreme(min),
        "reject": _chosen(by_attribute=False, wanted=False),
        "rejectattr": _chosen(by_attribute=True, wanted=False),
        "reverse": _reverse,
        "select": _chosen(by_attribute=False, wanted=True),
        "selectattr": _chosen(by_attribute=True, wanted=True),
        "sort": _sort,
        "unique": _unique,
        "values": _of_mapping("values"),
    }


# -- one filter, test or lookup for each element, as it is asked for -----------------------------


@pass_context
def _map(scope: Any, value: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
    if not value:
        return
    work: Callable[[Any], Any]
    if not args and "attribute" in kwargs:
        attribute, default = kwargs.pop("attribute"), kwargs.pop("default", None)
        if kwargs:
            raise FilterArgumentError(f"Unexpected keyword argument {next(iter(kwargs))!r}")
        work = getter = attribute_getter(scope, attribute, default=default)
        rate = getter.rate + ELEMENT
    elif args:
        work = _bound(scope, "filter", args[0], args[1:], kwargs)
        rate = CALL
    else:
        raise FilterArgumentError("map requires a filter argument")
    for item in each_paid(scope, value, rate):
        yield work(item)


def _chosen(*, by_attribute: bool, wanted: bool) -> Callable[..., Iterator[Any]]:
    """Those whose test, or attribute, holds or does not."""

    @pass_context
    def run(scope: Any, value: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        if not value:
            return
        rate = CALL
        getter = None
        if by_attribute:
            if not args:
                raise FilterArgumentError("Missing parameter for attribute name")
            getter, args = attribute_getter(scope, args[0]), args[1:]
            rate += getter.rate
        holds = _bound(scope, "test", args[0], args[1:], kwargs) if args else bool
        for item in each_paid(scope, value, rate):
            if bool(holds(item if getter is None else getter(item))) is wanted:
                yield item

    return run


def _bound(
    scope: Any, what: str, name: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[Any], Any]:
    """The filter or test of this name, for one element after another."""
    environment = scope.environment
    known = environment.words if what == "filter" else environment.tests
    work = known.get(name) if isinstance(name, str) else None
    if work is None:
        raise TemplateRuntimeError(f"No {what} named {name!r:.100}.")
    match _PassArg.from_obj(work):
        case _PassArg.context:
            return lambda item: work(scope, item, *args, **kwargs)
        case _PassArg.environment:
            return lambda item: work(environment, item, *args, **kwargs)
        case _PassArg.eval_context:
            return lambda item: work(scope.eval_ctx, item, *args, **kwargs)
    return lambda item: work(item, *args, **kwargs)


# -- mappings ------------------------------------------------------------------------------------


def _of_mapping(name: str) -> Callable[..., list[Any]]:
    work = MAPPING_METHODS[name]

    @pass_context
    def run(scope: Spending, value: Any) -> list[Any]:
        if isinstance(value, Undefined):
            return []
        if isinstance(value, Mapping):
            made: list[Any] = work(scope, value)
            return made
        raise TypeError(f"a mapping is needed here, not a {type(value).__name__}")

    return run


# -- order and groups ------------------------------------------------------------------------------


@pass_context
def _sort(
    scope: Any,
    value: Any,
    reverse: bool = False,
    case_sensitive: bool = False,
    attribute: Any = None,
) -> list[Any]:
    items = bounded_list(scope, value)
    fold = not case_sensitive
    if isinstance(attribute, str) and "," in attribute:
        keys = several_getter(scope, attribute, fold=fold)(items)
    else:
        keys = attribute_getter(scope, attribute, fold=fold).of_all(items)
    return _ordered(scope, items, keys, reverse)


def _ordered(scope: Spending, items: list[Any], keys: list[Any], reverse: bool) -> list[Any]:
    scope.charge_order(keys)
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)
    return [items[index] for index in order]


@pass_context
def _dictsort(
    scope: Spending,
    value: Any,
    case_sensitive: bool = False,
    by: str = "key",
    reverse: bool = False,
) -> list[Any]:
    if by not in ("key", "value"):
        raise ValueError("dictsort: `by` is key or value")
    items = bounded_list(scope, value.items() if not isinstance(value, Undefined) else ())
    place = itemgetter(0 if by == "key" else 1)
    scope.charge(ELEMENT * len(items))
    keys = list(map(place, items))
    if not case_sensitive:
        scope.charge(LOOKUP * len(items))
        keys = [folded(scope, key) for key in keys]
    return _ordered(scope, items, keys, reverse)


@pass_context
def _groupby(
    scope: Any, value: Any, attribute: Any, default: Any = None, case_sensitive: bool = False
) -> list[Any]:
    items = bounded_list(scope, value)
    keys = attribute_getter(scope, attribute, default=default, fold=not case_sensitive).of_all(
        items
    )
    scope.charge_order(keys)
    order = sorted(range(len(items)), key=keys.__getitem__)
    said = attribute_getter(scope, attribute, default=default)
    scope.charge((said.rate + CALL) * len(items))
    groups = []
    for _, members in groupby(order, key=keys.__getitem__):
        together = [items[index] for index in members]
        # The group is called as its first member spells it.
        groups.append(_GroupTuple(said(together[0]), together))
    return groups


@pass_context
def _unique(
    scope: Any, value: Any, case_sensitive: bool = False, attribute: Any = None
) -> list[Any]:
    items = bounded_list(scope, value)
    keys = attribute_getter(scope, attribute, fold=not case_sensitive).of_all(items)
    scope.charge_distinct(keys)
    scope.charge(ELEMENT * len(items))
    seen: set[Any] = set()
    kept = []
    for key, item in zip(keys, items, strict=True):
        if key not in seen:
            seen.add(key)
            kept.append(item)
    return kept


def _extreme(choose: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def run(scope: Any, value: Any, case_sensitive: bool = False, attribute: Any = None) -> Any:
        items = bounded_list(scope, value)
        if not items:
            return scope.environment.undefined("No aggregated item, sequence was empty.")
        keys = attribute_getter(scope, attribute, fold=not case_sensitive).of_all(items)
        scope.charge_value(keys)
        return items[choose(range(len(items)), key=keys.__getitem__)]

    return run


@pass_context
def _reverse(scope: Spending, value: Any) -> Any:
    if isinstance(value, str):
        scope.charge(len(value))
        return value[::-1]
    return bounded_list(scope, value)[::-1]

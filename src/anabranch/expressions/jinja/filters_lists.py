"""The filters over sequences and mappings, charged by element; sorting by n · log n."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from itertools import groupby
from operator import itemgetter
from typing import Any

from jinja2 import Undefined, pass_context
from jinja2.filters import (
    _GroupTuple,
    ignore_case,
    make_attrgetter,
    make_multi_attrgetter,
    sync_do_map,
    sync_do_reject,
    sync_do_rejectattr,
    sync_do_select,
    sync_do_selectattr,
)

from anabranch.expressions.jinja.costs import ELEMENT, MAPPING_METHODS, Spending, bounded_list


def list_filters() -> dict[str, Callable[..., Any]]:
    return {
        "dictsort": _dictsort,
        "groupby": _groupby,
        "items": _of_mapping("items"),
        "keys": _of_mapping("keys"),
        "list": pass_context(bounded_list),
        "map": _lazy(sync_do_map),
        "max": _extreme(max),
        "min": _extreme(min),
        "reject": _lazy(sync_do_reject),
        "rejectattr": _lazy(sync_do_rejectattr),
        "reverse": _reverse,
        "select": _lazy(sync_do_select),
        "selectattr": _lazy(sync_do_selectattr),
        "sort": _sort,
        "unique": _unique,
        "values": _of_mapping("values"),
    }


def _lazy(work: Callable[..., Any]) -> Callable[..., Any]:
    """One filter, test or lookup per element, as the elements are asked for."""

    @pass_context
    def run(scope: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        if type(value) is list or isinstance(value, Sized):
            scope.charge(ELEMENT * len(value))
        return work(scope, value, *args, **kwargs)

    return run


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


def _folded(case_sensitive: bool) -> Callable[[Any], Any] | None:
    return None if case_sensitive else ignore_case


@pass_context
def _sort(
    scope: Any,
    value: Any,
    reverse: bool = False,
    case_sensitive: bool = False,
    attribute: Any = None,
) -> list[Any]:
    items = bounded_list(scope, value)
    several = isinstance(attribute, str) and "," in attribute
    getter = make_multi_attrgetter if several else make_attrgetter
    key_of = getter(scope.environment, attribute, postprocess=_folded(case_sensitive))
    return _ordered(scope, items, [key_of(item) for item in items], reverse)


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
    keys = [place(item) if case_sensitive else ignore_case(place(item)) for item in items]
    return _ordered(scope, items, keys, reverse)


@pass_context
def _groupby(
    scope: Any, value: Any, attribute: Any, default: Any = None, case_sensitive: bool = False
) -> list[Any]:
    items = bounded_list(scope, value)
    key_of = make_attrgetter(
        scope.environment, attribute, postprocess=_folded(case_sensitive), default=default
    )
    keys = [key_of(item) for item in items]
    scope.charge_order(keys)
    order = sorted(range(len(items)), key=keys.__getitem__)
    said = make_attrgetter(scope.environment, attribute, default=default)
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
    key_of = make_attrgetter(scope.environment, attribute, postprocess=_folded(case_sensitive))
    keys = [key_of(item) for item in items]
    scope.charge_value(keys)
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
        key_of = make_attrgetter(scope.environment, attribute, postprocess=_folded(case_sensitive))
        keys = [key_of(item) for item in items]
        scope.charge_value(keys)
        return items[choose(range(len(items)), key=keys.__getitem__)]

    return run


@pass_context
def _reverse(scope: Spending, value: Any) -> Any:
    if isinstance(value, str):
        scope.charge(len(value))
        return value[::-1]
    return bounded_list(scope, value)[::-1]

"""How filters look attributes up in elements: Jinja's paths (`a.b.0`), charged by their length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import Undefined

from anabranch.expressions.jinja.spending import (
    ELEMENT,
    LOOKUP,
    SMALL,
    Spending,
    check_key,
)

Getter = Callable[[Any], Any]
_Path = tuple[str | int, ...]


class AttributeGetter:
    """Looks one path up in an element. `rate` is what that costs."""

    def __init__(self, scope: Any, path: _Path, default: Any, fold: bool) -> None:
        self._scope = scope
        self._path = path
        self._default = default
        self._fold = fold
        letters = sum(len(part) for part in path if isinstance(part, str))
        # What is missing is called by its whole path, which grows with each part.
        self.rate = (LOOKUP + letters // 16) * len(path) + (LOOKUP if fold else ELEMENT)

    def of_all(self, items: list[Any]) -> list[Any]:
        self._scope.charge(self.rate * len(items))
        values = self._look_up(items)
        if self._fold and str in set(map(type, values)):
            values = [folded(self._scope, value) for value in values]
        return values

    def _look_up(self, items: list[Any]) -> list[Any]:
        if not self._path:
            return items
        if len(self._path) > 1 or self._default is not None:
            return [self._found_in(item) for item in items]
        (part,) = self._path
        getitem = self._scope.environment.getitem
        return [
            item[part] if type(item) is dict and part in item else getitem(item, part)
            for item in items
        ]

    def __call__(self, item: Any) -> Any:
        return folded(self._scope, self._found_in(item)) if self._fold else self._found_in(item)

    def _found_in(self, item: Any) -> Any:
        for part in self._path:
            if type(item) is dict and part in item:
                item = item[part]
            else:
                item = self._scope.environment.getitem(item, part)
            if self._default is not None and isinstance(item, Undefined):
                item = self._default
        return item


def attribute_getter(
    scope: Any, attribute: Any, *, default: Any = None, fold: bool = False
) -> AttributeGetter:
    """With `fold`, texts in small letters, to compare them without regard to case."""
    return AttributeGetter(scope, _path(scope, attribute), default, fold)


def several_getter(scope: Any, attribute: str, *, fold: bool) -> Callable[[list[Any]], list[Any]]:
    """For the values at several paths, `a,b.c`."""
    scope.charge(len(attribute))
    getters = [attribute_getter(scope, each, fold=fold) for each in attribute.split(",")]

    def of_all(items: list[Any]) -> list[Any]:
        scope.charge(LOOKUP * len(items))
        return [
            list(values) for values in zip(*(one.of_all(items) for one in getters), strict=True)
        ]

    return of_all


def folded(scope: Spending, value: Any) -> Any:
    if isinstance(value, str):
        if len(value) > SMALL:
            scope.charge(2 * len(value))
        return value.lower()
    return value


def _path(scope: Spending, attribute: Any) -> _Path:
    if attribute is None:
        return ()
    if not isinstance(attribute, str):
        check_key(attribute)
        return (attribute,)
    scope.charge(ELEMENT * len(attribute))
    parts = attribute.split(".")
    for part in parts:
        check_key(part)
    return tuple([int(part) if part.isdigit() else part for part in parts])

"""What the filters, tests and methods of templates cost, charged before the work is done.

One evaluation has `work_max` units: a character read or made is one, an element is `ELEMENT`. What
is not linear is charged as what it is (sorting by n · log n), and what compares or writes out
whole values weighs them first, so that parts which are shared many times count each time.

Everything a template can name stands in one of the tables at the end, with how it is charged; a
test walks them. So a name without a known cost cannot come in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final

from anabranch.expressions.budget import TooMuch
from anabranch.expressions.jinja.meter import Meter
from anabranch.expressions.jinja.spending import (
    ELEMENT,
    SCALARS,
    SMALL,
    Spending,
    bounded_list,
    check_items,
    check_key,
)
from anabranch.expressions.text_search import search_cost

PIECE: Final = 2 * ELEMENT  # a text that is cut out of another one
LETTER: Final = 2  # a character whose case or kind is looked up
_LINES = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


# -- operators -------------------------------------------------------------------------------


def charge_comparison(scope: Spending, left: Any, right: Any) -> None:
    """Both sides are looked at together, so the smaller one bounds the work."""
    one, other = type(left), type(right)
    if one in SCALARS or other in SCALARS:
        return
    if one is str and other is str:
        if len(left) > SMALL:
            scope.charge(min(len(left), len(right)))
        return
    scope.charge_value(left)
    if other is not dict and isinstance(right, Mapping):  # it makes a dict of itself first
        scope.charge_value(right)


def charge_search(scope: Spending, item: Any, container: Any) -> None:
    if isinstance(container, str):
        scope.charge(search_cost(len(container), len(item) if isinstance(item, str) else 0))
    elif isinstance(container, Mapping):
        check_key(item)
    elif isinstance(container, (list, tuple)):
        scope.charge(ELEMENT * len(container))
        if type(item) not in SCALARS:
            scope.charge_value(container)
    elif isinstance(container, range):
        # Whatever is no whole number is looked for one by one.
        scope.charge(ELEMENT * len(container))


def sliced(scope: Spending, value: Any, start: Any, stop: Any, step: Any) -> Any:
    part = slice(start, stop, step)
    if isinstance(value, (str, list, tuple)):
        length = len(range(*part.indices(len(value))))
        scope.charge(length if isinstance(value, str) else ELEMENT * length)
    return value[part]


# -- methods of text -------------------------------------------------------------------------


def _found_from_the_right(text: str, part: str, start: int, end: int) -> int:
    """`rfind` in linear time: Python's own takes length times length for what nearly fits."""
    first, last, _ = slice(start, end).indices(len(text))
    window = text[first:last]
    at = window[::-1].find(part[::-1])
    return -1 if at < 0 or first > last else first + len(window) - at - len(part)


def _rfind(scope: Spending, text: str, part: str, start: int = 0, end: int | None = None) -> int:
    scope.charge(2 * len(text) + search_cost(len(text), len(part)))
    stop = len(text) if end is None else end
    return _found_from_the_right(text, part, start, stop)


def _rpartition(scope: Spending, text: str, separator: str) -> tuple[str, str, str]:
    scope.charge(3 * len(text) + search_cost(len(text), len(separator)))
    if not separator:
        raise ValueError("empty separator")
    at = _found_from_the_right(text, separator, 0, len(text))
    if at < 0:
        return "", "", text
    return text[:at], separator, text[at + len(separator) :]


def _rsplit(scope: Spending, text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    scope.charge(3 * len(text))
    if sep is None:
        scope.charge(_pieces(text, None, maxsplit))
        return _few(scope, text.rsplit(None, _most_splits(scope, maxsplit)))
    # Turned round, the first piece is the last one, and the search is linear.
    scope.charge(search_cost(len(text), len(sep)) + _pieces(text, sep, maxsplit))
    parts = text[::-1].split(sep[::-1], _most_splits(scope, maxsplit))
    return [part[::-1] for part in reversed(_few(scope, parts))]


def _split(scope: Spending, text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    scope.charge(search_cost(len(text), len(sep or "")) + _pieces(text, sep, maxsplit))
    return _few(scope, text.split(sep, _most_splits(scope, maxsplit)))


def _most_splits(scope: Spending, maxsplit: int) -> int:
    most = scope.limits.items_max
    return most if maxsplit < 0 else min(maxsplit, most)


def _pieces(text: str, separator: str | None, maxsplit: int) -> int:
    """What the pieces cost that a text falls into, at most."""
    if not maxsplit or separator == "":
        return 0
    if separator is None:
        return PIECE * (len(text) // 2 + 1) if maxsplit < 0 else PIECE * (maxsplit + 1)
    hits = text.count(separator)
    return PIECE * (hits + 1 if maxsplit < 0 else min(hits, maxsplit) + 1)


def _few(scope: Spending, parts: list[str]) -> list[str]:
    check_items(scope, len(parts))
    return parts


def _splitlines(scope: Spending, text: str, keepends: bool = False) -> list[str]:
    most = scope.limits.items_max
    scope.charge(4 * len(text))
    if len(text) > most and sum(1 for _ in islice(_LINES.finditer(text), most)) >= most:
        raise TooMuch("a sequence of length", most + 1, "items_max", most)
    return _few(scope, text.splitlines(keepends))


def _stripped(strip: Callable[[str, str | None], str]) -> Callable[..., str]:
    def run(scope: Spending, text: str, chars: str | None = None) -> str:
        if chars is not None:
            scope.charge(len(chars))
            chars = "".join(dict.fromkeys(chars))  # each is looked for in turn
        scope.charge(len(text) * max(len(chars or "") // 32, 1))
        return strip(text, chars)

    return run


def _linear(work: Callable[..., Any]) -> Callable[..., Any]:
    """Work that reads the text once; what it makes is at most three times as long."""

    def run(scope: Spending, text: str, *args: Any) -> Any:
        if len(text) > SMALL:
            scope.charge(LETTER * len(text))
        for arg in args:
            scope.charge_value(arg)
        result = work(text, *args)
        if isinstance(result, str) and len(result) > scope.limits.text_max:
            raise TooMuch("a text of length", len(result), "text_max", scope.limits.text_max)
        return result

    return run


def _searching(work: Callable[..., Any]) -> Callable[..., Any]:
    def run(scope: Spending, text: str, part: str, *window: int) -> Any:
        scope.charge(search_cost(len(text), len(part)))
        return work(text, part, *window)

    return run


def _metered(name: str) -> Callable[..., str]:
    """The bounded twin of the method."""

    def run(scope: Spending, text: str, *args: Any) -> str:
        meter: Meter = scope.environment.meter  # type: ignore[attr-defined]
        made: str = getattr(meter, name)(scope, text, *args)
        return made

    return run


def _joined(scope: Spending, text: str, parts: Iterable[Any]) -> str:
    meter: Meter = scope.environment.meter  # type: ignore[attr-defined]
    return meter.join(scope, text, bounded_list(scope, parts))


_ONCE = (
    *("upper", "lower", "title", "capitalize", "swapcase", "casefold"),
    *("removeprefix", "removesuffix", "startswith", "endswith"),
    *("isdigit", "isalpha", "isalnum", "isnumeric", "isspace", "islower", "isupper"),
)

TEXT_METHODS: Mapping[str, Callable[..., Any]] = {
    **{name: _linear(getattr(str, name)) for name in _ONCE},
    **{name: _searching(getattr(str, name)) for name in ("find", "index", "count", "partition")},
    **{name: _stripped(getattr(str, name)) for name in ("strip", "lstrip", "rstrip")},
    **{name: _metered(name) for name in ("replace", "ljust", "rjust", "center", "zfill")},
    "join": _joined,
    "split": _split,
    "rsplit": _rsplit,
    "splitlines": _splitlines,
    "rfind": _rfind,
    "rpartition": _rpartition,
}


# -- methods of mappings and sequences -------------------------------------------------------


def _get(_scope: Spending, mapping: Mapping[Any, Any], key: Any, default: Any = None) -> Any:
    check_key(key)
    return mapping.get(key, default)


def _keys(scope: Spending, mapping: Mapping[Any, Any]) -> list[Any]:
    scope.charge(ELEMENT * len(mapping))
    return list(mapping.keys())


def _values(scope: Spending, mapping: Mapping[Any, Any]) -> list[Any]:
    scope.charge(ELEMENT * len(mapping))
    return list(mapping.values())


def _items(scope: Spending, mapping: Mapping[Any, Any]) -> list[Any]:
    scope.charge(2 * ELEMENT * len(mapping))
    return list(mapping.items())


def _index(scope: Spending, sequence: list[Any], item: Any, *window: int) -> int:
    charge_search(scope, item, sequence)
    return sequence.index(item, *window)


def _count(scope: Spending, sequence: list[Any], item: Any) -> int:
    charge_search(scope, item, sequence)
    return sequence.count(item)


MAPPING_METHODS: Mapping[str, Callable[..., Any]] = {
    "get": _get,
    "keys": _keys,
    "values": _values,
    "items": _items,
}
SEQUENCE_METHODS: Mapping[str, Callable[..., Any]] = {"index": _index, "count": _count}
FLOAT_METHODS: Mapping[str, Callable[..., Any]] = {
    "is_integer": lambda _scope, number: number.is_integer()
}

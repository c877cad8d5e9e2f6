"""What the filters, tests and methods of templates cost, charged before the work is done.

One evaluation has `work_max` units: a character read or made is one, an element is `ELEMENT`. What
is not linear is charged as what it is (sorting by n · log n), and what compares or writes out
whole values weighs them first, so that parts which are shared many times count each time.

Everything a template can name stands in one of the tables at the end, with how it is charged; a
test walks them. So a name without a known cost cannot come in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sized
from itertools import islice
from typing import Any, Final

from jinja2 import Undefined

from anabranch.expressions.jinja.limits import TemplateLimits, TooMuch
from anabranch.expressions.jinja.meter import Meter
from anabranch.expressions.text_search import search_cost

ELEMENT: Final = 8
SMALL: Final = 64  # reading so few characters is paid for by the step or turn that does it
KEY_MAX: Final = 65_536  # characters of a text that is looked up as a key
_SCALARS: Final = frozenset({int, float, bool, type(None)})
_LINES = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


class Spending:
    """What one evaluation has used of its budget."""

    work = 0
    limits: TemplateLimits

    def charge(self, units: int) -> None:
        self.work += units
        if self.work > self.limits.work_max:
            raise TooMuch("work of", self.work, "work_max", self.limits.work_max)

    def charge_value(self, value: Any) -> None:
        """For work that looks at every part of a value."""
        kind = type(value)
        if kind in _SCALARS:
            return
        if kind is str:
            self.charge(len(value))
        else:
            self.charge(weigh(value, self.limits.work_max))

    def charge_order(self, keys: list[Any]) -> None:
        """For sorting by these keys."""
        total = ELEMENT * len(keys)
        for key in keys:
            if type(key) is str:
                total += len(key)
            elif type(key) not in _SCALARS:
                total += weigh(key, self.limits.work_max - total)
        self.charge(total * max(len(keys).bit_length(), 1))


def weigh(value: Any, most: int) -> int:
    """How large a value is with all its parts, in units; counting stops beyond `most`."""
    total = 0
    waiting = [value]
    while waiting and total <= most:
        item = waiting.pop()
        total += 1
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, int):
            total += item.bit_length() >> 6
        elif isinstance(item, Mapping):
            total += ELEMENT * len(item)
            if total <= most:
                waiting += item
                waiting += item.values()
        elif isinstance(item, (list, tuple, range)):
            total += ELEMENT * len(item)
            if total <= most:
                waiting += item
    return total


def bounded_list(scope: Spending, value: Iterable[Any]) -> list[Any]:
    """The elements as a list, not more than one sequence may have."""
    most = scope.limits.items_max
    if isinstance(value, Undefined):
        return []
    if type(value) is list or isinstance(value, Sized):
        scope.charge(ELEMENT * len(value))
        if len(value) > most:
            raise TooMuch("a sequence of length", len(value), "items_max", most)
        return list(value)
    items = list(islice(value, most + 1))
    scope.charge(ELEMENT * len(items))
    if len(items) > most:
        raise TooMuch("a sequence of length", len(items), "items_max", most)
    return items


# -- operators -------------------------------------------------------------------------------


def charge_comparison(scope: Spending, left: Any, right: Any) -> None:
    """Both sides are looked at together, so the smaller one bounds the work."""
    one, other = type(left), type(right)
    if one in _SCALARS or other in _SCALARS:
        return
    if one is str and other is str:
        if len(left) > SMALL:
            scope.charge(min(len(left), len(right)))
    else:
        scope.charge_value(left)


def charge_search(scope: Spending, item: Any, container: Any) -> None:
    if isinstance(container, str):
        scope.charge(search_cost(len(container), len(item) if isinstance(item, str) else 0))
    elif isinstance(container, Mapping):
        check_key(item)
    elif isinstance(container, (list, tuple)):
        scope.charge(ELEMENT * len(container))
        if type(item) not in _SCALARS:
            scope.charge_value(container)
    elif isinstance(container, range):
        # Whatever is no whole number is looked for one by one.
        scope.charge(ELEMENT * len(container))


def check_key(key: Any) -> None:
    if isinstance(key, str) and len(key) > KEY_MAX:
        raise TooMuch("a key of length", len(key), "key_max", KEY_MAX)


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
        return _few(scope, text.rsplit(None, _most_splits(scope, maxsplit)))
    # Turned round, the first piece is the last one, and the search is linear.
    scope.charge(search_cost(len(text), len(sep)))
    parts = text[::-1].split(sep[::-1], _most_splits(scope, maxsplit))
    return [part[::-1] for part in reversed(_few(scope, parts))]


def _split(scope: Spending, text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    scope.charge(search_cost(len(text), len(sep or "")))
    return _few(scope, text.split(sep, _most_splits(scope, maxsplit)))


def _most_splits(scope: Spending, maxsplit: int) -> int:
    most = scope.limits.items_max
    return most if maxsplit < 0 else min(maxsplit, most)


def _few(scope: Spending, parts: list[str]) -> list[str]:
    most = scope.limits.items_max
    if len(parts) > most:
        raise TooMuch("a sequence of length", len(parts), "items_max", most)
    scope.charge(ELEMENT * len(parts))
    return parts


def _splitlines(scope: Spending, text: str, keepends: bool = False) -> list[str]:
    most = scope.limits.items_max
    scope.charge(len(text))
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
            scope.charge(len(text))
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
    """The bounded twin of the method, and what it made."""

    def run(scope: Spending, text: str, *args: Any) -> str:
        meter: Meter = scope.environment.meter  # type: ignore[attr-defined]
        scope.charge(len(text) + 1)
        if name == "replace" and args and isinstance(args[0], str):
            scope.charge(2 * search_cost(len(text), len(args[0])))
        made: str = getattr(meter, name)(text, *args)
        scope.charge(len(made))
        return made

    return run


def _joined(scope: Spending, text: str, parts: Iterable[Any]) -> str:
    meter: Meter = scope.environment.meter  # type: ignore[attr-defined]
    made = meter.join(text, bounded_list(scope, parts))
    scope.charge(len(made))
    return made


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

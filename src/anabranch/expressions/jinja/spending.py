"""The budget of one evaluation, and how whole values are charged to it.

Nothing is walked before it is charged. Of a list only its length is known for nothing, so a value
with parts is charged part by part on the way through it, and the way ends where the budget does:
parts that are shared many times cost what they cost, and no more is looked at than was paid for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sized
from itertools import islice
from typing import Any, Final

from jinja2 import Undefined

from anabranch.expressions.budget import TooMuch, shared_budget
from anabranch.expressions.jinja.limits import TemplateLimits

ELEMENT: Final = 8  # an element that C code looks at
LOOKUP: Final = 32  # a key that is looked up in an element
PART: Final = 64  # a part that Python code copies, or a list that it opens
CALL: Final = 96  # a filter or test that is called for an element
SMALL: Final = 64  # reading so few characters is paid for by the step or turn that does it
KEY_MAX: Final = 65_536  # characters of a text that is looked up as a key
CHUNK: Final = 256  # elements that are charged at once where nobody knows how many there are
SCALARS: Final = frozenset({int, float, bool, type(None)})
_WHOLE: Final = frozenset({int, bool})


class Spending:
    """What one evaluation has used of its budget, and of the one it shares with others."""

    work = 0
    limits: TemplateLimits

    def charge(self, units: int) -> None:
        self.work += units
        if self.work > self.limits.work_max:
            raise TooMuch("work of", self.work, "work_max", self.limits.work_max)
        turn = shared_budget()
        if turn is not None:
            turn.charge(units)

    def charge_value(self, value: Any) -> None:
        """For work that looks at every part of a value."""
        kind = type(value)
        if kind in SCALARS:
            return
        if kind is str:
            self.charge(len(value))
            return
        waiting = [value]
        while waiting:
            self._charge_part(waiting.pop(), waiting)

    def _charge_part(self, part: Any, waiting: list[Any]) -> None:
        """Pay for a list or mapping, then see what is in it; `waiting` gets what has parts."""
        if isinstance(part, Mapping):
            self.charge(PART + 2 * ELEMENT * len(part))
            self._charge_parts(part.keys(), waiting)
            self._charge_parts(part.values(), waiting)
        elif isinstance(part, (list, tuple)):
            self.charge(PART + ELEMENT * len(part))
            self._charge_parts(part, waiting)
        elif isinstance(part, str):
            self.charge(PART + len(part))
        elif isinstance(part, range):
            self.charge(PART + ELEMENT * len(part))
        elif isinstance(part, int):
            self.charge(PART + (part.bit_length() >> 6))

    def _charge_parts(self, parts: Collection[Any], waiting: list[Any]) -> None:
        """Most lists hold values of one kind: those are added up at the speed of C."""
        kinds = set(map(type, parts))
        if kinds == {str}:
            self.charge(sum(map(len, parts)))
        elif kinds <= _WHOLE:
            self.charge(sum(map(int.bit_length, parts)) >> 6)
        elif not kinds <= SCALARS or int in kinds:
            self.charge(LOOKUP * len(parts))
            waiting += [part for part in parts if type(part) is int or type(part) not in SCALARS]

    def charge_order(self, keys: list[Any]) -> None:
        """For sorting by these keys: each is compared log n times, a text mostly at its beginning,
        and at the speed of memory."""
        before = self.work
        self.charge_value(keys)
        weight = ELEMENT * len(keys) + (self.work - before - ELEMENT * len(keys)) // 4
        self.charge(weight * len(keys).bit_length())

    def charge_distinct(self, keys: list[Any]) -> None:
        """For keeping these keys apart by their hashes. Numbers can be chosen so that they share
        one; then each is compared with all before it."""
        self.charge_value(keys)
        others = [key for key in keys if type(key) is not str]
        if others:
            self.charge(2 * ELEMENT * len(others))
            sharing = Counter(map(hash, others)).values()
            self.charge(ELEMENT * (sum(count * count for count in sharing) - len(sharing)))


class OwnSpending(Spending):
    """For work on what an evaluation gave: a budget like that of the evaluation."""

    def __init__(self, limits: TemplateLimits) -> None:
        self.limits = limits


def bounded_list(scope: Spending, value: Iterable[Any]) -> list[Any]:
    """The elements as a list, not more than one sequence may have."""
    if isinstance(value, Undefined):
        return []
    if type(value) is list or isinstance(value, Sized):
        check_items(scope, len(value))
        scope.charge(ELEMENT * len(value))
        return list(value)
    items: list[Any] = []
    for chunk in _chunks(value):
        scope.charge(ELEMENT * len(chunk))
        items += chunk
        check_items(scope, len(items))
    return items


def check_items(scope: Spending, length: int) -> None:
    most = scope.limits.items_max
    if length > most:
        raise TooMuch("a sequence of length", length, "items_max", most)


def each_paid(scope: Spending, value: Iterable[Any], rate: int) -> Iterable[Any]:
    """The elements one by one, each charged before it is given.

    What is there already is charged a part at a time; of what is made when it is asked for,
    nothing is made that nobody asks for."""
    if type(value) is list and len(value) <= CHUNK:
        scope.charge(rate * len(value))
        return value
    return _one_by_one(scope, value, rate)


def _one_by_one(scope: Spending, value: Iterable[Any], rate: int) -> Iterator[Any]:
    if isinstance(value, Sized):
        for chunk in _chunks(value):
            scope.charge(rate * len(chunk))
            yield from chunk
        return
    for item in value:
        scope.charge(rate)
        yield item


def _chunks(value: Iterable[Any]) -> Iterator[list[Any]]:
    items = iter(value)
    while chunk := list(islice(items, CHUNK)):
        yield chunk


def check_key(key: Any) -> None:
    """A key is hashed: so it is bounded, and a tuple is one of plain values."""
    if isinstance(key, str):
        length = len(key)
    elif isinstance(key, tuple):
        length = len(key)
        if length <= KEY_MAX:
            length += sum(len(part) for part in key if isinstance(part, str))
            if any(isinstance(part, tuple) for part in key):
                raise TypeError("a tuple with tuples in it cannot be a key")
    else:
        return
    if length > KEY_MAX:
        raise TooMuch("a key of length", length, "key_max", KEY_MAX)

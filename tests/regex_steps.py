"""How many steps a regular expression takes, and whether they grow faster than the text.

`re` goes back and tries again, and while it does nothing else of the process runs. The clock would
tell that of one machine on one day; here the same search is done by a matcher of our own, which
walks the tree that `re` itself makes of a pattern and counts what it looks at. The texts are made
of the tree too: for every repeat without an end, what leads to it, then many times what it takes
or what leads to it, then nothing or a character that it does not take.

Counts of a sound pattern lie on a line, so the second difference of three sizes is zero; that of
one that reads again what it has read grows with the square. A repeat with an end is one of three
here: however far it goes, it goes that far only.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
from typing import Any, NamedTuple

compiler: Any = importlib.import_module("re._compiler")
ops: Any = importlib.import_module("re._constants")
parser: Any = importlib.import_module("re._parser")

SIZES = (8, 16, 24)
#: Above zero for what the ends of a text cost, far below what reading it again does.
CURVED = 24
STEPS_MAX = 20_000
FEW = 4  # steps for each character: what is read again takes more
BOUND = 3
_REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)
_SINGLE = (ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN)
_SAMPLES = ("a", "A", "0", "_", " ", "\n", "\r", "-", ".", "'", '"', "\\", "é", "\x00", "~")

Next = Callable[[int], int | None]
Matcher = Callable[[int, Next], int | None]


class TooManySteps(Exception):
    """More than any sound pattern takes for so short a text."""


class _Part(NamedTuple):
    """A repeat without an end: a text that leads to it, and texts that it takes."""

    before: str
    bodies: tuple[str, ...]
    alone: re.Pattern[Any]
    binary: bool

    def takes(self, pump: str) -> bool:
        text = pump * 2
        return bool(self.alone.fullmatch(text.encode("latin-1") if self.binary else text))


class Steps:
    """One pattern, taken apart."""

    def __init__(self, pattern: str | bytes, flags: int = 0, bound: int = BOUND) -> None:
        self._bound = bound
        self.binary = isinstance(pattern, bytes)
        self.commits = False  # whether a group of it is possessive or atomic
        self._tree = parser.parse(pattern, flags)
        self._flags = self._tree.state.flags
        self._singles: list[re.Pattern[Any]] = []
        self._groups: dict[int, tuple[int, int]] = {}
        self._text = ""
        self.count = 0
        self._match = self._sequence(list(self._tree), self._flags)
        self.alphabet = self._representatives()

    # -- matching ----------------------------------------------------------------------------

    def spans(self, text: str, mode: str) -> list[tuple[int, int]]:
        """What is found; `count` says how many steps it took. `match` begins each time where the
        last one ended, as those who read a text piece by piece do."""
        self._text, self.count = text, 0
        found, at = [], 0
        while at <= len(text):
            self._groups.clear()
            end = self._match(at, self._ends if mode == "fullmatch" else _anywhere)
            if end is not None:
                found.append((at, end))
            if mode == "fullmatch" or (mode == "match" and (end is None or end == at)):
                break
            at = at + 1 if end is None or end == at else end
        return found

    def _ends(self, at: int) -> int | None:
        return at if at == len(self._text) else None

    def _step(self) -> None:
        self.count += 1
        if self.count > STEPS_MAX:
            raise TooManySteps

    def _sequence(self, nodes: list[Any], flags: int) -> Matcher:
        matchers = [self._matcher(op, value, flags) for op, value in nodes]
        if len(matchers) == 1:
            return matchers[0]

        def follow(number: int, at: int, then: Next) -> int | None:
            if number == len(matchers):
                return then(at)
            return matchers[number](at, lambda end: follow(number + 1, end, then))

        return lambda at, then: follow(0, at, then)

    def _matcher(self, op: Any, value: Any, flags: int) -> Matcher:
        if op in _SINGLE:
            takes = self._single(op, value, flags)
            return lambda at, then: then(at + 1) if takes(at) else None
        if op in _REPEATS:
            return self._repeat(op, value, flags)
        if op is ops.AT:
            place = self._alone(op, value, flags)
            return lambda at, then: then(at) if place.match(self._real(), at) else None
        if op is ops.BRANCH:
            return self._branch([self._sequence(list(each), flags) for each in value[1]])
        if op is ops.SUBPATTERN:
            group, more, less, inner = value
            return self._group(group, self._sequence(list(inner), (flags | more) & ~less))
        if op is ops.ATOMIC_GROUP:
            self.commits = True
            return self._once(self._sequence(list(value), flags))
        if op in (ops.ASSERT, ops.ASSERT_NOT):
            return self._look(op is ops.ASSERT, value, flags)
        if op is ops.GROUPREF:
            return self._same_as(value)
        raise NotImplementedError(f"{op} in {self._tree.state.str!r}")

    def _real(self) -> str | bytes:
        return self._text.encode("latin-1") if self.binary else self._text

    def _alone(self, op: Any, value: Any, flags: int) -> re.Pattern[Any]:
        tree = parser.SubPattern(self._tree.state, [(op, value)])
        made: re.Pattern[Any] = compiler.compile(tree, flags)
        return made

    def _single(self, op: Any, value: Any, flags: int) -> Callable[[int], bool]:
        """`re` itself says whether it takes a character."""
        alone, taken = self._alone(op, value, flags), dict[str, bool]()
        self._singles.append(alone)

        def takes(at: int) -> bool:
            self.count += 1
            letter = self._text[at : at + 1]
            if letter not in taken:
                taken[letter] = bool(letter) and self._takes(alone, letter)
            return taken[letter]

        return takes

    def _takes(self, alone: re.Pattern[Any], letter: str) -> bool:
        return bool(alone.match(letter.encode("latin-1") if self.binary else letter))

    def _repeat(self, op: Any, value: tuple[int, Any, Any], flags: int) -> Matcher:
        least, most = self._bounds(value)
        inner = list(value[2])
        if len(inner) == 1 and inner[0][0] in _SINGLE:
            one, which = inner[0]
            matcher = self._run(op, least, most, self._single(one, which, flags))
        else:
            matcher = self._loop(op, least, most, self._sequence(inner, flags))
            self.commits |= op is ops.POSSESSIVE_REPEAT
        return self._once(matcher) if op is ops.POSSESSIVE_REPEAT else matcher

    def _bounds(self, value: tuple[int, Any, Any]) -> tuple[int, float]:
        least, most, _ = value
        if most is ops.MAXREPEAT:
            return min(least, self._bound), float("inf")
        return min(least, self._bound), min(int(most), self._bound)

    def _run(self, op: Any, least: int, most: float, takes: Callable[[int], bool]) -> Matcher:
        """Of single characters, which needs no recursion."""

        def greedy(at: int, then: Next) -> int | None:
            end = at
            while end - at < most and takes(end):
                end += 1
            for place in range(end, at + least - 1, -1):
                self._step()
                found = then(place)
                if found is not None:
                    return found
            return None

        def lazy(at: int, then: Next) -> int | None:
            end = at
            while True:
                if end - at >= least:
                    self._step()
                    found = then(end)
                    if found is not None:
                        return found
                if end - at >= most or not takes(end):
                    return None
                end += 1

        return lazy if op is ops.MIN_REPEAT else greedy

    def _loop(self, op: Any, least: int, most: float, body: Matcher) -> Matcher:
        def again(at: int, count: int, then: Next) -> int | None:
            if count >= most:
                return None
            return body(
                at, lambda end: None if end == at and count >= least else turn(end, count + 1, then)
            )

        def turn(at: int, count: int, then: Next) -> int | None:
            self._step()
            if count < least:
                return again(at, count, then)
            if op is ops.MIN_REPEAT:
                found = then(at)
                return again(at, count, then) if found is None else found
            found = again(at, count, then)
            return then(at) if found is None else found

        return lambda at, then: turn(at, 0, then)

    def _branch(self, branches: list[Matcher]) -> Matcher:
        def either(at: int, then: Next) -> int | None:
            for branch in branches:
                found = branch(at, then)
                if found is not None:
                    return found
            return None

        return either

    def _group(self, group: int | None, inner: Matcher) -> Matcher:
        if group is None:
            return inner

        def match(at: int, then: Next) -> int | None:
            before = self._groups.get(group)

            def closed(end: int) -> int | None:
                held = self._groups.get(group)
                self._groups[group] = (at, end)
                found = then(end)
                if found is None:
                    self._restore(group, held)
                return found

            found = inner(at, closed)
            if found is None:
                self._restore(group, before)
            return found

        return match

    def _restore(self, group: int, held: tuple[int, int] | None) -> None:
        if held is None:
            self._groups.pop(group, None)
        else:
            self._groups[group] = held

    def _once(self, inner: Matcher) -> Matcher:
        def match(at: int, then: Next) -> int | None:
            end = inner(at, _anywhere)
            return None if end is None else then(end)

        return match

    def _look(self, wanted: bool, value: tuple[int, Any], flags: int) -> Matcher:
        direction, tree = value
        inner = self._sequence(list(tree), flags)
        back = tree.getwidth()[0] if direction < 0 else 0

        def match(at: int, then: Next) -> int | None:
            there = at >= back and inner(at - back, _anywhere) is not None
            return then(at) if there == wanted else None

        return match

    def _same_as(self, group: int) -> Matcher:
        def match(at: int, then: Next) -> int | None:
            self._step()
            if group not in self._groups:
                return None
            start, end = self._groups[group]
            said = self._text[start:end]
            self.count += len(said)
            return then(at + len(said)) if self._text.startswith(said, at) else None

        return match

    # -- texts to try ------------------------------------------------------------------------

    def attacks(self) -> Iterator[tuple[str, str, str]]:
        """Prefix, what is repeated, suffix: only what is repeated within a repeat is read again."""
        parts = list(self._parts(list(self._tree), ""))
        pumps = self._pumps(parts)
        for part in parts:
            stops = next((each for each in self._oddest_first() if not part.takes(each)), "")
            for pump in filter(part.takes, pumps):
                for before, after in product((part.before, ""), ("", stops)):
                    yield before, pump, after

    def _pumps(self, parts: list[_Part]) -> list[str]:
        """What a repeat takes, and what leads to one."""
        pumps = dict[str, None]()
        for part in parts:
            pumps.update(dict.fromkeys((part.before, *part.bodies)))
            pumps.update(dict.fromkeys(part.before + body for body in part.bodies))
        return [pump for pump in pumps if pump]

    def _oddest_first(self) -> list[str]:
        """The characters; first one that nothing takes."""
        return sorted(self.alphabet, key=lambda letter: any(self._row(letter)))

    def _parts(self, nodes: list[Any], before: str) -> Iterator[_Part]:
        """The repeats without an end, each with a text that leads to it."""
        for op, value in nodes:
            if op in _REPEATS and value[1] is ops.MAXREPEAT:
                inner = list(value[2])
                alone = self._alone(ops.MAX_REPEAT, (1, ops.MAXREPEAT, value[2]), self._flags)
                yield _Part(before, tuple(self._variants(inner)), alone, self.binary)
            for inner in _inner(op, value):
                yield from self._parts(list(inner), before)
            before += self._sample([(op, value)])

    def _sample(self, nodes: list[Any]) -> str:
        """A short text that is taken, as long as nothing looks around."""
        said = ""
        for op, value in nodes:
            if op is ops.LITERAL:
                said += chr(value)
            elif op in _SINGLE:
                said += next(self._options(op, value), "")
            elif op in _REPEATS:
                said += self._sample(list(value[2])) * self._bounds(value)[0]
            elif op is ops.BRANCH:
                said += self._sample(list(value[1][0]))
            elif op is ops.SUBPATTERN:
                said += self._sample(list(value[3]))
            elif op is ops.ATOMIC_GROUP:
                said += self._sample(list(value))
        return said

    def _variants(self, nodes: list[Any]) -> Iterator[str]:
        """The texts that differ from the sample in one place."""
        for number, (op, value) in enumerate(nodes):
            before, after = self._sample(nodes[:number]), self._sample(nodes[number + 1 :])
            for option in self._options(op, value):
                yield before + option + after

    def _options(self, op: Any, value: Any) -> Iterator[str]:
        if op in _SINGLE:
            alone = self._alone(op, value, self._flags)
            yield from (each for each in self.alphabet if self._takes(alone, each))
        elif op not in (ops.ASSERT, ops.ASSERT_NOT):
            for inner in _inner(op, value):
                yield from self._variants(list(inner))

    def _representatives(self) -> list[str]:
        """One character of each sort that the pattern can tell from the others."""
        letters = dict.fromkeys(_SAMPLES)
        letters.update(dict.fromkeys(map(chr, _letters(self._tree))))
        sorts: dict[tuple[bool, ...], str] = {}
        for letter in letters:
            if not self.binary or ord(letter) < 256:
                sorts.setdefault(self._row(letter), letter)
        return list(sorts.values())

    def _row(self, letter: str) -> tuple[bool, ...]:
        return tuple(self._takes(alone, letter) for alone in self._singles)


def _anywhere(at: int) -> int | None:
    return at


def _inner(op: Any, value: Any) -> list[Any]:
    """The trees in a node."""
    if op in _REPEATS:
        return [value[2]]
    if op is ops.BRANCH:
        return list(value[1])
    if op is ops.SUBPATTERN:
        return [value[3]]
    if op is ops.ATOMIC_GROUP:
        return [value]
    return [value[1]] if op in (ops.ASSERT, ops.ASSERT_NOT) else []


def _letters(tree: Any) -> Iterator[int]:
    """The characters that stand in a pattern."""
    for op, value in tree:
        if op in (ops.LITERAL, ops.NOT_LITERAL):
            yield value
        elif op is ops.RANGE:
            yield from value
        elif op is ops.IN:
            yield from _letters(value)
        for inner in _inner(op, value):
            yield from _letters(inner)


def attack_on(pattern: str | bytes, flags: int = 0, mode: str = "search") -> str | None:
    """A text for which the work grows faster than its length, or None."""
    steps = Steps(pattern, flags)
    tried = set[str]()
    for before, pump, after in steps.attacks():
        text = before + pump * SIZES[1] + after
        if text not in tried and _count(steps, text, mode) > FEW * len(text):
            counts = [_count(steps, before + pump * size + after, mode) for size in SIZES]
            if counts[2] > STEPS_MAX or counts[2] - 2 * counts[1] + counts[0] > CURVED:
                return f"{before!r} + {pump!r} * n + {after!r}"
        tried.add(text)
    return None


def _count(steps: Steps, text: str, mode: str) -> int:
    with suppress(TooManySteps), deep_recursion():
        steps.spans(text, mode)
    return steps.count


@contextmanager
def deep_recursion() -> Iterator[None]:
    """A matcher calls the next one: a repeat goes as deep as its text is long."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 20_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)

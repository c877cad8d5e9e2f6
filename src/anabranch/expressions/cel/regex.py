"""Regular expressions in linear time, for `matches`.

The syntax is RE2's without captures, which `matches` has no use for: a pattern becomes a small
automaton that reads the text once, whatever the pattern. What makes other engines explode (nested
repetition) costs nothing here; what cannot be done this way (back references, look-around) is
refused, as RE2 does.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec

from anabranch.expressions.cel.operators import Spend
from anabranch.expressions.cel.regex_syntax import (
    Anchor,
    Choice,
    One,
    Part,
    Repeat,
    Sequence,
    Test,
    is_word,
    read_pattern,
    wrong,
)
from anabranch.expressions.cel.tree import Call, Literal, Node, walk
from anabranch.expressions.cel.values import CelError

STATES_MAX: Final = 4000


class _State(msgspec.Struct):
    """Reads one character (`test`), or passes on at once: always, or at a `place` only."""

    test: Test | None = None
    place: str = ""
    onward: tuple[int, ...] = ()


class _Automaton:
    """The states of a pattern, and the one in which it begins."""

    def __init__(self, part: Part) -> None:
        self.states: list[_State] = [_State()]  # state 0 is the end
        self.start = self._build(part, 0)

    def _add(self, state: _State) -> int:
        self.states.append(state)
        return len(self.states) - 1

    def _build(self, part: Part, onward: int) -> int:
        """The state in which the part begins, when `onward` is what follows it."""
        match part:
            case One(test):
                return self._add(_State(test=test, onward=(onward,)))
            case Anchor(sign):
                return self._add(_State(place=sign, onward=(onward,)))
            case Sequence(parts):
                for each in reversed(parts):
                    onward = self._build(each, onward)
                return onward
            case Choice(parts):
                starts = tuple(self._build(each, onward) for each in parts)
                return self._add(_State(onward=starts))
            case Repeat(inner, least, most):
                return self._build_repeat(inner, least, most, onward)

    def _build_repeat(self, inner: Part, least: int, most: int | None, onward: int) -> int:
        if most is None:
            again = self._add(_State())
            self.states[again].onward = (self._build(inner, again), onward)
            onward = again
        else:
            done = onward
            for _ in range(most - least):
                onward = self._add(_State(onward=(self._build(inner, onward), done)))
        for _ in range(least):
            onward = self._build(inner, onward)
        return onward


class Pattern:
    """Read at once. Its automaton is built when it first meets a text; `built` says of how many
    parts, so that they can be paid for before."""

    def __init__(self, pattern: str) -> None:
        self._part = read_pattern(pattern)
        self._automaton: _Automaton | None = None
        self.built = _parts_to_build(self._part)
        if self.built > STATES_MAX:
            raise wrong(f"the pattern needs more than {STATES_MAX} states; repeat less")

    def search(self, text: str, spend: Spend) -> bool:
        """Whether the pattern fits somewhere in the text."""
        if self._automaton is None:
            self._automaton = _Automaton(self._part)
        states, start = self._automaton.states, self._automaton.start
        current: set[int] = set()
        for at in range(len(text) + 1):
            reached = _passed_on(states, {start} | current, text, at)
            if 0 in reached:
                return True
            if at == len(text):
                return False
            spend(1 + len(reached))
            character = text[at]
            current = {
                state.onward[0]
                for state in (states[index] for index in reached)
                if state.test is not None and state.test(character)
            }
        return False


def _passed_on(states: list[_State], begin: set[int], text: str, at: int) -> set[int]:
    reached: set[int] = set()
    open_states = list(begin)
    while open_states:
        index = open_states.pop()
        if index in reached:
            continue
        reached.add(index)
        state = states[index]
        if state.test is None and (not state.place or _holds(state.place, text, at)):
            open_states.extend(state.onward)
    return reached


def _parts_to_build(part: Part) -> int:
    """Parts and not states: a repetition of nothing takes time as well."""
    match part:
        case Sequence(parts) | Choice(parts):
            return 1 + sum(map(_parts_to_build, parts))
        case Repeat(inner, least, most):
            return 1 + _parts_to_build(inner) * (least + 1 if most is None else most)
    return 1


def _holds(sign: str, text: str, at: int) -> bool:
    match sign:
        case "^":
            return at == 0
        case "$":
            return at == len(text)
        case "line ^":
            return at == 0 or text[at - 1] == "\n"
        case "line $":
            return at == len(text) or text[at] == "\n"
    before = at > 0 and is_word(text[at - 1])
    after = at < len(text) and is_word(text[at])
    return (before != after) == (sign == "b")


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Pattern:
    return Pattern(pattern)


def refused_patterns(root: Node) -> Iterator[str]:
    """Why a pattern that stands in the expression itself cannot be used, for each of them."""
    for node in walk(root):
        match node:
            case Call("matches", (_, Literal(str(pattern)))):
                try:
                    compiled(pattern)
                except CelError as error:
                    yield error.message

"""What is on its way to the engine, in virtual time.

Answers of jobs, decisions, patches: each is a letter that arrives at its instant. Letters of the
same instant arrive in the order in which they were sent, or shuffled where there are dice.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from itertools import count
from random import Random

import msgspec

from anabranch.kernel.stimuli import Stimulus


class Letter(msgspec.Struct):
    run: str
    stimulus: Stimulus
    key: Hashable = None  # what it belongs to, so that it can be taken back
    asks: bool = False  # its sender waits for a reply, and asks again if an engine dies meanwhile
    must: bool = False  # a refusal is an error of the test
    gone: bool = False  # arrived or taken back


class Post:
    def __init__(self, dice: Random | None = None) -> None:
        self._dice = dice
        self._letters: list[tuple[int, float, int, Letter]] = []
        self._numbers = count()
        self._by_key: dict[Hashable, list[Letter]] = {}

    def send(self, at: int, letter: Letter) -> None:
        order = self._dice.random() if self._dice is not None else 0.0
        heappush(self._letters, (at, order, next(self._numbers), letter))
        if letter.key is not None:
            self._by_key.setdefault(letter.key, []).append(letter)

    def withdraw(self, key: Hashable) -> None:
        """Take back what has not arrived."""
        for letter in self._by_key.pop(key, ()):
            letter.gone = True

    def holds(self, key: Hashable, *kinds: type) -> bool:
        """Is a stimulus of one of these kinds with this key on its way?"""
        return any(
            not letter.gone and isinstance(letter.stimulus, kinds)
            for letter in self._by_key.get(key, ())
        )

    def next_at(self) -> int | None:
        """When the next letter arrives."""
        while self._letters and self._letters[0][3].gone:
            heappop(self._letters)
        return self._letters[0][0] if self._letters else None

    def due(self, now: int) -> list[Letter]:
        """The letters that have arrived by now, in order; they leave the post."""
        arrived = []
        while (at := self.next_at()) is not None and at <= now:
            letter = heappop(self._letters)[3]
            letter.gone = True
            arrived.append(letter)
        return arrived

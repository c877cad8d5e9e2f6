"""What waits, by the run that it is for: runs take turns.

However much one of them has waiting, another waits for one of its things and not for all of them.
Within a run, and for whoever is no run, it is first come, first served.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class RunQueues(Generic[T]):
    def __init__(self) -> None:
        #: The run whose turn was longest ago comes first.
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, run: str) -> bool:
        return run in self._waiting

    @property
    def runs(self) -> set[str]:
        return set(self._waiting)

    def add(self, run: str, one: T) -> None:
        self._waiting.setdefault(run, deque()).append(one)
        self._count += 1

    def take(self) -> T:
        """What is next. There has to be something."""
        return self.take_of(next(iter(self._waiting)))

    def take_of(self, run: str) -> T:
        """What is next of this run, which has something."""
        waiting = self._waiting[run]
        found = waiting.popleft()
        self._count -= 1
        if waiting:
            self._waiting.move_to_end(run)
        else:
            del self._waiting[run]
        return found

    def drop(self, run: str) -> None:
        """Nothing of this run waits any more."""
        self._count -= len(self._waiting.pop(run, ()))

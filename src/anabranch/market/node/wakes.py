"""At which instant each open thing has to be looked at, the earliest first.

A heap from which nothing is taken out when an instant changes: what is not true any more is left
out when it comes up, and when too much of it has gathered, the heap is made anew.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

Key = tuple[str, str]  # the name of a family, and the thing

SPARE = 64  # instants of the past that are kept in any case


class Wakes:
    def __init__(self) -> None:
        self._at: dict[Key, int] = {}
        self._heap: list[tuple[int, Key]] = []

    def put(self, key: Key, at: int | None) -> None:
        """From now on it is this instant; None: there is none."""
        if at is None:
            self._at.pop(key, None)
        elif self._at.get(key) != at:
            self._at[key] = at
            heappush(self._heap, (at, key))
        if len(self._heap) > 2 * len(self._at) + SPARE:
            self._heap = [(at, key) for key, at in self._at.items()]
            heapify(self._heap)

    def first(self) -> int | None:
        while self._heap:
            at, key = self._heap[0]
            if self._at.get(key) == at:
                return at
            heappop(self._heap)
        return None

    def first_after(self, instant: int) -> int | None:
        """Looks at all of them: for the rare case that something stays due."""
        return min((at for at in self._at.values() if at > instant), default=None)

    def due(self, now: int) -> list[Key]:
        """Those whose instant has come, in order; they stay until their instant changes."""
        found: list[tuple[int, Key]] = []
        while self._heap and self._heap[0][0] <= now:
            one = heappop(self._heap)
            at, key = one
            if self._at.get(key) == at and (not found or found[-1] != one):
                found.append(one)
        for one in found:
            heappush(self._heap, one)
        return [key for _, key in found]

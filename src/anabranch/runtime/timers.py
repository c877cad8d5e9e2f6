"""Alarms: which run wants to be woken when, one instant a run."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

SLACK = 64  # how many entries may be out of date, beside as many as there are alarms


class RunTimers:
    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._wanted: dict[str, int] = {}  # what the heap says beyond this is out of date

    def __len__(self) -> int:
        return len(self._wanted)

    def set(self, run: str, at: int | None) -> None:
        """Wake the run then, and at no other time; at none at all with `None`."""
        if at is None:
            self._wanted.pop(run, None)
        elif self._wanted.get(run) != at:
            self._wanted[run] = at
            heappush(self._heap, (at, run))
        if len(self._heap) > 2 * len(self._wanted) + SLACK:
            self._heap = [(at, run) for run, at in self._wanted.items()]
            heapify(self._heap)

    def runs(self) -> Iterator[str]:
        """The runs that want to be woken."""
        return iter(self._wanted)

    def earliest(self) -> int | None:
        while self._heap:
            at, run = self._heap[0]
            if self._wanted.get(run) == at:
                return at
            heappop(self._heap)
        return None

    def due(self, now: int) -> Iterator[tuple[int, str]]:
        """Take out what is due, earliest first: (instant, run)."""
        while (at := self.earliest()) is not None and at <= now:
            _, run = heappop(self._heap)
            del self._wanted[run]
            yield at, run

"""Whose turn it is: of those that may be asked, the ones that were asked least recently.

It counts turns and not time, so the same searches in the same order find the same participants.
What a search found is recorded with its job; a replay looks nothing up. After a restart an engine
goes on with what the newest runs of its store have recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NAMES_KEPT = 10_000


class Rotation:
    def __init__(self) -> None:
        self._turns = 0
        self._last: dict[str, int] = {}  # which turn was the last of each

    def recall(self, names: Iterable[str]) -> None:
        """Those were asked before, in this order."""
        for name in names:
            self._turns += 1
            self._last.pop(name, None)
            self._last[name] = self._turns  # the last one now
        while len(self._last) > NAMES_KEPT:  # it would be asked among the first, and still is
            del self._last[next(iter(self._last))]

    def chosen(self, names: Sequence[str], limit: int | None) -> list[str]:
        """At most `limit`: those never asked first, then by the last turn; equals as they stand."""
        found = sorted(names, key=lambda name: self._last.get(name, 0))[:limit]
        self.recall(found)
        return found

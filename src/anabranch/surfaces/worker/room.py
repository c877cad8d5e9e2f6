"""The places of a worker for jobs, shared out between those who claim from its servers.

Whoever is about to claim takes places first and gives back those that it was given no job for: a
worker never has more jobs than places, whatever its servers answer at the same time. Who is
expected to ask gets the same share as the others; when there are no places, the next ones go round.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

CLAIM_MOST = 100  # jobs in one claim


class _Waiting(NamedTuple):
    who: object
    places: asyncio.Future[int]


class Room:
    def __init__(self, places: int) -> None:
        self._free = places
        self._expected: set[object] = set()
        self._queue: deque[_Waiting] = deque()

    @property
    def free(self) -> int:
        return self._free

    def expect(self, who: object) -> None:
        """It will ask for places in a moment: there may be jobs where it claims."""
        self._expected.add(who)

    def leave(self, who: object) -> None:
        """It is away, or there was nothing for it."""
        self._expected.discard(who)

    async def take(self, who: object) -> int:
        """A fair share of the places that are free, one at least; waits for it."""
        self._expected.add(who)
        waiting = _Waiting(who, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._hand_out()
        try:
            return await waiting.places
        except asyncio.CancelledError:
            if waiting in self._queue:
                self._queue.remove(waiting)
            elif waiting.places.done() and not waiting.places.cancelled():
                self.give_back(waiting.places.result())
            raise

    def give_back(self, places: int) -> None:
        self._free += places
        self._hand_out()

    def _hand_out(self) -> None:
        while self._free > 0 and self._queue:
            waiting = self._queue.popleft()
            if waiting.places.done():  # it has stopped waiting
                continue
            share = -(-self._free // max(1, len(self._expected)))
            self._expected.discard(waiting.who)
            share = min(share, CLAIM_MOST)
            self._free -= share
            waiting.places.set_result(share)

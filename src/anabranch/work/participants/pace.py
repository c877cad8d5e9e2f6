"""A few at a time: a thousand requests that begin in one breath all go out at its end.

The event loop takes every request one small step further before it looks at the network again. With
a thousand of them nobody is asked before everybody has been connected to, and the clock of the step
runs. So only a few begin in each round of the loop; whoever waits for a slow connection holds up
nobody, because it has begun.
"""

from __future__ import annotations

import asyncio
from collections import deque

AT_ONCE = 16


class Pace:
    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._begun = 0  # in this round of the loop
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Returns when it is one's turn to begin."""
        loop = asyncio.get_running_loop()
        if self._begun < self._at_once:
            if not self._begun:
                loop.call_soon(self._next_round)
            self._begun += 1
            return
        mine = loop.create_future()
        self._waiting.append(mine)
        await mine

    def _next_round(self) -> None:
        self._begun = 0
        while self._waiting and self._begun < self._at_once:
            waiting = self._waiting.popleft()
            if not waiting.done():  # who was cancelled does not begin
                waiting.set_result(None)
                self._begun += 1
        if self._begun:
            asyncio.get_running_loop().call_soon(self._next_round)

"""Performers that are made when their first task comes: nobody uses all kinds in one process."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.kernel.values import Answer
from anabranch.work.port import Parked, Performer, Task


class Lazily:
    """Stands for a performer until it is needed."""

    def __init__(self, make: Callable[[], Performer]) -> None:
        self._make = make
        self._made: Performer | None = None

    async def perform(self, task: Task) -> Answer | Parked:
        if self._made is None:
            self._made = self._make()
        return await self._made.perform(task)

    async def close(self) -> None:
        close = getattr(self._made, "close", None)
        if close is not None:
            await close()

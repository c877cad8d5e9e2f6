"""The store is away: what is said about it, once, however many parts of an engine notice."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from anabranch.errors import StoreError
from anabranch.store.outages import passes

log = logging.getLogger("anabranch.engine")

AGAIN_SECONDS = 0.5  # between two tries

T = TypeVar("T")


async def waited_out(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again while the store is away: work does not fail because of that."""
    while True:
        try:
            return await ask()
        except StoreError as error:
            if not passes(error):
                raise
        await asyncio.sleep(AGAIN_SECONDS)


class StoreOutage:
    """Lasts from the first part that notices to the last one that gets through again."""

    def __init__(self) -> None:
        self._noticed: dict[str, StoreError] = {}
        self._since = 0.0
        self.count = 0  # since the engine was made
        self.error: StoreError | None = None  # while it lasts; looked at for every stimulus

    @property
    def seconds(self) -> float:
        """How long it has lasted; 0 while there is none."""
        return time.monotonic() - self._since if self._noticed else 0.0

    def begins(self, part: str, error: StoreError) -> None:
        """A part of the engine does not get through; the newest error counts."""
        if not self._noticed:
            self._since = time.monotonic()
            self.count += 1
            log.error("%s Nothing moves until the store takes writes again.", error.message)
        self._noticed[part] = error
        self._look()

    def ends(self, part: str) -> None:
        if self._noticed.pop(part, None) is None:
            return
        self._look()
        if self.error is None:
            seconds = time.monotonic() - self._since
            log.warning("the store takes writes again, after %.1f s", seconds)

    def _look(self) -> None:
        self.error = next(iter(self._noticed.values()), None)

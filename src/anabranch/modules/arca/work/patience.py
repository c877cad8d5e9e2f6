"""Asking a host that may be away, and waiting for something that it will know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.kit.host import HostUnavailable

T = TypeVar("T")


class Patience:
    def __init__(self, config: ArcaConfig) -> None:
        self._first = config.host_retry_first_ms / 1000
        self._most = config.host_retry_max_ms / 1000

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """The answer, however long the host is away; whoever waits is cancelled in time."""
        delay = self._first
        while True:
            try:
                return await question()
            except HostUnavailable:
                await asyncio.sleep(delay)
                delay = min(delay * 2, self._most)


class Pauses:
    """Pauses between two looks, each twice as long as the one before. A wake-up ends one, and then
    they begin anew and shorter: what has come is about to be recorded."""

    AFTER_WAKE_SECONDS = 0.01

    def __init__(self, config: ArcaConfig, woken: asyncio.Event) -> None:
        self._next = config.poll_first_ms / 1000
        self._most = config.poll_max_ms / 1000
        self._woken = woken

    async def pause(self) -> None:
        try:
            async with asyncio.timeout(self._next):
                await self._woken.wait()
        except TimeoutError:
            self._next = min(self._next * 2, self._most)
            return
        self._woken.clear()
        self._next = self.AFTER_WAKE_SECONDS

"""Work of a module that goes on where the one who asked for it is gone, until the module ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from anabranch.cancel import cancel_and_wait
from anabranch.errors import AnabranchError
from anabranch.modules.kit.host import HostRefused, HostUnavailable

T = TypeVar("T")
RETRY_FIRST, RETRY_MAX = 0.2, 30.0  # seconds


class Tasks:
    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """What it fails with is a defect, and is told to the event loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Its result. A caller that is cancelled meanwhile does not stop it half-way."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        await cancel_and_wait(*self._running, ignore=AnabranchError)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):  # what ends the process is no defect
            said = {"message": "work of a module failed", "exception": error, "task": task}
            task.get_loop().call_exception_handler(said)


async def until_taken(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask the host again and again until it answers, later and later."""
    seconds = RETRY_FIRST
    while True:
        try:
            return await ask()
        except (HostUnavailable, HostRefused):
            await asyncio.sleep(seconds)
            seconds = min(seconds * 2, RETRY_MAX)

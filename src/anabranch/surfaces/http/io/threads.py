"""Work beside the event loop that ends when the request does.

A request that runs out of time or whose client hangs up is cancelled; the thread that computes for
it is told, and stops at its next look.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from anabranch.cancel import cancellable, poll

T = TypeVar("T")


class Flag:
    """Whether anybody still waits for a piece of work; several may."""

    def __init__(self) -> None:
        self._waiting = 0
        self._given_up = threading.Event()

    @property
    def given_up(self) -> bool:
        return self._given_up.is_set()

    def run(self, work: Callable[[], T]) -> T:
        with cancellable(self._given_up.is_set):
            poll()  # it may have waited for a thread longer than anybody for it
            return work()

    async def wait(self, task: asyncio.Future[T]) -> T:
        """Its outcome. When the last one who waits is cancelled, the work is given up."""
        self._waiting += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._waiting -= 1
            if not self._waiting and not task.done():
                self._given_up.set()
                # Nobody is there to hear how it ended.
                task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


async def in_thread(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Like `asyncio.to_thread`, for work that looks whether it is still wanted."""
    return await in_thread_of(None, partial(work, *args, **kwargs))


async def in_thread_of(threads: Executor | None, work: Callable[[], T]) -> T:
    """The same in one of these threads."""
    flag, context = Flag(), copy_context()
    loop = asyncio.get_running_loop()
    return await flag.wait(loop.run_in_executor(threads, context.run, flag.run, work))

"""An event loop in virtual time: it never sleeps, and its clock moves only when nothing else can.

Timers then fire at exactly the instant they were set for, however busy the machine is. Sockets of
this process are served before the clock moves, so a server and its client may talk; while a thread
works for the loop, the clock stands still.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_GLANCE_SECONDS = 0.05


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._seconds = 1_000_000.0
        self._in_threads = 0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._seconds

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        self._in_threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._back)
        return future

    def _back(self, _future: object) -> None:
        self._in_threads -= 1

    def may_skip(self) -> bool:
        return self._in_threads == 0

    def skip(self, seconds: float) -> None:
        self._seconds += seconds


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None or not self._loop.may_skip():
            return super().select(_GLANCE_SECONDS)
        self._loop.skip(timeout)
        return []


class VirtualClock:
    """The engine's clock, in the time of the loop it runs in."""

    def now(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Runs to the end in a loop of its own; one that waits for nothing at all is a failure."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_limited(work))


async def _limited(work: Coroutine[Any, Any, T]) -> T:
    async with asyncio.timeout(7 * 86_400):
        return await work

"""Threads for callables that block.

The way to a thread and back is paid per call, so it is kept short: one C queue on the way there,
and on the way back a deque that the event loop empties in one go. Only the first result of a burst
wakes the loop; the others ride along.

A thread cannot be stopped. When the caller is cancelled it returns at once, a call that has not
started is skipped, and the result of one that has is dropped when it comes. Until then the call
keeps its thread busy, and whatever it does to the world still happens.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar
from weakref import WeakMethod, finalize

T = TypeVar("T")

_Call = tuple[Callable[[], Any], "asyncio.Future[Any]"]
_Finished = tuple["asyncio.Future[Any]", Any, BaseException | None]


def default_size() -> int:
    """Room for waiting, not for computing: the interpreter lock allows only one of the latter."""
    return min(32, (os.cpu_count() or 1) + 4)


class Threads:
    """A pool of daemon threads that serves one event loop."""

    def __init__(self, size: int | None = None, *, close_seconds: float = 1.0) -> None:
        self._size = size or default_size()
        self._close_seconds = close_seconds
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._finished: deque[_Finished] = deque()
        self._threads: list[threading.Thread] = []
        self._outstanding = 0  # calls handed over and not yet back
        self._woken = False  # the loop has been told and has not looked yet
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        finalize(self, _end, self._calls, self._threads).atexit = False

    async def run(self, call: Callable[[], T]) -> T:
        """What `call()` returns or raises, computed in a thread."""
        future = self._bound_loop().create_future()
        self._outstanding += 1
        if self._outstanding > len(self._threads) < self._size:
            self._grow()
        self._calls.put((call, future))
        result: T = await future
        return result

    async def close(self) -> None:
        """Ends idle threads; a thread stuck in a call is left behind (it cannot hold the exit)."""
        if self._closed:
            return
        self._closed = True
        _end(self._calls, self._threads)
        until = time.monotonic() + self._close_seconds
        while self.alive and time.monotonic() < until:
            await asyncio.sleep(0.001)

    @property
    def alive(self) -> int:
        """How many threads have not ended."""
        return sum(thread.is_alive() for thread in self._threads)

    def _bound_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._closed:
            raise RuntimeError("these threads are closed")
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:
            raise RuntimeError("these threads serve another event loop; make a pool for this one")
        return loop

    def _grow(self) -> None:
        name = f"anabranch-{len(self._threads)}"
        given = self._calls, WeakMethod(self._hand_back)
        thread = threading.Thread(target=_serve, args=given, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _hand_back(self, finished: _Finished) -> None:
        self._finished.append(finished)
        # Order matters: append, then look. `_deliver` clears the flag, then empties the deque, so
        # whatever was appended before a flag seen as set is found. Two wake-ups do no harm.
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                future = finished[0]
                future.get_loop().call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._woken = False
        while self._finished:
            future, result, error = self._finished.popleft()
            self._outstanding -= 1
            if future.done():
                continue  # cancelled meanwhile
            if error is None:
                future.set_result(result)
            elif isinstance(error, StopIteration):  # futures cannot carry it
                future.set_exception(RuntimeError("the call raised StopIteration"))
            else:
                future.set_exception(error)


def _serve(
    calls: SimpleQueue[_Call | None], hand_back_of: WeakMethod[Callable[[_Finished], None]]
) -> None:
    """Until the pool is closed, or nobody has it any more."""
    while (item := calls.get()) is not None:
        call, future = item
        result: Any = None
        error: BaseException | None = None
        if not future.cancelled():
            try:
                result = call()
            except BaseException as raised:  # all of it belongs to whoever awaits the call
                error = raised
        if (hand_back := hand_back_of()) is not None:
            hand_back((future, result, error))
        del item, call, future, result, error, hand_back  # an idle thread keeps nothing alive


def _end(calls: SimpleQueue[_Call | None], threads: list[threading.Thread]) -> None:
    for _ in threads:
        calls.put(None)

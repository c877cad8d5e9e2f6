"""Long work of an event loop, in slices: whatever else the loop has to do is done between them.

The work is done in a thread, but never while the loop runs: each of the two waits while the other
goes on. So what they share needs no lock, and who pauses decides where others may look. Two changes
of threads cost about 30 µs, where a slice is enough. A piece of the work that shares nothing, such
as reading a log, is done while the loop runs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from anabranch.expressions.budget import BESIDE, PAUSE

T = TypeVar("T")

SLICE_SECONDS = 0.02
NAME = "anabranch-slices"  # of the thread


class Slices:
    """One piece of work at a time: whoever has more of them waits. Close it at the end."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._go_on, self._stand_still = threading.Lock(), threading.Lock()
        self._go_on.acquire()
        self._stand_still.acquire()
        self._work: Callable[[], Any] | None = None  # None: there will be no more
        self._over = True
        self._result: Any = None
        self._error: BaseException | None = None
        self._began = 0.0  # the slice
        self._whole = False  # there is nobody to pause for
        self._beside = asyncio.Event()  # what is done while the loop runs is done
        self._is_beside = False

    async def do(self, work: Callable[[], T]) -> T:
        """What the work comes to. If this is cancelled, the work is done to its end first."""
        loop = asyncio.get_running_loop()
        if loop.get_debug():
            return work()  # such a loop lets no other thread call it, not even while it waits
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=[loop], name=NAME, daemon=True)
            self._thread.start()
        self._work, self._over, self._whole = work, False, False
        self._run_slice()
        while not self._over:
            try:
                await self._let_others_run()
            except asyncio.CancelledError:
                self._whole = True
                self._run_slice()
                self._result = self._error = None
                raise
            self._run_slice()
        result, error, self._result, self._error = self._result, self._error, None, None
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def close(self) -> None:
        """Nothing is being done."""
        if self._thread is not None:
            self._go_on.release()
            self._thread.join()
            self._thread = None

    async def _let_others_run(self) -> None:
        if self._is_beside:
            await self._beside.wait()
        else:
            await asyncio.sleep(0)

    def _run_slice(self) -> None:
        self._began = time.perf_counter()
        self._go_on.release()
        self._stand_still.acquire()

    # -- in the thread -----------------------------------------------------------------------

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio._set_running_loop(loop)  # what the work asks for by itself: the loop stands still
        PAUSE.set(self._pause)
        BESIDE.set(partial(self._do_beside, loop))
        while True:
            self._go_on.acquire()
            if self._work is None:
                return
            try:
                self._result = self._work()
            except BaseException as error:
                self._error = error
            self._work, self._over = None, True
            self._stand_still.release()

    def _do_beside(self, loop: asyncio.AbstractEventLoop, work: Callable[[], T]) -> T:
        if self._whole:
            return work()
        self._beside.clear()
        self._is_beside = True
        self._stand_still.release()
        try:
            return work()
        finally:
            loop.call_soon_threadsafe(self._beside.set)
            self._go_on.acquire()
            self._is_beside = False

    def _pause(self) -> None:
        if not self._whole and time.perf_counter() - self._began >= SLICE_SECONDS:
            self._stand_still.release()
            self._go_on.acquire()

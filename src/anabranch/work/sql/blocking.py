"""Databases that block: their work runs in a thread, and can be told to stop.

A thread cannot be ended from outside, but a statement can: `Halt` is a flag the thread looks at
between statements, together with the call that interrupts the one it is in. Who cancels waits until
the thread is really done, so that nothing happens to the database afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from anabranch.work.kinds.commands.child_process import undisturbed
from anabranch.work.kinds.threads import Threads
from anabranch.work.time_limit import time_limit

T = TypeVar("T")

_AGAIN_SECONDS = 0.05


class Halted(Exception):
    """The thread was told to stop, and did."""


class Halt:
    def __init__(self) -> None:
        self._told = False
        self._interrupt: Callable[[], object] | None = None

    @property
    def told(self) -> bool:
        return self._told

    def watch(self, interrupt: Callable[[], object]) -> None:
        """From now on this call interrupts what the thread does."""
        self._interrupt = interrupt
        self.check()

    def release(self) -> None:
        """Nothing is left to interrupt."""
        self._interrupt = None

    def check(self) -> None:
        if self._told:
            raise Halted

    def now(self) -> None:
        self._told = True
        interrupt = self._interrupt
        if interrupt is not None:
            with suppress(Exception):  # closed at this very moment: it stopped by itself
                interrupt()


class Blocking:
    """A bounded number of threads for one kind of database."""

    def __init__(self, size: int) -> None:
        self._slots = asyncio.Semaphore(size)
        self._threads = Threads(size + 1)  # one for short calls beside them

    async def run(self, call: Callable[[Halt], T], seconds: float | None) -> T:
        """What `call` gives; a cancel or TimeoutError has stopped it. Waiting does not count."""
        async with self._slots:
            halt = Halt()
            whole = copy_context()  # what is said in the thread is cut with the secrets in mind
            work = asyncio.ensure_future(self._threads.run(partial(whole.run, call, halt)))
            try:
                async with time_limit(seconds):
                    return await asyncio.shield(work)
            except BaseException:
                if not work.done():
                    await undisturbed(_stopped(work, halt))
                raise

    async def run_to_the_end(self, call: Callable[[], T]) -> T:
        """A short call that nothing should interrupt, beside the others."""
        return await self._threads.run(call)

    async def close(self) -> None:
        await self._threads.close()


async def _stopped(work: asyncio.Future[T], halt: Halt) -> None:
    """Told again and again: an interrupt just before a statement begins goes unheard."""
    while not work.done():
        halt.now()
        await asyncio.wait((work,), timeout=_AGAIN_SECONDS)
    if not work.cancelled():
        work.exception()  # nobody wants to know how it ended

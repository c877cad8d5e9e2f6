"""Evaluations that take long: one at a time, in a thread, while the event loop goes on.

Runs take turns: however many evaluations one of them has asked for, another waits for one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

from anabranch.work.run_at_work import run_at_work
from anabranch.work.run_queues import RunQueues

T = TypeVar("T")
Evaluation = tuple[Callable[[], Any], "Future[Any]"]


class EvaluationThread:
    def __init__(self) -> None:
        #: Several would compete with the event loop for the interpreter.
        self._pool = ThreadPoolExecutor(1, "anabranch-evaluation")
        self._lock = threading.Lock()
        self._waiting: RunQueues[Evaluation] = RunQueues()

    async def do(self, work: Callable[[], T]) -> T:
        """What it comes to, in the context of who asks. If that is cancelled while it waits, it is
        not done."""
        done: Future[T] = Future()
        given = partial(copy_context().run, work)
        with self._lock:
            self._waiting.add(run_at_work.get(), (given, done))
        self._pool.submit(self._do_next)
        return await asyncio.wrap_future(done)

    def _do_next(self) -> None:
        with self._lock:
            work, done = self._waiting.take()
        if not done.set_running_or_notify_cancel():
            return
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)


#: Of this process: evaluations share its interpreter.
THREAD: Final = EvaluationThread()

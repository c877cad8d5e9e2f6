"""Evaluations that take long: one at a time, in a thread, while the event loop goes on.

Runs take turns: however many evaluations one of them has asked for, another waits for one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

from anabranch.work.run_at_work import run_at_work

T = TypeVar("T")
Evaluation = tuple[Callable[[], Any], "Future[Any]"]


class EvaluationThread:
    def __init__(self) -> None:
        #: Several would compete with the event loop for the interpreter.
        self._pool = ThreadPoolExecutor(1, "anabranch-evaluation")
        self._lock = threading.Lock()
        #: By run; that which has waited longest comes first.
        self._waiting: OrderedDict[str, deque[Evaluation]] = OrderedDict()

    async def do(self, work: Callable[[], T]) -> T:
        """What it comes to, in the context of who asks. If that is cancelled while it waits, it is
        not done."""
        done: Future[T] = Future()
        given = partial(copy_context().run, work)
        with self._lock:
            self._waiting.setdefault(run_at_work.get(), deque()).append((given, done))
        self._pool.submit(self._do_next)
        return await asyncio.wrap_future(done)

    def _do_next(self) -> None:
        work, done = self._next()
        if not done.set_running_or_notify_cancel():
            return
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    def _next(self) -> Evaluation:
        with self._lock:
            run, waiting = next(iter(self._waiting.items()))
            found = waiting.popleft()
            if waiting:
                self._waiting.move_to_end(run)
            else:
                del self._waiting[run]
            return found


#: Of this process: evaluations share its interpreter.
THREAD: Final = EvaluationThread()

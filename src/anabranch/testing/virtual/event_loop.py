"""The event loop of one simulated process, in virtual time and without threads.

The world moves it: handle by handle, so that a process can be stopped or killed between any two of
them. What the real loop would give to a thread is one step of this loop, and its result is
delivered by a later one: a process can be stopped between the two.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, Handle, Task, TimerHandle, events
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any, TypeVar, cast
from weakref import WeakSet

T = TypeVar("T")
NEVER = inf
TICK = 0.001  # seconds: of the clock of the world; who waits for less waits for so long
RESOLUTION = 1e-5  # seconds: what is due so soon is due, since sums of floats are not exact
ENDS_MAX = 100  # a task may take a few steps to come to its end


class VirtualLoop:
    """As much of a loop as asyncio asks for where nothing is read or written.

    `thread_seconds` says how long the next step of a thread takes to begin, or to be heard of;
    `failed` is told what no task of the program has caught.
    """

    def __init__(
        self,
        seconds: Callable[[], float],
        thread_seconds: Callable[[], float],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.as_loop = cast(AbstractEventLoop, self)
        self._seconds = seconds
        self._thread_seconds = thread_seconds
        self._failed = failed
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._order = count()
        self._tasks: WeakSet[Task[Any]] = WeakSet()

    # -- moved by the world ----------------------------------------------------------------------

    def next_at(self) -> float:
        """When there is something to do, in seconds; 0 for now."""
        if self._ready:
            return 0.0
        while self._timers and self._timers[0][2].cancelled():
            heappop(self._timers)
        return self._timers[0][0] if self._timers else NEVER

    def run_some(self, most: int) -> None:
        """So many handles that are ready now, or get ready meanwhile, at most."""
        now = self._seconds() + RESOLUTION
        while self._timers and self._timers[0][0] <= now:
            self._ready.append(heappop(self._timers)[2])
        before = events._get_running_loop()
        events._set_running_loop(self.as_loop)
        try:
            ready = self._ready
            while ready and most:
                most -= 1
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            events._set_running_loop(before)

    def shut_down(self) -> None:
        """The process is over: end every task, so that none is found half done later."""
        for _ in range(ENDS_MAX):
            tasks = [task for task in self._tasks if not task.done()]
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            self._timers.clear()
            with suppress(SystemExit):  # who waited for what ended the process is told that, too
                self.run_some(len(self._ready) + len(tasks))

    # -- what asyncio asks of a loop -------------------------------------------------------------

    def time(self) -> float:
        return self._seconds()

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, self.as_loop, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        least = TICK if delay > 0 else 0.0
        return self.call_at(self.time() + max(delay, least), callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        timer = TimerHandle(when, callback, args, self.as_loop, context)
        heappush(self._timers, (when, next(self._order), timer))
        return timer

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """It is passed over when its time has come."""

    def create_future(self) -> Future[Any]:
        return Future(loop=self.as_loop)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        **_more: Any,  # of later versions of Python
    ) -> Task[T]:
        task = Task(coro, loop=self.as_loop, name=name, context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # a process may be killed
        self._tasks.add(task)
        return task

    def run_in_executor(self, _executor: object, func: Callable[..., T], *args: Any) -> Future[T]:
        done: Future[T] = self.create_future()
        self._soon(self._in_thread, done, func, args)
        return done

    def _soon(self, callback: Callable[..., object], *args: Any) -> None:
        seconds = self._thread_seconds()
        if seconds:
            self.call_later(seconds, callback, *args)
        else:
            self.call_soon(callback, *args)

    def _in_thread(self, done: Future[T], func: Callable[..., T], args: tuple[Any, ...]) -> None:
        events._set_running_loop(None)
        try:
            result = func(*args)
        except Exception as error:
            self._soon(_settle, done, error, None)
        else:
            self._soon(_settle, done, None, result)
        finally:
            events._set_running_loop(self.as_loop)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._failed(error if error is not None else RuntimeError(context["message"]))


def _settle(done: Future[Any], error: Exception | None, result: Any) -> None:
    if done.done():
        return  # nobody waits for it any more
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(result)

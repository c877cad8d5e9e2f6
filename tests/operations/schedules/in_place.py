"""An event loop whose threads are none: what goes to a thread is done at once, where it is asked.

A world in virtual time looks thousands of times, and nothing in it happens beside anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class InPlace(ThreadPoolExecutor):
    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done


def run_in_place(work: Coroutine[Any, Any, T]) -> T:
    async def scenario() -> T:
        asyncio.get_running_loop().set_default_executor(InPlace())
        return await work

    return asyncio.run(scenario())

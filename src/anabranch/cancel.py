"""Giving up on work: in a thread, and in a task.

A thread cannot be ended from outside. Whoever starts one says how it learns that nobody waits any
more; work that may take long asks now and then and ends itself. `asyncio.to_thread` hands the
context on, so nothing in between needs to know.

    with cancellable(flag.is_set):
        check(definition)          # raises Abandoned soon after flag.set()

A task can be cancelled, and whoever does so waits until it has ended: `cancel_and_wait`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_given_up: ContextVar[Callable[[], bool] | None] = ContextVar("given_up", default=None)


class Abandoned(Exception):
    """Nobody waits for this any more."""


def poll() -> None:
    """Go on, unless somebody has given up on it."""
    given_up = _given_up.get()
    if given_up is not None and given_up():
        raise Abandoned("the caller no longer waits for this")


@contextmanager
def cancellable(given_up: Callable[[], bool]) -> Iterator[None]:
    """Work in this block ends with `Abandoned` when `given_up` says so."""
    before = _given_up.set(given_up)
    try:
        yield
    finally:
        _given_up.reset(before)


async def cancel_and_wait(
    *tasks: asyncio.Future[Any], ignore: type[Exception] | tuple[type[Exception], ...] = ()
) -> None:
    """Cancel the tasks, wait until they have ended, and raise what one of them failed with, unless
    it is of a kind to `ignore`.

    Never `suppress(CancelledError)` around `await task` for this: a caller that is cancelled at
    that moment would lose its own cancellation and go on, with nobody left to stop it.
    """
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    errors = [error for task in tasks if not task.cancelled() and (error := task.exception())]
    for error in errors:
        if not isinstance(error, ignore):
            raise error

"""Giving up on work that computes in a thread.

A thread cannot be ended from outside. Whoever starts one says how it learns that nobody waits any
more; work that may take long asks now and then and ends itself. `asyncio.to_thread` hands the
context on, so nothing in between needs to know.

    with cancellable(flag.is_set):
        check(definition)          # raises Abandoned soon after flag.set()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_given_up: ContextVar[Callable[[], bool] | None] = ContextVar("given_up", default=None)


class Abandoned(Exception):
    """Nobody waits for this any more."""


def poll() -> None:
    """Go on, unless somebody has given up on it."""
    given_up = _given_up.get()
    if given_up is not None and given_up():
        raise Abandoned("nobody waits for this any more")


@contextmanager
def cancellable(given_up: Callable[[], bool]) -> Iterator[None]:
    """Work in this block ends with `Abandoned` when `given_up` says so."""
    before = _given_up.set(given_up)
    try:
        yield
    finally:
        _given_up.reset(before)

"""A context variable that has a value for the time of a block.

Work that was left behind because it would not stop is torn down by the garbage collector, in
whatever context that happens to run. There is nothing to set back then: the context of the block
went with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def scoped(variable: ContextVar[T], value: T) -> Iterator[None]:
    before = variable.set(value)
    try:
        yield
    finally:
        with suppress(ValueError):
            variable.reset(before)

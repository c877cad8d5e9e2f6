"""A context variable that has a value for the time of a block.

Work that was left behind because it would not stop is torn down by the garbage collector, in
whatever context that happens to run. There is nothing to set back then: the context of the block
went with it.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Generic, TypeVar

T = TypeVar("T")


class scoped(Generic[T]):  # noqa: N801 - a class and no generator: every job goes through it
    __slots__ = ("_before", "_value", "_variable")

    _before: Token[T]

    def __init__(self, variable: ContextVar[T], value: T) -> None:
        self._variable = variable
        self._value = value

    def __enter__(self) -> None:
        self._before = self._variable.set(self._value)

    def __exit__(self, *_exc: object) -> None:
        try:  # noqa: SIM105 - nor is there a second one in it
            self._variable.reset(self._before)
        except ValueError:
            pass

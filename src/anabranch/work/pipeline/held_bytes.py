"""What a job keeps in memory until it answers, counted as it is kept.

A result that is too large is refused when a job answers (`result_bytes_max`). Until then a pipeline
keeps the results of its tasks, what their rounds accumulate and what its rules write, and a loop
those of its items: each of them small enough, and any number of them in a definition of ten lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.kernel.values import Answer, ContextPatch, failed
from anabranch.work.pipeline.services import HELD_BYTES_MAX

_SCALARS = frozenset({int, float, bool, type(None)})
_PLAIN = frozenset({*_SCALARS, str})
_SCALAR_BYTES = 8
_encode = msgspec.json.Encoder().encode


class TooMuchHeld(InputError):
    """The job would keep more than it may."""

    code = "result"


class HeldBytes:
    """The total of one job, or of a part of it that ends by itself."""

    __slots__ = ("_by_name", "_most", "_total")

    def __init__(self, most: int = HELD_BYTES_MAX) -> None:
        self._most = most
        self._total = 0
        self._by_name: dict[object, int] = {}

    def add(self, value: Any) -> None:
        """Raises `TooMuchHeld` where there is no room for it, and counts it otherwise."""
        self._grow(bytes_of(value))

    def put(self, name: object, value: Any) -> None:
        """The same, in the place of what had this name."""
        size = bytes_of(value)
        self._grow(size - self._by_name.get(name, 0))
        self._by_name[name] = size

    def add_patches(self, patches: Iterable[ContextPatch]) -> None:
        for patch in patches:
            self.add(patch.value)

    def require_room(self, size: int) -> None:
        """Raises where so many bytes alone are too many."""
        if size > self._most:
            raise TooMuchHeld(
                f"a job keeps at most {self._most:,} bytes of results and writes until it answers "
                "(setting expression_bytes_max): give what is large a step of its own"
            )

    def _grow(self, size: int) -> None:
        self.require_room(self._total + size)
        self._total += size


def keep_answer(
    held: HeldBytes, answer: Answer, shared: Iterable[ContextPatch] = (), *, result: bool = True
) -> Answer:
    """The answer of an item with what it shares, or why there is no room to keep it. `result` says
    whether that is kept, too."""
    try:
        held.add(answer.result if result else None)
        held.add_patches(answer.patches)
        held.add_patches(shared)
    except TooMuchHeld as error:
        return failed(error.code, error.message, retryable=False)
    return answer


def bytes_of(value: Any) -> int:
    """About those of its JSON; what holds no lists and mappings is not written for that."""
    kind = type(value)
    if kind in _SCALARS:
        return _SCALAR_BYTES
    if kind is str:
        return len(value)
    if kind is list and _PLAIN.issuperset(map(type, value)):
        return _SCALAR_BYTES * len(value) + sum([len(one) for one in value if type(one) is str])
    try:
        return len(_encode(value))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return 0  # no JSON, which is said when it is recorded

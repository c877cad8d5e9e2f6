"""How much an evaluation does, counted without a clock, also where C code does it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from anabranch.expressions.budget import TurnBudget, share_budget, unshare_budget
from anabranch.expressions.jinja.spending import KEY_MAX

#: Built-in methods that take the same time however large their object is.
_AT_ONCE = frozenset(
    {"append", "pop", "get", "keys", "values", "items", "__getitem__", "__len__", "add"}
    | {"setdefault", "update", "extend", "bit_length", "is_integer", "indices", "set", "reset"}
)
_SIZED = (str, bytes, list, tuple, dict, set)
_CHARACTERS = 8  # are read or made in the time of one operation of Python


class Number(int):
    """A number that is seen when C code compares or hashes it, as it does in lists."""

    def __eq__(self, other: object) -> bool:
        return int(self) == other

    def __lt__(self, other: int) -> bool:
        return int(self) < other

    def __gt__(self, other: int) -> bool:
        return int(self) > other

    def __hash__(self) -> int:
        return hash(int(self))


class Text(str):
    """The same for a text: the whole of it counts."""

    read = 0  # characters, by all of them

    def __eq__(self, other: object) -> bool:
        Text.read += min(len(self), len(other)) if isinstance(other, str) else 0
        return str(self) == other

    def __lt__(self, other: str) -> bool:
        Text.read += min(len(self), len(other))
        return str(self) < other

    def __gt__(self, other: str) -> bool:
        Text.read += min(len(self), len(other))
        return str(self) > other

    def __contains__(self, part: str) -> bool:  # type: ignore[override]
        Text.read += len(self)
        return part in str(self)

    def __hash__(self) -> int:
        Text.read += max(0, len(self) - KEY_MAX)
        return hash(str(self))


class Work:
    """Operations of Python, the sizes of what C methods work on, and of what comes back new."""

    def __init__(self) -> None:
        self.operations = 0
        self._seen: dict[int, Any] = {}  # what came back counts once

    def know(self, value: Any) -> None:
        self._seen[id(value)] = value

    def trace(self, frame: FrameType, event: str, _arg: Any) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self.operations += event == "opcode"
        return self.trace

    def profile(self, _frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call":
            if arg.__name__ not in _AT_ONCE:
                self._count(getattr(arg, "__self__", None))
        elif event == "return" and id(arg) not in self._seen and isinstance(arg, _SIZED):
            self.know(arg)
            self._count(arg)

    def _count(self, value: Any) -> None:
        if isinstance(value, (str, bytes)):
            self.operations += len(value) // _CHARACTERS
        elif isinstance(value, _SIZED):
            self.operations += len(value)


@contextmanager
def _counted(work: Work) -> Iterator[None]:
    Text.read = 0
    before, collects = (sys.gettrace(), sys.getprofile()), gc.isenabled()
    gc.disable()  # what it finds is not this evaluation's
    sys.setprofile(work.profile)
    sys.settrace(work.trace)
    try:
        yield
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
        if collects:
            gc.enable()
        work.operations += Text.read


def work_and_charge(evaluate: Callable[[], Any], known: list[Any], limit: int) -> tuple[int, int]:
    """What an evaluation did, and what it was charged until it had to stop."""
    work, budget = Work(), TurnBudget(limit)
    for value in known:
        work.know(value)
    before = share_budget(budget)
    try:
        with _counted(work):
            evaluate()
    finally:
        unshare_budget(before)
    return work.operations, min(budget.used, limit)

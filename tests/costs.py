"""What work costs, counted without a clock."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from operator import and_
from types import FrameType
from typing import Any


def operations(work: Callable[[], Any]) -> int:
    """How many bytecode operations `work` takes: the same on every machine."""
    count = 0

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    with _no_garbage_collected():
        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(before)
    return count


#: What these do depends on how long others take.
_WAITING = {"_weakrefset", "asyncio", "concurrent", "queue", "selectors", "threading", "weakref"}


@contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """It comes when it comes, and what others have it call would be counted."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def calls() -> Iterator[Counter[str]]:
    """Which Python functions are called in this thread, and how often, by their names. The event
    loop is left out, and what C calls by itself costs nothing."""
    found: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _arg: Any) -> None:
        if event == "call":
            module = str(frame.f_globals.get("__name__"))
            if module.partition(".")[0] not in _WAITING:
                found[f"{module}.{frame.f_code.co_qualname}"] += 1

    before = sys.getprofile()
    with _no_garbage_collected():
        sys.setprofile(count)
        try:
            yield found
        finally:
            sys.setprofile(before)


def calls_of_each(goes: Iterable[Counter[str]]) -> Counter[str]:
    """What every one of them calls: what comes now and then, as timers do, is in some of them."""
    return reduce(and_, goes)

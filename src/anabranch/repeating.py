"""Threads that repeat a method for as long as somebody has its object.

A thread that holds the object it works for keeps it, and all that the object holds, for ever: a
program that drops an engine without closing it would keep a thread, a store and every run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from weakref import WeakMethod


def start_repeating(
    act: Callable[[], None], wait: Callable[[], bool], name: str
) -> threading.Thread:
    """Call `act`, a method, each time `wait` returns true, in a thread of its own.

    The thread ends when `wait` returns false, or when nobody else has the object of the method. So
    `wait` must not hold that object.
    """
    thread = threading.Thread(target=_repeat, args=[WeakMethod(act), wait], name=name, daemon=True)
    thread.start()
    return thread


def _repeat(act_of: WeakMethod[Callable[[], None]], wait: Callable[[], bool]) -> None:
    while wait():
        act = act_of()
        if act is None:
            return
        act()
        del act  # while this thread waits, it holds nothing

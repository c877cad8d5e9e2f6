"""The work of the cluster benchmarks. Workers of the cluster import this module by its name."""

from __future__ import annotations

import time
from typing import Any

import anabranch

ITEM_SECONDS = 0.01


@anabranch.tool("nothing", blocking=False)
def nothing(value: Any) -> None:
    """An item of D1."""


@anabranch.tool("spin")
def spin(value: Any) -> int:
    """An item of D2 and D4: ten milliseconds of the processor, however busy the machine is."""
    until, turns = time.thread_time() + ITEM_SECONDS, 0
    while time.thread_time() < until:
        turns += sum(range(100))
    return turns and int(value)


WORK = {"nothing": nothing, "spin": spin}


def batch(name: str, first: int, stop: int) -> int:
    """A shard without us: the same items in a plain loop. It gets numbers: lists of items in the
    arguments of a task would cost the cluster more than the work."""
    work = WORK[name]
    for value in range(first, stop):
        work(value)
    return stop - first


def one(name: str, value: Any) -> Any:
    return WORK[name](value)

"""Libraries that are loaded when they are first needed, one after the other.

A module stands in `sys.modules` before it is complete, and of two threads that begin to import one
package by different modules the interpreter lets one have it half made, so that they do not wait
for each other for ever. Whoever needs a library late, in whatever thread, asks here.
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from threading import RLock
from typing import Any

one_at_a_time = RLock()  # a library may load another in the same way
_complete: set[str] = set()


def load(name: str) -> Any:
    """The complete module. Raises `ImportError` where it is not installed."""
    if not _is_complete(name):
        with one_at_a_time:
            import_module(_package(name))
            import_module(name)
            _complete.add(name)
    return sys.modules[name]


async def load_aside(name: str) -> Any:
    """The same in a thread, where it is not loaded yet: that takes up to a second."""
    return load(name) if _is_complete(name) else await asyncio.to_thread(load, name)


def _is_complete(name: str) -> bool:
    there = sys.modules.get(name) is not None and sys.modules.get(_package(name)) is not None
    return name in _complete and there


def _package(name: str) -> str:
    return name.partition(".")[0]

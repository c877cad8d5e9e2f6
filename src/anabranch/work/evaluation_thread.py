"""Evaluations that take long: one at a time, in a thread, while the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")

#: Several would compete with the event loop for the interpreter.
_THREAD = ThreadPoolExecutor(1, "anabranch-evaluation")


async def evaluate_in_thread(evaluate: Callable[[], T]) -> T:
    run = copy_context().run
    return await asyncio.get_running_loop().run_in_executor(_THREAD, run, evaluate)

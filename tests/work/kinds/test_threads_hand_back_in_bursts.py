"""Blocking calls run in threads: results come back, late ones are dropped, nothing leaks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from anabranch.work.kinds.threads import Threads, default_size

from ..support import run


def test_results_and_exceptions_come_back_and_no_thread_is_left() -> None:
    before = set(threading.enumerate())  # another test may have left one that is stuck in a call

    async def scenario() -> None:
        threads = Threads(3)
        assert await threads.run(lambda: 7) == 7
        with pytest.raises(ValueError, match="no"):
            await threads.run(lambda: int("no"))
        with pytest.raises(RuntimeError, match="StopIteration"):
            await threads.run(partial(next, iter(())))
        answers = await asyncio.gather(*(threads.run(partial(int, n)) for n in range(500)))
        assert answers == list(range(500))
        assert len(set(threading.enumerate()) - before) == threads.alive == 3
        await threads.close()

    run(scenario())
    assert set(threading.enumerate()) - before == set()


def test_threads_start_only_when_they_are_needed() -> None:
    async def scenario() -> None:
        threads = Threads(8)
        for _ in range(20):
            await threads.run(lambda: None)
        assert threads.alive == 1
        all_at_work = threading.Barrier(8)  # nobody goes on before eight are there
        await asyncio.gather(*(threads.run(all_at_work.wait) for _ in range(24)))
        assert threads.alive == 8
        await threads.close()

    run(scenario())
    assert 1 <= default_size() <= 32


def test_a_burst_wakes_the_loop_once() -> None:
    async def scenario() -> int:
        threads = Threads(4)
        loop = asyncio.get_running_loop()
        wakes = 0
        original = loop.call_soon_threadsafe

        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal wakes
            wakes += 1
            return original(*args, **kwargs)

        setattr(loop, "call_soon_threadsafe", counted)  # noqa: B010 - it is meant as a spy
        calls = [asyncio.ensure_future(threads.run(lambda: 1)) for _ in range(200)]
        await asyncio.sleep(0)
        while len(threads._finished) < 200:  # the loop is busy until the threads have finished
            time.sleep(0.001)
        await asyncio.gather(*calls)
        await threads.close()
        return wakes

    assert 1 <= run(scenario()) <= 4  # of each thread the first result, at the most


def held_up(begun: threading.Event, release: threading.Event) -> None:
    begun.set()
    release.wait()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_a_cancelled_caller_returns_at_once_and_the_late_result_is_dropped() -> None:
    async def scenario() -> None:
        threads = Threads(1)
        begun, release = threading.Event(), threading.Event()
        running = asyncio.ensure_future(threads.run(partial(held_up, begun, release)))
        ran: list[int] = []
        waiting = asyncio.ensure_future(threads.run(lambda: ran.append(1)))
        await until(begun.is_set)
        for call in (running, waiting):
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        release.set()
        assert await threads.run(lambda: "still in order") == "still in order"
        assert ran == []  # what had not begun does not begin
        await threads.close()

    run(scenario())


def test_closing_does_not_wait_for_a_stuck_call() -> None:
    release = threading.Event()

    async def scenario() -> None:
        threads = Threads(2, close_seconds=0.05)
        begun = threading.Event()
        stuck = asyncio.ensure_future(threads.run(partial(held_up, begun, release)))
        await until(begun.is_set)
        stuck.cancel()
        await threads.close()
        await threads.close()
        assert threads.alive == 1
        with pytest.raises(RuntimeError, match="closed"):
            await threads.run(lambda: None)

    run(scenario())
    release.set()


def test_a_pool_serves_one_loop() -> None:
    threads = Threads(1)
    run(threads.run(lambda: None))

    async def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            await threads.run(lambda: None)
        await threads.close()

    run(elsewhere())

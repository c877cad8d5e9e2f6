"""Blocking calls run in threads: results come back, late ones are dropped, nothing leaks."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import Any

import pytest

from anabranch.work.threads import Threads, default_size

from .support import run


def ours() -> int:
    return sum(thread.name.startswith("anabranch-") for thread in threading.enumerate())


def test_results_and_exceptions_come_back() -> None:
    before = ours()  # another test may have left one that is stuck in a call

    async def scenario() -> None:
        threads = Threads(3)
        assert await threads.run(lambda: 7) == 7
        with pytest.raises(ValueError, match="no"):
            await threads.run(lambda: int("no"))
        with pytest.raises(RuntimeError, match="StopIteration"):
            await threads.run(partial(next, iter(())))
        answers = await asyncio.gather(*(threads.run(partial(int, n)) for n in range(500)))
        assert answers == list(range(500))
        await threads.close()
        assert threads.alive == 0

    run(scenario())
    assert ours() <= before


def test_threads_start_only_when_they_are_needed() -> None:
    async def scenario() -> None:
        threads = Threads(8)
        for _ in range(20):
            await threads.run(lambda: None)
        assert threads.alive == 1
        await asyncio.gather(*(threads.run(lambda: time.sleep(0.02)) for _ in range(20)))
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
        time.sleep(0.05)  # the loop is busy while the threads finish
        await asyncio.gather(*calls)
        await threads.close()
        return wakes

    assert run(scenario()) < 20


def test_a_cancelled_caller_returns_at_once_and_the_late_result_is_dropped() -> None:
    async def scenario() -> None:
        threads = Threads(1)
        release = threading.Event()
        running = asyncio.ensure_future(threads.run(release.wait))
        ran: list[int] = []
        waiting = asyncio.ensure_future(threads.run(lambda: ran.append(1)))
        await asyncio.sleep(0.01)
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

        def hang() -> None:
            begun.set()
            release.wait()

        stuck = asyncio.ensure_future(threads.run(hang))
        while not begun.is_set():
            await asyncio.sleep(0.01)
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

"""Pace: a thousand requests do not hold up one another, nor the answers to the first of them."""

from __future__ import annotations

import asyncio

from anabranch.work.participants.pace import Pace
from hangs import HANG_SECONDS

from ..support import run


def test_a_few_begin_in_each_round_of_the_loop_in_the_order_they_came() -> None:
    async def all_of_them() -> list[tuple[int, int]]:
        pace, begun, rounds = Pace(3), [], 0

        async def one(number: int) -> None:
            await pace.turn()
            begun.append((rounds, number))

        tasks = [asyncio.ensure_future(one(number)) for number in range(10)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            rounds += 1
        return begun

    begun = run(all_of_them())
    assert [number for _, number in begun] == list(range(10))
    per_round = [sum(at == each for at, _ in begun) for each in {at for at, _ in begun}]
    assert max(per_round) <= 3


def test_who_is_cancelled_takes_nobodys_turn_and_the_next_burst_begins_at_once() -> None:
    async def with_some_cancelled() -> tuple[int, bool]:
        pace, begun = Pace(2), 0

        async def one() -> None:
            nonlocal begun
            await pace.turn()
            begun += 1

        tasks = [asyncio.ensure_future(one()) for _ in range(9)]
        await asyncio.sleep(0)
        for task in tasks[2:6]:
            task.cancel()
        await asyncio.wait(tasks)
        for _ in range(3):
            await asyncio.sleep(0)
        later = asyncio.ensure_future(one())
        await asyncio.sleep(0)
        return begun, later.done()

    assert run(with_some_cancelled()) == (6, True)


def test_one_that_waits_for_its_connection_holds_up_nobody() -> None:
    async def slow_and_fast() -> bool:
        pace = Pace(1)
        never = asyncio.Event()

        async def one(slow: bool) -> None:
            await pace.turn()
            if slow:
                await never.wait()

        slow = [asyncio.ensure_future(one(True)) for _ in range(5)]
        fast = asyncio.ensure_future(one(False))
        await asyncio.wait_for(fast, HANG_SECONDS)
        for task in slow:
            task.cancel()
        await asyncio.wait(slow)
        return True

    assert run(slow_and_fast())

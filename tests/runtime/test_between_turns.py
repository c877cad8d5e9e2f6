"""What is done between turns: after a turn as a rule; partitions that come back, before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from anabranch.runtime.between_turns import ACTS_AT_ONCE, BetweenTurns
from anabranch.runtime.core import TURN_MAX

from .support import run


def nothing() -> None: ...


async def waiting(between: BetweenTurns, act: Callable[[], None], *, early: bool) -> None:
    """Returns when the act waits to be done."""
    asyncio.ensure_future(between.do(act, early=early))  # noqa: RUF006 - the test ends sooner
    await asyncio.sleep(0)


def between_turns() -> BetweenTurns:
    return BetweenTurns(nothing)


def test_nothing_comes_before_a_turn_where_nothing_waits() -> None:
    assert not between_turns().come_first(0)


def test_what_may_come_early_does_so_a_few_times_and_then_there_is_a_turn() -> None:
    async def scenario() -> None:
        between = between_turns()
        done: list[int] = []
        for _ in range(2):
            for number in range(ACTS_AT_ONCE):
                await waiting(between, partial(done.append, number), early=True)
                assert between.come_first(0)
                await between.carry_out(None)
                assert done[-1] == number
            await waiting(between, nothing, early=True)
            assert not between.come_first(0)
            await between.carry_out(None)

    run(scenario())


def test_a_whole_turn_that_waits_goes_first() -> None:
    async def scenario() -> None:
        between = between_turns()
        await waiting(between, nothing, early=True)
        assert not between.come_first(TURN_MAX)
        assert between.come_first(TURN_MAX - 1)

    run(scenario())


def test_what_has_to_wait_for_a_turn_holds_back_the_rest() -> None:
    """Partitions are handed over after what was said for their runs is recorded."""

    async def scenario() -> None:
        between = between_turns()
        await waiting(between, nothing, early=False)
        await waiting(between, nothing, early=True)
        assert not between.come_first(0)
        await between.carry_out(None)
        await waiting(between, nothing, early=True)
        assert between.come_first(0)

    run(scenario())

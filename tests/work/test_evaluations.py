"""What is evaluated outside turns shares the event loop with whoever else is there."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import ChainMap
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from anabranch.errors import ExpressionError
from anabranch.expressions.budget import (
    BREATHE_WORK,
    HELD_WORK_MAX,
    TURN_WORK_MAX,
    TooMuch,
    TurnBudget,
    share_budget,
    shared_budget,
)
from anabranch.work.evaluations import copied_names, evaluate, evaluate_with, share_of_loop
from anabranch.work.run_at_work import run_at_work, working_for
from anabranch.work.run_queues import RunQueues
from anabranch.work.secrets.values import Keyring, with_credentials
from seeds import seeds


def taking(units: int, found: Any = None) -> Callable[[], Any]:
    def work() -> Any:
        budget = shared_budget()
        assert budget is not None
        for _ in range(8):
            budget.charge(units // 8)
        return found

    return work


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


@pytest.mark.parametrize("seed", seeds(20))
def test_no_round_of_the_event_loop_takes_more_than_its_share(seed: int) -> None:
    """However many evaluate, and however long each of them takes."""
    rng = random.Random(seed)
    rounds: list[int] = [0]
    done: list[int] = []
    main = threading.get_ident()

    def counted(number: int, units: int) -> Callable[[], int]:
        def work() -> int:
            budget = shared_budget()
            assert budget is not None
            try:
                taking(units)()
            finally:
                if threading.get_ident() == main:
                    rounds[-1] += budget.used
            return number

        return work

    async def one(number: int) -> None:
        for _ in range(rng.randrange(1, 4)):
            units = rng.choice([8, 80_000, BREATHE_WORK, HELD_WORK_MAX, 2 * HELD_WORK_MAX])
            assert await evaluate(counted(number, units)) == number
        done.append(number)

    async def work() -> None:
        async def count_rounds() -> None:
            while True:
                rounds.append(0)
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_rounds())
        await asyncio.gather(*map(one, range(30)))
        counting.cancel()

    run(work())
    assert sorted(done) == list(range(30))
    # What ends the share of a round is looked at when it is over; an eighth too much is seen late.
    assert max(rounds) <= BREATHE_WORK + HELD_WORK_MAX * 5 // 4
    assert len(rounds) > 10


def test_who_came_first_has_the_first_turn() -> None:
    order: list[int] = []

    def note(number: int) -> None:
        order.append(number)
        taking(400_000)()

    async def work() -> None:
        await evaluate(taking(2 * BREATHE_WORK))
        waiting = [evaluate(partial(note, n)) for n in range(12)]
        await asyncio.gather(*waiting)

    run(work())
    assert order == list(range(12))


def test_who_does_not_wait_any_more_has_no_turn() -> None:
    seen: list[str] = []

    async def work() -> None:
        first = asyncio.create_task(evaluate(lambda: gone.cancel()))
        gone = asyncio.create_task(evaluate(lambda: seen.append("gone")))
        stays = asyncio.create_task(evaluate(lambda: seen.append("stays")))
        await evaluate(taking(2 * BREATHE_WORK))  # and all of them come too late
        await asyncio.gather(first, stays)

    run(work())
    assert seen == ["stays"]


def test_whoever_waits_is_in_the_context_of_the_caller_and_of_no_other() -> None:
    """What is evaluated for one run knows nothing of the secrets or the budget of another."""

    found: list[tuple[str, str]] = []

    def note(name: str) -> None:
        found.append((name, run_at_work.get()))

    async def of_run(name: str) -> None:
        with working_for(name):
            share = share_of_loop()
            for _ in range(4):
                await evaluate(lambda: (taking(BREATHE_WORK)(), note(name)))  # type: ignore[func-returns-value]
                if share.is_used_up:
                    share.call_in_turn(partial(note, name))

    async def work() -> None:
        await asyncio.gather(*(of_run(f"run-{n}") for n in range(8)))
        await evaluate(taking(8))

    run(work())
    assert len(found) > 32
    assert all(name == seen for name, seen in found)


def test_a_budget_of_the_caller_ends_what_takes_too_long() -> None:
    async def work() -> None:
        budget = TurnBudget()
        share_budget(budget)
        for _ in range(TURN_WORK_MAX // HELD_WORK_MAX):
            await evaluate(taking(HELD_WORK_MAX))
        assert budget.used == TURN_WORK_MAX
        with pytest.raises(TooMuch, match="turn_work_max"):
            await evaluate(taking(80))

    run(work())


def test_what_takes_long_has_one_budget_and_is_done_from_copies() -> None:
    written: dict[str, Any] = {"a": 1}
    names = {"ctx": ChainMap({}, written), "local": {"n": 1}, "run": "r"}
    assert copied_names(names) == names
    seen: list[Any] = []

    def look(names: Any) -> None:
        taking(2 * HELD_WORK_MAX)()
        if threading.current_thread() is not threading.main_thread():
            written["b"] = 2  # as another turn of the run would
            seen.append(dict(names["ctx"]))

    async def work() -> None:
        await evaluate_with(names, look)
        with pytest.raises(TooMuch):
            await evaluate(taking(TURN_WORK_MAX + 80))

    run(work())
    assert seen == [{"a": 1}]


def test_the_many_long_evaluations_of_one_run_keep_no_other_waiting() -> None:
    order: list[str] = []
    began, go = threading.Event(), threading.Event()

    def long(name: str) -> None:
        taking(2 * HELD_WORK_MAX)()
        if threading.current_thread() is not threading.main_thread():
            began.set()
            go.wait(30)
            order.append(name)

    async def of_run(name: str) -> None:
        with working_for(name):
            await evaluate(lambda: long(name))

    async def work() -> None:
        many = [asyncio.create_task(of_run("many")) for _ in range(9)]
        while not began.is_set():
            await asyncio.sleep(0.001)
        few = asyncio.create_task(of_run("few"))
        gone = asyncio.create_task(of_run("gone"))
        for _ in range(200):
            await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        go.set()
        await asyncio.gather(few, *many)

    run(work())
    assert order.count("few") == 1
    assert order.index("few") <= 2, order
    assert "gone" not in order


def test_renderings_that_ask_for_one_credential_after_the_other_share_a_budget() -> None:
    """Each of them begins again; all of them together take no more than a few turns may."""

    async def find(name: str) -> str:
        return name

    async def work() -> None:
        ring = Keyring({}, find=find)
        rendered = 0

        def render() -> None:
            nonlocal rendered
            taking(HELD_WORK_MAX)()
            rendered += 1
            ring[f"name-{rendered}"]

        with pytest.raises((TooMuch, ExpressionError)):
            await with_credentials(render)
        assert rendered < 300

    run(work())


def test_the_many_brief_evaluations_of_one_run_keep_no_other_waiting() -> None:
    """However many wait: each run has its turn."""
    order: list[str] = []

    def note(name: str) -> None:
        order.append(name)
        taking(400_000)()

    async def of_run(name: str) -> None:
        with working_for(name):
            await evaluate(partial(note, name))

    async def work() -> None:
        await evaluate(taking(2 * BREATHE_WORK))
        many = [asyncio.create_task(of_run("many")) for _ in range(50)]
        await asyncio.sleep(0)
        few = [asyncio.create_task(of_run(name)) for name in ("few", "few", "other")]
        await asyncio.gather(*many, *few)

    run(work())
    assert order.count("many") == 50
    at = [number for number, name in enumerate(order) if name != "many"]
    # Those that came in the rounds before they did are no more than a few.
    assert at[-1] < 12, order


def test_runs_take_turns_and_each_keeps_its_order() -> None:
    waiting: RunQueues[int] = RunQueues()
    for number in range(6):
        waiting.add("a", number)
    waiting.add("b", 10)
    waiting.add("c", 20)
    waiting.add("b", 11)
    waiting.add("gone", 30)
    waiting.drop("gone")
    waiting.drop("never there")
    assert (len(waiting), waiting.runs) == (9, {"a", "b", "c"})
    assert "gone" not in waiting
    assert [waiting.take() for _ in range(len(waiting))] == [0, 10, 20, 1, 11, 2, 3, 4, 5]
    assert not waiting

"""Asking many at once: small versions of the benchmarks B8 to B10, which say how long it takes."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.runtime.effects import DurableEvents
from work.participants.loopback_participants import (
    Behaviour,
    Visit,
    engine,
    never,
    party,
    reply,
    solicit,
)

LIMIT_SECONDS = 120  # for what happens at once; nobody here answers later by himself


def after(seconds: float, price: int) -> Behaviour:
    async def answer(writer: asyncio.StreamWriter, _visit: Visit) -> None:
        await asyncio.sleep(seconds)
        writer.write(reply(f'{{"price": {price}}}'))

    return answer


def test_the_first_of_fifty_is_enough_and_the_others_are_let_go_at_once() -> None:
    others: dict[str, Behaviour] = {f"p{n}": never for n in range(49)}
    with party(first=after(0, 1), **others) as server:

        async def ask() -> tuple[Any, bool]:
            async with engine({"participants": server.book()}) as opened:
                run = await opened.start(solicit([*others, "first"], "any_one", "PT1H"))
                result = await opened.wait(run)
                closed = await asyncio.to_thread(server.wait, server.all_closed, LIMIT_SECONDS)
                return result, closed

        result, closed = asyncio.run(ask())
    assert closed, "while the engine went on, and long before their time was up"
    assert result.result == {"price": 1}


@pytest.mark.slow
def test_the_best_of_three_hundred_is_chosen_when_the_time_is_up() -> None:
    dice = random.Random(9)
    prices = dict(zip((f"p{n}" for n in range(300)), dice.sample(range(9_000), 300), strict=True))
    late = {f"p{n}" for n in range(0, 300, 3)}
    behaviours = {
        name: never if name in late else after(dice.uniform(0, 0.3), price)
        for name, price in prices.items()
    }
    timeout = 4.0
    with party(**behaviours) as server:

        async def ask() -> tuple[Any, Any, float]:
            async with engine({"participants": server.book()}) as opened:
                begun = time.monotonic()
                definition = solicit([*prices], "best_of", f"PT{timeout}S")
                run = await opened.start(definition)
                result = await opened.wait(run)
                return result, opened.read.dispatches(run), time.monotonic() - begun

        result, dispatches, seconds = asyncio.run(ask())
    answered = [each.record.target for each in dispatches if each.record.status == "responded"]
    assert timeout <= seconds + 0.01
    assert Counter(each.record.target for each in dispatches) == Counter(list(prices))
    assert result.result == {"price": min(prices[name] for name in answered)}
    assert {each.record.status for each in dispatches if each.record.target in late} == {"timeout"}
    assert answered, "some of those that answer did so in time"


@pytest.mark.slow
def test_three_hundred_are_asked_at_once_and_the_best_of_all_of_them_is_chosen() -> None:
    """Nobody answers before all are asked: asked one after the other, nobody ever would."""
    prices = {f"p{n}": 1000 + 7 * n % 300 for n in range(300)}
    asked: set[str] = set()
    all_asked = asyncio.Event()  # of the loop in which the participants live

    def when_all_are_asked(price: int) -> Behaviour:
        async def answer(writer: asyncio.StreamWriter, visit: Visit) -> None:
            asked.add(visit.path)
            if len(asked) == len(prices):
                all_asked.set()
            await all_asked.wait()
            writer.write(reply(f'{{"price": {price}}}'))

        return answer

    with party(**{name: when_all_are_asked(price) for name, price in prices.items()}) as server:

        async def ask() -> tuple[Any, Any]:
            async with engine({"participants": server.book()}) as opened:
                run = await opened.start(solicit([*prices], "best_of", "PT1H"))
                return await opened.wait(run), opened.read.dispatches(run)

        result, dispatches = asyncio.run(ask())
    assert {each.record.status for each in dispatches} == {"responded"}
    assert len(dispatches) == len(server.visits) == len(prices)
    assert result.result == {"price": min(prices.values())}


@pytest.mark.slow
def test_no_timeout_of_two_hundred_runs_is_missed_or_comes_twice() -> None:
    async def soon(_request: Any) -> Any:
        await asyncio.sleep(0.01)
        return {"ok": True}

    async def nothing(_request: Any) -> Any:
        await asyncio.sleep(3600)

    people = {f"p{n}": soon if n < 5 else nothing for n in range(8)}
    texts = [
        solicit([*people], "quorum", "PT5S", fan_in={"min_responses": wanted}) for wanted in (5, 6)
    ]
    due: dict[str, int] = {}
    late: dict[str, int] = {}
    in_order: list[int] = []
    answers: Counter[str] = Counter()
    settled: Counter[str] = Counter()

    def hear(news: DurableEvents) -> None:
        for event in news.events:
            if isinstance(event, e.GatherOpened):
                due[news.run] = news.at + 5000
            elif isinstance(event, e.GatherSettled):
                settled[news.run] += 1
                if event.verdict != "closed":
                    if answers[news.run] == 5:  # then nothing but its timer settles it
                        in_order.append(due[news.run])
                    late[news.run] = news.at - due[news.run]
        answers[news.run] += sum(isinstance(event, e.JobReported) for event in news.events)

    async def ask() -> tuple[list[str], list[str]]:
        async with engine({"participants": people}) as opened:
            opened._open.engine.listen(hear)
            runs = [await opened.start(texts[n % 2]) for n in range(200)]
            results = [await opened.wait(run) for run in runs]
            return runs, [result.status for result in results]

    runs, statuses = asyncio.run(ask())
    assert settled == Counter(runs), "each fan comes to one verdict"
    assert set(late) == set(runs[1::2]), "those without a quorum, and only those, ran out of time"
    assert statuses[::2] == ["completed"] * 100
    assert statuses[1::2] == ["step_timeout"] * 100
    assert min(late.values()) >= 0
    assert in_order == sorted(in_order), "nobody is kept waiting for one that is due later"

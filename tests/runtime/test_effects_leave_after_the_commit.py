"""Nothing leaves the engine before its batch is durable; a batch that fails ends the engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from anabranch.errors import AnabranchError, StoreError
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import Answer, ContextPatch, succeeded
from anabranch.runtime import writer
from anabranch.runtime.engine import EngineLoop
from anabranch.store.ports import Batch, HeadFilter
from anabranch.work.port import Task
from hangs import HANG_SECONDS

from .support import (
    Doing,
    Fragile,
    asking,
    chain,
    engine,
    forever,
    gated,
    run,
    start,
    summary,
    until,
)

MANY = writer.SMALL_BATCH + 6  # runs in a turn that are enough for a batch on the thread


@contextmanager
def held(store: Fragile) -> Iterator[threading.Event]:
    """Commits on the writer thread wait until they are let go; small ones in place do not."""
    arrived, go = threading.Event(), threading.Event()

    def before(batch: Batch) -> None:
        if threading.current_thread() is not threading.main_thread():
            arrived.set()
            assert go.wait(HANG_SECONDS)

    store.before = before
    try:
        yield arrived
    finally:
        go.set()


async def start_many(made: EngineLoop, text: str, count: int = MANY) -> list[str]:
    return list(await asyncio.gather(*(start(made, text) for _ in range(count))))


def test_no_job_starts_while_its_commit_is_on_the_way() -> None:
    async def scenario() -> None:
        store, doing = Fragile(), Doing()
        async with engine(store, {"doing": doing}) as made:
            with held(store) as arrived:
                starting = asyncio.ensure_future(start_many(made, chain(1, "doing")))
                await until(arrived.is_set)
                await asyncio.sleep(0.1)
                assert doing.tasks == []
                assert not starting.done()
            await starting
            await until(lambda: len(doing.tasks) == MANY)

    run(scenario())


def test_no_reply_is_given_while_the_commit_is_on_the_way() -> None:
    async def scenario() -> None:
        store = Fragile()
        async with engine(store) as made:
            runs = await start_many(made, asking())
            with held(store) as arrived:
                decided = [
                    asyncio.ensure_future(made.send(one, s.Decide("ask", "fulfil"))) for one in runs
                ]
                await until(arrived.is_set)
                await asyncio.sleep(0.05)
                assert not any(one.done() for one in decided)
            await asyncio.gather(*decided)

    run(scenario())


def test_nobody_is_told_of_a_pause_that_is_still_on_its_way_to_the_store() -> None:
    async def scenario() -> None:
        store = Fragile()
        async with engine(store) as made:
            runs = await start_many(made, asking())
            with held(store) as arrived:
                paused = [asyncio.ensure_future(made.send(one, s.Pause("me"))) for one in runs]
                await until(arrived.is_set)
                told = asyncio.ensure_future(made.wait(runs[0], standing=True))
                await asyncio.sleep(0.05)
                assert not told.done()
            await asyncio.gather(*paused)
            assert (await told).paused
            head = store.head(runs[0])
            assert head is not None
            assert head.status == "paused"

    run(scenario())


def test_a_refusal_does_not_overtake_the_batch_it_is_based_on() -> None:
    """The second decision is refused because of the first, which is not durable yet."""

    async def scenario() -> None:
        store = Fragile()
        async with engine(store) as made:
            runs = await start_many(made, asking())
            with held(store) as arrived:
                firsts = [
                    asyncio.ensure_future(made.send(one, s.Decide("ask", "fulfil"))) for one in runs
                ]
                await until(arrived.is_set)
                second = asyncio.ensure_future(made.send(runs[0], s.Decide("ask", "reject")))
                await asyncio.sleep(0.1)
                assert not second.done()
            await asyncio.gather(*firsts)
            with pytest.raises(AnabranchError, match="no gate 'ask' is open"):
                await second

    run(scenario())


def test_whatever_arrives_in_a_turn_is_one_transaction() -> None:
    async def scenario() -> None:
        store = Fragile()
        async with engine(store) as made:
            runs = await start_many(made, gated(), 200)
            assert [len(batch.commits) for batch in store.batches] == [200]
            patch = s.PatchContext((ContextPatch("x", 1),))
            await asyncio.gather(*(made.send(one, patch) for one in runs))
            assert [len(batch.commits) for batch in store.batches] == [200, 200]

    run(scenario())


def test_a_step_costs_one_commit_on_the_critical_path() -> None:
    async def scenario() -> None:
        store = Fragile()
        async with engine(store) as made:
            await made.wait(await start(made, chain(10)))
            assert len(store.batches) == 11

    run(scenario())


def failing_from(store: Fragile, number: int) -> None:
    """The commit with this number (from 0) and all later ones fail."""

    def before(_batch: Batch) -> None:
        if len(store.batches) >= number:
            raise StoreError("the disk is full")

    store.before = before


@pytest.mark.parametrize("count", [1, MANY], ids=["in place", "on the thread"])
def test_a_commit_that_fails_stops_the_engine_and_whoever_waits_hears_of_it(count: int) -> None:
    async def scenario() -> None:
        store, doing = Fragile(), Doing(forever)
        async with engine(store, {"doing": doing}) as made:
            (waiting_run, *_) = runs = await start_many(made, asking(), count)
            waiting = asyncio.ensure_future(made.wait(waiting_run))
            reading = asyncio.ensure_future(read_all(made, waiting_run))
            await asyncio.sleep(0)
            failing_from(store, len(store.batches))
            decided = await asyncio.gather(
                *(made.send(one, s.Decide("ask", "fulfil")) for one in runs),
                return_exceptions=True,
            )
            assert {str(one) for one in decided} == {"the engine has stopped: the disk is full"}
            for hearing in (waiting, reading):
                with pytest.raises(AnabranchError, match="the disk is full"):
                    await hearing
            for late in (made.send(waiting_run, s.Pause()), made.wait(waiting_run)):
                with pytest.raises(AnabranchError, match="the disk is full"):
                    await late

    run(scenario())


async def read_all(made: EngineLoop, name: str) -> list[Any]:
    return [event async for event in made.events(name)]


def test_a_failure_on_the_thread_is_noticed_without_a_further_stimulus() -> None:
    async def scenario() -> None:
        store = Fragile()
        async with engine(store) as made:
            failing_from(store, 0)
            with pytest.raises(AnabranchError, match="the disk is full"):
                await start_many(made, gated())

    run(scenario())


def test_what_a_failed_commit_would_have_started_is_not_started() -> None:
    async def scenario() -> None:
        store, doing = Fragile(), Doing()
        async with engine(store, {"doing": doing}) as made:
            failing_from(store, 0)
            with pytest.raises(AnabranchError, match="the disk is full"):
                await start(made, chain(2, "doing"))
        assert doing.tasks == []
        assert store.heads(HeadFilter()) == []

    run(scenario())


@pytest.mark.parametrize("number", range(1, 6))
def test_reopening_after_a_failed_commit_goes_on_from_the_last_durable_one(number: int) -> None:
    """Whichever commit fails, the run ends the same; every key is one that was scheduled."""

    async def scenario() -> None:
        store = Fragile()
        doing = Doing()
        failing_from(store, number)
        async with engine(store, {"doing": doing}) as made:
            name = await start(made, chain(5, "doing"))
            with pytest.raises(AnabranchError, match="the disk is full"):
                await made.wait(name)
        store.before = lambda _batch: None
        async with engine(store, {"doing": doing}) as made:
            state = await made.wait(name)
            assert summary(made, state)["status"] == "completed"
            assert state.counts.finished == 5
        assert {task.key for task in doing.tasks} == {f"{name}/{n}.0" for n in range(1, 6)}

    run(scenario())


def test_a_slow_disk_holds_nothing_back_but_what_waits_for_it() -> None:
    """While a large batch is written, the loop goes on: it is the loop that lets it be written."""

    async def scenario() -> None:
        store = Fragile()
        writing, turned = threading.Event(), threading.Event()
        in_time: list[bool] = []

        def write(batch: Batch) -> None:
            if len(batch.commits) >= MANY:
                writing.set()
                in_time.append(turned.wait(HANG_SECONDS))

        async def beat() -> None:
            while not writing.is_set():
                await asyncio.sleep(0.01)
            for _ in range(3):
                await asyncio.sleep(0.01)
            turned.set()

        store.before = write
        async with engine(store) as made:
            beating = asyncio.ensure_future(beat())
            await start_many(made, gated())
            await beating
        assert in_time
        assert all(in_time)

    run(scenario())


def test_an_answer_that_comes_while_the_commit_is_on_the_way_is_not_lost() -> None:
    async def scenario() -> None:
        store = Fragile()

        async def quick(_task: Task) -> Answer:
            return succeeded("quick")

        async with engine(store, {"doing": Doing(quick)}) as made:
            runs = await start_many(made, chain(3, "doing"))
            for one in runs:
                state = await made.wait(one)
                assert state.status == "completed"

    run(scenario())

"""Waiting for a job without a claim, as workers of several servers do."""

from __future__ import annotations

import asyncio

from anabranch.runtime.jobs.pool_queues import COME_SECONDS, PoolQueues
from surfaces.worker.support import ONE, run, serving, until
from virtual import run_virtually


def test_who_waits_hears_of_a_job_and_is_given_none() -> None:
    async def scenario() -> None:
        async with serving() as server:
            asked = {"worker": "w1", "wait_seconds": 60}
            waits = asyncio.ensure_future(server.ask("POST", "/pools/gpu/wait", asked))
            pools = server.parts.engine.pools
            await until(lambda: bool((line := pools._lines.get("gpu")) and line.waiters))
            name = await server.start(ONE)
            assert await waits == (200, {"waiting": 1})
            assert server.state(name).jobs["1.0"].phase == "scheduled"
            assert (await server.ask("POST", "/pools/gpu/wait", asked))[1] == {"waiting": 1}
            (task,) = (await server.claim())["tasks"]
            assert task["run"] == name
            assert list(pools.workers("gpu")) == ["w1"]  # it is seen to have asked

    run(scenario())


def test_who_waits_is_answered_when_time_is_up_or_the_server_stops() -> None:
    async def scenario() -> None:
        async with serving() as server:
            status, answer = await server.ask("POST", "/pools/gpu/wait", {"worker": "w1"})
            assert (status, answer) == (200, {"waiting": 0})
            asked = {"worker": "w1", "wait_seconds": 60}
            waits = asyncio.ensure_future(server.ask("POST", "/pools/gpu/wait", asked))
            pools = server.parts.engine.pools
            await until(lambda: bool(pools._lines["gpu"].waiters))
            server.parts.pools.close()
            assert await waits == (200, {"waiting": 0})

    run(scenario())


def test_a_wait_that_is_too_long_or_of_nobody_is_refused() -> None:
    async def scenario() -> None:
        async with serving() as server:
            for body in ({"worker": "w1", "wait_seconds": 61}, {"worker": ""}):
                status, answer = await server.ask("POST", "/pools/gpu/wait", body)
                assert (status, answer["code"]) == (422, "input"), answer

    run(scenario())


def test_a_job_that_the_first_who_hears_of_it_does_not_take_is_told_to_the_next() -> None:
    async def scenario() -> None:
        pools = PoolQueues()
        told: list[str] = []

        async def wait(who: str) -> None:
            await pools.wait("gpu", 3600, takes=False)
            told.append(who)

        both = [asyncio.ensure_future(wait("first")), asyncio.ensure_future(wait("second"))]
        await asyncio.sleep(0)
        pools.add("r", "1.0", 1, "gpu", 0)
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        assert told == ["first"]  # one is enough for one job
        await asyncio.wait(both)
        assert told == ["first", "second"]  # it did not come

    run_virtually(scenario())


def test_a_job_that_is_taken_wakes_no_other_worker() -> None:
    async def scenario() -> None:
        pools = PoolQueues()
        first = asyncio.ensure_future(pools.wait("gpu", 3600, takes=False))
        second = asyncio.ensure_future(pools.wait("gpu", 60, takes=False))
        await asyncio.sleep(0)
        pools.add("r", "1.0", 1, "gpu", 0)
        await first
        assert len(list(pools.take("gpu", 1))) == 1
        line = pools._lines["gpu"]
        await asyncio.sleep(2 * COME_SECONDS)
        assert len(line.waiters) == 1
        await second

    run_virtually(scenario())

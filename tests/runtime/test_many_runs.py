"""Many runs at once in one process: thousands in `make soak`."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from acceptance.log import read_story
from anabranch import Engine, Settings, Toolbox
from anabranch.store.ports import HeadFilter
from anabranch.work.port import Task
from seeds import SHARE

from .support import chain, file_of, gated, run

MANY = 3000 if SHARE >= 1 else 500
CLOSED = 12 if SHARE >= 1 else 6


@pytest.mark.slow
def test_many_runs_of_three_steps_all_complete(tmp_path: Path) -> None:
    box = Toolbox()

    @box.tool("think")
    async def think() -> int:
        await asyncio.sleep(0)
        return 1

    async def scenario() -> None:
        settings = Settings(store=file_of(tmp_path), synchronous="NORMAL")
        async with Engine(settings=settings, toolbox=box) as engine:

            async def whole() -> str:
                return (await engine.wait(await engine.start(chain(3, "think")))).status

            ends = await asyncio.gather(*(whole() for _ in range(MANY)))
            assert ends == ["completed"] * MANY
            assert engine.read.runs(HeadFilter(statuses=("running",))) == []
            statistics = engine._open.store.statistics()
            assert statistics["runs"] == {"completed": MANY}
            assert statistics["records"] < MANY * 5

    run(scenario())


@pytest.mark.slow
def test_many_that_wait_cost_little_and_all_go_on_when_they_are_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = Settings(store=file_of(tmp_path), synchronous="NORMAL", evict_after_seconds=0)
        async with Engine(settings=settings, toolbox=Toolbox()) as engine:
            runs = await asyncio.gather(*(engine.start(gated()) for _ in range(MANY)))
            core = engine._open.engine._core
            core.evict(engine._open.engine.clock.now(), 0)
            assert core.live == {}
            await asyncio.gather(*(engine.patch(one, {"go": True}) for one in runs))
            ends = await asyncio.gather(*(engine.wait(one) for one in runs))
            assert {end.result for end in ends} == {"went on"}

    run(scenario())


@pytest.mark.slow
def test_an_engine_closed_and_opened_again_and_again_loses_nothing(tmp_path: Path) -> None:
    """Closed at random moments under load, with large batches on their way."""
    box, dice, done = Toolbox(), random.Random(5), Counter[str]()

    @box.tool("think")
    async def think(task: Task) -> int:
        await asyncio.sleep(dice.uniform(0, 0.02))
        done[task.key] += 1
        return 1

    async def scenario() -> list[str]:
        settings = Settings(
            store=file_of(tmp_path), synchronous="NORMAL", grace_seconds=0.005, snapshot_every=9
        )
        async with Engine(settings=settings, toolbox=box) as engine:
            runs = await asyncio.gather(
                *(engine.start(chain(6, "think")) for _ in range(MANY // 10))
            )
        for _ in range(CLOSED):
            async with Engine(settings=settings, toolbox=box):
                await asyncio.sleep(dice.uniform(0, 0.05))
        async with Engine(settings=settings, toolbox=box) as engine:
            ends = await asyncio.gather(*(engine.wait(one) for one in runs))
        assert {end.status for end in ends} == {"completed"}
        return list(runs)

    for name in run(scenario()):
        story = read_story(Path(file_of(tmp_path)), name)
        assert story.endings == {f"s{n}": 1 for n in range(6)}
        assert {f"{name}/{n}.0" for n in range(1, 7)} == story.scheduled
        assert all(done[key] >= 1 for key in story.scheduled)

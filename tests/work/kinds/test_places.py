"""Processes of inline code: those that only wait keep nobody out, those that compute do, and every
run has its turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest

from anabranch.kernel.values import Answer
from anabranch.work.kind_options import ProcessOptions
from anabranch.work.kinds.commands.descendants import ProcessorUse, processor_use
from anabranch.work.kinds.python import places as module
from anabranch.work.kinds.python import processes
from anabranch.work.kinds.python.performer import Python
from anabranch.work.kinds.python.places import Place, Places
from anabranch.work.run_at_work import working_for
from hangs import HANG_SECONDS
from seeds import seeds

from ..support import gone, run, task

#: Waits for a file, as code does for an answer: nearly without the processor.
WAITS = "import os, time\nwhile not os.path.exists(door): time.sleep(0.01)\nreturn 'open'"
#: Computes until there is one.
COMPUTES = "import os\nwhile not os.path.exists(door): sum(range(1000))\nreturn 'open'"


def job(code: str, door: Path) -> Any:
    return task("python", code=code, args={"door": str(door)})


async def until(holds: Any) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not holds():
            await asyncio.sleep(0.01)


async def hello(python: Python) -> Any:
    answer: Answer = await python.perform(task("python", code="return 'hello'"))
    return answer.result


def test_code_that_waits_keeps_nobody_out_up_to_the_bound(tmp_path: Path) -> None:
    async def scenario() -> None:
        places = Places(most=6, cores=2)
        python = Python(ProcessOptions(limit=6), places=places)
        door = tmp_path / "door"
        sleepers = [asyncio.create_task(python.perform(job(WAITS, door))) for _ in range(5)]
        assert await hello(python) == "hello"
        await until(lambda: len(places.taken) == 5)
        sleepers += [asyncio.create_task(python.perform(job(WAITS, door))) for _ in range(3)]
        await until(lambda: len(places.taken) == 6)
        assert (places.size, places.queued()) == (6, 2)
        door.touch()
        assert [one.result for one in await asyncio.gather(*sleepers)] == ["open"] * 8
        assert (places.taken, places.size, places.queued()) == ([], 2, 0)
        pids = python.pids
        await python.close()
        assert gone(*pids)

    run(scenario())


def test_code_that_computes_is_as_many_as_there_are_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def seen(pid: int) -> ProcessorUse | None:
        looks.append(pid)
        return known(pid)

    known = processor_use
    monkeypatch.setattr(module, "processor_use", seen)

    async def scenario() -> None:
        places = Places(most=6, cores=2)
        python = Python(ProcessOptions(limit=6), places=places)
        door = tmp_path / "door"
        busy = [asyncio.create_task(python.perform(job(COMPUTES, door))) for _ in range(4)]
        await until(lambda: len(looks) >= 20)
        assert (len(places.taken), places.queued()) == (2, 2)
        door.touch()
        assert [one.result for one in await asyncio.gather(*busy)] == ["open"] * 4
        await python.close()

    run(scenario())


@pytest.mark.parametrize(
    ("uses", "sizes"),
    [
        pytest.param([(0, True), (0, True)], [1, 2], id="sleeps"),
        pytest.param([(0, False), (0.05, False)], [1, 1], id="computes"),
        pytest.param([(0, False), (0.001, False)], [1, 1], id="is kept from a core by others"),
        pytest.param([(0, True), (0.04, True)], [1, 1], id="sleeps now and then"),
        pytest.param([(0, True), (0, True), (0.05, False)], [1, 2, 1], id="goes on"),
        pytest.param([None, None], [2, 2], id="nobody can tell"),
    ],
)
def test_who_waits_is_told_by_what_it_used(
    monkeypatch: pytest.MonkeyPatch, uses: list[tuple[float, bool] | None], sizes: list[int]
) -> None:
    found = [use and ProcessorUse(*use) for use in uses]
    monkeypatch.setattr(module, "processor_use", lambda _pid: found.pop(0))

    async def scenario() -> None:
        places = Places(most=5, cores=1)
        place = await places.take("long")
        places.begin(place, 4711)
        place.since -= 100
        now, seen = place.since + 200, []
        for _ in uses:
            now += 0.05
            places._see_who_waits(now)
            seen.append(places.size)
        assert seen == sizes

    run(scenario())


def test_runs_take_turns() -> None:
    async def scenario() -> None:
        places, order = Places(most=1, cores=1), list[str]()
        first = await places.take("step")

        async def ask(name: str) -> None:
            with working_for(name):
                place = await places.take("step")
            order.append(name)
            await asyncio.sleep(0)
            places.free(place)

        names = ["a"] * 4 + ["b"] + ["c"] * 2
        asked = [asyncio.create_task(ask(name)) for name in names]
        await until(lambda: places.queued() == len(names))
        assert [places.queued("a", step) for step in (None, "step", "x")] == [4, 4, 0]
        places.free(first)
        await asyncio.gather(*asked)
        assert order == ["a", "b", "c", "a", "c", "a", "a"]

    run(scenario())


@pytest.mark.parametrize("seed", seeds(200))
def test_no_place_is_lost_whoever_is_stopped_meanwhile(seed: int) -> None:
    async def scenario() -> None:
        dice, cores = Random(seed), 1 + seed % 3
        places, held = Places(most=cores, cores=cores), list[Place]()
        asked, whole = list[asyncio.Task[Place]](), list[asyncio.Task[Place]]()

        async def ask(name: str) -> Place:
            with working_for(name):
                place = await places.take("step")
            held.append(place)
            return place

        for _ in range(60):
            match dice.randrange(4):
                case 0 | 1:
                    asked.append(asyncio.create_task(ask(dice.choice("abc"))))
                    whole.append(asked[-1])
                case 2 if held:
                    places.free(held.pop(dice.randrange(len(held))))
                case 3 if asked:
                    asked.pop(dice.randrange(len(asked))).cancel()
            if dice.random() < 0.5:
                await asyncio.sleep(0)
            assert len(places.taken) <= cores
        while held or not all(one.done() for one in whole):
            await asyncio.sleep(0)
            while held:
                places.free(held.pop())
        assert (places.taken, places.queued()) == ([], 0)
        places.close()

    run(scenario())


def test_processes_that_nobody_needs_end_but_for_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "IDLE_SECONDS", 0.01)

    async def scenario() -> None:
        python = Python(ProcessOptions(limit=6), places=Places(most=6, cores=2))
        door = tmp_path / "door"
        sleepers = [asyncio.create_task(python.perform(job(WAITS, door))) for _ in range(5)]
        await until(lambda: len(python.pids) == 5)
        door.touch()
        await asyncio.gather(*sleepers)
        await until(lambda: len(python.pids) == 2)
        assert await hello(python) == "hello"
        await python.close()

    run(scenario())

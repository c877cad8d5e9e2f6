"""Runs of many schedules at once: the store is asked once whether they are there, and a run that
begins meanwhile under one of their ids is found."""

from __future__ import annotations

from pathlib import Path

import pytest

import anabranch
from anabranch.dialects.schedule import read_schedule
from anabranch.errors import InputError
from anabranch.operations.definitions.catalog import Draft
from anabranch.operations.schedules.plan import Begin, Begun
from anabranch.operations.schedules.schedule import Schedule, Target, run_of
from anabranch.operations.schedules.starter import EngineStarter, Wanted
from anabranch.store.ports import Head
from in_loop import in_loop

TICK = 1_794_916_800_000
MANY = 200
PLAYBOOK = """apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: tick, path: tick}
workflow: [{step: note, tool: {kind: noop}}]
"""


def wanted(count: int) -> list[Wanted]:
    spec = read_schedule({"every": "1m"})
    made = [
        Schedule(name=f"s{number}", spec=spec, target=Target(path="tick"))
        for number in range(count)
    ]
    return [Wanted(one, Begin(run_of(one.name, TICK), TICK)) for one in made]


def starter_of(engine: anabranch.Engine) -> EngineStarter:
    engine.catalog.register([Draft(PLAYBOOK, "tick.yaml")], 1)
    return EngineStarter(engine._open.verbs, engine._open.catalog)


@in_loop
async def test_the_store_is_asked_once_for_all_runs_that_are_about_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with anabranch.Engine(tmp_path / "s.db") as engine:
        starter, store, asked = starter_of(engine), engine._open.store, list[str]()
        one_by_one = store.head

        def head(run: str) -> Head | None:
            asked.append(run)
            return one_by_one(run)

        monkeypatch.setattr(store, "head", head)
        assert await starter.begin(wanted(MANY)) == [Begun()] * MANY
        assert asked == []
        assert await starter.begin(wanted(MANY)) == [Begun(existed=True)] * MANY


@in_loop
async def test_a_run_that_has_ended_before_its_start_comes_is_not_begun_again(
    tmp_path: Path,
) -> None:
    async with anabranch.Engine(tmp_path / "s.db") as engine:
        starter, loop = starter_of(engine), engine._open.engine
        (one,) = wanted(1)
        run = one.begin.run
        assert loop.expect_new([run]) == {}
        await engine.start(PLAYBOOK, run=run)
        await engine.wait(run)
        assert loop.live_run(run) is None
        with pytest.raises(InputError) as refused:
            await engine.start(PLAYBOOK, run=run)
        assert refused.value.code == "run_exists"
        assert await starter.begin([one]) == [Begun(existed=True)]


@in_loop
async def test_only_who_asks_first_is_told_without_asking_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with anabranch.Engine(":memory:") as engine:
        loop, asked = engine._open.engine, list[str]()
        monkeypatch.setattr(loop.store, "head", lambda run: asked.append(run))
        loop.expect_new(["r"])
        assert not loop.known("r")
        assert asked == []
        assert not loop.known("r")
        assert asked == ["r"]

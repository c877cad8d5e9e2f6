"""Limits across runs, at an engine: never more runs than places, and every place is used."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from anabranch import Engine, Toolbox
from anabranch.ages import DAY_MS
from anabranch.errors import InputError, Refused, StoreError
from anabranch.runtime import admissions
from anabranch.runtime.effects import LeavePlaces
from anabranch.runtime.engine import EngineLoop
from anabranch.settings import Settings
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import HeadFilter
from anabranch.store.sqlite.store import SqliteStore

from .support import playbook, run, step


class Counted:
    """A tool that says how many of a group are at work, and ends when it is let go."""

    def __init__(self) -> None:
        self.box = Toolbox()
        self.at_work: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.order: list[str] = []
        self.go = asyncio.Event()
        self.box.tool("work")(self._work)

    async def _work(self, group: str = "", called: str = "") -> str:
        self.order.append(called)
        self.at_work[group] += 1
        self.most[group] = max(self.most[group], self.at_work[group])
        try:
            await self.go.wait()
        finally:
            self.at_work[group] -= 1
        return called


def limited(concurrency: Any, name: str = "limited", **more: Any) -> str:
    tool = step("a", "work", group="{{ workload.group }}", called="{{ workload.name }}")
    workload = {"group": "g", "name": ""}
    return playbook(tool, name=name, concurrency=concurrency, workload=workload, **more)


async def status(engine: Engine, name: str) -> str:
    return str(engine.read.find(name).status)


async def until(engine: Engine, name: str, wanted: str) -> None:
    while await status(engine, name) != wanted:  # under the limit of `run`
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("store", [":memory:", "file"])
def test_never_more_runs_than_places_and_every_run_gets_one(store: str, tmp_path: Path) -> None:
    where = store if store == ":memory:" else str(tmp_path / "a.db")
    text = limited({"key": "{{ input.group }}", "limit": 3})

    async def work() -> None:
        counted = Counted()
        counted.go.set()
        async with Engine(where, toolbox=counted.box) as engine:
            given = [{"group": f"g{number % 2}", "name": str(number)} for number in range(24)]
            runs = await asyncio.gather(*(engine.start(text, one) for one in given))
            results = [await engine.wait(one) for one in runs]
            assert {one.status for one in results} == {"completed"}
            assert sorted(counted.order, key=int) == [str(number) for number in range(24)]
            assert max(counted.most.values()) <= 3
            assert engine.read.store.limited_keys() == []

    run(work())


def test_the_highest_priority_is_admitted_first() -> None:
    text = limited({"limit": 1}, priority=5)

    async def work() -> None:
        counted = Counted()
        async with Engine(":memory:", toolbox=counted.box) as engine:
            first = await engine.start(text, {"name": "first"})
            await until(engine, first, "running")
            wanted = {"low": -1, "plain": None, "high": 9}
            runs = [
                await engine.start(text, {"name": name}, priority=priority)
                for name, priority in wanted.items()
            ]
            await until_asked(engine, 4)
            places = [engine.read.store.places(one)[0].place for one in runs]
            assert places == [3, 2, 1]
            told = engine.read.explain(runs[0])["waiting"][0]["waits_for"]
            assert "limited: 1 of 1 held, number 3 in the queue" in told
            card = next(one for one in engine.read.runs() if one["run"] == runs[0])
            assert (card["status"], "number 3" in card["queued"]) == ("queued", True)
            counted.go.set()
            for one in runs:
                await engine.wait(one)
            assert counted.order == ["first", "high", "plain", "low"]
            with pytest.raises(InputError, match="from -1000 to 1000"):
                await engine.start(text, priority=1001)

    run(work())


async def until_asked(engine: Engine, count: int) -> None:
    """Every run has its row."""
    while sum(one.holding + one.waiting for one in engine.read.store.limited_keys()) < count:
        await asyncio.sleep(0.01)


def test_reject_refuses_and_records_nothing() -> None:
    text = limited({"limit": 1, "when_full": "reject"})

    async def work() -> None:
        counted = Counted()
        async with Engine(":memory:", toolbox=counted.box) as engine:
            first = await engine.start(text)
            await until(engine, first, "running")
            with pytest.raises(Refused, match=f"limited is full.*{first}") as refused:
                await engine.start(text)
            assert refused.value.code == "limit_full"
            assert [head.run for head in engine.read.store.heads(HeadFilter())] == [first]
            counted.go.set()
            await engine.wait(first)
            await engine.wait(await engine.start(text))

    run(work())


def test_of_starts_that_meet_under_reject_only_so_many_begin_as_there_is_room_for() -> None:
    text = limited({"limit": 2, "when_full": "reject"})

    async def work() -> None:
        counted = Counted()
        async with Engine(":memory:", toolbox=counted.box) as engine:
            for wave in range(2):
                counted.go.clear()
                asked = [engine.start(text, {"name": f"{wave}-{n}"}) for n in range(6)]
                begun = await asyncio.gather(*asked, return_exceptions=True)
                runs = [one for one in begun if isinstance(one, str)]
                assert len(runs) == 2
                codes = {one.code for one in begun if isinstance(one, Refused)}
                assert codes == {"limit_full"}
                counted.go.set()
                assert {(await engine.wait(one)).status for one in runs} == {"completed"}
            assert len(engine.read.store.heads(HeadFilter())) == 4

    run(work())


def test_room_that_a_failed_start_had_found_is_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = limited({"limit": 1, "when_full": "reject"})
    monkeypatch.setattr(admissions, "COMING_MS", DAY_MS)

    async def work() -> None:
        counted = Counted()
        counted.go.set()
        async with Engine(":memory:", toolbox=counted.box) as engine:
            with monkeypatch.context() as patch:
                patch.setattr(EngineLoop, "send", _fail)
                with pytest.raises(StoreError):
                    await engine.start(text)
            assert (await engine.wait(await engine.start(text))).status == "completed"

    run(work())


async def _fail(*_given: Any) -> None:
    raise StoreError("no room on the disk")


def test_cancel_oldest_lets_the_newest_run() -> None:
    text = limited({"limit": 1, "when_full": "cancel_oldest"})

    async def work() -> None:
        counted = Counted()
        async with Engine(":memory:", toolbox=counted.box) as engine:
            first = await engine.start(text, {"name": "first"})
            await until(engine, first, "running")
            second = await engine.start(text, {"name": "second"})
            result = await engine.wait(first)
            assert result.status == "cancelled"
            assert result.problem is not None
            assert second in str(result.problem)
            await until(engine, second, "running")
            counted.go.set()
            assert (await engine.wait(second)).status == "completed"
            assert counted.most["g"] == 1

    run(work())


def test_a_cancelled_queued_run_leaves_the_queue_and_others_go_on() -> None:
    text = limited({"limit": 1})

    async def work() -> None:
        counted = Counted()
        async with Engine(":memory:", toolbox=counted.box) as engine:
            _first, second, third = [  # in this order also where they begin in one millisecond
                await engine.start(text, {"name": n}, run=n) for n in "abc"
            ]
            await until_asked(engine, 3)
            await engine.cancel(second)
            assert (await engine.wait(second)).status == "cancelled"
            counted.go.set()
            assert (await engine.wait(third)).status == "completed"
            assert counted.order == ["a", "c"]
            again = await engine.redrive(second)
            assert (await engine.wait(again)).status == "completed"

    run(work())


def test_a_child_of_a_holder_does_not_wait_for_its_parent(tmp_path: Path) -> None:
    child = tmp_path / "child.yaml"
    shared = {"key": "all", "limit": 1, "shared": True}
    child.write_text(playbook(step("leaf", "noop", result="grown"), concurrency=shared))
    parent = playbook(
        step("kid", "playbook", path=str(child), return_result=True), concurrency=shared
    )

    async def work() -> None:
        async with Engine(":memory:") as engine:
            runs = [await engine.start(parent) for _ in range(3)]
            for one in runs:
                assert (await engine.wait(one)).status == "completed"

    run(work())


def test_queued_runs_go_on_at_the_next_engine(tmp_path: Path) -> None:
    store, text = tmp_path / "a.db", limited({"limit": 1})

    async def first() -> list[str]:
        counted = Counted()
        quick = Settings(grace_seconds=0.05)
        async with Engine(store, toolbox=counted.box, settings=quick) as engine:
            runs = [await engine.start(text, {"name": n}, run=n) for n in "abcd"]
            await until(engine, runs[0], "running")
            return runs

    async def second(runs: list[str]) -> None:
        counted = Counted()
        counted.go.set()
        async with Engine(store, toolbox=counted.box) as engine:
            for one in runs:
                assert (await engine.wait(one)).status == "completed"
            assert counted.most["g"] == 1

    run(second(run(first())))


KILLED = """
import asyncio, os, signal, sys
from anabranch import Engine
from anabranch.store.sqlite.store import SqliteStore

place, path, text = sys.argv[1:]
real, calls = SqliteStore.admit, 0

def admit(self, *given, **more):
    global calls
    calls += 1
    if calls == 3 and place == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    told = real(self, *given, **more)
    if calls == 3 and place == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return told

SqliteStore.admit = admit

async def main():
    async with Engine(path) as engine:
        for number in range(50):
            await engine.start(text, run=f"run-{number}")
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("place", ["before", "after"])
def test_kill_nine_around_an_admission_loses_no_place_and_no_run(
    place: str, tmp_path: Path
) -> None:
    store = tmp_path / "a.db"
    text = playbook(step("a", "noop", "b"), step("b", "noop"), concurrency={"limit": 2})
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, place, str(store), text], env=os.environ, check=False
    )
    assert killed.returncode == -signal.SIGKILL

    async def after() -> None:
        async with Engine(store) as engine:
            runs = [head.run for head in engine.read.store.heads(HeadFilter(limit=100))]
            assert runs
            for one in runs:
                assert (await engine.wait(one)).status == "completed"
            assert engine.read.store.limited_keys() == []

    run(after())


def test_a_key_that_the_store_refuses_keeps_no_other_run_waiting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "anabranch.limits")
    monkeypatch.setattr(admissions, "AGAIN_SECONDS", 0.01)
    admit = MemoryStore.admit

    def refuse(self: MemoryStore, keys: Any, now: int, *, asked: Any = (), **more: Any) -> Any:
        if any("unfit" in key for key in (*keys, *(one.key for one in asked))):
            raise StoreError("a value cannot be stored", code="store_value")
        return admit(self, keys, now, asked=asked, **more)

    monkeypatch.setattr(MemoryStore, "admit", refuse)
    keyed = limited({"key": "{{ workload.group }}", "limit": 1})

    async def scenario() -> None:
        counted = Counted()
        async with Engine(":memory:", toolbox=counted.box) as engine:
            groups = ["one", "unfit", "two"]
            names = [await engine.start(keyed, {"group": group}) for group in groups]
            for name in (names[0], names[2]):
                await until(engine, name, "running")
            await until(engine, names[1], "cancelled")
            head = engine.read.find(names[1])
            assert "cannot keep its place under 'limited[unfit]'" in head.reason
            counted.go.set()
            ends = [(await engine.wait(name)).status for name in (names[0], names[2])]
            assert ends == ["completed", "completed"]

    run(scenario())


def test_definitions_without_limits_write_no_rows(tmp_path: Path) -> None:
    async def work() -> None:
        async with Engine(tmp_path / "a.db") as engine:
            await engine.wait(await engine.start(playbook(step("a"))))

    run(work())
    store = SqliteStore(tmp_path / "a.db")
    try:
        assert store.limited_keys() == []
    finally:
        store.close()


def test_starts_of_one_id_at_the_same_moment_begin_one_run() -> None:
    async def scenario() -> None:
        counted = Counted()
        async with Engine(":memory:", toolbox=counted.box) as engine:
            starts = (engine.start(limited({"limit": 3}), run="one") for _ in range(5))
            began = await asyncio.gather(*starts, return_exceptions=True)
            refused = [one for one in began if isinstance(one, InputError)]
            assert [one for one in began if one == "one"] == ["one"]
            assert {one.code for one in refused} == {"run_exists"}
            assert len(refused) == 4
            counted.go.set()
            assert (await engine.wait("one")).status == "completed"

    run(scenario())


@pytest.mark.parametrize("ticks", range(6))
def test_an_engine_that_is_closed_while_a_place_becomes_free_ends(ticks: int) -> None:
    """The word that a place is free must not hide that the engine stops."""

    async def scenario() -> None:
        async with Engine(":memory:") as engine:
            admissions = engine._open.engine._admissions
            while not admissions._looked_at:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)  # it waits for a word now
            admissions.note(LeavePlaces("one", []))
            for _ in range(ticks):
                await asyncio.sleep(0)
            await admissions.close()

    run(scenario())

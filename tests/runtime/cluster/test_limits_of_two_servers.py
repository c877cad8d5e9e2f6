"""Starts that one server hands to another leave no place taken that nobody has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from anabranch.ages import DAY_MS
from anabranch.clock import SystemClock
from anabranch.errors import InputError, Refused
from anabranch.operations.definitions.prepare import prepare
from anabranch.runtime import admissions
from anabranch.runtime.engine import EngineLoop
from anabranch.store.memory.cluster import MemoryServer, SharedMemory
from anabranch.store.ports import Store

from ..support import engine, playbook, run, step, until

LIMIT = {"limit": 1, "when_full": "reject"}
QUICK = prepare(playbook(step("a"), name="quick", concurrency=LIMIT))
SLOW = prepare(playbook(step("a", "decision", ask="go on?"), name="slow", concurrency=LIMIT))


@asynccontextmanager
async def two_servers() -> AsyncIterator[tuple[EngineLoop, EngineLoop, list[str], list[str]]]:
    """And ids of runs that the first and the second would own."""
    shared = SharedMemory(4, SystemClock().now)
    stores = [cast(Store, MemoryServer(shared, name)) for name in ("a", "b")]
    async with engine(stores[0]) as a, engine(stores[1]) as b:
        members = [one.member for one in (a, b) if one.member is not None]
        await until(lambda: [one.owned for one in members] == [2, 2])
        names = [f"r{number}" for number in range(64)]
        ours = [one for one in names if members[0].would_own_root(one)]
        yield a, b, ours, [one for one in names if one not in ours]


def test_a_run_that_another_server_has_ended_takes_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admissions, "COMING_MS", DAY_MS)

    async def scenario() -> None:
        async with two_servers() as (a, _, ours, theirs):
            for name in (*theirs[:3], *ours[:2], *theirs[3:5]):
                assert await a.start(QUICK.definition, QUICK.net, run=name) == name
                assert (await a.wait(name)).status == "completed"

    run(scenario())


def test_a_start_that_another_server_refuses_takes_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admissions, "COMING_MS", DAY_MS)

    async def scenario() -> None:
        async with two_servers() as (a, b, ours, theirs):
            await b.start(QUICK.definition, QUICK.net, run=theirs[0])
            await b.wait(theirs[0])
            with monkeypatch.context() as patch:
                patch.setattr(EngineLoop, "known", lambda *_: False)  # begun at the same moment
                with pytest.raises(InputError) as told:
                    await a.start(QUICK.definition, QUICK.net, run=theirs[0])
            assert told.value.code == "run_exists"
            assert await a.start(QUICK.definition, QUICK.net, run=ours[0]) == ours[0]

    run(scenario())


def test_a_run_that_another_server_has_just_begun_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admissions, "COMING_MS", DAY_MS)

    async def scenario() -> None:
        async with two_servers() as (a, _, ours, theirs):
            await a.start(SLOW.definition, SLOW.net, run=theirs[0])
            with pytest.raises(Refused, match="is under way"):
                await a.start(SLOW.definition, SLOW.net, run=ours[0])

    run(scenario())

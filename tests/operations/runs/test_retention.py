"""Runs that are over for long enough leave by themselves, and only those."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from anabranch import Engine, Settings
from anabranch.ages import ENDED, kept_ages
from anabranch.errors import InputError, StoreError
from anabranch.operations.runs import retention
from anabranch.operations.runs.retention import PORTION, RunRetention
from anabranch.runtime.metrics.registry import Registry
from anabranch.store.memory.cluster import MemoryServer, SharedMemory
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Forgotten, Head, HeadFilter, Store
from anabranch.store.sqlite.store import SqliteStore
from anabranch.testing.store_suite.samples import NOW, a_batch, a_commit
from seeds import seeds

from ..support import playbook, run, step

HOUR = 3_600_000


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "it.db")
    yield made
    made.close()


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PAUSE_SECONDS", 0)


def keeper(store: Any, keep_runs: str, now: int = NOW) -> RunRetention:
    return RunRetention(store, lambda: now, keep_runs, Registry())


def left(store: Store) -> dict[str, Head]:
    return {head.run: head for head in store.heads(HeadFilter(limit=10_000))}


# -- what leaves ------------------------------------------------------------------------------


def filled(store: Store, dice: random.Random) -> None:
    """Runs of every status and age, some of which others depend on."""
    runs = [f"r{number}" for number in range(dice.randint(1, 3 * PORTION))]
    commits = []
    for number, name in enumerate(runs):
        finished = dice.random() < 0.8
        begun = NOW - dice.randint(0, 20) * HOUR
        changes: dict[str, Any] = {
            "status": dice.choice(ENDED if finished else ("running", "waiting", "paused")),
            "finished": finished,
            "created_at": begun,
            "updated_at": min(NOW, begun + dice.randint(0, 10) * HOUR),
        }
        if number and dice.random() < 0.3:
            changes["parent"] = f"{dice.choice(runs[:number])}/1.0#1"
        if number and dice.random() < 0.2:
            changes["origin"] = dice.choice(runs[:number])
        commits.append(a_commit(name, 1, **changes))
    store.commit(a_batch(*commits))


def parent_of(head: Head) -> str:
    return (head.parent or "").partition("/")[0]


def expected(heads: dict[str, Head], ages: dict[str, int]) -> set[str]:
    """A plain reading of the promise: what stays."""
    needed = {head.run for head in heads.values() if not head.finished}
    for _ in heads:  # no line of dependents is longer
        needed |= {head.origin for run, head in heads.items() if run in needed and head.origin}
        needed |= {run for run, head in heads.items() if parent_of(head) in needed}
    stays = set()
    for head in heads.values():
        age = ages.get(head.status)
        old = age is not None and head.finished and NOW - head.updated_at > age
        if not old or head.run in needed:
            stays.add(head.run)
    return stays


@pytest.mark.parametrize("seed", seeds(300))
def test_exactly_those_leave_that_are_old_enough_and_that_nobody_needs(seed: int) -> None:
    dice, store = random.Random(seed), MemoryStore()
    filled(store, dice)
    named = dice.sample([*ENDED, "all"], dice.randint(1, 5))
    text = " ".join(f"{each}={dice.choice(['1h', '5h', '12h', 'never'])}" for each in named)
    before = left(store)
    gone = run(keeper(store, text).sweep())
    assert set(left(store)) == expected(before, dict(kept_ages(text))), text
    assert gone == len(before) - len(left(store))
    assert run(keeper(store, text).sweep()) == 0


def test_a_real_store_is_swept_in_the_same_way(store: Store) -> None:
    filled(store, random.Random(11))
    before = left(store)
    run(keeper(store, "all=5h failed=never").sweep())
    assert set(left(store)) == expected(before, dict(kept_ages("all=5h failed=never")))
    assert len(left(store)) < len(before)


def test_a_run_is_old_by_its_end_and_not_by_its_beginning(store: Store) -> None:
    times: dict[str, Any] = {"created_at": NOW - 99 * HOUR, "updated_at": NOW - HOUR}
    store.commit(a_batch(a_commit("long", 1, status="completed", finished=True, **times)))
    assert run(keeper(store, "completed=2h").sweep()) == 0
    assert run(keeper(store, "completed=30m").sweep()) == 1


# -- how --------------------------------------------------------------------------------------


class Counting(MemoryStore):
    """Notes how many runs each transaction takes."""

    def __init__(self) -> None:
        super().__init__()
        self.portions: list[int] = []
        self.away = 0

    def forget(self, runs: Sequence[str], *, dry_run: bool = False) -> Forgotten:
        if self.away:
            self.away -= 1
            raise StoreError("the disk is gone")
        self.portions.append(len(runs))
        return super().forget(runs, dry_run=dry_run)


def many(store: Store, count: int) -> None:
    old: dict[str, Any] = {"status": "completed", "finished": True, "created_at": NOW - 9 * HOUR}
    commits = [a_commit(f"r{n}", 1, updated_at=NOW - 8 * HOUR, **old) for n in range(count)]
    store.commit(a_batch(*commits))


def test_runs_are_deleted_a_few_at_a_time_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    store, registry = Counting(), Registry()
    many(store, 3 * PORTION + 1)
    with caplog.at_level(logging.INFO, "anabranch.retention"):
        swept = run(RunRetention(store, lambda: NOW, "completed=1h", registry).sweep())
    assert swept == 3 * PORTION + 1
    assert store.portions == [PORTION, PORTION, PORTION, 1]
    assert f"anabranch_runs_expired_total {swept}" in registry.text()
    assert caplog.messages == [f"{swept} runs that were over for long enough were deleted"]


def test_where_nothing_is_set_nothing_is_done_and_nothing_counted() -> None:
    store, registry = Counting(), Registry()
    many(store, 3)

    async def scenario() -> None:
        kept = RunRetention(store, lambda: NOW, "", registry)
        kept.begin()
        assert len(asyncio.all_tasks()) == 1
        assert await kept.sweep() == 0
        await kept.close()

    run(scenario())
    assert registry.text() == Registry().text()


def test_a_store_that_fails_is_swept_another_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retention, "SWEEP_SECONDS", (0.0, 0.0))
    store = Counting()
    store.away = 2
    many(store, 3)

    async def scenario() -> None:
        kept = keeper(store, "all=1h")
        kept.begin()
        while left(store):
            await asyncio.sleep(0.001)
        await kept.close()

    run(scenario())
    said = [each.message for each in caplog.records if each.name == "anabranch.retention"]
    assert said[:2] == ["old runs could not be deleted: the disk is gone"] * 2


def test_on_a_shared_store_only_the_owner_of_the_first_partition_sweeps() -> None:
    shared = SharedMemory(4, lambda: NOW)
    servers = [MemoryServer(shared, name) for name in ("one", "two")]
    for server in servers:
        server.cluster.join("x", "", 60)
    owner, other = servers
    owner.cluster.claim(2)
    other.cluster.claim(2)
    assert 0 in owner.cluster.owned
    many(shared.store, 3)
    assert run(keeper(other, "all=1h").sweep()) == 0
    assert run(keeper(owner, "all=1h").sweep()) == 3


def test_an_engine_sweeps_while_it_works_and_closes_in_the_middle_of_it(tmp_path: Path) -> None:
    file = tmp_path / "it.db"
    store = SqliteStore(file)
    many(store, 4 * PORTION)
    store.close()

    async def scenario() -> str:
        settings = Settings(keep_runs="completed=1h")
        async with Engine(file, settings=settings) as engine:
            begun = await engine.start(playbook(step("a", "noop")))
            await engine.wait(begun)
            while len(engine.read.runs(HeadFilter(limit=500))) > 2 * PORTION:
                await asyncio.sleep(0.001)
            return begun

    begun = run(scenario())
    store = SqliteStore(file)
    assert begun in left(store)
    assert len(left(store)) <= 2 * PORTION
    store.close()


def test_an_engine_with_a_bad_age_does_not_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Engine(tmp_path / "it.db", settings=Settings(keep_runs="failed=soon")):
            pass

    with pytest.raises(InputError, match="keep_runs: failed is kept for an age"):
        run(scenario())

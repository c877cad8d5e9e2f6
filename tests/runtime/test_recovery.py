"""An engine that finds unfinished runs goes on with them; one that only waits stays on disk."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.clock import ManualClock
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import Answer, ContextPatch, failed, succeeded
from anabranch.runtime import housekeeping, recovery
from anabranch.runtime.live_run import BYTES_PER_EVENT
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Store
from anabranch.store.sqlite.store import SqliteStore
from anabranch.work.port import Task
from virtual import VirtualClock, run_virtually

from .support import (
    Doing,
    Fragile,
    asking,
    chain,
    engine,
    file_of,
    forever,
    gated,
    log_of,
    playbook,
    run,
    start,
    step,
    until,
)

GO = s.PatchContext((ContextPatch("go", True),))


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Gives the same store again, as the next process would find it."""
    if request.param == "sqlite":
        return lambda: SqliteStore(file_of(tmp_path), synchronous="NORMAL")
    kept = MemoryStore()
    return lambda: kept


async def abandon(store: Store, text: str, count: int = 1) -> list[str]:
    """Runs whose first job is out when the engine goes without a word."""
    doing = Doing(forever)
    async with engine(store, {"doing": doing}) as made:
        runs = [await start(made, text) for _ in range(count)]
        await until(lambda: len(doing.tasks) == count)
        made._core.offer = lambda *_: None  # type: ignore[method-assign]
    return runs


def test_a_job_that_was_out_is_lost_and_goes_out_again_under_the_same_key(
    reopen: Callable[[], Store],
) -> None:
    async def scenario() -> None:
        (name,) = await abandon(reopen(), chain(2, "doing"))
        doing, store = Doing(), reopen()
        async with engine(store, {"doing": doing}) as made:
            state = await made.wait(name)
        assert state.status == "completed"
        assert [task.key for task in doing.tasks] == [f"{name}/1.0", f"{name}/2.0"]
        assert [task.attempt for task in doing.tasks] == [2, 1]
        lost = [event for event in log_of(store, name) if isinstance(event, e.JobLost)]
        assert [one.reason for one in lost] == ["the engine restarted"]

    run(scenario())


def test_runs_that_only_wait_take_no_memory_when_an_engine_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "PAGE", 50)

    async def fill(store: Store, count: int) -> None:
        async with engine(store) as made:
            await asyncio.gather(*(start(made, asking()) for _ in range(count)))

    async def most_while_opening(store: Store) -> int:
        async with engine(store):
            pass  # what is loaded once is loaded
        tracemalloc.start()
        try:
            async with engine(store) as made:
                assert not made._core.live
                return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    store = SqliteStore(file_of(tmp_path), synchronous="NORMAL")

    def least() -> int:
        """What other threads and the collector of garbage do meanwhile only adds to it."""
        return min(run(most_while_opening(store)) for _ in range(3))

    run(fill(store, 400))
    few = least()
    run(fill(store, 400))
    assert least() - few < 400 * 64


def test_every_unfinished_run_goes_on_by_itself() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        runs = await abandon(store, chain(3, "doing"), 50)
        async with engine(store, {"doing": Doing()}) as made:
            states = await asyncio.gather(*(made.wait(one) for one in runs))
        assert {state.status for state in states} == {"completed"}

    run(scenario())


def test_only_the_named_runs_go_on_when_some_are_named() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        mine, other = await abandon(store, chain(2, "doing"), 2)
        async with engine(store, {"doing": Doing()}, only=[mine]) as made:
            assert (await made.wait(mine)).status == "completed"
        head = store.head(other)
        assert head is not None
        assert (head.status, head.seq) == ("running", 4)

    run(scenario())


def test_waiting_runs_stay_out_of_memory_and_answer_all_the_same() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with engine(store) as made:
            runs = [await start(made, gated()) for _ in range(20)]
        async with engine(store) as made:
            assert made._core.live == {}
            await made.send(runs[3], GO)
            assert (await made.wait(runs[3])).status == "completed"
            assert made._core.live == {}
            assert made.state(runs[4]).tokens[1].phase == "held"

    run(scenario())


def test_a_waiting_run_with_a_timer_wakes_when_it_is_due() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        text = playbook(
            step("ask", "decision", ask="?", spec={"timeout": "300ms"}, next={"arcs": []})
        )
        async with engine(store, clock=VirtualClock()) as made:
            name = await start(made, text)
        async with engine(store, clock=VirtualClock()) as made:
            assert made._core.live == {}
            state = await made.wait(name)
        assert state.status == "failed"
        assert state.faults[0][1].kind == "timeout"

    run_virtually(scenario())


def test_idle_runs_leave_memory_and_come_back_by_decision_and_by_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(housekeeping, "EVICT_EVERY_SECONDS", 0.05)

    async def scenario() -> None:
        timed = playbook(step("ask", "decision", ask="?", spec={"timeout": "700ms"}))
        retry = {"retry": {"attempts": 2, "delay": "600ms"}}

        async def fail_first(task: Task) -> Answer:
            return failed("once", "for once") if task.attempt == 1 else succeeded("done")

        performers = {"doing": Doing(fail_first)}
        clock = VirtualClock()
        async with engine(performers=performers, clock=clock, evict_after_seconds=0.1) as made:
            asked = await start(made, asking())
            ticking = await start(made, timed)
            failing = await start(made, playbook(step("try", "doing", spec=retry)))
            await until(lambda: not made._core.live)
            await made.send(asked, s.Decide("ask", "fulfil"))
            ends = [(await made.wait(one)).status for one in (asked, ticking, failing)]
            assert ends == ["completed", "failed", "completed"]

    run_virtually(scenario())


def test_eviction_at_once_never_loses_what_is_still_being_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With runs that leave memory in every turn, each stimulus finds the state of the last."""
    monkeypatch.setattr(housekeeping, "EVICT_EVERY_SECONDS", 0.0)

    async def scenario() -> None:
        one_more = s.PatchContext((ContextPatch("n", 1, "sum"),))
        store = Fragile()
        async with engine(store, evict_after_seconds=0) as made:
            runs = [await start(made, gated()) for _ in range(60)]
            store.before = lambda batch: time.sleep(0.02) if len(batch.commits) > 30 else None
            sending = []
            for _ in range(10):  # each wave arrives while the one before is being written
                sending += [asyncio.ensure_future(made.send(one, one_more)) for one in runs]
                await asyncio.sleep(0.01)
            await asyncio.gather(*sending)
            assert [made.state(one).ctx for one in runs] == [{"n": 10}] * 60

    run(scenario())


def test_snapshots_and_tails_give_the_same_run_as_the_whole_log(
    reopen: Callable[[], Store],
) -> None:
    async def scenario() -> None:
        left = 12

        async def some(_task: Task) -> Answer:
            nonlocal left
            left -= 1
            return succeeded("x") if left >= 0 else await forever(_task)

        store = reopen()
        async with engine(store, {"doing": Doing(some)}, snapshot_every=7) as made:
            name = await start(made, chain(20, "doing"))
            await until(lambda: left < 0)
        async with engine(reopen(), {"doing": Doing()}, snapshot_every=7) as made:
            state = await made.wait(name)
        assert (state.status, state.counts.finished) == ("completed", 20)
        snapshot, tail = reopen().read_many([name])[name]
        assert snapshot is not None
        worth = max(7, len(snapshot.state) // BYTES_PER_EVENT)  # a snapshot costs something too
        assert sum(record.count for record in tail) < worth

    run(scenario())


# -- clocks ----------------------------------------------------------------------------------


def test_a_clock_that_was_set_back_between_two_engines_stops_nothing() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        retrying = playbook(step("try", "doing", spec={"retry": {"attempts": 3, "delay": "1h"}}))
        (name,) = await abandon(store, retrying)
        clock = ManualClock(1_000)  # half a century before the log

        async def fail_first(task: Task) -> Answer:
            return failed("once", "for once") if task.attempt == 2 else succeeded("done")

        async with engine(store, {"doing": Doing(fail_first)}, clock=clock) as made:
            await until(lambda: made._core.next_alarm() is not None)
            clock.advance_to(1_000 + 3_600_000)
            state = await made.wait(name)
        assert state.status == "completed"

    run(scenario())


def test_a_clock_that_jumps_ahead_fires_what_is_due_once() -> None:
    async def scenario() -> None:
        clock = ManualClock(1_000)
        store = MemoryStore()
        text = playbook(step("ask", "decision", ask="?", spec={"timeout": "1d"}))
        async with engine(store, clock=clock) as made:
            runs = [await start(made, text) for _ in range(10)]
            clock.advance_to(10 * 86_400_000)
            states = [await made.wait(one) for one in runs]
        assert {state.status for state in states} == {"failed"}
        assert all(state.counts.finished == 1 for state in states)

    run(scenario())

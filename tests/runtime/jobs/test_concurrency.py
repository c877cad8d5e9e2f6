"""Lanes: never more at work than may be, first come first served, and no place is ever lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from typing import Any

import pytest

from anabranch import Engine, Settings, Toolbox
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import Answer, failed, succeeded
from anabranch.runtime.jobs.concurrency import JobQueues
from anabranch.work.port import Task
from hangs import PATIENCE

from ..support import Doing, chain, engine, forever, playbook, run, start, step, until


class Counting:
    """Counts how many are at work at once, by kind and in all."""

    def __init__(self, seconds: float = 0.005) -> None:
        self._seconds = seconds
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.order: list[str] = []

    async def __call__(self, task: Task) -> Answer:
        self.order.append(task.run)
        for name in (task.kind, "all"):
            self.now[name] += 1
            self.most[name] = max(self.most[name], self.now[name])
        await asyncio.sleep(self._seconds)
        for name in (task.kind, "all"):
            self.now[name] -= 1
        return succeeded("ok")


def test_never_more_jobs_are_at_work_than_may_be() -> None:
    async def scenario() -> None:
        counting = Counting()
        performers = {"first": Doing(counting), "second": Doing(counting)}
        async with engine(performers=performers, jobs_max=7) as made:
            runs = [await start(made, chain(2, kind)) for kind in ("first", "second") * 20]
            for one in runs:
                await made.wait(one)
        assert counting.most["all"] == 7

    run(scenario())


def test_a_kind_that_occupies_something_scarce_has_its_own_limit() -> None:
    async def scenario() -> None:
        counting = Counting()
        performers = {kind: Doing(counting) for kind in ("shell", "python", "first")}
        async with engine(performers=performers, shells_max=2, processes_max=3) as made:
            texts = {
                "shell": chain(1, "shell", command="true"),
                "python": chain(1, "python", code="result = 1"),
                "first": chain(1, "first"),
            }
            runs = [await start(made, texts[kind]) for kind in texts for _ in range(20)]
            for one in runs:
                await made.wait(one)
        assert (counting.most["shell"], counting.most["python"]) == (2, 3)
        assert counting.most["first"] > 3  # others are not held up by them

    run(scenario())


def test_blocking_tools_share_the_threads_and_their_time_starts_when_they_do() -> None:
    """Two kinds of blocking callables, two threads: nobody's timeout runs while he queues."""

    async def completed(limit: float) -> bool:
        box = Toolbox()
        lock, now, most = threading.Lock(), [0], [0]

        def work() -> None:
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            time.sleep(limit / 4)
            with lock:
                now[0] -= 1

        box.add("one", work)
        box.add("two", lambda: work(), blocking=True)
        settings = Settings(store=":memory:", threads_max=2)
        async with Engine(settings=settings, toolbox=box) as engine:
            texts = [playbook(step("s", kind, timeout=f"{limit}s")) for kind in ("one", "two")]
            runs = [await engine.start(text) for text in texts * 5]
            ends = [(await engine.wait(one)).status for one in runs]
        assert most[0] == 2
        return ends == ["completed"] * 10  # the last of them have queued for as long as the limit

    assert any(run(completed(limit)) for limit in PATIENCE)


def test_first_come_first_served() -> None:
    async def scenario() -> None:
        counting = Counting(0.001)
        async with engine(performers={"doing": Doing(counting)}, jobs_max=1) as made:
            runs = [await start(made, chain(1, "doing")) for _ in range(30)]
            for one in runs:
                await made.wait(one)
        assert counting.order == runs

    run(scenario())


@pytest.mark.parametrize("how", ["done", "failed", "timeout", "cancelled", "retried"])
def test_whatever_becomes_of_a_job_its_place_is_free_again(how: str) -> None:
    async def scenario() -> None:
        async def perform(task: Task) -> Answer:
            if how in ("timeout", "cancelled"):
                return await forever(task)
            if how == "failed" or (how == "retried" and task.attempt < 3):
                return failed("x", "y")
            return succeeded("ok")

        more: dict[str, Any] = {"timeout": "50ms"} if how == "timeout" else {}
        spec = {"retry": {"attempts": 3, "delay": "5ms"}} if how == "retried" else {}
        async with engine(performers={"doing": Doing(perform)}, jobs_max=1) as made:
            runs = [
                await start(made, playbook(step("s", "doing", spec=spec, **more))) for _ in range(3)
            ]
            for one in runs:
                if how == "cancelled":
                    await until(lambda one=one: made.state(one).jobs["1.0"].phase == "running")  # type: ignore[misc]
                    await made.send(one, s.Cancel())
                await made.wait(one)
            assert made._core.job_queues.at_work == 0
            assert made._core.job_queues.queued == 0

    run(scenario())


def test_a_paused_run_keeps_no_place_and_takes_its_turn_when_it_is_resumed() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()

        async def wait(_task: Task) -> Answer:
            await gate.wait()
            return succeeded("ok")

        async with engine(performers={"doing": Doing(wait)}, jobs_max=1) as made:
            first = await start(made, chain(1, "doing"))
            second = await start(made, chain(1, "doing"))
            third = await start(made, chain(1, "doing"))
            await made.send(second, s.Pause())
            gate.set()
            assert (await made.wait(first)).status == "completed"
            assert (await made.wait(third)).status == "completed"
            assert made.state(second).jobs["1.0"].phase == "scheduled"
            await made.send(second, s.Resume())
            assert (await made.wait(second)).status == "completed"

    run(scenario())


def test_pausing_and_resuming_again_and_again_starts_a_job_once() -> None:
    async def scenario() -> None:
        doing = Doing()
        async with engine(performers={"doing": doing, "first": Doing(forever)}, jobs_max=1) as made:
            blocker = await start(made, chain(1, "first"))
            name = await start(made, chain(1, "doing"))
            for _ in range(5):
                await made.send(name, s.Pause())
                await made.send(name, s.Resume())
            await made.send(blocker, s.Cancel())
            await made.wait(name)
            assert len(doing.tasks) == 1

    run(scenario())


# -- the lanes themselves --------------------------------------------------------------------


def test_a_full_lane_does_not_hold_up_the_next() -> None:
    job_queues = JobQueues(10, {"slow": 1})
    for number in range(3):
        job_queues.add("r", f"s{number}", 1, "slow")
        job_queues.add("r", f"q{number}", 1, "quick")
    assert [ready.job for ready in job_queues.take()] == ["s0", "q0", "q1", "q2"]
    assert not job_queues.can_start()
    job_queues.free("r", "s0")
    assert [ready.job for ready in job_queues.take()] == ["s1"]


def test_a_job_queued_twice_gets_one_place() -> None:
    job_queues = JobQueues(10)
    job_queues.add("r", "j", 1, "x")
    job_queues.add("r", "j", 1, "x")
    assert len(list(job_queues.take())) == 1
    assert job_queues.at_work == 1
    job_queues.free("r", "j")
    job_queues.free("r", "j")
    assert job_queues.at_work == 0


def test_kinds_that_share_a_lane_share_its_limit() -> None:
    job_queues = JobQueues(10, {"both": 1}, {"a": "both", "b": "both"})
    job_queues.add("r", "1", 1, "a")
    job_queues.add("r", "2", 1, "b")
    job_queues.add("r", "3", 1, "c")
    assert [ready.job for ready in job_queues.take()] == ["1", "3"]

"""Timers fire on time, also many at once, and the clock never runs backwards."""

from __future__ import annotations

import asyncio
import itertools
import random
import time

import pytest

from anabranch.clock import SystemClock
from anabranch.kernel import events as e
from anabranch.kernel.values import Answer, failed, succeeded
from anabranch.runtime import writer
from anabranch.runtime.live_run import history
from anabranch.store.sqlite.store import SqliteStore
from anabranch.work.port import Task
from virtual import VirtualClock, run_virtually

from .support import Doing, engine, forever, playbook, run, start, step


@pytest.fixture
def in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch is written where it was made: virtual time cannot see what a thread takes."""
    monkeypatch.setattr(writer, "SMALL_BATCH", 1_000_000)
    monkeypatch.setattr(writer, "SLOW_SECONDS", float("inf"))


@pytest.mark.soak
@pytest.mark.usefixtures("in_place")
def test_five_hundred_timers_fire_at_their_millisecond(tmp_path: object) -> None:
    """In virtual time, where only the engine itself could make one late."""

    async def scenario() -> list[int]:
        dice = random.Random(4)
        store = SqliteStore(f"{tmp_path}/store.db")
        due: dict[str, int] = {}
        async with engine(store, clock=VirtualClock()) as made:
            for _ in range(500):
                wait = dice.randint(300, 2000)
                text = playbook(step("ask", "decision", ask="?", spec={"timeout": f"{wait}ms"}))
                due[await start(made, text)] = wait
            await asyncio.gather(*(made.wait(one) for one in due))
        late = []
        for name, wait in due.items():
            instants = [
                at
                for at, event in history(store.read(name))
                if isinstance(event, e.TokenCreated | e.TokenFinished)
            ]
            late.append(instants[1] - instants[0] - wait)
        store.close()
        return late

    assert set(run_virtually(scenario())) <= {0, 1}  # the event loop rounds to its resolution


@pytest.mark.usefixtures("in_place")
def test_a_retry_waits_its_delay_and_no_longer() -> None:
    async def scenario() -> list[int]:
        clock = VirtualClock()
        times: list[int] = []

        async def fail_twice(task: Task) -> Answer:
            times.append(clock.now())
            return succeeded("ok") if task.attempt == 3 else failed("x", "y")

        retry = {"attempts": 3, "delay": "60ms", "backoff": "exponential"}
        async with engine(performers={"doing": Doing(fail_twice)}, clock=clock) as made:
            await made.wait(await start(made, playbook(step("s", "doing", spec={"retry": retry}))))
        return [after - before for before, after in itertools.pairwise(times)]

    first, second = run_virtually(scenario())
    assert first in (60, 61)
    assert second in (120, 121)


@pytest.mark.usefixtures("in_place")
def test_a_deadline_ends_everything_that_runs() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        text = playbook(
            step("s", "doing", "never"),
            step("never", "noop"),
            executor={"spec": {"deadline": "150ms"}},
        )
        async with engine(performers={"doing": Doing(forever)}, clock=clock) as made:
            begun = clock.now()
            state = await made.wait(await start(made, text))
            assert state.status == "deadline_exceeded"
            assert clock.now() - begun in (150, 151)
            assert made._core.job_queues.at_work == 0

    run_virtually(scenario())


def test_the_alarm_of_a_real_clock_rings() -> None:
    """How late is up to the machine, and measured in bench/; never early, and it does ring."""

    async def scenario() -> None:
        async with engine() as made:
            text = playbook(step("ask", "decision", ask="?", spec={"timeout": "80ms"}))
            begun = time.monotonic()
            state = await made.wait(await start(made, text))
            assert state.counts.timed_out == 1
            assert time.monotonic() - begun >= 0.079

    run(scenario())


# -- the clock -------------------------------------------------------------------------------


class Times:
    """Stands for `time`: a wall clock and a steady one, both set by hand."""

    def __init__(self) -> None:
        self.wall = 1_000_000_000_000
        self.steady = 5_000_000_000

    def time_ns(self) -> int:
        return self.wall

    def monotonic_ns(self) -> int:
        return self.steady

    def pass_ms(self, ms: int) -> None:
        self.wall += ms * 1_000_000
        self.steady += ms * 1_000_000


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    made = Times()
    monkeypatch.setattr("anabranch.clock.time", made)
    return made


def test_a_wall_clock_set_back_by_an_hour_costs_no_timer_an_hour(times: Times) -> None:
    clock = SystemClock()
    before = clock.now()
    times.wall -= 3_600_000_000_000
    assert clock.now() == before
    times.pass_ms(5_000)
    assert clock.now() == before + 5_000


def test_a_wall_clock_set_ahead_is_followed(times: Times) -> None:
    clock = SystemClock()
    before = clock.now()
    times.wall += 3_600_000_000_000
    assert clock.now() == before + 3_600_000
    times.pass_ms(7)
    assert clock.now() == before + 3_600_007


def test_the_clock_follows_the_wall_and_does_not_drift(times: Times) -> None:
    clock = SystemClock()
    for _ in range(10_000):
        times.wall += 333_333
        times.steady += 333_333
        clock.now()
    assert clock.now() == times.wall // 1_000_000


def test_the_real_clock_shows_the_time_of_day_and_only_goes_on() -> None:
    before = time.time() * 1000
    clock = SystemClock()
    shown = [clock.now() for _ in range(10_000)]
    assert shown == sorted(shown)
    assert before - 10 < shown[0] <= shown[-1] < time.time() * 1000 + 10

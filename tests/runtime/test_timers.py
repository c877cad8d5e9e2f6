"""Timers fire on time, also many at once, and the clock never runs backwards."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time

import pytest

from anabranch.clock import SystemClock
from anabranch.kernel import events as e
from anabranch.kernel.values import Answer, failed, succeeded
from anabranch.runtime.core import history
from anabranch.store.sqlite import SqliteStore
from anabranch.work.port import Task

from .support import Doing, engine, forever, playbook, run, start, step


@pytest.mark.slow
def test_five_hundred_timers_fire_within_fifty_milliseconds(tmp_path: object) -> None:
    async def scenario() -> list[float]:
        dice = random.Random(4)
        store = SqliteStore(f"{tmp_path}/store.db")
        async with engine(store) as made:
            due: dict[str, int] = {}
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
        return sorted(late)

    with Busy() as machine:
        late = run(scenario())
    assert late[0] >= 0
    assert late[int(len(late) * 0.99)] < 50 + machine.late_ms(), late[-10:]


class Busy:
    """How late a thread is woken that only sleeps: what the machine itself makes of a timer."""

    def __enter__(self) -> Busy:
        self._late: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sleep)
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _sleep(self) -> None:
        while not self._over.is_set():
            before = time.monotonic()
            time.sleep(0.005)
            self._late.append(time.monotonic() - before - 0.005)

    def late_ms(self) -> float:
        return sorted(self._late)[int(len(self._late) * 0.99)] * 1000


def test_a_retry_waits_its_delay_and_no_longer() -> None:
    async def scenario() -> None:
        times: list[float] = []

        async def fail_twice(task: Task) -> Answer:
            times.append(time.monotonic())
            return succeeded("ok") if task.attempt == 3 else failed("x", "y")

        retry = {"attempts": 3, "delay": "60ms", "backoff": "exponential"}
        async with engine(performers={"doing": Doing(fail_twice)}) as made:
            await made.wait(await start(made, playbook(step("s", "doing", spec={"retry": retry}))))
        waits = [after - before for before, after in itertools.pairwise(times)]
        assert 0.055 < waits[0] < 0.5
        assert 0.115 < waits[1] < 0.5

    run(scenario())


def test_a_deadline_ends_everything_that_runs() -> None:
    async def scenario() -> None:
        text = playbook(
            step("s", "doing", "never"),
            step("never", "noop"),
            executor={"spec": {"deadline": "150ms"}},
        )
        async with engine(performers={"doing": Doing(forever)}) as made:
            begun = time.monotonic()
            state = await made.wait(await start(made, text))
            assert state.status == "deadline_exceeded"
            assert 0.14 < time.monotonic() - begun < 3
            assert made.core.lanes.at_work == 0

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
    clock = SystemClock()
    shown = [clock.now() for _ in range(10_000)]
    assert shown == sorted(shown)
    assert abs(shown[-1] - time.time() * 1000) < 1000

"""A laptop that slept, a clock that was set: no timeout is lost, and none comes twice.

The clock of these tests is moved by hand while the event loop goes on; that is what a suspended
machine looks like from inside: the time of day has jumped, and nothing else has moved.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from functools import partial
from typing import Any

import pytest

from anabranch.clock import ManualClock, SystemClock
from anabranch.kernel import events as e
from anabranch.kernel.values import Answer, succeeded
from anabranch.operations.read.dispatches import Dispatch, dispatches_of
from anabranch.runtime.live_run import history
from anabranch.store.memory.store import MemoryStore
from anabranch.work.port import Task

from .support import Doing, engine, run, start, until

BEGIN = 1_770_000_000_000
HOUR, DAY = 3_600_000, 86_400_000


def solicit(policy: str, timeout: str = "PT30S", deadline: str = "", **timing: Any) -> str:
    score = {"score_field": "/price", "score_order": "asc"} if policy == "best_of" else {}
    step = {
        "step_id": "ask",
        "service_type": "x",
        "target": {"resolve": "static", "participants": ["quick", "mute"]},
        "fan_in": {"policy": policy, **score},
        "timing": {"timeout": timeout, **timing},
    }
    top = {"deadline": deadline} if deadline else {}
    return json.dumps({"workflow_id": "w", **top, "plan": {"steps": [step]}}, indent=1)


class Asked(Doing):
    """`quick` answers, `mute` does not."""

    def __init__(self) -> None:
        super().__init__(self._answer)

    async def _answer(self, task: Task) -> Answer:
        if task.inputs["target"] == "mute":
            await asyncio.Event().wait()
        return succeeded({"price": 1})


async def jumped(
    text: str, *jumps: int, rounds: int = 0
) -> tuple[str, list[Dispatch], Counter[str], list[tuple[int, e.Event]]]:
    """Run it, and move the clock by these spans, each when everybody has been asked."""
    clock, store, asked = ManualClock(BEGIN), MemoryStore(), Asked()
    async with engine(store, {"dispatch": asked}, clock=clock, poll_seconds=0.002) as made:
        name = await start(made, text)
        for count, span in enumerate(jumps):
            await until(partial(_all_asked, store, name, min(count, rounds) + 1))
            clock.advance_to(clock.now() + span)
        state = await made.wait(name)
        events = history(store.read(name))
        net = made.nets.get(state.definition)
    kinds = Counter(e.kind_of(event) for _, event in events)
    return state.status, dispatches_of(net, name, events), kinds, events


def _all_asked(store: MemoryStore, name: str, rounds: int) -> bool:
    """Both have been asked so often, and the one has answered."""
    events = [event for _, event in history(store.read(name))]
    started = sum(isinstance(event, e.JobStarted) for event in events)
    answered = sum(isinstance(event, e.JobReported) for event in events)
    return started >= 2 * rounds and answered >= rounds


@pytest.mark.parametrize("span", [30_000, 31_000, HOUR, 30 * DAY])
def test_a_jump_over_the_timeout_ends_the_step_once(span: int) -> None:
    status, dispatches, kinds, events = run(jumped(solicit("all"), span))
    assert status == "step_timeout"
    assert kinds["gather.settled"] == kinds["run.finished"] == 1
    statuses = {each.record.target: each.record.status for each in dispatches}
    assert statuses == {"quick": "responded", "mute": "timeout"}
    assert events[-1][0] >= BEGIN + span, "it is decided when the machine is awake again"


def test_a_jump_short_of_the_timeout_ends_nothing_and_the_rest_is_still_waited_for() -> None:
    status, _, kinds, events = run(jumped(solicit("best_of"), 29_999, 1))
    assert status == "completed"
    assert kinds["gather.settled"] == 1
    settled = next(at for at, event in events if isinstance(event, e.GatherSettled))
    assert settled == BEGIN + 30_000


def test_each_round_has_its_own_time_however_long_the_machine_slept() -> None:
    """One jump over what would have been ten rounds ends one of them."""
    text = solicit("all", retry={"max_attempts": 2, "backoff": "PT0S"})
    status, dispatches, kinds, _ = run(jumped(text, 10 * HOUR, 10 * HOUR, 10 * HOUR, rounds=2))
    assert status == "step_timeout"
    assert kinds["token.retrying"] == 2
    assert kinds["gather.settled"] == 3
    assert Counter(each.record.status for each in dispatches) == {"responded": 3, "timeout": 3}
    assert len({each.record.dispatch_id for each in dispatches}) == 6


def test_the_deadline_of_the_run_is_not_slept_through_either() -> None:
    status, dispatches, kinds, _ = run(jumped(solicit("all", "PT8H", "PT2H"), 3 * HOUR))
    assert status == "deadline_exceeded"
    assert kinds["run.finished"] == 1
    assert {each.record.target: each.record.status for each in dispatches}["mute"] != "pending"


# -- the clock of the system -----------------------------------------------------------------


class Wall:
    """The two clocks of the machine, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.ticks = BEGIN * 1_000_000, 5_000_000_000
        monkeypatch.setattr(time, "time_ns", lambda: self.wall)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.ticks)

    def passes(self, ms: int, *, asleep: bool = False) -> None:
        """Time passes; while the machine sleeps only the wall clock knows of it."""
        self.wall += ms * 1_000_000
        self.ticks += 0 if asleep else ms * 1_000_000


def test_a_suspension_counts_as_time_that_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, clock = Wall(monkeypatch), SystemClock()
    assert clock.now() == BEGIN
    wall.passes(HOUR, asleep=True)
    assert clock.now() == BEGIN + HOUR
    wall.passes(5)
    assert clock.now() == BEGIN + HOUR + 5


def test_a_clock_set_back_and_forth_counts_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, clock = Wall(monkeypatch), SystemClock()
    clock.now()
    wall.wall -= HOUR * 1_000_000
    wall.passes(10)
    clock.now()
    wall.wall += HOUR * 1_000_000
    wall.passes(10)
    assert clock.now() == BEGIN + 20

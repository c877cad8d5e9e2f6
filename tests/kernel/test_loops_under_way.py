"""A loop can be made wider, narrower, or told to stop while it runs; nothing is done twice."""

from __future__ import annotations

import random

import pytest

from anabranch.errors import InputError, Refused
from anabranch.expressions.port import Constant
from anabranch.kernel import laws
from anabranch.kernel import stimuli as s
from anabranch.kernel.redrive import reusable
from anabranch.net.net import Loop
from seeds import seeds

from .test_loops import LOOP, Worker, looping, random_loop


@pytest.mark.parametrize("seed", seeds(40))
def test_a_loop_whose_window_changes_does_every_item_exactly_once(seed: int) -> None:
    dice = random.Random(2000 + seed)
    total = dice.choice([1, 50, 333])
    worker = Worker(looping(random_loop(dice, total)), seed, lose=0.05)
    worker.tell(s.Start(run="r"))
    while not worker.state.finished:
        if worker.state.loops and dice.random() < 0.2:
            window = dice.randint(1, 9)
            worker.tell(s.TuneLoop("each", window))
            assert worker.state.loops[LOOP].window == window
        worker._move(dice.choice(list(worker.state.jobs.values())))
    laws.check_replay(worker.history, worker.state)
    assert worker.state.status == "completed"
    assert worker.state.ctx.get("sum", 0) == sum(range(total))


@pytest.mark.parametrize("seed", seeds(40))
def test_a_loop_that_was_stopped_is_finished_by_a_redrive(seed: int) -> None:
    dice = random.Random(3000 + seed)
    total = dice.choice([50, 333])
    net = looping(random_loop(dice, total))
    worker = Worker(net, seed)
    worker.tell(s.Start(run="r"))
    for _ in range(dice.randint(0, 20)):
        if worker.state.loops:
            worker._move(dice.choice(list(worker.state.jobs.values())))
    if worker.state.loops:
        worker.tell(s.TuneLoop(LOOP, stop=True, actor="ann", reason="enough"))
    while not worker.state.finished:
        worker._move(dice.choice(list(worker.state.jobs.values())))
    laws.check_replay(worker.history, worker.state)
    done = worker.state.looped[LOOP].succeeded
    again = Worker(net, seed)
    state = again.run(reusable(worker.net, worker.history))
    assert (state.status, state.looped[LOOP].succeeded) == ("completed", total)
    assert state.ctx.get("sum", 0) == sum(range(total))
    assert len(again.tried) == total - done


def test_a_stopped_loop_lets_what_is_out_finish_and_says_who_stopped_it() -> None:
    net = looping(Loop(Constant(list(range(100))), window=Constant(3), shard_size=5))
    worker = Worker(net, 1)
    worker.tell(s.Start(run="r"))
    worker.tell(s.TuneLoop("each", stop=True, actor="ann", reason="enough"))
    with pytest.raises(Refused, match="stopping already"):
        worker.tell(s.TuneLoop("each", stop=True))
    while not worker.state.finished:
        worker._move(next(iter(worker.state.jobs.values())))
    assert worker.state.looped[LOOP].succeeded == 15
    assert worker.state.problem is not None
    assert worker.state.problem.message.endswith("stopped by ann: enough")


def test_a_narrower_window_waits_for_what_is_out() -> None:
    net = looping(Loop(Constant(list(range(100))), window=Constant(6), shard_size=5))
    worker = Worker(net, 1)
    worker.tell(s.Start(run="r"))
    worker.tell(s.TuneLoop("each", 2))
    tracker = worker.state.loops[LOOP]
    assert len(tracker.in_flight) == 6
    for left in (5, 4, 3, 2, 2):
        job = next(iter(worker.state.jobs.values()))
        worker._move(job)
        worker._move(job)
        assert len(worker.state.loops[LOOP].in_flight) == left


def test_what_cannot_be_done_to_a_loop_is_refused() -> None:
    worker = Worker(looping(Loop(Constant([1, 2, 3]), shard_size=1)), 1)
    worker.tell(s.Start(run="r"))
    before = len(worker.history)
    with pytest.raises(InputError, match="window above zero"):
        worker.tell(s.TuneLoop("each"))
    with pytest.raises(InputError, match="window above zero"):
        worker.tell(s.TuneLoop("each", -1))
    with pytest.raises(InputError, match="window above zero"):
        worker.tell(s.TuneLoop("each", 2, stop=True))
    with pytest.raises(Refused, match="no open loop at 'after'"):
        worker.tell(s.TuneLoop("after", 2))
    assert len(worker.history) == before

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
    for job in list(worker.state.jobs.values()):
        worker._move(job)
    worker.tell(s.TuneLoop("each", 2))
    assert len(worker.state.loops[LOOP].in_flight) == 6
    for left in (5, 4, 3, 2):
        worker._move(next(iter(worker.state.jobs.values())))
        assert len(worker.state.loops[LOOP].in_flight) == left


def narrowed(begun: int, window: int) -> Worker:
    """A loop with six shards out, of which some have begun, that is told of a narrower window."""
    net = looping(
        Loop(Constant(list(range(100))), window=Constant(6), shard_size=5, reducers={"sum": "sum"})
    )
    worker = Worker(net, 1)
    worker.tell(s.Start(run="r"))
    for job in list(worker.state.jobs.values())[:begun]:
        worker._move(job)
    worker.tell(s.TuneLoop("each", window))
    return worker


def firsts(worker: Worker) -> list[int]:
    return [shard.first for shard in worker.state.loops[LOOP].in_flight.values()]


def finish(worker: Worker) -> None:
    while not worker.state.finished:
        worker._move(next(iter(worker.state.jobs.values())))
    laws.check_replay(worker.history, worker.state)
    assert worker.tried.count(0) == 1
    assert sorted(worker.tried) == list(range(100))
    assert worker.state.ctx["sum"] == sum(range(100))


@pytest.mark.parametrize("begun", range(7))
def test_a_narrower_window_takes_back_what_no_worker_has_begun(begun: int) -> None:
    worker = narrowed(begun, 2)
    assert firsts(worker) == [0, 5, 10, 15, 20, 25][: max(2, begun)]
    assert worker.state.looped[LOOP].retries == 0
    finish(worker)


def test_what_was_taken_back_goes_out_before_what_was_never_out() -> None:
    worker = narrowed(2, 2)
    worker.tell(s.TuneLoop("each", 7))
    assert sorted(firsts(worker)) == [0, 5, 10, 15, 20, 25, 30]
    finish(worker)


def test_a_shard_that_is_taken_from_a_queue_goes_back_to_a_loop_that_was_narrowed() -> None:
    worker = narrowed(6, 4)
    for first, name in list(zip(firsts(worker), worker.state.loops[LOOP].in_flight, strict=True)):
        if first > 5:
            worker.tell(s.JobLose(name, 1, "withdrawn", counted=False, unbegun=True))
    jobs = worker.state.jobs.values()
    assert [job.phase for job in jobs] == ["running", "running", "scheduled", "scheduled"]
    assert worker.state.loops[LOOP].retries == 0
    finish(worker)


def test_a_shard_that_was_lost_before_keeps_its_job_when_the_window_is_narrowed() -> None:
    net = looping(Loop(Constant(list(range(100))), window=Constant(2), shard_size=5))
    worker = Worker(net, 1)
    worker.tell(s.Start(run="r"))
    names = list(worker.state.jobs)
    worker._move(worker.state.jobs[names[1]])
    worker.tell(s.JobLose(names[1], 1, "its worker died", worker=True))
    worker.tell(s.TuneLoop("each", 1))
    assert list(worker.state.jobs) == [names[1]]
    assert worker.state.jobs[names[1]].losses == 1


def test_a_loop_that_was_stopped_gives_nothing_up_when_its_window_is_narrowed() -> None:
    net = looping(Loop(Constant(list(range(100))), window=Constant(6), shard_size=5))
    worker = Worker(net, 1)
    worker.tell(s.Start(run="r"))
    worker.tell(s.TuneLoop("each", stop=True))
    worker.tell(s.TuneLoop("each", 1))
    assert len(worker.state.loops[LOOP].in_flight) == 6


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

"""Loops: every item exactly once, in a window, with redrive of what failed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.expressions.budget import PAUSE
from anabranch.expressions.port import Constant
from anabranch.kernel import events as e
from anabranch.kernel import laws
from anabranch.kernel import stimuli as s
from anabranch.kernel.redrive import reusable
from anabranch.kernel.state import Job, State, decode_state, encode_state
from anabranch.kernel.step import step
from anabranch.kernel.tracker import ItemFailure, Shard, ShardReport, add_range, in_order
from anabranch.kernel.values import Answer, failed, succeeded
from anabranch.net.net import Arc, Branch, Loop, Net, Step, Work
from seeds import seeds

from .loop_reports import items_of

LOOP = "l1"


def looping(loop: Loop, **step_fields: Any) -> Net:
    work = Work("loop.shard")
    each = Step(
        "each", work=work, loop=loop, branches=(Branch(arcs=(Arc("after"),)),), **step_fields
    )
    return Net(
        "loop", "test", "f", {"each": each, "after": Step("after", work=Work("noop"))}, "each"
    )


class Worker:
    """Carries out shards of a loop over whole numbers, in any order, losing some, and all that have
    a deadly item in them. Where items fail, reading ahead may fail, too."""

    def __init__(
        self,
        net: Net,
        seed: int,
        *,
        fail: float = 0.0,
        lose: float = 0.0,
        deadly: Collection[int] = (),
    ) -> None:
        self.net, self.dice = net, random.Random(seed)
        self.fail, self.lose, self.deadly = fail, lose, deadly
        self.out: Counter[int] = Counter()  # how often each item was
        self.state, self.witness = State(), laws.Witness()
        self.history: list[tuple[int, e.Event]] = []
        self.tried: list[int] = []
        self.at = 0

    def tell(self, stimulus: s.Stimulus) -> None:
        self.at += 1
        for event in step(self.net, self.state, stimulus, self.at):
            self.witness.see(event)
            self.history.append((self.at, event))
        laws.check(self.state)

    def run(self, reuse: Mapping[str, list[Answer]] | None = None) -> State:
        self.tell(s.Start(run="r", reuse=reuse or {}))
        while not self.state.finished:
            self._move(self.dice.choice(list(self.state.jobs.values())))
            if self.dice.random() < 0.05:
                self.state = decode_state(encode_state(self.state))
        laws.check_replay(self.history, self.state)
        return self.state

    def _move(self, job: Job) -> None:
        if job.phase == "scheduled":
            self.tell(s.JobStart(job.id, job.attempt, "w"))
        elif job.phase == "cancelling":
            self.tell(s.JobDischarge(job.id))
        elif self.dice.random() < self.lose:
            unbegun = self.dice.random() < 0.5
            self.tell(s.JobLose(job.id, job.attempt, counted=not unbegun, unbegun=unbegun))
        elif self._kills(job):
            self.tell(s.JobLose(job.id, job.attempt, worker=True))
        else:
            self.tell(s.JobReport(job.id, job.attempt, self._answer(job)))

    def _kills(self, job: Job) -> bool:
        tracker = self.state.loops.get(f"l{job.token}")
        shard = tracker.in_flight.get(job.id) if tracker is not None else None
        items = items_of(shard) if shard is not None else []
        self.out.update(items)
        return any(item in self.deadly for item in items)

    def _answer(self, job: Job) -> Answer:
        tracker = self.state.loops.get(f"l{job.token}")
        if tracker is None:
            return succeeded(1)
        if job.id.endswith(".cut") and self.dice.random() < self.fail:
            return failed("collection", "nobody is there", retryable=False)
        if job.id.endswith(".cut"):
            return self._cut(tracker.cursor or 0, tracker.source["n"])
        return self._shard(tracker.in_flight[job.id])

    @staticmethod
    def _cut(first: int, total: int) -> Answer:
        shards: list[Any] = []
        while first < total and len(shards) < 3:
            count = min(7, total - first)
            shards.append([first, count, {"at": first}])
            first += count
        return succeeded({"shards": shards, "cursor": first, "end": first >= total})

    def _shard(self, shard: Shard) -> Answer:
        items = items_of(shard)
        self.tried += items
        bad = {item for item in items if self.dice.random() < self.fail}
        report = ShardReport(
            len(items) - len(bad),
            tuple(ItemFailure(item, str(item), "boom", "it failed") for item in sorted(bad)),
            self.dice.randint(0, 300),
            {"sum": sum(set(items) - bad)},
        )
        values = {str(item): item for item in items if item not in bad}
        kept: Any = values if shard.only else [None if i in bad else i for i in items]
        return Answer(status="ok", outcome="ok", result=kept, shard=report)


def random_loop(dice: random.Random, total: int) -> Loop:
    source = list(range(total)) if dice.random() < 0.5 else {"n": total}
    return Loop(
        Constant(source),
        mode=dice.choice(["local", "fanout"]),
        window=Constant(dice.randint(1, 5)),
        shard_size=dice.choice([None, 1, 3]),
        fail_fast=dice.random() < 0.3,
        allow_partial=dice.random() < 0.5,
        item_retries=dice.randint(0, 2),
        tolerate_percent=dice.choice([0.0, 50.0]),
        reducers={"sum": "sum"},
    )


@pytest.mark.parametrize("seed", seeds(60))
def test_every_item_is_done_once_whatever_the_schedule(seed: int) -> None:
    dice = random.Random(seed)
    total = dice.choice([0, 1, 5, 50, 333])
    loop = random_loop(dice, total)
    worker = Worker(looping(loop), seed, lose=0.05)
    state = worker.run()
    assert state.status == "completed"
    assert state.looped[LOOP].succeeded == total
    assert state.ctx.get("sum", 0) == sum(range(total))
    assert sorted(set(worker.tried)) == list(range(total))
    if loop.mode == "local":
        assert state.results["each"]["results"] == list(range(total))


@pytest.mark.parametrize("seed", seeds(100))
def test_an_item_that_ends_its_workers_takes_no_other_with_it(seed: int) -> None:
    dice = random.Random(2000 + seed)
    total = dice.choice([5, 50, 333])
    deadly = set(dice.sample(range(total), dice.randint(1, 3)))
    loop = replace(random_loop(dice, total), fail_fast=False, allow_partial=True)
    worker = Worker(looping(loop), seed, lose=0.02, deadly=deadly)
    record = worker.run().looped[LOOP]
    assert (record.succeeded, record.failed) == (total - len(deadly), len(deadly))
    assert sorted(worker.tried) == sorted(set(range(total)) - deadly)
    assert worker.state.ctx.get("sum", 0) == sum(set(range(total)) - deadly)
    assert max(worker.out.values()) <= Work("loop.shard").losses_max + 1


def test_no_item_is_out_more_often_than_the_limit_says() -> None:
    """A limit on the workers that are lost holds over all shards that an item was in."""
    for most in (0, 1, 2, 3, 6):
        loop = Loop(
            Constant(list(range(8))), mode="fanout", shard_size=8, fail_fast=False,
            allow_partial=True,
        )  # fmt: skip
        net = looping(loop)
        each = replace(net.steps["each"], work=Work("loop.shard", workers_lost_max=most))
        net = replace(net, steps={**net.steps, "each": each})
        worker = Worker(net, 1, deadly={5})
        failed = worker.run().looped[LOOP].failed
        assert worker.out[5] == most + 1
        assert failed == {0: 8, 1: 8, 2: 4, 3: 2, 6: 1}[most]


@pytest.mark.parametrize("seed", seeds(60))
def test_a_redrive_works_only_on_what_failed_and_comes_to_the_same_sum(seed: int) -> None:
    dice = random.Random(1000 + seed)
    total = dice.choice([5, 50, 333])
    net = looping(random_loop(dice, total))
    first = Worker(net, seed, fail=0.1)
    done = first.run().looped[LOOP].succeeded
    again = Worker(net, seed)
    state = again.run(reusable(first.net, first.history))
    assert (state.status, state.looped[LOOP].succeeded) == ("completed", total)
    assert state.ctx.get("sum", 0) == sum(range(total))
    assert len(again.tried) == total - done


def test_a_range_of_a_billion_is_opened_and_cancelled_at_once() -> None:
    net = looping(Loop(Constant({"n": 10**9}), mode="fanout", window=Constant(4), shard_size=1))
    worker = Worker(net, 1)
    worker.tell(s.Start(run="r"))
    for _ in range(40):
        worker._move(next(iter(worker.state.jobs.values())))
    worker.tell(s.Cancel())
    while not worker.state.finished:
        worker._move(next(iter(worker.state.jobs.values())))
    assert worker.state.status == "cancelled"
    assert len(worker.history) < 400


def test_failures_beyond_the_tolerated_stop_the_loop_and_name_the_first() -> None:
    net = looping(Loop(Constant(list(range(100))), window=Constant(2), shard_size=5))
    state = Worker(net, 3, fail=0.3).run()
    assert state.status == "failed"
    assert state.problem is not None
    assert "item" in state.problem.message
    assert state.looped[LOOP].succeeded < 100


def test_a_loop_that_may_be_partial_goes_on_with_what_succeeded() -> None:
    loop = Loop(Constant(list(range(50))), mode="fanout", fail_fast=False, allow_partial=True)
    state = Worker(looping(loop), 5, fail=0.2).run()
    record = state.looped[LOOP]
    assert (state.status, record.status) == ("completed", "partial")
    assert record.succeeded + record.failed == 50
    assert state.steps["after"].statuses == ["done"]


@pytest.mark.parametrize("source", [None, 7, "text"])
def test_what_is_not_a_collection_fails_the_step_and_says_so(source: Any) -> None:
    state = Worker(looping(Loop(Constant(source))), 1).run()
    assert state.status == "failed"
    assert state.problem is not None
    assert "a loop needs a list" in state.problem.message


def test_a_wide_window_is_filled_with_pauses_between_its_shards() -> None:
    """So that whoever is answered by the same event loop need not wait for all of them."""
    items, pauses = list(range(300)), 0
    worker = Worker(looping(Loop(Constant(items), window=Constant(300), shard_size=1)), 1)

    def count() -> None:
        nonlocal pauses
        pauses += 1

    before = PAUSE.set(count)
    try:
        worker.run()
    finally:
        PAUSE.reset(before)
    assert pauses >= len(items)


@pytest.mark.parametrize("window", [0, -1, True, "many"])
def test_a_window_that_is_none_is_refused(window: Any) -> None:
    state = Worker(looping(Loop(Constant([1]), window=Constant(window))), 1).run()
    assert state.problem is not None
    assert "max_in_flight" in state.problem.message


def test_ranges_stay_disjoint_and_ordered() -> None:
    dice = random.Random(4)
    ranges: list[tuple[int, int]] = []
    model: set[int] = set()
    for _ in range(400):
        start = dice.randrange(300)
        stop = start + dice.randrange(1, 6)
        add_range(ranges, start, stop)
        model |= set(range(start, stop))
        assert [i for a, b in ranges for i in range(a, b)] == sorted(model)


def test_results_come_in_iteration_order_also_after_a_second_try() -> None:
    assert in_order([(3, [30, 40]), (0, [0, None, 20]), (0, {"1": 10})]) == [0, 10, 20, 30, 40]


@pytest.mark.parametrize(
    ("mode", "window", "pool", "size"),
    [("local", 4, "", 8), ("local", 4, "heavy", 1), ("local", 1, "", 1), ("fanout", 4, "", 12)],
)
def test_shards_grow_where_their_items_do_not_wait_for_each_other(
    mode: Any, window: int, pool: str, size: int
) -> None:
    """Items of 20 ms; a worker does the items of its shard one after the other."""
    loop = Loop(Constant(list(range(1000))), mode=mode, window=Constant(window))
    net = looping(loop)
    each = replace(net.steps["each"], work=Work("loop.shard", pool=pool))
    net = replace(net, steps={**net.steps, "each": each})
    state = State()
    step(net, state, s.Start(run="r"), 1)
    job = next(iter(state.jobs.values()))
    step(net, state, s.JobStart(job.id, job.attempt, "w"), 2)
    count = state.loops[LOOP].in_flight[job.id].count
    report = ShardReport(count, (), 20 * count, {})
    answer = Answer(status="ok", outcome="ok", result=[None] * count, shard=report)
    step(net, state, s.JobReport(job.id, job.attempt, answer), 3)
    assert state.loops[LOOP].shard_size == size

"""What a delivery costs does not depend on how many others there are."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import thread_time
from typing import Any

import pytest

from anabranch.kernel import stimuli as s
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import State
from anabranch.kernel.step import step as kernel_step
from anabranch.kernel.timing import next_wake
from anabranch.kernel.values import ContextPatch, succeeded
from anabranch.net.net import (
    Admission,
    AdmitRule,
    Barrier,
    Branch,
    GatherRule,
    Join,
    Net,
    Slot,
    Work,
)
from costs import operations

from .nets import arcs, ctx, fan_net, net, router, step

ANSWER = succeeded({"x": 1})


class Wide:
    """A run without any checking, for counting what the kernel itself does."""

    def __init__(self, of: Net) -> None:
        self.net, self.state = of, State()
        self.tell(s.Start(run="run"))

    def tell(self, stimulus: s.Stimulus) -> None:
        kernel_step(self.net, self.state, stimulus, 0)
        status_of(self.state)
        next_wake(self.state)

    def answer(self, job: str) -> None:
        attempt = self.state.jobs[job].attempt
        if self.state.jobs[job].phase == "scheduled":
            self.tell(s.JobStart(job, attempt))
        self.tell(s.JobReport(job, attempt, ANSWER))


def fan(slots: int, mode: str = "all", **more: Any) -> Wide:
    return Wide(
        fan_net([f"p{i}" for i in range(slots)], mode, work=Work("t", timeout_ms=9), **more)
    )


def parked(slots: int) -> Wide:
    run = fan(slots)
    for job in list(run.state.jobs):
        run.tell(s.JobStart(job, 1))
        run.tell(s.JobPark(job, 1, "ticket"))
    return run


def join(slots: int) -> Wide:
    rule = GatherRule("quorum", k=slots - 1, combine="merge", losers="kill")
    gathered = Join("j", rule, tuple(Slot("w") for _ in range(slots)))
    branch = Branch(None, "inclusive", arcs(*["w"] * slots), gathered)
    return Wide(net(router("a", branch), step("w"), step("j")))


def barrier(slots: int) -> Wide:
    return Wide(net(router("a", *["w"] * slots), step("w", "d"), step("d", barrier=Barrier())))


def forked(slots: int) -> Wide:
    return Wide(net(router("a", *["w"] * slots), step("w")))


SHAPES: dict[str, Callable[[int], Wide]] = {
    "all": fan,
    "quorum": lambda slots: fan(slots, "quorum", k=slots // 2),
    "window": lambda slots: fan(slots, window=10),
    "parked": parked,
    "join": join,
    "barrier": barrier,
    "tokens": forked,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_one_delivery_costs_the_same_among_fifty_and_among_two_thousand(shape: str) -> None:
    def second_delivery(slots: int) -> int:
        run = SHAPES[shape](slots)
        run.answer(next(iter(run.state.jobs)))  # the first one also opens things
        return operations(lambda: run.answer(next(iter(run.state.jobs))))

    assert second_delivery(2_000) <= second_delivery(50) * 1.1


def test_a_context_patch_looks_at_held_tokens_only() -> None:
    gate = Admission((AdmitRule(ctx("open"), True),))
    patch = s.PatchContext((ContextPatch("x", 1),))

    def patched(others: int) -> int:
        steps = [router("a", "h", *["w"] * others), step("h", admission=gate), step("w")]
        run = Wide(net(*steps))
        return operations(lambda: run.tell(patch))

    assert patched(1_000) <= patched(10) * 1.1


def takes(work: Callable[[], Any]) -> float:
    """The processor time of this thread: what others do on the machine does not count."""
    gc.collect()
    gc.disable()  # how often it runs depends on what was there before
    try:
        begun = thread_time()
        work()
        return thread_time() - begun
    finally:
        gc.enable()


def run_through(run: Wide) -> None:
    while run.state.jobs:
        run.answer(next(iter(run.state.jobs)))
    assert run.state.finished


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["all", "quorum", "parked", "join", "barrier", "tokens"])
def test_ten_times_the_slots_take_about_ten_times_as_long(shape: str) -> None:
    """Loops inside C do not show up as operations; in the time they do.

    Anything quadratic would take a hundred times as long."""
    pairs = [
        (
            takes(lambda: run_through(SHAPES[shape](200))),
            takes(lambda: run_through(SHAPES[shape](2_000))),
        )
        for _ in range(2)
    ]
    assert min(large for _, large in pairs) < min(small for small, _ in pairs) * 10 * 3


@pytest.mark.slow
def test_ten_thousand_slots_are_no_trouble() -> None:
    run = fan(10_000, "quorum", k=5_000, losers="drain")
    for job in list(run.state.jobs)[:6_000]:
        if job in run.state.jobs:
            run.answer(job)
    assert run.state.finished


@pytest.mark.slow
def test_the_ten_thousandth_join_of_a_loop_costs_what_the_first_did() -> None:
    rule = GatherRule("quorum", k=2, combine="merge", losers="kill")
    gathered = Join("j", rule, (Slot("x"), Slot("y"), Slot("z")))
    again = Branch(None, "inclusive", arcs("x", "y", "z"), gathered)
    run = Wide(net(step("a", again), router("x"), router("y"), router("z"), router("j", "a")))
    first = operations(lambda: run.answer(next(iter(run.state.jobs))))
    for _ in range(3_000):
        run.answer(next(iter(run.state.jobs)))
    last = operations(lambda: run.answer(next(iter(run.state.jobs))))
    assert last <= first * 1.1

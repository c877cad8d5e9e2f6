"""A run may come to the same step for as long as it lives: its state stays small."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from anabranch.kernel import stimuli as s
from anabranch.kernel.laws import check_rest
from anabranch.kernel.state import STATUSES_KEPT, State, decode_state, encode_state
from anabranch.kernel.step import step as kernel_step
from anabranch.kernel.summary import session_of, steps_of
from anabranch.kernel.values import failed, succeeded
from anabranch.net.net import Net

from .nets import net, router, step

ACTIVATIONS = 10_000


def round_and_round() -> Net:
    """`slow` is begun once and left alone; `work` leads back to itself."""
    return net(router("a", "slow", "work"), step("slow"), step("work", "work"))


class Walker:
    def __init__(self, of: Net) -> None:
        self.net, self.state = of, State()
        kernel_step(self.net, self.state, s.Start(run="run"), 0)

    def go_round(self, times: int) -> None:
        for _ in range(times):
            job = next(job for job in self.state.jobs.values() if job.step == "work")
            kernel_step(self.net, self.state, s.JobStart(job.id, 1), 0)
            kernel_step(self.net, self.state, s.JobReport(job.id, 1, succeeded({"x": 1})), 0)


@pytest.mark.soak
def test_ten_thousand_activations_of_one_step_take_no_more_room_than_a_thousand() -> None:
    walker = Walker(round_and_round())
    walker.go_round(2 * STATUSES_KEPT)
    small = len(encode_state(walker.state))
    gc.collect()
    tracemalloc.start()
    try:
        walker.go_round(ACTIVATIONS)
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # What remains are numbers with another digit and lists that were resized.
    assert grown / ACTIVATIONS < 2
    assert len(encode_state(walker.state)) < small + STATUSES_KEPT * len('"done",') + 100


def test_what_is_no_longer_listed_is_counted() -> None:
    walker = Walker(round_and_round())
    walker.go_round(ACTIVATIONS)
    check_rest(walker.state)
    shown = steps_of(walker.net, walker.state)["work"]
    assert shown["runs"] == ACTIVATIONS + 1
    assert STATUSES_KEPT <= len(shown["statuses"]) < 2 * STATUSES_KEPT
    assert set(shown["statuses"][:-1]) == {"done"}
    assert shown["status"] == shown["statuses"][-1] == "ready"
    assert shown["earlier"] == {"done": ACTIVATIONS + 1 - len(shown["statuses"])}
    assert "earlier" not in steps_of(walker.net, walker.state)["slow"]
    sums = {"waiting": 2, "running": 0, "done": ACTIVATIONS + 1, "aborted": 0}
    assert session_of(walker.state)["processes"] == sums


def test_a_run_of_a_step_that_outlives_thousands_of_others_is_counted_when_it_ends() -> None:
    walker = Walker(net(router("a", "work", "work"), step("work", "work")))
    state = walker.state
    stays = next(iter(state.jobs))

    for _ in range(3 * STATUSES_KEPT):
        job = next(job for job in state.jobs if job != stays)
        kernel_step(walker.net, state, s.JobStart(job, 1), 0)
        kernel_step(walker.net, state, s.JobReport(job, 1, succeeded({})), 0)
    before = steps_of(walker.net, state)["work"]
    assert before["earlier"]["ready"] == 1
    check_rest(state)
    state = walker.state = decode_state(encode_state(state))
    kernel_step(walker.net, state, s.JobStart(stays, 1), 0)
    assert steps_of(walker.net, state)["work"]["earlier"]["running"] == 1
    fault = failed("x", "no", retryable=False)
    kernel_step(walker.net, state, s.JobReport(stays, 1, fault), 0)
    after = steps_of(walker.net, state)["work"]
    assert after["earlier"] == {"done": before["earlier"]["done"], "failed": 1}
    check_rest(state)


def test_a_snapshot_from_before_the_list_had_an_end_goes_on() -> None:
    walker = Walker(round_and_round())
    walker.go_round(10)
    tally = walker.state.steps["work"]
    tally.statuses[:0] = ["done"] * 5_000
    tally.runs += 5_000
    walker.state.counts.created += 5_000
    walker.state.counts.finished += 5_000
    for token in walker.state.tokens.values():
        token.ordinal += 5_000 * (token.step == "work")
    walker.go_round(1)
    check_rest(walker.state)
    assert len(walker.state.steps["work"].statuses) == STATUSES_KEPT

"""Timers: what is due happens once, whenever the tick comes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from anabranch.errors import Refused
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.state import State, Timers
from anabranch.kernel.step import step as kernel_step
from anabranch.kernel.timing import next_wake
from anabranch.kernel.values import failed, succeeded
from anabranch.net.net import Net, Retry, RunPolicy, Work

from .driver import Run
from .nets import chain, fan_net, net, router, step

START = 1_000


def slow_step(on_timeout: str, **more: Any) -> Net:
    return net(step("a", "b", timeout_ms=500, on_timeout=on_timeout, **more), router("b"))


# -- each kind -----------------------------------------------------------------------------------


def test_a_step_that_takes_too_long_fails() -> None:
    run = Run(slow_step("fail"))
    run.tick(START + 500)
    assert run.statuses("a") == ["failed"]
    assert run.status == "step_timeout"
    assert run.state.problem is not None
    assert run.state.problem.message == "step a took longer than 0.5 s"
    assert run.statuses("b") == ["done"], "its arcs are looked at like those of any failed step"


def test_a_step_that_takes_too_long_is_skipped_by_policy() -> None:
    run = Run(slow_step("skip"))
    run.tick(START + 500)
    assert run.statuses("a") == ["skipped"]
    assert run.statuses("b") == ["done"]
    assert run.status == "completed"
    assert run.state.problem is None


def test_a_step_that_takes_too_long_ends_the_run_by_policy() -> None:
    run = Run(net(router("r", "a", "c"), *slow_step("abort_run").steps.values(), step("c")))
    run.begin("c")
    run.tick(START + 500)
    assert run.statuses("a") == ["failed"]
    assert run.statuses("b") == []
    assert run.state.ending == "step_timeout"
    run.discharge("3.0")
    assert run.status == "step_timeout"


def test_the_step_timeout_spans_all_retries() -> None:
    run = Run(slow_step("fail", work=Work("test", retry=Retry(9, 200))))
    run.fails("a")
    run.tick(START + 200)
    run.fails("a")
    run.tick(START + 500)
    assert run.status == "step_timeout"
    assert run.next_wake() is None, "no retry is left behind"


def test_the_step_timeout_counts_from_when_the_token_is_ready() -> None:
    """A sleeping token has not begun."""
    run = Run(net(step("a", "b"), step("b", timeout_ms=500)))
    run.done("a", wait_ms=2_000)
    assert run.next_wake() == START + 2_000
    run.tick(START + 2_000)
    assert run.next_wake() == START + 2_500


def test_the_timeout_of_an_attempt_counts_from_its_start() -> None:
    run = Run(net(step("a", work=Work("test", timeout_ms=300))))
    assert run.next_wake() is None
    run.at = START + 100
    run.begin("a")
    assert run.next_wake() == START + 400


def test_a_token_sleeps_until_its_wake_time() -> None:
    run = Run(chain(2))
    run.done("s0", wait_ms=250)
    assert run.token("s1").phase == "sleeping"
    assert run.status == "running"
    run.tick(START + 249)
    assert run.token("s1").phase == "sleeping"
    run.tick(START + 250)
    assert run.token("s1").phase == "ready"


def test_sleeping_tokens_can_be_woken_by_id_or_by_step() -> None:
    net_ = net(step("a", "b", "b", "c"), step("b"), step("c"), carries_payload=True)
    run = Run(net_)
    run.done("a", wait_ms=1_000)
    run.send(s.Wake(token=2, payload={"x": 1, "_hidden": 2}, actor="bob"))
    assert run.state.tokens[2].phase == "ready"
    assert run.state.tokens[2].payload == {"x": 1}
    run.refuses(s.Wake(token=2), "not_sleeping")
    run.refuses(s.Wake(token=99), "not_sleeping")
    run.refuses(s.Wake(step="a"), "not_sleeping")
    run.refuses(s.Wake(), "not_sleeping")
    run.send(s.Wake(step="b"))
    assert [token.phase for token in run.state.tokens.values()] == ["ready", "ready", "sleeping"]
    assert run.next_wake() == START + 1_000


def test_the_deadline_ends_a_run_whatever_it_does() -> None:
    policy = RunPolicy(deadline_ms=5_000)
    run = Run(
        net(router("r", "a", "b"), step("a"), step("b"), policy=policy, final="f_"), begin=False
    )
    run = Run(net(router("r", "a", "b"), step("a"), step("b"), policy=policy))
    run.begin("a")
    assert run.next_wake() == START + 5_000
    run.tick(START + 5_000)
    assert run.state.ending == "deadline_exceeded"
    assert run.statuses("b") == ["aborted"]
    run.done("a", "too late")
    assert run.status == "deadline_exceeded"
    assert run.statuses("a") == ["aborted"]


@pytest.mark.parametrize("losers", ["kill", "drain"])
def test_a_run_whose_steps_ended_in_time_is_complete_whatever_its_losers_do(losers: str) -> None:
    asks = fan_net(["x", "y"], "any", losers=losers)
    run = Run(replace(asks, policy=RunPolicy(deadline_ms=5_000)))
    run.begin("1.1")
    run.done("1.0", "first")
    assert not run.state.finished, "the other one is still at work"
    run.tick(START + 5_000)
    run.discharge("1.1")
    assert (run.status, run.state.problem) == ("completed", None)


@pytest.mark.parametrize("lateness", [0, 3_600_000])
def test_nothing_is_begun_after_the_deadline_not_even_with_the_best_answer(lateness: int) -> None:
    """Nobody was there to see the time go by: the fan-out closes, and what follows is not done."""
    asks = fan_net(["x", "y"], "best_of", "order", partial_on_expiry=True)
    order = step("order")
    policy = RunPolicy(deadline_ms=5_000)
    run = Run(replace(asks, steps={**asks.steps, "order": order}, policy=policy))
    run.done("1.0", "cheap")
    run.begin("1.1")
    run.tick(START + 5_000 + lateness)
    assert run.verdict("ask")[0] == "closed"
    assert run.statuses("order") == ["aborted"]
    assert run.state.ending == "deadline_exceeded"


def test_the_deadline_holds_for_a_paused_run_too() -> None:
    run = Run(net(step("a"), policy=RunPolicy(deadline_ms=5_000)))
    run.send(s.Pause("me"))
    assert run.next_wake() == START + 5_000
    run.tick(START + 5_000)
    assert run.status == "deadline_exceeded"


# -- ticks that come late, doubled, early ----------------------------------------------------------


@pytest.mark.parametrize("lateness", [0, 1, 3_600_000])
def test_a_late_tick_does_what_was_due(lateness: int) -> None:
    run = Run(slow_step("fail"))
    run.tick(START + 500 + lateness)
    assert run.status == "step_timeout"


def test_an_early_or_doubled_tick_changes_nothing() -> None:
    run = Run(net(step("a", work=Work("test", timeout_ms=100, retry=Retry(2, 50)))))
    assert run.tick(START) == []
    run.begin("a")
    assert run.tick(START + 99) == []
    assert run.tick(START + 100) != []
    assert run.tick(START + 100) == []
    assert run.job("a").phase == "backoff"


def test_one_late_tick_handles_what_was_due_in_order() -> None:
    """The attempt ran out first, then its retry would have come, then the step ran out."""
    work = Work("test", timeout_ms=100, retry=Retry(3, 100))
    run = Run(net(step("a", work=work, timeout_ms=500)))
    run.begin("a")
    run.tick(START + 10_000)
    assert run.kinds()[-5:] == [
        "job.timed_out", "job.retrying", "token.timed", "job.discharged", "token.finished",
        "run.finished",
    ][-5:]  # fmt: skip
    assert run.status == "step_timeout"


def test_a_deadline_in_the_same_tick_as_everything_else() -> None:
    policy = RunPolicy(deadline_ms=100)
    work = Work("test", timeout_ms=100)
    run = Run(
        net(router("r", "a", "b"), step("a", work=work, timeout_ms=100), step("b"), policy=policy)
    )
    run.begin("a")
    run.begin("b", lease_until=START + 100)
    run.tick(START + 100)
    assert list(run.state.jobs) == ["2.0"], "told to stop; the other one's lease has run out too"
    run.discharge("2.0")
    assert run.status == "deadline_exceeded"


# -- pause ---------------------------------------------------------------------------------------


def test_a_paused_run_starts_nothing_and_catches_up_when_it_is_resumed() -> None:
    run = Run(net(step("a", "b"), step("b"), step("c", work=Work("test"))))
    run.done("a", wait_ms=100)
    run.send(s.Pause("me", "look"))
    assert run.next_wake() is None, "a wake-up begins work: it waits"
    assert run.tick(START + 500) == []
    events = run.send(s.Resume("me"))
    assert [e.kind_of(event) for event in events] == ["run.resumed", "token.woken", "job.scheduled"]


def test_a_retry_waits_for_the_end_of_a_pause() -> None:
    run = Run(net(step("a", work=Work("test", retry=Retry(2, 100)))))
    run.fails("a")
    run.send(s.Pause("me"))
    assert run.tick(START + 100) == []
    run.send(s.Resume("me"), START + 200)
    assert run.job("a").phase == "scheduled"


def test_a_pause_does_not_stop_the_clocks_that_end_things() -> None:
    run = Run(net(step("a", timeout_ms=500, work=Work("test", timeout_ms=300))))
    run.begin("a", lease_until=START + 200)
    run.send(s.Pause("me"))
    assert run.next_wake() == START + 200
    run.tick(START + 200)  # the lease
    run.refuses(s.JobStart("1.0", 2), "paused")
    run.tick(START + 500)  # the step
    assert run.status == "step_timeout"


# -- the timers themselves -----------------------------------------------------------------------

keys = st.sampled_from(
    ["deadline", "job:1.0", "lease:1.0", "wake:2", "wake:10", "wake:9", "retry:3.0", "retry:12.0"]
)


@settings(database=None, deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(keys, st.one_of(st.none(), st.integers(0, 50))), max_size=150),
    st.booleans(),
)
def test_what_is_due_comes_earliest_first_then_by_kind_and_in_the_order_it_was_set(
    moves: list[tuple[str, int | None]], from_a_snapshot: bool
) -> None:
    timers, plain = Timers(), dict[str, int]()
    for key, at in moves:
        plain.pop(key, None)
        if at is None:
            timers.drop(key)
        else:
            timers.set(key, at)
            plain[key] = at
        if from_a_snapshot:
            timers = msgspec.json.decode(msgspec.json.encode(timers), type=Timers)
        assert timers.earliest() == min(plain.values(), default=None)
        due = [key for key, at in plain.items() if at <= 25]
        due.sort(key=lambda key: (plain[key], key.partition(":")[0]))  # a stable sort
        assert timers.due_by(25) == due


def test_dropped_timers_do_not_pile_up_behind_a_far_deadline() -> None:
    timers = Timers()
    timers.set("deadline", 10**6)
    for number in range(5_000):
        timers.set(f"job:{number}", 10**9 + number)
        timers.drop(f"job:{number}")
    assert len(timers._heap) < 100


# -- at random -----------------------------------------------------------------------------------


def busy_net() -> Net:
    work = Work("test", timeout_ms=70, retry=Retry(3, 30, "exponential"))
    policy = RunPolicy(deadline_ms=2_000, on_failure="handled")
    return net(
        step("a", "b", "c", work=work, timeout_ms=150, on_timeout="skip"),
        step("b", "c", work=work),
        step("c", work=work, timeout_ms=90),
        policy=policy,
    )


@settings(database=None, deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 60)), max_size=60))
def test_after_a_tick_nothing_is_due_any_more(moves: list[tuple[int, int]]) -> None:
    """No busy loop: the next wake-up lies ahead, and it is the earliest thing due."""
    net_, state, at = busy_net(), State(), 0
    kernel_step(net_, state, s.Start(run="run"), at)
    for move, passing in moves:
        at += passing
        if state.finished:
            break
        jobs = list(state.jobs.values())
        job = jobs[passing % len(jobs)] if jobs else None
        choices: list[s.Stimulus] = [s.Tick(), s.Pause("me"), s.Resume("me")]
        if job is not None:
            choices += [
                s.JobStart(job.id, job.attempt, "w", at + 40 if passing % 2 else 0),
                s.JobReport(job.id, job.attempt, succeeded(wait_ms=passing)),
                s.JobReport(job.id, job.attempt, failed("boom", "x")),
                s.JobDischarge(job.id),
            ]
        try:
            kernel_step(net_, state, choices[move % len(choices)], at)
        except Refused:
            continue
        wake = next_wake(state)
        visible = [
            due
            for key, due in state.timers.due.items()
            if not (state.paused and key.startswith(("wake", "retry")))
        ]
        assert wake == min(visible, default=None)
        if move % len(choices) in (0, 2):
            assert wake is None or wake > at

"""A job that waits for time or a signal holds no worker, and the kernel ends its wait."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.explain import Mover, explain
from anabranch.kernel.values import Wait, succeeded
from anabranch.net.net import Retry, WaitRule, Work

from .driver import Run
from .nets import Fn, net, step

EVEN = Fn(lambda names: names["signal"]["payload"] % 2 == 0, "signal.payload % 2 == 0")
MEMORY = {"at": 1}
START = 1_000


def waiter(rule: WaitRule | None = None, **more: Any) -> Work:
    return Work("wait", label="w", wait=rule, **more)


def parked(wait: Wait, work: Work | None = None, **more: Any) -> Run:
    run = Run(net(step("a", "b", work=work or waiter()), step("b")), START)
    run.begin("a")
    run.send(s.JobPark("1.0", 1, wait=wait, **more))
    return run


def for_signal(rule: WaitRule | None = None, work: Work | None = None, **more: Any) -> Run:
    rule = rule or WaitRule("paid")
    return parked(Wait(rule.event, "w"), work or waiter(rule), **more)


# -- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [None, MEMORY])
def test_a_wait_for_time_that_is_over_has_succeeded(memory: Any) -> None:
    run = parked(Wait(), limit_ms=500, memory=memory)
    assert run.status == "waiting"
    assert run.next_wake() == START + 500
    run.tick(START + 499)
    assert run.job("a").phase == "parked"
    run.tick(START + 500)
    result = {"until": "1970-01-01T00:00:01.500+00:00", "waited_seconds": 0.5}
    if memory is None:
        assert run.state.results["a"] == result
        return
    heard = run.job("a").heard
    assert heard is not None
    assert (heard.status, heard.result) == ("ok", result)
    assert run.job("a").phase == "scheduled"


@pytest.mark.parametrize("until", [1, START - 1, START])
def test_an_instant_that_has_passed_ends_the_wait_at_once(until: int) -> None:
    run = parked(Wait(), until=until)
    assert run.state.results["a"]["waited_seconds"] == 0
    assert run.job("b").phase == "scheduled"


def test_a_wait_of_no_time_ends_at_once() -> None:
    assert parked(Wait(), limit_ms=0).statuses("a") == ["done"]


def test_the_time_limit_of_a_job_does_not_count_its_wait() -> None:
    work = waiter(timeout_ms=100)
    run = parked(Wait(), work, limit_ms=10_000, memory=MEMORY)
    assert "job:1.0" not in run.state.timers.due
    run.tick(START + 10_000)
    run.begin("a")
    assert run.state.timers.due["job:1.0"] == START + 10_100, "after the wait it runs anew"


def test_the_timeout_of_the_step_does_count_its_wait() -> None:
    run = Run(net(step("a", work=waiter(), timeout_ms=100)), START)
    run.begin("a")
    run.send(s.JobPark("1.0", 1, wait=Wait(), limit_ms=10_000))
    run.tick(START + 100)
    assert run.status == "step_timeout"


def test_nobody_outside_can_answer_for_a_wait() -> None:
    run = parked(Wait(), limit_ms=500)
    run.refuses(s.JobReport("1.0", 1, succeeded(1)), "waits_by_itself")


def test_a_paused_run_lets_time_pass_and_starts_what_follows_when_it_is_resumed() -> None:
    run = parked(Wait(), limit_ms=500, memory=MEMORY)
    run.send(s.Pause("ann"))
    run.tick(START + 500)
    assert run.job("a").phase == "scheduled"
    run.refuses(s.JobStart("1.0", 2), "paused")
    run.send(s.Resume("ann"))
    run.begin("a")


def test_a_cancelled_run_ends_its_waits_at_once() -> None:
    run = for_signal(limit_ms=500)
    run.send(s.Cancel("ann"))
    assert run.status == "cancelled"
    assert not run.state.waits
    assert not run.state.timers.due


# -- signals -------------------------------------------------------------------------------------


def test_a_wait_for_a_signal_that_does_not_come_fails_as_a_timeout() -> None:
    run = for_signal(limit_ms=2_000)
    run.tick(START + 2_000)
    fault = run.state.failure
    assert fault is not None
    assert (fault.kind, fault.code) == ("timeout", "TIMEOUT")
    assert fault.message == "no signal paid within 2 s"


def test_a_timeout_of_a_signal_is_tried_again_like_any_failure() -> None:
    rule = WaitRule("paid")
    run = for_signal(rule, waiter(rule, retry=Retry(attempts=2)), limit_ms=2_000)
    run.tick(START + 2_000)
    assert (run.job("a").phase, run.job("a").attempt) == ("scheduled", 2)


def test_work_that_goes_on_hears_of_the_timeout() -> None:
    run = for_signal(limit_ms=2_000, memory=MEMORY)
    events = run.tick(START + 2_000)
    assert isinstance(events[0], e.JobContinued)
    assert events[0].answer.fault is not None
    assert events[0].answer.fault.kind == "timeout"


def test_a_wait_for_a_name_that_the_task_does_not_have_is_refused() -> None:
    run = Run(net(step("a", work=waiter(WaitRule("paid")))), START)
    run.begin("a")
    run.refuses(s.JobPark("1.0", 1, wait=Wait("paid", "other")), "unknown_wait")
    run.refuses(s.JobPark("1.0", 1, wait=Wait("piad", "w")), "unknown_wait")


def test_explain_names_the_signal_its_filter_and_the_time() -> None:
    run = for_signal(WaitRule("paid", EVEN), limit_ms=2_000)
    [one] = explain(run.net, run.state)
    assert one.waits_for == "a signal paid that fits signal.payload % 2 == 0"
    assert (one.until, one.movers) == (START + 2_000, (Mover("signal", "run", ("paid",)),))
    [time] = explain(net(step("a", work=waiter())), parked(Wait(), limit_ms=500).state)
    assert (time.waits_for, time.until) == ("its time", START + 500)
    assert time.movers == (Mover("", "time"),)

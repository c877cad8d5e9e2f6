"""Signals: kept until a wait takes them, at most once, in the order in which they came."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.kernel import evolve_signals, signals
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import Wait
from anabranch.net.net import WaitRule, Work

from .driver import Run, kinds
from .nets import Fn, Wrong, ctx, net, router, step

START = 1_000
EVEN = Fn(lambda names: names["signal"]["payload"] % 2 == 0, "even")


def waiting_net(*rules: WaitRule) -> Any:
    """Steps s0, s1 … beside one another, each with one of the rules."""
    steps = [
        step(f"s{number}", work=Work("wait", label="w", wait=rule))
        for number, rule in enumerate(rules)
    ]
    return net(router("begin", *(one.name for one in steps)), *steps)


def begun(*rules: WaitRule) -> Run:
    return Run(waiting_net(*rules), START)


def wait(run: Run, name: str, event: str = "paid", **more: Any) -> list[e.Event]:
    job = run.begin(name)
    return run.send(s.JobPark(job.id, job.attempt, wait=Wait(event, "w"), **more))


def send(run: Run, number: int, payload: Any = None, name: str = "paid", **more: Any) -> list[Any]:
    return run.send(s.Signal(f"id-{number}", name, payload, "ann", **more))


def takers(run: Run) -> list[tuple[str, str]]:
    """(signal, step) in the order in which they were taken."""
    past = run.state.past_signals
    return [(one.signal, past[one.signal].step) for one in run.of_kind(e.SignalTaken)]


# -- taking --------------------------------------------------------------------------------------


def test_a_waiting_job_takes_the_signal_with_its_payload() -> None:
    run = begun(WaitRule("paid"))
    wait(run, "s0")
    assert kinds(send(run, 1, {"order": 7}))[:3] == [
        "signal.received",
        "signal.taken",
        "job.reported",
    ]
    assert run.state.results["s0"] == {
        "event": "paid",
        "payload": {"order": 7},
        "id": "id-1",
        "actor": "ann",
        "received_at": "1970-01-01T00:00:01.000+00:00",
    }
    assert run.status == "completed"


def test_one_that_nobody_waits_for_yet_is_kept_for_the_first_wait() -> None:
    run = begun(WaitRule("paid"))
    assert kinds(send(run, 1)) == ["signal.received"]
    assert kinds(send(run, 2)) == ["signal.received"]
    wait(run, "s0")
    assert takers(run) == [("id-1", "s0")]


def test_the_longest_waiting_job_takes_it() -> None:
    run = begun(WaitRule("paid"), WaitRule("paid"), WaitRule("paid"))
    for name in ("s1", "s2", "s0"):
        wait(run, name)
    send(run, 1)
    send(run, 2)
    assert takers(run) == [("id-1", "s1"), ("id-2", "s2")]


def test_each_signal_is_taken_by_one_wait() -> None:
    run = begun(WaitRule("paid"), WaitRule("paid"))
    send(run, 1)
    wait(run, "s0")
    wait(run, "s1")
    assert takers(run) == [("id-1", "s0")]
    assert run.job("s1").phase == "parked"


# -- filters -------------------------------------------------------------------------------------


def test_a_filter_passes_over_signals_that_do_not_match_and_they_stay() -> None:
    run = begun(WaitRule("paid", EVEN), WaitRule("paid"))
    wait(run, "s0")
    send(run, 1, 3)
    send(run, 2, 4)
    assert takers(run) == [("id-2", "s0")]
    wait(run, "s1")
    assert takers(run)[1:] == [("id-1", "s1")]


def test_a_filter_is_asked_again_when_the_context_changes() -> None:
    run = begun(WaitRule("paid", ctx("open")))
    wait(run, "s0")
    send(run, 1)
    assert not run.of_kind(e.SignalTaken)
    run.patch(open=True)
    assert takers(run) == [("id-1", "s0")]


def test_a_filter_that_fails_does_not_match_and_is_recorded_once() -> None:
    run = begun(WaitRule("paid", Wrong()), WaitRule("paid", Wrong()), WaitRule("paid"))
    wait(run, "s0")
    send(run, 1)
    wait(run, "s1")
    run.patch(any=1)
    [unmatched] = run.of_kind(e.SignalUnmatched)
    assert unmatched == e.SignalUnmatched("id-1", run.job("s0").id, "1 / 0: division by zero")
    assert run.state.signals["id-1"].problem == "1 / 0: division by zero"
    wait(run, "s2")
    assert takers(run) == [("id-1", "s2")]


def test_a_filter_sees_what_was_put_down_when_the_wait_began() -> None:
    seen = Fn(lambda names: names["signal"]["payload"] == names["local"]["iter"]["n"], "n")
    run = begun(WaitRule("paid", seen))
    job = run.begin("s0")
    run.send(s.JobPark(job.id, 1, wait=Wait("paid", "w", {"iter": {"n": 5}})))
    send(run, 1, 4)
    send(run, 2, 5)
    assert takers(run) == [("id-2", "s0")]


# -- the same one again --------------------------------------------------------------------------


def test_a_signal_that_is_sent_again_is_the_same_one() -> None:
    run = begun(WaitRule("paid"), WaitRule("paid"))
    send(run, 1, {"a": 1, "b": 2})
    assert run.send(s.Signal("id-1", "paid", {"b": 2, "a": 1}, "bob")) == []
    wait(run, "s0")
    assert send(run, 1, {"a": 1, "b": 2}) == [], "also when it was taken"
    wait(run, "s1")
    assert run.job("s1").phase == "parked"


def test_after_the_end_of_the_run_it_is_heard_as_well() -> None:
    run = begun(WaitRule("paid"))
    wait(run, "s0")
    send(run, 1)
    assert run.status == "completed"
    assert send(run, 1) == []
    run.refuses(s.Signal("id-2", "paid"), "run_finished")


def test_another_signal_under_the_same_id_is_refused() -> None:
    run = begun(WaitRule("paid"), WaitRule("sent"))
    send(run, 1, 1)
    run.refuses(s.Signal("id-1", "paid", 2), "signal_id_used")
    run.refuses(s.Signal("id-1", "sent", 1), "signal_id_used")


def test_only_the_last_ids_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evolve_signals, "PAST_SIGNALS_KEPT", 5)
    run = begun(WaitRule("paid"))
    for number in range(6):
        send(run, number, ttl_ms=1)
        run.tick(run.at + 1)
    assert len(run.state.past_signals) == 5
    assert send(run, 1) == []
    assert kinds(send(run, 0)) == ["signal.received"], "forgotten, so it is a new one"


# -- how long and how many -----------------------------------------------------------------------


def test_a_signal_expires_with_its_ttl() -> None:
    run = begun(WaitRule("paid"))
    send(run, 1, ttl_ms=50)
    send(run, 2)
    assert run.next_wake() == START + 50
    assert run.tick(START + 50) == [e.SignalExpired("id-1")]
    assert (list(run.state.signals), run.next_wake()) == (["id-2"], None)
    assert run.state.past_signals["id-1"].status == "expired"


def test_one_that_was_taken_does_not_expire() -> None:
    run = begun(WaitRule("paid"), WaitRule("paid"))
    wait(run, "s0")
    send(run, 1, ttl_ms=50)
    assert run.next_wake() is None


def test_a_run_keeps_only_so_many_and_takes_one_that_a_wait_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signals, "SIGNALS_MAX", 3)
    run = begun(WaitRule("paid", EVEN), WaitRule("paid"))
    wait(run, "s0")
    for number in range(3):
        send(run, number, 1)
    assert "keeps 3 signals" in run.refuses(s.Signal("more", "paid", 1), "signals_full").message
    send(run, 9, 2)
    assert takers(run) == [("id-9", "s0")]


def test_a_run_keeps_only_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "SIGNAL_BYTES_MAX", 100)
    run = begun(WaitRule("paid"))
    send(run, 1, "x" * 60)
    assert "100 bytes" in run.refuses(s.Signal("more", "paid", "x" * 60), "signals_full").message
    send(run, 2, "x" * 20)


@pytest.mark.parametrize(
    ("name", "said"),
    [("piad", "did you mean 'paid'?"), ("zzz", "known here: paid, sent")],
)
def test_a_name_that_no_wait_has_is_refused_with_what_was_perhaps_meant(
    name: str, said: str
) -> None:
    run = begun(WaitRule("paid"), WaitRule("sent"))
    assert said in run.refuses(s.Signal("x", name), "unknown_signal").message


def test_a_definition_without_waits_takes_no_signals() -> None:
    run = Run(net(step("a")))
    assert "nothing in test waits" in run.refuses(s.Signal("x", "y"), "unknown_signal").message


def test_a_run_that_winds_down_takes_no_signals() -> None:
    run = begun(WaitRule("paid"))
    run.begin("s0")
    run.send(s.Cancel("ann"))
    run.refuses(s.Signal("x", "paid"), "ending")


def test_what_nobody_took_is_dropped_with_the_end_of_the_run() -> None:
    run = begun(WaitRule("paid"))
    send(run, 1, ttl_ms=1_000)
    run.send(s.Cancel("ann"))
    assert run.status == "cancelled"
    assert not run.state.signals
    assert run.state.past_signals["id-1"].status == "dropped"


def test_a_paused_run_takes_signals_and_begins_nothing() -> None:
    run = begun(WaitRule("paid"))
    job = run.begin("s0")
    run.send(s.JobPark(job.id, 1, memory={"at": 1}, wait=Wait("paid", "w")))
    run.send(s.Pause("ann"))
    send(run, 1)
    assert (run.job("s0").phase, run.status) == ("scheduled", "paused")
    run.refuses(s.JobStart(job.id, 2), "paused")

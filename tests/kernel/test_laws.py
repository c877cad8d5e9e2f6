"""The laws notice when they are broken, and the log keeps its meaning."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.errors import LawBroken, Refused
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.laws import Witness, check, check_replay, check_rest
from anabranch.kernel.replay import replay
from anabranch.kernel.state import State, decode_state, encode_state
from anabranch.kernel.step import step as kernel_step
from anabranch.kernel.values import Fault, succeeded
from anabranch.net.net import Arc, Barrier, Branch, Decision, GatherRule, Join, Slot

from .driver import Run
from .nets import Fn, arcs, chain, exclusive, fan_net, net, router, step


def busy() -> State:
    """A state with a bit of everything: two fans' worth of jobs, a join, a barrier, a gate."""
    join = Join("j", GatherRule("quorum", k=2, combine="merge"), (Slot("g"), Slot("h")))
    branch = Branch(None, "inclusive", arcs("g", "h"), join)
    run = Run(
        net(
            router("a", "f", "b", "c", "q"), router("f", branch), step("g"), step("h"), step("j"),
            step("b", "d"), step("c", "d"), step("d", barrier=Barrier()),
            step("q", work=None, decision=Decision(), timeout_ms=500),
        )
    )  # fmt: skip
    run.done("g")
    run.done("b")
    run.begin("c", lease_until=9_000)
    check_rest(run.state)
    return run.state


def first_job(state: State) -> str:
    return next(iter(state.jobs))


BREAKS: dict[str, Callable[[State], object]] = {
    "tokens created": lambda st: setattr(st.counts, "created", 99),
    "runs do not add up": lambda st: setattr(st.steps["a"], "runs", 7),
    "lists a member that is gone": lambda st: st.scopes[0].members.update({77: True}),
    "miscounts its live members": lambda st: st.scopes[0].live.update({"c": 5}),
    "tokens are counted as": lambda st: st.phases.update(ready=9),
    "held tokens are listed": lambda st: setattr(st, "held", {1: True}),
    "counted as busy": lambda st: setattr(st, "busy", 9),
    "jobs and has": lambda st: setattr(next(iter(st.tokens.values())), "jobs", 4),
    "which is gone": lambda st: setattr(next(iter(st.tokens.values())), "gather", "j99"),
    "listed otherwise": lambda st: st.steps["h"].statuses.__setitem__(0, "odd"),
    "does not wait at it": lambda st: setattr(st.gates["gate-5"], "token", 3),
    "no gather is open at the barrier": lambda st: st.scopes[0].barriers.update(x=3),
    "for a token that is gone": lambda st: setattr(st.jobs[first_job(st)], "token", 88),
    "outlived its job": lambda st: st.timers.set("job:88.0", 5),
    "outlived its token": lambda st: st.timers.set("step:88", 5),
    "both filled and lost": lambda st: st.gathers["j6"].lost.update({0: "x"}),
    "selected a slot that was not": lambda st: _close(st, [1]),
    "of 2 needed": lambda st: _close(st, [0]),
    "no terminal status": lambda st: setattr(st, "status", "exploded"),
    "ended and still has tokens": lambda st: setattr(st, "status", "completed"),
}


def _close(state: State, selected: list[int]) -> None:
    state.gathers["j6"].verdict = "closed"
    state.gathers["j6"].selected = selected


@pytest.mark.parametrize("words", BREAKS)
def test_a_broken_state_is_noticed(words: str) -> None:
    state = busy()
    BREAKS[words](state)
    with pytest.raises(LawBroken, match=words):
        check(state)


def test_a_turn_that_leaves_something_undone_is_noticed() -> None:
    state = Run(chain(1)).state
    state.jobs["1.0"].phase = "answered"
    check(state)
    with pytest.raises(LawBroken, match="left unused"):
        check_rest(state)


# -- what may follow what --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([e.GatherSettled("j1", "closed", ()), e.GatherSettled("j1", "expired", ())], "twice"),
        ([e.GatherSettled("j1", "closed", ()), e.Delivered("j1", 0, "2", "ok")], "its verdict"),
        ([e.GatherSettled("j1", "closed", ()), e.SlotLost("j1", 0, "2", "x")], "after its verdict"),
        ([e.Delivered("j1", 0, "2", "ok"), e.Delivered("j1", 1, "2", "ok")], "heard twice"),
        ([e.TokenFinished(1, "done"), e.TokenFinished(1, "done")], "finished twice"),
        ([e.TokenDoomed(1, "x"), e.TokenCreated(2, "s", 1, 0, "arc")], "killed token 1 made"),
        ([e.TokenDoomed(1, "x"), e.Delivered("j9", 0, "1", "ok")], "killed token 1 filled"),
        ([e.TokenDoomed(1, "x"), e.ContextPatched((), "token 1")], "patched the context"),
        ([e.TokenCreated(1, "f", 0, 0, "final"), e.TokenCreated(2, "f", 0, 0, "final")], "second"),
        ([e.RunFinished("completed"), e.RunFinished("failed")], "after the run ended"),
    ],
)  # fmt: skip
def test_a_broken_sequence_is_noticed(events: list[e.Event], words: str) -> None:
    witness = Witness()
    for event in events[:-1]:
        witness.see(event)
    with pytest.raises(LawBroken, match=words):
        witness.see(events[-1])


def test_a_replay_that_differs_is_noticed() -> None:
    run = Run(chain(2))
    run.done("s0")
    check_replay(run.history, run.state)
    with pytest.raises(LawBroken, match="does not give the live state"):
        check_replay(run.history[:-1], run.state)


# -- the log and the snapshot --------------------------------------------------------------------


def test_a_log_can_be_replayed_on_top_of_any_snapshot() -> None:
    run = Run(fan_net(["x", "y"], "any", "next", losers="drain"))
    run.begin("1.0")
    run.done("1.1", "first")
    run.done("1.0", "late")
    for cut in range(len(run.history) + 1):
        snapshot = decode_state(encode_state(replay(run.history[:cut])))
        again = replay(run.history[cut:], onto=snapshot)
        assert encode_state(again) == encode_state(run.state)


def test_replay_evaluates_nothing() -> None:
    calls: list[object] = []

    def note(names: object) -> bool:
        calls.append(names)
        return True

    guard = Fn(note)
    run = Run(net(step("a", exclusive(Arc("b", guard))), step("b")))
    run.done("a")
    before = len(calls)
    replay(run.history)
    assert len(calls) == before > 0


def test_a_snapshot_keeps_the_order_in_which_things_came() -> None:
    """Twelve tokens: as text, 10 would sort before 9."""
    run = Run(net(router("a", *["b"] * 12), step("b")))
    assert list(decode_state(encode_state(run.state)).tokens) == list(range(2, 14))
    run.send(s.Cancel("me"))  # the driver compares with a twin from a snapshot


def test_old_rows_without_newer_fields_keep_their_meaning() -> None:
    old = b'[["job.cancelling","1.0","why"],["token.finished",1,"done"]]'
    cancelling, finished = e.decode_events(old)
    assert cancelling == e.JobCancelling("1.0", "why", 0, "")
    assert finished == e.TokenFinished(1, "done", "", "", None)


def test_every_event_has_a_name_and_shows_its_fields() -> None:
    event = e.TokenFinished(1, "failed", "error", "leaf", Fault("boom", "oh"))
    assert e.kind_of(event) == "token.finished"
    assert e.fields_of(event) == {
        "token": 1, "ending": "failed", "outcome": "error", "end": "leaf",
        "fault": {"kind": "boom", "message": "oh"},
    }  # fmt: skip


def test_an_error_in_the_middle_of_a_turn_is_a_defect_not_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever drives the kernel must not take a half-done turn for "nothing changed"."""
    run = Run(chain(1))

    def refuses(*_args: object) -> None:
        raise Refused("too late for that")

    kernel_step(run.net, run.state, s.JobStart("1.0", 1), 0)
    monkeypatch.setattr("anabranch.kernel.quiescence.settle", refuses)
    with pytest.raises(RuntimeError, match="refused halfway"):
        kernel_step(run.net, run.state, s.JobReport("1.0", 1, succeeded()), 0)

"""Limits across runs: a run waits for its places, and nothing of it begins before it has them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.errors import InputError, Refused
from anabranch.expressions.port import Constant
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.explain import explain
from anabranch.kernel.laws import check_rest
from anabranch.kernel.limits import KEY_LETTERS_MAX, held_by
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import State, decode_state, encode_state
from anabranch.kernel.step import step
from anabranch.kernel.values import KeyLimit
from anabranch.net.net import ConcurrencyLimit, Net, RunPolicy

from .driver import kinds
from .nets import Fn, net
from .nets import step as a_step

BY_CUSTOMER = ConcurrencyLimit(3, Fn(lambda names: names["input"]["customer"], "customer"))


def limited(*limits: ConcurrencyLimit, **more: Any) -> Net:
    made = net(a_step("first"), a_step("other"))
    return replace(made, name="invoices", limits=limits, **more)


def begun(made: Net, **given: Any) -> tuple[State, list[e.Event]]:
    state = State()
    events = step(made, state, s.Start(run="r", **given), 1_000)
    check_rest(state)
    return state, events


def test_a_run_is_queued_and_begins_when_it_is_admitted() -> None:
    made = limited(BY_CUSTOMER)
    state, events = begun(made, input={"customer": "acme"})
    assert kinds(events) == ["run.started", "run.queued"]
    assert status_of(state) == "queued"
    assert state.limits == (KeyLimit("invoices[acme]", 3),)
    (why,) = explain(made, state)
    assert "invoices[acme] (3 at once)" in why.waits_for
    assert not why.at_work
    state = decode_state(encode_state(state))
    admitted = step(made, state, s.Admit(), 2_000)
    assert kinds(admitted)[:2] == ["run.admitted", "token.created"]
    assert status_of(state) == "running"
    check_rest(state)
    with pytest.raises(Refused, match="does not wait"):
        step(made, state, s.Admit(), 3_000)


def test_it_begins_at_the_step_it_was_asked_to_begin_at() -> None:
    made = limited(ConcurrencyLimit(1))
    state, _ = begun(made, step="other")
    step(made, state, s.Admit(), 2_000)
    assert [token.step for token in state.tokens.values()] == ["other"]


def test_its_time_runs_from_its_admission() -> None:
    made = limited(ConcurrencyLimit(1), policy=RunPolicy(deadline_ms=500))
    state, _ = begun(made)
    assert state.deadline == 0
    assert state.timers.earliest() is None
    assert step(made, state, s.Tick(), 90_000) == []
    step(made, state, s.Admit(), 100_000)
    assert (state.deadline, state.timers.due["deadline"]) == (100_500, 100_500)


def test_a_queued_run_can_be_cancelled_and_is_admitted_no_more() -> None:
    made = limited(ConcurrencyLimit(1))
    state, _ = begun(made)
    assert kinds(step(made, state, s.Cancel("ann"), 2_000)) == ["run.ending", "run.finished"]
    assert (state.status, state.counts.created) == ("cancelled", 0)
    check_rest(state)
    with pytest.raises(Refused):
        step(made, state, s.Admit(), 3_000)


def test_a_paused_run_keeps_its_place_and_begins_nothing() -> None:
    made = limited(ConcurrencyLimit(1))
    state, _ = begun(made)
    step(made, state, s.Pause("ann"), 2_000)
    assert status_of(state) == "paused"
    step(made, state, s.Admit(), 3_000)
    assert status_of(state) == "paused"
    assert not state.queued_for_place
    step(made, state, s.Resume("ann"), 4_000)
    assert status_of(state) == "running"
    again, _ = begun(made)
    step(made, again, s.Pause("ann"), 2_000)
    step(made, again, s.Resume("ann"), 3_000)
    assert status_of(again) == "queued"


def test_values_written_while_it_waits_are_there_when_it_begins() -> None:
    from anabranch.kernel.values import ContextPatch

    made = limited(ConcurrencyLimit(1))
    state, _ = begun(made)
    step(made, state, s.PatchContext((ContextPatch("go", 1),)), 2_000)
    assert status_of(state) == "queued"
    assert state.ctx == {"go": 1}


@pytest.mark.parametrize(
    ("limit", "key"),
    [
        (ConcurrencyLimit(2), "invoices"),
        (ConcurrencyLimit(2, Constant("x")), "invoices[x]"),
        (ConcurrencyLimit(2, Constant(7)), "invoices[7]"),
        (ConcurrencyLimit(2, Constant("x"), "reject", True), "[x]"),
    ],
)
def test_the_key_names_the_definition_unless_it_is_shared(
    limit: ConcurrencyLimit, key: str
) -> None:
    state, _ = begun(limited(limit))
    assert [(one.key, one.when_full) for one in state.limits] == [(key, limit.when_full)]


@pytest.mark.parametrize(
    ("value", "word"),
    [("", "empty"), ("  ", "empty"), ("k" * (KEY_LETTERS_MAX + 1), "501 letters")],
)
def test_a_key_that_names_nobody_is_refused_and_nothing_is_recorded(value: str, word: str) -> None:
    state = State()
    with pytest.raises(InputError, match=word) as refused:
        step(limited(ConcurrencyLimit(1, Constant(value))), state, s.Start(run="r"), 1)
    assert refused.value.code == "limit_key"
    assert state == State()


def test_a_child_counts_in_the_place_of_the_run_that_waits_for_it() -> None:
    made = limited(ConcurrencyLimit(1), ConcurrencyLimit(1, Constant("x")))
    parent, _ = begun(made)
    assert held_by(parent) == ("invoices", "invoices[x]")
    child, events = begun(made, parent="r/1.0#1", held=("invoices",))
    assert [one.key for one in child.limits] == ["invoices[x]"]
    assert kinds(events) == ["run.started", "run.queued"]
    grandchild, events = begun(made, held=held_by(child))
    assert grandchild.limits == ()
    assert "token.created" in kinds(events)


def test_the_priority_is_that_of_the_start_or_else_of_the_definition() -> None:
    made = limited(priority=4)
    assert begun(made)[0].priority == 4
    assert begun(made, priority=-2)[0].priority == -2
    assert begun(made, priority=0)[0].priority == 0

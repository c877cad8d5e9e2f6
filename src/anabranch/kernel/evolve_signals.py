"""The part of `evolve` that is about signals; `kernel.evolve` has the table."""

from __future__ import annotations

from typing import Literal

from anabranch.kernel import events as e
from anabranch.kernel.state import PAST_SIGNALS_KEPT, KeptSignal, PastSignal, State


def signal_received(state: State, event: e.SignalReceived, at: int) -> None:
    kept = KeptSignal(
        event.signal,
        event.name,
        event.payload,
        event.actor,
        at,
        event.expires,
        event.digest,
        event.size,
    )
    state.signals |= {kept.id: kept}
    if event.expires:
        state.timers.set(f"signal:{event.signal}", event.expires)


def signal_taken(state: State, event: e.SignalTaken, at: int) -> None:
    past = _let_go(state, event.signal, "taken", at)
    past.job, past.step = event.job, state.jobs[event.job].step


def signal_expired(state: State, event: e.SignalExpired, at: int) -> None:
    _let_go(state, event.signal, "expired", at)


def signal_unmatched(state: State, event: e.SignalUnmatched, at: int) -> None:
    state.signals[event.signal].problem = event.reason


def signals_dropped(state: State, at: int) -> None:
    """The run has ended: what no wait has taken, none will."""
    for signal in list(state.signals):
        _let_go(state, signal, "dropped", at)


def _let_go(
    state: State, signal: str, how: Literal["taken", "expired", "dropped"], at: int
) -> PastSignal:
    kept = state.signals.pop(signal)
    if kept.expires:
        state.timers.drop(f"signal:{signal}")
    past = PastSignal(kept.name, kept.digest, how, kept.at, at)
    state.past_signals |= {signal: past}
    if len(state.past_signals) > PAST_SIGNALS_KEPT:
        del state.past_signals[next(iter(state.past_signals))]
    return past

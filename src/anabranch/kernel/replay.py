"""Rebuilding a state from its log."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.kernel.events import Event
from anabranch.kernel.evolve import evolve
from anabranch.kernel.state import State


def replay(history: Iterable[tuple[int, Event]], onto: State | None = None) -> State:
    """The state that these (instant, event) pairs add up to, optionally on top of a snapshot."""
    state = onto if onto is not None else State()
    for at, event in history:
        evolve(state, event, at)
    return state

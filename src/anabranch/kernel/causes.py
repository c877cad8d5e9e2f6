"""Why something failed: the failures behind a failure, the first cause first.

A step run fails because of the one before it where its token came from a step run that failed, and
a join is impossible because of those that ended badly in its scope.
"""

from __future__ import annotations

from anabranch.kernel.state import State
from anabranch.kernel.values import Fault


def chain_of(state: State, last: Fault) -> list[tuple[str, Fault]]:
    """(step, why) from the first cause to `last`; empty for what is no failure of a step run."""
    places = [place for place, (_, fault) in enumerate(state.faults) if fault == last]
    if not places:
        return []
    chain = [places[0]]
    while (before := _before(state, chain[0])) is not None:
        chain.insert(0, before)
    return [state.faults[place] for place in chain]


def first_cause(state: State, last: Fault | None) -> Fault | None:
    chain = chain_of(state, last) if last is not None else []
    return chain[0][1] if chain else last


def last_effect(state: State, first: Fault) -> Fault:
    """What the cause that was recorded for the run led to in the end."""
    for _, fault in reversed(state.faults):
        if (chain := chain_of(state, fault)) and chain[0][1] == first:
            return fault
    return first


def _before(state: State, place: int) -> int | None:
    """The place of the failure that led to this one; always an earlier one."""
    if place not in state.fault_sources:
        return None  # from a state of before this was noted
    token, parent, _ = state.fault_sources[place]
    for earlier in range(place):
        source = state.fault_sources.get(earlier)
        if source is not None and source[2] == token:
            return earlier
    for earlier in range(place - 1, -1, -1):
        source = state.fault_sources.get(earlier)
        if source is not None and source[0] == parent:
            return earlier
    return None

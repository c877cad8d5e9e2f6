"""Limits across runs: the keys under which a run counts, and its wait for a place under each.

A run with limits is recorded as queued and does nothing until it is admitted. Who is admitted is
decided outside the kernel, in one transaction of the store over all runs of a key; the kernel is
told so by `Admit`. A place is free again when the run that holds it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.errors import ExpressionError, InputError, Refused
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.state import ROOT_SCOPE, State
from anabranch.kernel.turn import Turn
from anabranch.kernel.values import KeyLimit
from anabranch.net.net import ConcurrencyLimit, Net

KEY_LETTERS_MAX = 500
KEY_BYTES_MAX = 2000  # with the name before it: an index of a database takes no more


def limits_of(net: Net, start: s.Start, workload: Mapping[str, Any]) -> tuple[KeyLimit, ...]:
    """The limits that a run has to wait for; a key that cannot be worked out is refused.

    A child does not wait for the place of a run above it that waits for it: that place is its own.
    """
    if not net.limits:
        return ()
    labels = {**net.labels, **start.labels}
    names = {"input": workload, "workload": workload, "labels": labels, "run": start.run}
    found = {each.key: each for limit in net.limits for each in (_limit(net, limit, names),)}
    return tuple(each for key, each in found.items() if key not in start.held)


def _limit(net: Net, limit: ConcurrencyLimit, names: Mapping[str, Any]) -> KeyLimit:
    name = net.name.replace("[", "%5B")
    if limit.key is None:
        return KeyLimit(name, limit.limit, limit.when_full)
    try:
        text = limit.key.evaluate(names)
    except ExpressionError as error:
        raise InputError(f"the key of `concurrency`: {error}", code="limit_key") from None
    key = text if isinstance(text, str) else str(text)
    if not key.strip():
        message = "the key of `concurrency` is empty: give the input that it is made of"
        raise InputError(message, code="limit_key")
    if len(key) > KEY_LETTERS_MAX:
        message = f"the key of `concurrency` has {len(key):,} letters, more than {KEY_LETTERS_MAX}"
        raise InputError(message, code="limit_key")
    whole = f"{'' if limit.shared else name}[{key}]"
    if not key.isprintable() or len(whole.encode()) > KEY_BYTES_MAX:
        # All keys are asked for together: one that no store takes would keep every run waiting.
        message = "the key of `concurrency` has letters that cannot be printed, or is longer than "
        message += f"{KEY_BYTES_MAX:,} bytes with the name of the definition: {key[:40]!r}"
        raise InputError(message, code="limit_key")
    return KeyLimit(whole, limit.limit, limit.when_full)


def held_by(state: State) -> tuple[str, ...]:
    """Keys whose places a run has, or that a run has which waits for it."""
    return (*state.held_above, *(limit.key for limit in state.limits))


def enter(turn: Turn, entry: str) -> None:
    """Put the first token where the run begins."""
    net = turn.net
    if entry != net.final:  # that runs once, when nothing else moves: at once, here
        payload = turn.state.workload if net.carries_payload else {}
        turn.create(entry, scope=ROOT_SCOPE, via="entry", payload=payload)


def admit(turn: Turn, _stimulus: s.Admit) -> None:
    state = turn.state
    if not state.queued_for_place:
        raise Refused("the run does not wait for a place", code="not_queued")
    if state.ending:
        raise Refused(f"the run is ending: {state.ending}", code="ending")
    limit = turn.net.policy.deadline_ms
    turn.emit(e.RunAdmitted(turn.at + limit if limit is not None else 0))
    enter(turn, state.entry or turn.net.entry)

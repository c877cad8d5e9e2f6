"""Under which idempotency keys a redriven run works.

Whoever was asked before with the same key knows that it is the same request. So in all redrives of
one first run a job keeps its key while it is given the same: the one that the origin had for it,
or one made of the first run and of what the job is given. Given other values, it has another one.

What a job is given is its way through the net, its arguments, payload and slot, and what its step
reads of the context and of results, as all this stands when it is scheduled; and the run, where it
is known to name that: the same key with another number in it would be taken for a mistake.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.kernel import events as e
from anabranch.kernel.reuse import LOOP, own_loops, reuse_key
from anabranch.kernel.state import State, Token
from anabranch.kernel.turn import Turn
from anabranch.net.net import Net
from anabranch.net.reads import access

_encoder = msgspec.json.Encoder(order="deterministic")


def idempotency_key(run: str, job: str) -> str:
    """The same for every attempt of a job, and for nothing else."""
    return f"{run}/{job}"


def key_of(state: State, work: str) -> str:
    """The key of a job; of a loop, that with which the keys of its items begin."""
    return state.keyed.get(work) or idempotency_key(state.run, work)


def key_work(turn: Turn, token: Token, work: str, slot: int = -1) -> None:
    """In a redriven run: record the key of a job, or of the loop of this token."""
    state = turn.state
    if not state.first_run or work in state.keyed:
        return
    given = given_to(turn.net, state, token, slot)
    known, before = state.known_keys.get(given, ()), state.given.get(given, 0)
    if before < len(known):
        key = known[before]
    else:
        key = f"{state.first_run}/{token.step}/{given}" + (f"~{before + 1}" if before else "")
    turn.emit(e.WorkKeyed(work, key, given))


def given_to(net: Net, state: State, token: Token, slot: int = -1) -> str:
    """What a job of this token is given, or its loop, as a hash."""
    reads = access(net).steps[token.step].work
    label = LOOP if net.steps[token.step].loop is not None else ""
    seen = [
        reuse_key(state, token, slot, label),
        slot,
        _some(state.ctx, reads.ctx),
        _some(state.results, reads.results),
        state.run if reads.names_run else "",
    ]
    said = _encoder.encode(seen).replace(*own_loops(state.run))
    return hashlib.sha256(said).hexdigest()[:20]


def _some(values: Mapping[str, Any], names: frozenset[str] | None) -> Mapping[str, Any]:
    return values if names is None else {name: values[name] for name in names if name in values}

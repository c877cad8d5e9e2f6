"""How a redriven run recognises what its origin had, and when it may take it over.

A step run is recognised by its way through the net (`kernel.provenance`) and by what it was given
(arguments, payload and, in a fan-out, the slot's label and value): the same question asked again
gets the recorded answer, unless something it depends on was done again. What the origin has to
give is worked out by `kernel.redrive`.
"""

from __future__ import annotations

import hashlib

import msgspec

from anabranch.kernel.state import State, Token

_encoder = msgspec.json.Encoder(order="deterministic")


LOOP_REF = "anabranch:run:"  # how `fanin.refs` begins, see `kernel.tracker`
LOOP = "loop"  # the label under which a loop's progress is kept
ADMITTED = "admitted"  # and the one for who was let in by hand


def reuse_key(state: State, token: Token, slot: int = -1, label: str = "") -> str:
    way = state.provenance.ways[token.id] if state.provenance is not None else ""
    given = [way, token.args, token.payload]
    if slot >= 0:
        gather = state.gathers[token.gather]
        label = gather.labels[slot]
        given += gather.values[slot : slot + 1]
    said = _encoder.encode(given).replace(*_own_loops(state.run))
    return f"{token.step}|{label}|{hashlib.sha256(said).hexdigest()[:16]}"


def _own_loops(run: str) -> tuple[bytes, bytes]:
    """References to loops of this run name it; to the run that redrives it they are its own."""
    return f"{LOOP_REF}{run}/".encode(), f"{LOOP_REF}/".encode()


def takes_over(state: State, token: Token, *, whole: bool) -> bool:
    """Whether nothing that this step run depends on was done again, and, for the answer of the
    `whole` step run, nothing of its own: a slot or an item may be kept where another was redone."""
    marks = state.provenance
    if marks is None or token.id in marks.stale:
        return False
    return not (whole and token.id in marks.redone)

"""How a redriven run recognises what its origin had, and when it may take it over.

A step run is recognised by its way through the net (`kernel.provenance`) and by what it was given
(arguments, payload and, in a fan-out, the slot's label and value): the same question asked again
gets the recorded answer, unless something it depends on was done again. What the origin has to
give is worked out by `kernel.redrive`.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from anabranch.kernel.gather import who_answered
from anabranch.kernel.state import Judgement, State, Token
from anabranch.kernel.values import Answer

_encoder = msgspec.json.Encoder(order="deterministic")


LOOP_REF = "anabranch:run:"  # how `fanin.refs` begins, see `kernel.tracker`
LOOP = "loop"  # the label under which a loop's progress is kept
ADMITTED = "admitted"  # the one for who was let in by hand
SETTLED = "settled"  # and the one for what else is known of a step run: see `settled_as`


def reuse_key(state: State, token: Token, slot: int = -1, label: str = "") -> str:
    way = state.provenance.ways[token.id] if state.provenance is not None else ""
    given = [way, token.args, token.payload]
    if slot >= 0:
        gather = state.gathers[token.gather]
        label = gather.labels[slot]
        given += gather.values[slot : slot + 1]
    said = _encoder.encode(given).replace(*own_loops(state.run))
    return f"{token.step}|{label}|{hashlib.sha256(said).hexdigest()[:16]}"


def own_loops(run: str) -> tuple[bytes, bytes]:
    """References to loops of this run name it; to the run that redrives it they are its own."""
    return f"{LOOP_REF}{run}/".encode(), f"{LOOP_REF}/".encode()


def takes_over(state: State, token: Token, *, whole: bool) -> bool:
    """Whether nothing that this step run depends on was done again, and, for the answer of the
    `whole` step run, nothing of its own: a slot or an item may be kept where another was redone."""
    marks = state.provenance
    if marks is None or token.id in marks.stale:
        return False
    return not (whole and token.id in marks.redone)


def settled_as(state: State, token: Token) -> Answer:
    """Whose answer a step run has and who judged its task, to be kept beside the answer."""
    gather = state.gathers.get(token.gather)
    by = who_answered(gather) if gather is not None else state.answered_by.get(token.step, "")
    said = state.judged.get(token.step)
    facts: dict[str, Any] = {"answered_by": by} if by else {}
    if said is not None and said.token == token.id:
        facts["judged"] = msgspec.to_builtins(said)
    return Answer(status="ok", result=facts)


def judgement_of(kept: Answer) -> Judgement | None:
    said = kept.result.get("judged")
    return msgspec.convert(said, Judgement) if said is not None else None

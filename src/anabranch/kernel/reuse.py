"""What a redriven run takes over from its origin.

A step run is recognised by its step and by what it was given (arguments, payload and, in a fan-out,
the slot's label and value): the same question asked again gets the recorded answer, in the order in
which the origin had them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from anabranch.kernel.events import Event, JobReported, JobReused, TokenFinished
from anabranch.kernel.evolve import evolve
from anabranch.kernel.state import State, Token
from anabranch.kernel.values import Answer

_encoder = msgspec.json.Encoder(order="deterministic")


def reuse_key(state: State, token: Token, slot: int = -1) -> str:
    label, given = "", [token.args, token.payload]
    if slot >= 0:
        gather = state.gathers[token.gather]
        label = gather.labels[slot]
        given += gather.values[slot : slot + 1]
    digest = hashlib.sha256(_encoder.encode(given)).hexdigest()[:16]
    return f"{token.step}|{label}|{digest}"


def reusable(history: Iterable[tuple[int, Event]]) -> dict[str, list[Answer]]:
    """The answers of everything that succeeded, by reuse key, in the order they came.

    A plain step counts when its step run ended well (a fulfilled decision included), a slot of a
    fan-out as soon as its own job did: redriving a fan-out that failed asks only the failed again.
    """
    state, found = State(), dict[str, list[Answer]]()
    for at, event in history:
        kept = _answer_in(state, event)
        if kept is not None:
            found.setdefault(kept[0], []).append(kept[1])
        evolve(state, event, at)
    return found


def _answer_in(state: State, event: Event) -> tuple[str, Answer] | None:
    match event:
        case TokenFinished(ending="done"):
            return _of_step_run(state, state.tokens[event.token], event.end)
        case JobReported():
            job = state.jobs[event.job]
            return _of_slot(state, job.token, job.slot, event.answer)
        case JobReused():
            return _of_slot(state, event.token, event.slot, event.answer)
        case _:
            return None


def _of_step_run(state: State, token: Token, end: str) -> tuple[str, Answer] | None:
    answer = token.answer
    gather = state.gathers.get(token.gather)
    gathered = gather is not None and gather.kind == "fan"
    if answer is None or answer.status != "ok" or gathered or end == "killed":
        return None
    return reuse_key(state, token), answer


def _of_slot(state: State, token_id: int, slot: int, answer: Answer) -> tuple[str, Answer] | None:
    token = state.tokens.get(token_id)
    if slot < 0 or token is None or answer.status != "ok":
        return None
    if state.gathers[token.gather].verdict != "open":
        return None  # too late to count there, so it does not count here
    return reuse_key(state, token, slot), answer

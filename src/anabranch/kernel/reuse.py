"""What a redriven run takes over from its origin.

A step run is recognised by its step, its slot and the arguments it was given: the same question
asked again gets the recorded answer, in the order in which the origin had them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from anabranch.kernel.events import Event, JobReported, JobReused, TokenFinished
from anabranch.kernel.evolve import evolve
from anabranch.kernel.state import State
from anabranch.kernel.values import Answer

_encoder = msgspec.json.Encoder(order="deterministic")


def reuse_key(step: str, label: str, args: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(_encoder.encode(args)).hexdigest()[:16]
    return f"{step}|{label}|{digest}"


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
            token = state.tokens[event.token]
            fans = token.gather and state.gathers[token.gather].kind == "fan"
            if token.answer is None or token.answer.status != "ok" or fans:
                return None
            return reuse_key(token.step, "", token.args), token.answer
        case JobReported() | JobReused():
            job = state.jobs.get(event.job)
            token_of = state.tokens.get(event.token if isinstance(event, JobReused) else 0)
            if job is not None:
                token_of = state.tokens.get(job.token)
            slot = event.slot if isinstance(event, JobReused) else (job.slot if job else -1)
            if token_of is None or slot < 0 or event.answer.status != "ok":
                return None
            label = state.gathers[token_of.gather].labels[slot]
            return reuse_key(token_of.step, label, token_of.args), event.answer
        case _:
            return None

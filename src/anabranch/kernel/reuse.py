"""What a redriven run takes over from its origin.

A step run is recognised by its step and by what it was given (arguments, payload and, in a fan-out,
the slot's label and value): the same question asked again gets the recorded answer, in the order in
which the origin had them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from anabranch.kernel.events import (
    Event,
    GateDecided,
    GatherSettled,
    JobDischarged,
    JobLost,
    JobReported,
    JobReused,
    JobTimedOut,
    LoopSettled,
    LoopStopped,
    ShardClosed,
    SlotLost,
    TaskJudged,
    TokenFinished,
)
from anabranch.kernel.evolve import evolve
from anabranch.kernel.state import State, Token
from anabranch.kernel.tracker import Shard, loop_name, ranges_of
from anabranch.kernel.values import Answer

_encoder = msgspec.json.Encoder(order="deterministic")


LOOP = "loop"  # the label under which a loop's progress is kept


def reuse_key(state: State, token: Token, slot: int = -1, label: str = "") -> str:
    given = [token.args, token.payload]
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
    A loop counts with what it had finished, however it ended.
    """
    state, found = State(), dict[str, list[Answer]]()
    failed: dict[str, list[Shard]] = {}
    for at, event in history:
        if isinstance(event, ShardClosed):
            _note_failed(state, event, failed.setdefault(event.loop, []))
        kept = _of_loop(state, event, failed) or _answer_in(state, event)
        if kept is not None:
            found.setdefault(kept[0], []).append(kept[1])
        evolve(state, event, at)
    return found


def all_went_well(history: Iterable[tuple[int, Event]]) -> bool:
    """Whether nothing is left for a redrive: every job did well, and nobody was turned away.

    When in doubt it says no: an attempt that failed counts, also where the next one did well.
    """
    return not any(_went_wrong(event) for _, event in history)


def _went_wrong(event: Event) -> bool:
    match event:
        case JobReported():
            shard = event.answer.shard
            return event.answer.status != "ok" or (shard is not None and bool(shard.failed))
        case TokenFinished():
            return event.ending != "done" or event.fault is not None
        case GatherSettled():
            return event.verdict != "closed"
        case LoopSettled():
            return event.status != "complete"
        case TaskJudged():
            return not event.fulfilled
        case GateDecided():
            return event.verdict != "fulfil"
        case JobDischarged() | JobTimedOut() | JobLost() | SlotLost() | LoopStopped():
            return True
        case _:
            return False


def _answer_in(state: State, event: Event) -> tuple[str, Answer] | None:
    match event:
        case TokenFinished(ending="done"):
            return _of_step_run(state, state.tokens[event.token], event.end)
        case JobReported():
            job = state.jobs[event.job]
            return _of_slot(state, job.token, job.slot, job.gather, event.answer)
        case JobReused():
            token = state.tokens[event.token]
            return _of_slot(state, event.token, event.slot, token.gather, event.answer)
        case _:
            return None


def _note_failed(state: State, event: ShardClosed, failed: list[Shard]) -> None:
    """The items of a shard that ended in failure, for good."""
    if event.whole:
        return
    shard = state.loops[event.loop].in_flight[event.job]
    answer = state.jobs[event.job].answer
    only = shard.only
    if event.fault is None and answer is not None and answer.shard is not None:
        only = tuple(f.index for f in answer.shard.failed if f.index not in event.again)
        if not only:
            return
    failed.append(Shard(0, shard.first, shard.count, shard.cursor, only))


def _of_loop(
    state: State, event: Event, failed: dict[str, list[Shard]]
) -> tuple[str, Answer] | None:
    if not isinstance(event, TokenFinished):
        return None
    token = state.tokens[event.token]
    tracker = state.loops.get(token.loop)
    if tracker is None:
        return None
    left = failed.get(tracker.id, [])
    unbegun = [*tracker.given_up, *tracker.in_flight.values(), *tracker.ready, *tracker.again]
    again = [Shard(0, s.first, s.count, s.cursor, s.only) for s in (*left, *unbegun)]
    carried = {
        "size": tracker.size,
        "next_index": tracker.next_index,
        "cursor": tracker.cursor,
        "exhausted": tracker.exhausted,
        "succeeded": tracker.succeeded,
        "shared": tracker.shared,
        "parts": tracker.parts,
        "source": tracker.source,
        "done": _without(tracker.done, left),
        "again": msgspec.to_builtins(again),
        "loop": loop_name(state.run, tracker.id),
    }
    return reuse_key(state, token, label=LOOP), Answer(status="ok", result=carried)


def _without(done: list[tuple[int, int]], failed: list[Shard]) -> list[tuple[int, int]]:
    """The finished ranges less the items that failed; both are gone through once, in order."""
    gone = sorted(pair for shard in failed for pair in ranges_of(shard))
    kept: list[tuple[int, int]] = []
    at = 0
    for start, stop in done:
        while at < len(gone) and gone[at][0] < stop:
            if start < gone[at][0]:
                kept.append((start, gone[at][0]))
            start = gone[at][1]
            at += 1
        if start < stop:
            kept.append((start, stop))
    return kept


def _of_step_run(state: State, token: Token, end: str) -> tuple[str, Answer] | None:
    answer = token.answer
    gather = state.gathers.get(token.gather)
    gathered = gather is not None and gather.kind == "fan"
    if answer is None or answer.status != "ok" or gathered or token.loop or end == "killed":
        return None
    return reuse_key(state, token), answer


def _of_slot(
    state: State, token_id: int, slot: int, gather: str, answer: Answer
) -> tuple[str, Answer] | None:
    token = state.tokens.get(token_id)
    if slot < 0 or token is None or token.loop or answer.status != "ok":
        return None
    if gather != token.gather or state.gathers[gather].verdict != "open":
        return None  # too late to count there, so it does not count here
    return reuse_key(state, token, slot), answer

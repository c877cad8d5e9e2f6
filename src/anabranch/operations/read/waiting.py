"""What an unfinished run waits for, and the signals that it keeps, as programs and people are told.

The kernel says who can move what as a verb with its target; here that becomes the words of a
command line, which JSON carries too. A surface with buttons goes by the verb and not by the words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict, replace

from anabranch.errors import NotFound
from anabranch.kernel.explain import Mover, Unfinished, UnfinishedFields
from anabranch.kernel.privacy import public
from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.net.waits import waits_of
from anabranch.operations.read.on_clusters import JobPlace
from anabranch.store.admission_ports import QueuePlace
from anabranch.work.kinds.python.places import Places

#: Of those that have a process of inline code, so many are named.
HOLDERS_NAMED = 3
_HOLDERS = (Mover("", "the end of a job that has one"),)

SignalStatus = Literal["kept", "taken", "expired", "dropped"]


class Waiting(UnfinishedFields[str], frozen=True, omit_defaults=True):
    """One unfinished thing and what it takes to move it."""

    cluster: JobPlace | None = None  # of a job that a compute cluster does, or is to do


def worded(one: Unfinished, cluster: JobPlace | None = None) -> Waiting:
    movers = tuple(map(in_words, one.movers))
    return Waiting(**asdict(one) | {"movers": movers, "cluster": cluster})


def with_processes(net: Net, state: State, one: Unfinished, places: Places | None) -> Unfinished:
    """The same. Where it waits for a process it is queued, and says who has one."""
    if places is None or state.paused:
        return one
    waiting = places.queued(state.run, one.step) if one.what in ("job", "loop") else 0
    if one.what == "loop" and waiting:
        out = len(state.loops[one.id].in_flight)
        what = f"{one.waits_for}; {waiting:,} of {out:,} shards wait for {_process(places)}"
        return replace(one, waits_for=what, at_work=waiting < out, queued=waiting >= out)
    if waiting or _is_kept_back(net, one):
        what = f"{_process(places)} for its code"
        return replace(one, waits_for=what, movers=_HOLDERS, at_work=False, queued=True)
    return one


def _is_kept_back(net: Net, one: Unfinished) -> bool:
    """It is inline code by itself, of this engine, and not begun."""
    work = net.steps[one.step].work if one.what == "job" and one.queued and not one.pool else None
    return work is not None and work.kind == "python"


def _process(places: Places) -> str:
    taken, now = places.taken, time.monotonic()
    named = [
        f"{one.step} of {one.run} for {now - one.since:.0f} s" for one in taken[:HOLDERS_NAMED]
    ]
    if len(taken) > HOLDERS_NAMED:
        named.append(f"{len(taken) - HOLDERS_NAMED:,} more")
    return f"a process ({len(taken):,} at work: {', '.join(named)})" if named else "a process"


def place_words(places: Sequence[QueuePlace]) -> str:
    """Where a run stands that waits for a place under each of its limits."""
    said = []
    for one in (each for each in places if each.place):
        asked = one.admission
        held = f"{one.holding} of {asked.limit} held"
        said.append(f"{asked.key}: {held}, number {one.place} in the queue")
    return "; ".join(said)


def stands(waits_for: str, *, at_work: bool, queued: bool) -> str:
    """How an unfinished thing stands, as people read it: what is being done waits for nothing."""
    if queued:
        return f"queued, waits for {waits_for}"
    if not at_work:
        return f"waits for {waits_for}"
    own = waits_for.removeprefix("its work")
    return _AT_WORK.get(waits_for) or f"at work{own if own != waits_for else f' on {own}'}"


#: What is at work in other words than `its work (attempt 1)`.
_AT_WORK = {
    "its end, before the deadline": "under way, before its deadline",
    "its answer to be used": "at work: its answer is there",
}


def is_command(mover: Mover) -> bool:
    """Are its words a line for a shell?"""
    return mover.verb not in ("", "wake")


def in_words(mover: Mover) -> str:
    match mover.verb:
        case "":
            return mover.target
        case "wake":
            return "a wake-up"
        case "worker":
            return f"anabranch worker --pool {mover.target}"
        case "patch":
            return f"anabranch patch {mover.target} KEY=VALUE"
        case "decide":
            gate, *answer = mover.arguments
            options = [f"--{word.replace('_', '-')}" for word in answer]
            return " ".join(["anabranch decide", mover.target, gate, *options])
        case "signal":
            return f"anabranch signal {mover.target} {mover.arguments[0]} JSON"
        case "retry":
            return f"anabranch retry {mover.target} {mover.arguments[0]}"
        case "resume":
            return f"anabranch resume {mover.target}"


# -- signals ---------------------------------------------------------------------------------


class SignalView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A signal of a run. `dropped`: the run ended before a wait took it."""

    id: str
    name: str
    status: SignalStatus
    received_at: int
    at: int | None = None  # when it was taken, expired or dropped
    expires_at: int | None = None
    actor: str = ""
    payload: Any = None  # of a kept one; the events of the run have the others
    job: str = ""  # that took it,
    step: str = ""  # and the step of that
    problem: str = ""  # why the filter of a wait could not be evaluated for it


def signals_of(net: Net, state: State, whole: Callable[[Any], Any]) -> list[SignalView]:
    """The kept ones in the order in which they came, then the others, the last one first."""
    return [*kept_signals(net, state, whole), *_past(state)]


def kept_signals(net: Net, state: State, whole: Callable[[Any], Any]) -> list[SignalView]:
    return [
        SignalView(
            id=kept.id,
            name=kept.name,
            status="kept",
            received_at=kept.at,
            expires_at=kept.expires or None,
            actor=kept.actor,
            payload=public(whole(kept.payload), net.private),
            problem=kept.problem,
        )
        for kept in state.signals.values()
    ]


def _past(state: State) -> list[SignalView]:
    return [
        SignalView(
            id=name,
            name=past.name,
            status=past.status,
            received_at=past.received_at,
            at=past.at,
            job=past.job,
            step=past.step,
        )
        for name, past in reversed(state.past_signals.items())
    ]


def signal_status(state: State, signal: str) -> SignalStatus:
    """What became of one that was sent."""
    if signal in state.signals:
        return "kept"
    past = state.past_signals.get(signal)
    if past is None:
        raise NotFound(f"run {state.run} does not remember a signal {signal!r:.80}")
    return past.status


def awaited(net: Net) -> list[str]:
    """The names that the definition waits for."""
    return list(waits_of(net).events)

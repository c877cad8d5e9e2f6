"""Where the tokens, the context and the results of a redriven run come from.

A step run is either as it was in the origin, or something is not: it was done again itself
(`redone`), or it depends on what was (`stale`), by an arc, a join, the context or a result. What is
stale takes nothing over from the origin. `track` sees every event before the state does and hands
the marks on; marks that need the net (who reads what) are found by `cause_for` and, live, recorded.

A step run is recognised by its way through the net: the steps that led to it from the entry, each
with its place among its siblings. Where paths meet, all of them count, in no order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from anabranch.kernel import events as e
from anabranch.kernel.values import Cause
from anabranch.net.reads import Reads

if TYPE_CHECKING:
    from anabranch.kernel.state import State


class Provenance(msgspec.Struct, gc=False):
    stale: dict[int, Cause] = {}  # token → why
    redone: dict[int, Cause] = {}
    rerouted: dict[int, Cause] = {}  # its work is as it was; what follows may not be
    ctx: dict[str, Cause] = {}  # keys that something redone or stale wrote
    results: dict[str, Cause] = {}  # steps whose last result is not that of the origin
    gathers: dict[str, Cause] = {}
    ways: dict[int, str] = {}  # token → its way through the net, as a hash
    met: dict[str, list[str]] = {}  # gather → the ways that met there
    spawner: int = 0  # whose children are being made,
    spawned: dict[str, int] = {}  # and how many of them at which step
    last: int = 0  # the token that ended last: it delivers when it is gone
    last_step: str = ""
    last_way: str = ""
    last_cause: Cause | None = None
    #: When the log of an origin is gone through: what is redone was found out before.
    found_before: bool = False
    #: What is not there and might be: for whoever asks by name.
    missing_ctx: dict[str, Cause] = {}
    missing_results: dict[str, Cause] = {}

    def changed(self, token: int) -> Cause | None:
        """Why what this token does is not what it did in the origin."""
        return self.stale.get(token) or self.redone.get(token) or self.rerouted.get(token)

    def cause_for(self, token: int, reads: Reads) -> Cause | None:
        """Why a token that reads these is stale; None as well where it was marked before."""
        if token in self.stale:
            return None
        return _first(self.ctx, self.missing_ctx, reads.ctx) or _first(
            self.results, self.missing_results, reads.results
        )


def _first(
    marked: dict[str, Cause], missing: dict[str, Cause], names: frozenset[str] | None
) -> Cause | None:
    if names is None:
        return next(iter(marked.values()), None)
    if not marked and not missing:
        return None
    found = sorted(name for name in names if name in marked or name in missing)
    return (marked.get(found[0]) or missing[found[0]]) if found else None


def writer_of(by: str) -> int:
    """The token that a context write is by; 0 for somebody."""
    _, token, number = by.rpartition("token ")
    return int(number) if token and number.isdecimal() else 0


# -- what events hand on -----------------------------------------------------------------------


def track(state: State, provenance: Provenance, event: e.Event) -> None:
    """Hand the marks on; called before the state evolves, while everything is still there."""
    match event:
        case e.TokenCreated():
            _created(state, provenance, event)
        case e.TokenInvalidated() if not provenance.found_before:
            provenance.stale[event.token] = event.cause
        case e.JobScheduled() | e.LoopCutting() | e.ShardScheduled() | e.GateOpened():
            if not provenance.found_before:
                provenance.redone.setdefault(event.token, Cause("again"))
        case e.ContextPatched():
            _patched(state, provenance, event)
        case e.Delivered():
            _delivered(state, provenance, event)
        case e.TokenReleased():
            _released(state, provenance, event.token)
        case e.TokenFinished():
            _finished(state, provenance, event)


def _way(parts: Iterable[str]) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:16]


def _created(state: State, provenance: Provenance, event: e.TokenCreated) -> None:
    if provenance.spawner != event.parent:
        provenance.spawner = event.parent
        provenance.spawned = {}
    nth = provenance.spawned.get(event.step, 0)
    provenance.spawned[event.step] = nth + 1
    led_here = provenance.ways.get(event.parent, event.via)
    provenance.ways[event.token] = _way((led_here, event.step, str(nth)))
    if event.via != "barrier" and provenance.changed(event.parent) is not None:
        provenance.stale[event.token] = Cause("arc", state.tokens[event.parent].step)


def _patched(state: State, provenance: Provenance, event: e.ContextPatched) -> None:
    token = state.tokens.get(writer_of(event.by))
    cause = None if token is None else provenance.changed(token.id)
    for patch in event.patches:
        if token is None:
            provenance.ctx[patch.key] = Cause("context", patch.key, event.by)
        elif cause is not None:
            provenance.ctx[patch.key] = Cause("context", patch.key, token.step)
        elif patch.reducer == "set":
            provenance.ctx.pop(patch.key, None)


def _delivered(state: State, provenance: Provenance, event: e.Delivered) -> None:
    gather = state.gathers[event.gather]
    if gather.kind == "fan":
        return
    if event.slot == len(gather.labels):  # once more from a step that was there already
        step = way = event.producer
        causes = (provenance.changed(t.id) for t in state.tokens.values() if t.step == step)
        cause = next((each for each in causes if each is not None), None)
    elif (token := state.tokens.get(int(event.producer))) is not None:
        step, way, cause = token.step, provenance.ways[token.id], provenance.changed(token.id)
    else:
        step, way, cause = provenance.last_step, provenance.last_way, provenance.last_cause
    provenance.met.setdefault(gather.id, []).append(way)
    if cause is not None:
        provenance.gathers.setdefault(gather.id, Cause("join", step))


def _released(state: State, provenance: Provenance, token: int) -> None:
    gather = state.gathers[state.tokens[token].gather]
    own = provenance.ways[token] if gather.kind == "join" else gather.target
    provenance.ways[token] = _way((own, *sorted(provenance.met.pop(gather.id, ()))))
    cause = provenance.gathers.pop(gather.id, None)
    if cause is not None:
        provenance.stale.setdefault(token, cause)


def _finished(state: State, provenance: Provenance, event: e.TokenFinished) -> None:
    token = state.tokens[event.token]
    cause = provenance.changed(token.id)
    provenance.last, provenance.last_step = token.id, token.step
    provenance.last_way = provenance.ways.pop(token.id)
    provenance.last_cause = cause
    provenance.stale.pop(token.id, None)
    provenance.redone.pop(token.id, None)
    provenance.rerouted.pop(token.id, None)
    for gather in (token.gather, f"j{token.id}"):
        provenance.met.pop(gather, None)
        provenance.gathers.pop(gather, None)
    if event.end == "killed":
        return  # whatever it came to stays unseen
    provenance.results.pop(token.step, None)
    provenance.missing_results.pop(token.step, None)
    if cause is not None:
        seen = event.ending == "done" or (token.answer is not None and token.answer.result)
        marked = provenance.results if seen else provenance.missing_results
        marked[token.step] = Cause("result", token.step)

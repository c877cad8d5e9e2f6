"""How events hand on the marks of `kernel.provenance`; each is seen before the state evolves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from anabranch.kernel import events as e
from anabranch.kernel.provenance import Provenance, writer_of
from anabranch.kernel.state import State
from anabranch.kernel.values import Cause


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

"""The part of `evolve` about gathers; the table in `kernel.evolve` knows these functions."""

from __future__ import annotations

from anabranch.kernel import events as e
from anabranch.kernel.evolve_jobs import drop_job, enter, keep_tries
from anabranch.kernel.gather import combine, who_answered
from anabranch.kernel.state import (
    JOINS_KEPT,
    Delivery,
    Gather,
    JoinRecord,
    Scope,
    State,
    join_names,
)
from anabranch.kernel.values import Answer


def gather_opened(state: State, event: e.GatherOpened, at: int) -> None:
    token = state.tokens[event.token]
    gather = Gather(
        id=event.gather,
        kind=event.kind,
        token=event.token,
        target=token.step,
        rule=event.rule,
        labels=list(event.labels),
        whens=list(event.whens),
        values=list(event.values),
        opened_at=at,
    )
    state.gathers |= {gather.id: gather}
    state.joins |= {gather.id: JoinRecord(token.step, "open", [], 0, event.kind)}
    token.gather = event.gather
    if event.kind == "join":
        state.scopes[event.token] = Scope(event.token, gather=event.gather, takes=_takes(event))
    if event.kind == "barrier":
        state.scopes[token.scope].barriers |= {token.step: token.id}
    if event.kind != "fan":
        enter(state, token, "joining", at)


def _takes(event: e.GatherOpened) -> dict[str, list[str]]:
    takes: dict[str, list[str]] = {}
    for label, when in zip(event.labels, event.whens, strict=True):
        outcomes = takes.setdefault(label, [])
        if when not in outcomes:
            outcomes.append(when)
    return takes


def delivered(state: State, event: e.Delivered, at: int) -> None:
    gather = state.gathers[event.gather]
    value = event.value
    if gather.kind == "fan":
        job = state.jobs[event.producer]
        value = job.answer.result if job.answer is not None else None
        keep_tries(state.tokens[gather.token], job)
        drop_job(state, event.producer)
    elif event.slot == len(gather.labels):  # a barrier met once more by the same predecessor
        gather.labels.append(event.producer)
    else:
        gather.free.fill_first(gather.labels[event.slot], gather.when(event.slot))
    if event.wake:
        token = state.tokens[gather.token]
        token.wake = max(token.wake, event.wake)
    gather.filled[event.slot] = Delivery(
        event.slot, event.producer, len(gather.filled), event.outcome, event.score, value
    )


def slot_lost(state: State, event: e.SlotLost, at: int) -> None:
    gather = state.gathers[event.gather]
    gather.lost[event.slot] = event.reason
    gather.excluded += event.excluded
    if gather.kind == "fan":
        drop_job(state, event.producer)


def delivery_late(state: State, event: e.DeliveryLate, at: int) -> None:
    record = state.joins.get(event.gather)
    if record is not None:
        record.late += 1
    gather = state.gathers.get(event.gather)
    if gather is not None:
        gather.late += 1


def gather_settled(state: State, event: e.GatherSettled, at: int) -> None:
    gather = state.gathers[event.gather]
    gather.verdict = event.verdict
    gather.selected = list(event.selected)
    gather.reason = event.reason
    gather.settled_at = at
    record = state.joins[event.gather]
    record.verdict = event.verdict
    record.selected = join_names(gather, event.selected)
    if gather.kind == "join":
        scope = state.scopes[gather.token]
        scope.closed = True
        drop_empty(state, scope)
        _drop_old_joins(state)
    if gather.kind == "fan" and event.verdict == "closed":
        state.tokens[gather.token].answer = Answer(
            status="ok", outcome="ok", result=combine(gather)
        )
        _keep_who_answered(state, gather)


def _keep_who_answered(state: State, gather: Gather) -> None:
    if who := who_answered(gather):
        state.answered_by |= {state.tokens[gather.token].step: who}


def _drop_old_joins(state: State) -> None:
    """Every now and then, so that it costs nothing to speak of per join."""
    state.joins_settled += 1
    if state.joins_settled < 2 * JOINS_KEPT:
        return
    settled = [n for n, r in state.joins.items() if r.kind == "join" and r.verdict != "open"]
    for name in settled[:-JOINS_KEPT]:
        del state.joins[name]
    state.joins_dropped += len(settled) - JOINS_KEPT
    state.joins_settled = JOINS_KEPT


def drop_empty(state: State, scope: Scope) -> None:
    """Nothing can happen any more in a scope that is closed and has no members."""
    if scope.closed and not scope.members:
        del state.scopes[scope.id]

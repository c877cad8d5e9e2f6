"""Everything a run gathered, step run by step run: its rounds, and what became of each slot.

What happened comes from the log, what is still possible from the state. The page of joins and the
HTTP route show the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from anabranch.kernel.explain import Unfinished, explain
from anabranch.kernel.gather import needed
from anabranch.kernel.jobs import token_of
from anabranch.kernel.privacy import public
from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.net.reach import reachability
from anabranch.operations.read.gathers import (
    GatherKind,
    GatherVerdict,
    GatherView,
    NextRound,
    ScopeMember,
    SlotStatus,
    SlotView,
    TaskJudgement,
)
from anabranch.operations.read.slot_outcomes import SlotOutcome, SlotWord, outcome_of
from anabranch.operations.read.timeline import Timeline

SLOTS_SHOWN = 200
LOSERS_SHOWN = 50


class GatherSlot(msgspec.Struct, frozen=True):
    """Who or what may deliver, and the outcome."""

    label: str
    takes: str  # the outcome that it takes; `any` takes all
    state: SlotStatus
    outcome: SlotOutcome
    selected: bool
    score: float | None
    rank: int | None  # among those with a score, the best is 1
    after_ms: int | None  # from the opening to the answer
    producer: str  # the token, or of a fan-in the job, that delivered
    delivered: str  # the outcome of that
    attempts: int  # of a fan-in: how often it was asked
    fault: str  # the last thing that went wrong, in words


class SlotCount(msgspec.Struct, frozen=True):
    outcome: SlotWord
    state: SlotStatus
    count: int


class LateDelivery(msgspec.Struct, frozen=True):
    """A delivery that came when the gather was settled: recorded, and nothing else."""

    at: int
    by: str
    outcome: str


class GatherRound(msgspec.Struct, frozen=True):
    """One gather: the first round of requests, or a later one."""

    gather: str
    kind: GatherKind  # a step run may wait at a join and then ask many
    round: int
    verdict: GatherVerdict
    reason: str
    have: int
    need: int | None  # None: as many as come
    total: int
    opened_at: int
    settled_at: int  # 0: not yet
    until: int  # 0: it may take as long as it likes, or it is settled
    ranked_by: Literal["", "lowest", "highest"]  # which score wins
    slots: list[GatherSlot]  # the first 200; with scores, the best first
    counts: list[SlotCount]  # of all slots
    losers: list[ScopeMember]  # the first 50 that delivered nothing and are at no slot
    late: list[LateDelivery]  # the first 50
    late_total: int
    again: NextRound | None
    judgements: list[TaskJudgement]
    judge: str  # not "": a source is asked at present whether the task is fulfilled
    gate: str  # not "": what somebody is asked about that


class GatheredStep(msgspec.Struct, frozen=True):
    """Everything that one step run gathered."""

    token: int
    step: str
    kind: GatherKind  # of the newest round, as `rule` is
    rule: str  # such as `2 of 3`
    stops_losers: bool
    state: GatherVerdict | Literal["deciding", "asked again"]
    rounds_max: int
    rounds: list[GatherRound]  # newest first


def waiting_by_token(net: Net, state: State) -> dict[int, list[Unfinished]]:
    """token → what is unfinished at it."""
    found: dict[int, list[Unfinished]] = {}
    for one in explain(net, state):
        match one.what:
            case "token":
                token = int(one.id)
            case "job":
                token = token_of(one.id)
            case "gather":
                token = state.gathers[one.id].token
            case _:
                continue
        found.setdefault(token, []).append(one)
    return found


def gathered_steps(
    timeline: Timeline, net: Net, state: State, waiting: Mapping[int, Sequence[Unfinished]]
) -> list[GatheredStep]:
    """Newest first; the rounds of one step run are together."""
    by_token: dict[int, list[GatherView]] = {}
    with timeline.lock:
        for view in reversed(timeline.gathers.shown.values()):
            by_token.setdefault(view.token, []).append(view)
        return [
            _step(token, rounds, waiting.get(token, ()), net, state)
            for token, rounds in by_token.items()
        ]


def _step(
    token: int, rounds: list[GatherView], waiting: Sequence[Unfinished], net: Net, state: State
) -> GatheredStep:
    newest = rounds[0]
    step = net.steps.get(newest.step)
    fan = step.fan if step is not None else None
    able = {slot.node: slot.by for one in waiting for slot in one.slots if slot.state == "open"}
    if newest.kind == "barrier" and not newest.settled:
        able = _coming(newest, net, state)
    return GatheredStep(
        token=token,
        step=newest.step,
        kind=newest.kind,
        rule=newest.rule_text,
        stops_losers=newest.rule.losers == "kill" and newest.kind != "barrier",
        state=_state(newest, waiting),
        rounds_max=fan.rounds.attempts if fan is not None else 1,
        rounds=[_round(view, able, net, state) for view in rounds],
    )


def _coming(view: GatherView, net: Net, state: State) -> dict[str, tuple[str, ...]]:
    """Of a barrier: by which step before it a token can still come, and where that is."""
    token = state.tokens.get(view.token)
    if token is None:
        return {}
    reach = reachability(net).in_scope
    live = [step for step in state.scopes[token.scope].live if step != view.step]
    return {
        slot.label: tuple(f"at {step}" for step in live if slot.label in reach[step])
        for slot in view.slots
    }


def _state(
    newest: GatherView, waiting: Sequence[Unfinished]
) -> GatherVerdict | Literal["deciding", "asked again"]:
    """A settled gather may still wait for a verdict, or for the next round."""
    if newest.verdict == "open" or not waiting:
        return newest.verdict
    if newest.gate or newest.judge:
        return "deciding"
    return "asked again" if newest.again is not None else newest.verdict


def _round(
    view: GatherView, able: Mapping[str, Sequence[str]], net: Net, state: State
) -> GatherRound:
    ranks, labels = _ranks(view), {slot.label for slot in view.slots}
    slots = [
        _slot(view, slot, able, ranks) for slot in (view.ranked if view.scored else view.slots)
    ]
    counts = Counter((slot.outcome.word, slot.state) for slot in slots)
    return GatherRound(
        gather=view.id,
        kind=view.kind,
        round=view.round,
        verdict=view.verdict,
        reason=view.reason,
        have=view.filled,
        need=_needed(view, state),
        total=len(slots),
        opened_at=view.opened_at,
        settled_at=view.settled_at,
        until=view.until if not view.settled else 0,
        ranked_by=("lowest" if view.rule.order == "asc" else "highest") if view.scored else "",
        slots=slots[:SLOTS_SHOWN],
        counts=[SlotCount(*key, count) for key, count in counts.items()],
        losers=[one for one in view.losers if one.step not in labels][:LOSERS_SHOWN],
        late=[LateDelivery(at, _name(view, who), outcome) for at, who, outcome in view.late_ones],
        late_total=view.late,
        again=view.again,
        judgements=[_public(one, net) for one in view.judgements],
        judge=view.judge,
        gate=view.gate,
    )


def _needed(view: GatherView, state: State) -> int | None:
    match view.rule.mode:
        case "quorum":
            live = state.gathers.get(view.id)
            if live is not None:
                return needed(live)
            closed = view.verdict == "closed"
            return sum(slot.selected for slot in view.slots) if closed else view.rule.k
        case "any":
            return 1
        case _:
            return len(view.slots) or None


def _ranks(view: GatherView) -> dict[str, int]:
    """By label, of those who have a score."""
    scored = [slot for slot in view.ranked if slot.score is not None] if view.scored else []
    return {slot.label: number for number, slot in enumerate(scored, start=1)}


def _slot(
    view: GatherView, slot: SlotView, able: Mapping[str, Sequence[str]], ranks: Mapping[str, int]
) -> GatherSlot:
    answered = slot.late_at or (slot.at if slot.state != "open" else 0)
    return GatherSlot(
        label=slot.label,
        takes=slot.when,
        state=slot.state,
        outcome=outcome_of(view, slot, able.get(slot.label, ())),
        selected=slot.selected,
        score=slot.score,
        rank=ranks.get(slot.label),
        after_ms=answered - view.opened_at if answered else None,
        producer=slot.producer,
        delivered=slot.outcome,
        attempts=slot.tries,
        fault=slot.fault,
    )


def _name(view: GatherView, producer: str) -> str:
    """Of what came late: the slot of a job, or the step of a token."""
    number = producer.partition(".")[2]
    if view.kind == "fan" and number.isdecimal() and int(number) < len(view.slots):
        return view.slots[int(number)].label
    member = view.members.get(int(producer)) if producer.isdecimal() else None
    return member.step if member is not None else f"token {producer}"


def _public(one: TaskJudgement, net: Net) -> TaskJudgement:
    return msgspec.structs.replace(one, evidence=public(one.evidence, net.private))

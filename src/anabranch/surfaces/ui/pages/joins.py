"""The page of joins and fan-ins: a card for each step that gathers, with its rounds and its slots.

What happened comes from the log, what is still possible from the state. A card that is not settled
says why, in the words of `explain`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web

from anabranch.kernel.explain import Unfinished, explain
from anabranch.kernel.gather import needed
from anabranch.kernel.jobs import token_of
from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.net.reach import reachability
from anabranch.operations.read.gathers import GatherView, Judgement, SlotView
from anabranch.operations.read.slot_outcomes import SlotOutcome, outcome_of, said
from anabranch.store.ports import Head
from anabranch.surfaces.ui.context import Ui, show, ui_of
from anabranch.surfaces.ui.pages.run import frame, run_path
from anabranch.surfaces.ui.rendering import html, rendered

SLOTS_SHOWN = 200
LOSERS_SHOWN = 50
WHYS_SHOWN = 12
KINDS = {"join": "join", "fan": "fan-in", "barrier": "barrier"}


class Row(msgspec.Struct, frozen=True):
    """One slot."""

    label: str
    takes: str
    outcome: SlotOutcome
    look: str
    detail: str
    score: str
    rank: int | None
    after: int | None
    by: str
    chosen: bool


class Round(msgspec.Struct, frozen=True):
    """One gather: the first asking of everybody, or a later one."""

    number: int
    verdict: str
    reason: str
    have: int
    need: int | None  # None: as many as come
    total: int
    opened_at: int
    settled_at: int
    until: int
    rows: list[Row]
    more: int
    counts: list[tuple[str, str, int]]  # word, look, how many
    ranked: str  # which score wins; "" where there are none
    takes: bool  # slots differ in what they take
    losers: list[str]
    late: list[tuple[int, str, str]]
    late_more: int
    again: dict[str, Any] | None
    judged: list[Judgement]
    asks: str  # who is asked at present whether the task is fulfilled
    gate: str  # what somebody is asked about it


class Card(msgspec.Struct, frozen=True):
    """Everything that one step run gathered."""

    token: int
    step: str
    kind: str
    rule: str
    losers: str
    state: str
    rounds: list[Round]  # newest first
    rounds_max: int
    why: list[Unfinished] = []


async def page(request: web.Request) -> web.StreamResponse:
    ui = ui_of(request)
    head = ui.head(request.match_info["run"])
    given = await _panel(ui, head)
    return show(request, "joins.html", **given, **await frame(ui, head, "joins"))


async def panel(request: web.Request) -> web.StreamResponse:
    """Only the cards, for a page that follows the run."""
    ui = ui_of(request)
    head = ui.head(request.match_info["run"])
    values = {**await _panel(ui, head), "base": run_path(head.run), "finished": head.finished}
    return html(rendered("joins_panel.html", values))


async def _panel(ui: Ui, head: Head) -> dict[str, Any]:
    timeline = await ui.timeline(head)
    state, net = ui.state(head), ui.net(head)
    with timeline.lock:
        cards = cards_of(list(timeline.gathers.shown.values()), net, state)
        return {"cards": cards, "dropped": timeline.gathers.dropped}


def cards_of(views: Sequence[GatherView], net: Net, state: State) -> list[Card]:
    """Newest first; the rounds of one step run are one card."""
    by_token: dict[int, list[GatherView]] = {}
    for view in reversed(views):
        by_token.setdefault(view.token, []).append(view)
    whys = _whys(net, state)
    return [_card(token, rounds, whys.get(token, []), net, state)
            for token, rounds in by_token.items()]  # fmt: skip


def _whys(net: Net, state: State) -> dict[int, list[Unfinished]]:
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


def _card(
    token: int, rounds: list[GatherView], why: list[Unfinished], net: Net, state: State
) -> Card:
    newest = rounds[0]
    step = net.steps.get(newest.step)
    fan = step.fan if step is not None else None
    able = {slot.node: slot.by for one in why for slot in one.slots if slot.state == "open"}
    if newest.kind == "barrier" and not newest.settled:
        able = _coming(newest, net, state)
    kills = newest.rule.losers == "kill" and newest.kind != "barrier"
    return Card(
        token=token,
        step=newest.step,
        kind=KINDS[newest.kind],
        rule=newest.rule_text,
        losers="the others are told to stop" if kills else "",
        state=_state(newest, why),
        rounds=[_round(view, able, state) for view in rounds],
        rounds_max=fan.rounds.attempts if fan is not None else 1,
        why=why[:WHYS_SHOWN],
    )


def _coming(view: GatherView, net: Net, state: State) -> dict[str, tuple[str, ...]]:
    """Of a barrier: by which step before it somebody can still come, and who that is."""
    token = state.tokens.get(view.token)
    if token is None:
        return {}
    reach = reachability(net).in_scope
    live = [step for step in state.scopes[token.scope].live if step != view.step]
    return {
        slot.label: tuple(f"at {step}" for step in live if slot.label in reach[step])
        for slot in view.slots
    }


def _state(newest: GatherView, why: Sequence[Unfinished]) -> str:
    """The badge of a card: a settled gather may still wait for a verdict, or for the next round."""
    if newest.verdict == "open" or not why:
        return newest.verdict
    if newest.gate or newest.judge:
        return "deciding"
    return "asked again" if newest.again is not None else newest.verdict


def _round(view: GatherView, able: Mapping[str, Sequence[str]], state: State) -> Round:
    slots = view.ranked if view.scored else view.slots
    ranks = _ranks(view)
    rows = [_row(view, slot, able, ranks) for slot in slots]
    live = state.gathers.get(view.id)
    chosen = sum(slot.selected for slot in view.slots)
    need = needed(live) if live is not None else (chosen if view.verdict == "closed" else None)
    deliverers = {str(token): one.step for token, one in view.members.items()}
    labels = {slot.label for slot in view.slots}
    others = [one for one in view.losers if one.step not in labels]
    return Round(
        number=view.round,
        verdict=view.verdict,
        reason=view.reason,
        have=view.filled,
        need=_needed(view, need),
        total=len(view.slots),
        opened_at=view.opened_at,
        settled_at=view.settled_at,
        until=view.until if not view.settled else 0,
        rows=rows[:SLOTS_SHOWN],
        more=max(0, len(rows) - SLOTS_SHOWN),
        counts=_counts(rows),
        ranked=_ranked_by(view),
        takes=any(slot.when != "any" for slot in view.slots),
        losers=[f"{one.step} (token {one.token}): {said(one)}" for one in others[:LOSERS_SHOWN]],
        late=[(at, _who(view, who, deliverers), outcome) for at, who, outcome in view.late_ones],
        late_more=view.late - len(view.late_ones),
        again=_again(view),
        judged=view.judgements,
        asks=view.gate or view.judge,
        gate=view.gate,
    )


def _needed(view: GatherView, need: int | None) -> int | None:
    match view.rule.mode:
        case "quorum":
            return need if need is not None else view.rule.k
        case "any":
            return 1
        case _:
            return len(view.slots) or None


def _ranked_by(view: GatherView) -> str:
    if not view.scored:
        return ""
    return "the lowest wins" if view.rule.order == "asc" else "the highest wins"


def _ranks(view: GatherView) -> dict[str, int]:
    """By label, of those who have a score."""
    scored = [slot for slot in view.ranked if slot.score is not None] if view.scored else []
    return {slot.label: number for number, slot in enumerate(scored, start=1)}


def _row(
    view: GatherView, slot: SlotView, able: Mapping[str, Sequence[str]], ranks: Mapping[str, int]
) -> Row:
    outcome = outcome_of(view, slot, able.get(slot.label, ()))
    answered = slot.late_at or (slot.at if slot.state != "open" else 0)
    by = f"token {slot.producer}" if slot.producer and view.kind != "fan" else ""
    return Row(
        label=slot.label,
        takes=slot.when,
        outcome=outcome,
        look=_look(view, slot, outcome),
        detail=slot.fault if slot.fault not in outcome.text else "",
        score="" if slot.score is None else f"{slot.score:g}",
        rank=ranks.get(slot.label),
        after=answered - view.opened_at if answered else None,
        by=f"{by}, {slot.outcome}" if by and slot.outcome else by,
        chosen=slot.selected,
    )


def _look(view: GatherView, slot: SlotView, outcome: SlotOutcome) -> str:
    """The colour of its badge."""
    if slot.selected or (slot.state == "filled" and not view.settled):
        return "done"
    if slot.state == "lost":
        return "failed"
    return "waiting" if outcome.word in ("late", "open", "stopping") else "quiet"


def _counts(rows: Sequence[Row]) -> list[tuple[str, str, int]]:
    found: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row.outcome.word, row.look)
        found[key] = found.get(key, 0) + 1
    return [(word, look, count) for (word, look), count in found.items()]


def _who(view: GatherView, producer: str, members: Mapping[str, str]) -> str:
    """The name of whoever came late: the slot of a job, or the step of a token."""
    number = producer.partition(".")[2]
    if view.kind == "fan" and number.isdecimal() and int(number) < len(view.slots):
        return view.slots[int(number)].label
    return members.get(producer, f"token {producer}")


def _again(view: GatherView) -> dict[str, Any] | None:
    if view.again is None:
        return None
    return {"round": view.again.round, "due": view.again.due, "reason": view.again.reason}

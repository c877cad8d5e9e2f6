"""The gather: the one fan-in primitive.

A gather has slots, takes at most one delivery per slot and per producer, and comes to exactly one
verdict. The functions here only *weigh*: given what is recorded, is there a verdict, which slots
are selected, what is the combined value? Recording is done by the callers through events.

    open ── enough usable deliveries ──▶ closed
         ── delivered + still possible < needed ──▶ impossible
         ── time is up ──▶ expired (or closed, where partial answers are enough)

Every question is O(1) per delivery, except the selection at the very end. How many slots are still
*possible* depends on who fills them: a fan knows by counting, a join by reachability in its scope
(`kernel.joins`), so that number is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from anabranch.kernel.state import Delivery, Gather
from anabranch.net.net import GatherRule


class Verdict(msgspec.Struct, frozen=True):
    verdict: Literal["closed", "impossible", "expired"]
    selected: tuple[int, ...]
    reason: str = ""


def needed(gather: Gather) -> int:
    """How many usable deliveries close this gather."""
    rule, slots = gather.rule, len(gather.labels)
    reachable = slots - gather.excluded if rule.exclude_lost else slots
    match rule.mode:
        case "any":
            return 1
        case "quorum" | "best_of":
            return max(min(rule.k, reachable), 1) if rule.exclude_lost else rule.k
        case "all" if rule.exclude_lost and slots and not reachable:
            return 1  # to have reached nobody is not to have heard from all
        case "all":
            return max(reachable - _tolerated(rule, slots), 0)


def _tolerated(rule: GatherRule, slots: int) -> int:
    """Count or percentage, whichever allows more; 29 % of 100 are 29, whatever floats say."""
    return max(rule.tolerate, math.floor(slots * rule.tolerate_percent / 100 + 1e-9))


def open_slots(gather: Gather) -> int:
    """Slots neither filled nor lost."""
    return len(gather.labels) - len(gather.filled) - len(gather.lost)


def weigh(gather: Gather, possible: int) -> Verdict | None:
    """The verdict, if there is one now; `possible` counts the slots that may still be filled."""
    if not gather.labels:
        if gather.rule.empty_closes:
            return Verdict("closed", (), "nothing to gather")
        return Verdict("impossible", (), "there are no slots")
    have, need = len(gather.filled), needed(gather)
    if _complete(gather.rule, have, need, possible):
        return Verdict("closed", select(gather))
    if have + possible < max(need, 1):
        return Verdict("impossible", (), f"{have} delivered, {possible} possible, {need} needed")
    return None


def _complete(rule: GatherRule, have: int, need: int, possible: int) -> bool:
    """`best_of` and an `all` that tolerates gaps wait for everybody who can still answer."""
    waits_for_everybody = rule.mode in ("best_of", "all")
    if waits_for_everybody and possible > 0:
        return False
    return have >= max(need, 1) or (rule.mode == "all" and have >= need and need == 0)


def enough_when_time_is_up(gather: Gather) -> bool:
    """`best_of` chooses among so many at least as it needs; to others a part is any part."""
    need = needed(gather) if gather.rule.mode == "best_of" else 1
    return gather.rule.partial_on_expiry and len(gather.filled) >= max(need, 1)


def expire(gather: Gather) -> Verdict:
    """The verdict when time is up and none was reached."""
    if enough_when_time_is_up(gather):
        return Verdict("closed", select(gather), "time is up")
    return Verdict("expired", (), f"time is up: {len(gather.filled)} of {needed(gather)} delivered")


def select(gather: Gather) -> tuple[int, ...]:
    """The slots that win, in the order in which they are combined."""
    ranked = sorted(gather.filled.values(), key=_rank(gather.rule))
    chosen = ranked[: _wanted(gather)]
    if gather.rule.combine == "merge":
        chosen.sort(key=lambda delivery: delivery.slot)
    return tuple(delivery.slot for delivery in chosen)


def _wanted(gather: Gather) -> int:
    match gather.rule.mode:
        case "any" | "best_of":
            return 1
        case "quorum":
            return needed(gather)
        case "all":
            return len(gather.filled)


def _rank(rule: GatherRule) -> Any:
    match rule.select:
        case "slot":
            return lambda delivery: delivery.slot
        case "arrival":
            return lambda delivery: delivery.order
        case "score":
            sign = 1 if rule.order == "asc" else -1
            return lambda delivery: (
                delivery.score is None,  # no score, no candidate before those that have one
                sign * (delivery.score or 0.0),
                delivery.order,
                delivery.slot,
            )


def combine(gather: Gather) -> Any:
    """The one value that the selected deliveries come to."""
    chosen = [gather.filled[slot] for slot in gather.selected]
    match gather.rule.combine:
        case "one":
            return chosen[0].value if chosen else None
        case "list":
            return {"responses": [delivery.value for delivery in chosen]}
        case "merge":
            return merged(chosen)
        case "counts":
            return {
                "total": len(gather.labels),
                "succeeded": len(gather.filled),
                "failed": len(gather.lost),
            }


def merged(deliveries: list[Delivery]) -> dict[str, Any]:
    """Maps laid over one another in the given order; later keys win."""
    value: dict[str, Any] = {}
    for delivery in deliveries:
        if isinstance(delivery.value, Mapping):
            value.update(delivery.value)
    return value


def slot_for(gather: Gather, node: str, outcome: str) -> int | None:
    """The free slot that an offer from `node` fills; a named outcome goes before `any`."""
    slot = gather.free.first(node, outcome)
    return slot if slot is not None else gather.free.first(node, "any")


def who_answered(gather: Gather) -> str:
    """Whose answer a fan has chosen, where it is one's."""
    if gather.rule.combine != "one" or len(gather.selected) != 1 or gather.values:
        return ""
    return gather.labels[gather.selected[0]]

"""What became of a slot, in words: who won, who lost and why, who is still expected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from anabranch.operations.read.gathers import GatherView, ScopeMember, SlotView

_ENDED = {
    "unstarted": "not needed any more; it was never asked",
    "stopped": "cancelled before it answered",
    "reported": "too late: it answered after the join had closed",
    "lost": "cancelled; its worker was lost",
}
_UNDER_WAY = {
    "": "not asked yet",
    "queued": "queued to be asked",
    "asked": "asked; no answer yet",
    "retrying": "asked; will be tried again",
}
_LOST = {
    "no score": "answered without a number to compare",
    "timeout": "took too long",
    "aborted": "gave up",
    "no_means": "could not be asked",
    "not_ordered": "nothing was ordered",
    "order_expired": "did not answer while the order was open",
}


SlotWord = Literal[
    "in", "winner", "counted", "late", "open", "lost", "rejected", "away", "too late", "stopping",
    "cancelled", "not filled",
]  # fmt: skip


class SlotOutcome(msgspec.Struct, frozen=True):
    """The outcome of a slot, and why."""

    word: SlotWord
    text: str = ""


def outcome_of(view: GatherView, slot: SlotView, able: Sequence[str] = ()) -> SlotOutcome:
    """`able` are the tokens that could still fill this slot of a join."""
    if slot.selected:
        return SlotOutcome(_won_word(view), _won(view))
    match slot.state:
        case "filled" if not view.settled:
            return SlotOutcome("in")
        case "filled":
            return SlotOutcome("lost" if view.verdict == "closed" else "in", _passed(view, slot))
        case "lost":
            return _lost(slot)
    if view.settled:
        return _left(view, slot)
    if view.kind == "fan":
        return SlotOutcome("late" if slot.phase == "asked" else "open", _waiting(slot))
    if able:
        return SlotOutcome("late", f"can still come: {', '.join(able)}")
    return SlotOutcome("lost", f"can no longer come: {_left_by(view, slot).text}")


def _won_word(view: GatherView) -> SlotWord:
    return "winner" if view.rule.mode in ("best_of", "any") and view.kind == "fan" else "counted"


def _won(view: GatherView) -> str:
    if view.rule.mode == "best_of":
        return "the lowest score" if view.rule.order == "asc" else "the highest score"
    if view.rule.mode == "any" and view.kind == "fan":
        return "the first usable answer"
    return ""


def _passed(view: GatherView, slot: SlotView) -> str:
    """It delivered, and was not chosen."""
    if view.verdict != "closed":
        return "it came, but there were not enough"
    best = next((one.score for one in view.slots if one.selected), None)
    if view.rule.mode != "best_of" or best is None or slot.score is None:
        return "not needed: enough had come before"
    if slot.score == best:
        return "as good as the winner, but later"
    return f"{slot.score:g} is {'more' if view.rule.order == 'asc' else 'less'} than {best:g}"


def _lost(slot: SlotView) -> SlotOutcome:
    kind, _, code = slot.reason.partition(": ")
    if kind.startswith("unreachable"):
        counted = "; not counted" if "(not counted)" in slot.reason else ""
        return SlotOutcome("away", f"could not be reached{counted}")
    if kind == "negative":
        return SlotOutcome("rejected", f"said no{f': {code}' if code else ''}")
    return SlotOutcome("lost", _LOST.get(slot.reason, slot.reason))


def _left(view: GatherView, slot: SlotView) -> SlotOutcome:
    """Nothing had come from it when the verdict fell."""
    if slot.late_at:
        return SlotOutcome("too late", "it answered after the join had closed")
    if view.kind != "fan":
        return _left_by(view, slot)
    if slot.phase == "stopping":
        return SlotOutcome("stopping", "the engine cancels it")
    late = "it did not answer in time; " if view.timed_out and slot.asked_at else ""
    text = _ENDED.get(slot.ended, "not asked any more")
    return SlotOutcome("too late" if late else "cancelled", f"{late}{text}")


def _left_by(view: GatherView, slot: SlotView) -> SlotOutcome:
    """The slot of a join: what became of the tokens at its step."""
    if view.kind == "barrier":
        return SlotOutcome(
            "not filled", "no token came from there: the branch ended or took another way"
        )
    there = [one for one in view.members.values() if one.step == slot.label]
    if not there:
        return SlotOutcome("not filled", "no token came this way")
    return SlotOutcome("not filled", ", ".join(_became(one, slot.when) for one in there[:5]))


def _became(one: ScopeMember, when: str) -> str:
    outcome = one.became.partition("(")[2].rstrip(")")
    if outcome and when not in ("any", outcome):
        return f"it came as {outcome}, and this slot takes {when}"
    return one.became


def _waiting(slot: SlotView) -> str:
    text = _UNDER_WAY.get(slot.phase, slot.phase)
    return f"{text} (attempt {slot.tries})" if slot.tries > 1 else text

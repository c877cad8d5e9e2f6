"""The gathers of a run as a page shows them: slots, who delivered, what became of the rest."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from anabranch.kernel import events as e
from anabranch.net.net import GatherRule

GATHERS_KEPT = 200
LATE_KEPT = 50
MEMBERS_KEPT = 500


@dataclass(slots=True)
class SlotView:
    label: str
    when: str = "any"
    state: str = "open"  # open, filled, lost
    producer: str = ""
    outcome: str = ""
    score: float | None = None
    at: int = 0
    reason: str = ""
    selected: bool = False


@dataclass(slots=True)
class Member:
    """A token of the scope below a join: what became of it."""

    token: int
    step: str
    fate: str = "on its way"
    at: int = 0


@dataclass(slots=True)
class GatherView:
    id: str
    kind: str
    step: str
    token: int
    rule: GatherRule
    opened_at: int
    slots: list[SlotView]
    verdict: str = "open"
    reason: str = ""
    settled_at: int = 0
    late: int = 0
    late_ones: list[tuple[int, str, str]] = field(default_factory=list)  # at, who, outcome
    members: dict[int, Member] = field(default_factory=dict)

    @property
    def filled(self) -> int:
        return sum(slot.state == "filled" for slot in self.slots)

    @property
    def scored(self) -> bool:
        return any(slot.score is not None for slot in self.slots)

    @property
    def ranked(self) -> list[SlotView]:
        """By score, the best first; those without one at the end."""
        sign = 1 if self.rule.order == "asc" else -1
        return sorted(self.slots, key=lambda slot: (slot.score is None, sign * (slot.score or 0.0)))

    @property
    def losers(self) -> list[Member]:
        """Those that did not deliver to it, once it is settled."""
        delivered = {slot.producer for slot in self.slots if slot.state == "filled"}
        others = [one for one in self.members.values() if str(one.token) not in delivered]
        return others if self.verdict != "open" else []

    @property
    def rule_text(self) -> str:
        total = len(self.slots)
        match self.rule.mode:
            case "any":
                return f"1 of {total}"
            case "quorum":
                return f"{self.rule.k} of {total}"
            case "best_of":
                return f"best of {total}"
            case _:
                return "all that come" if self.kind == "barrier" else f"all {total}"


class Gathers:
    def __init__(self) -> None:
        self.shown: OrderedDict[str, GatherView] = OrderedDict()
        self.dropped = 0
        self._steps: dict[int, str] = {}  # of tokens on their way
        self._scopes: dict[int, str] = {}  # token of a join → its gather
        self._in_scope: dict[int, str] = {}  # token → the gather it belongs to

    def see(self, at: int, event: e.Event) -> None:
        match event:
            case e.TokenCreated():
                self._steps[event.token] = event.step
                self._join_scope(event)
            case e.GatherOpened():
                self._opened(at, event)
            case e.Delivered() | e.SlotLost() | e.DeliveryLate() | e.GatherSettled():
                view = self.shown.get(event.gather)
                if view is not None:
                    _change(view, at, event)
            case e.TokenDoomed():
                self._fate(event.token, "killed while it worked", at)
            case e.TokenFinished():
                self._steps.pop(event.token, None)
                self._scopes.pop(event.token, None)
                self._ended(at, event)
            case e.JobCancelling() | e.JobDischarged():
                self._slot_of_job(at, event)
            case _:
                pass

    def _opened(self, at: int, event: e.GatherOpened) -> None:
        whens = list(event.whens) or ["any"] * len(event.labels)
        slots = [SlotView(label, when) for label, when in zip(event.labels, whens, strict=False)]
        step = self._steps.get(event.token, "")
        view = GatherView(event.gather, event.kind, step, event.token, event.rule, at, slots)
        self.shown[event.gather] = view
        if event.kind == "join":
            self._scopes[event.token] = event.gather
        if len(self.shown) > GATHERS_KEPT:
            self.shown.popitem(last=False)
            self.dropped += 1

    def _join_scope(self, event: e.TokenCreated) -> None:
        gather = self._scopes.get(event.scope)
        view = self.shown.get(gather) if gather is not None else None
        if gather is None or view is None:
            return
        self._in_scope[event.token] = gather
        if len(view.members) < MEMBERS_KEPT:
            view.members[event.token] = Member(event.token, event.step)

    def _fate(self, token: int, fate: str, at: int) -> None:
        view = self.shown.get(self._in_scope.get(token, ""))
        member = view.members.get(token) if view is not None else None
        if member is not None:
            member.fate, member.at = fate, at

    def _ended(self, at: int, event: e.TokenFinished) -> None:
        view = self.shown.get(self._in_scope.get(event.token, ""))
        member = view.members.get(event.token) if view is not None else None
        if member is not None:
            if event.end == "killed":
                known = member.fate != "on its way"
                member.fate = f"{member.fate}; ended" if known else "killed before it worked"
            else:
                member.fate = f"{event.ending}{f' ({event.outcome})' if event.outcome else ''}"
            member.at = at
        self._in_scope.pop(event.token, None)

    def _slot_of_job(self, at: int, event: e.JobCancelling | e.JobDischarged) -> None:
        """The jobs of a fan are its slots: whoever is not needed is told to stop."""
        token, _, number = event.job.partition(".")
        view = self.shown.get(f"f{token}")
        if view is None or not number.isdecimal() or int(number) >= len(view.slots):
            return
        slot = view.slots[int(number)]
        if isinstance(event, e.JobCancelling):
            slot.reason = f"told to stop: {event.reason}"
        else:
            slot.reason = f"{slot.reason or 'over'} ({event.how})"
        slot.at = slot.at or at


def _change(
    view: GatherView, at: int, event: e.Delivered | e.SlotLost | e.DeliveryLate | e.GatherSettled
) -> None:
    match event:
        case e.Delivered() | e.SlotLost():
            while event.slot >= len(view.slots):  # a barrier learns of them as they come
                view.slots.append(SlotView(event.producer))
            slot = view.slots[event.slot]
            slot.producer, slot.at = event.producer, at
            if isinstance(event, e.Delivered):
                slot.state, slot.outcome, slot.score = "filled", event.outcome, event.score
            else:
                slot.state = "lost"
                slot.reason = event.reason + (" (not counted)" if event.excluded else "")
        case e.DeliveryLate():
            view.late += 1
            if len(view.late_ones) < LATE_KEPT:
                view.late_ones.append((at, event.producer, event.outcome))
        case e.GatherSettled():
            view.verdict, view.reason, view.settled_at = event.verdict, event.reason, at
            for index in event.selected:
                if index < len(view.slots):
                    view.slots[index].selected = True

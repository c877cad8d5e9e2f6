"""The gathers of a run as its log tells them: slots, who delivered, what became of the rest.

A round of a fan is a gather of its own. What happened around it is kept with it: whether everybody
was asked again and why, and who said whether the task is fulfilled.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from anabranch.kernel import events as e
from anabranch.kernel.jobs import JUDGE_SLOT, token_of
from anabranch.kernel.values import Answer
from anabranch.net.net import GatherRule

GATHERS_KEPT = 200
LATE_KEPT = 50
MEMBERS_KEPT = 500
JUDGEMENTS_KEPT = 20
GatherKind = Literal["join", "fan", "barrier"]
SlotStatus = Literal["open", "filled", "lost"]
GatherVerdict = Literal["open", "closed", "impossible", "expired"]


class SlotView(msgspec.Struct):
    label: str
    when: str = "any"
    state: SlotStatus = "open"
    phase: str = ""  # of a fan: queued, asked, retrying, stopping
    tries: int = 0
    asked_at: int = 0
    producer: str = ""
    outcome: str = ""
    score: float | None = None
    at: int = 0
    reason: str = ""
    fault: str = ""  # the last thing that went wrong, in words
    ended: str = ""  # how its job ended when nobody needed it any more
    late_at: int = 0
    selected: bool = False


class ScopeMember(msgspec.Struct):
    """A token of the scope below a join, and its outcome."""

    token: int
    step: str
    became: str = "on its way"
    at: int = 0


class TaskJudgement(msgspec.Struct):
    """Whether the task counts as fulfilled, and who said so."""

    at: int
    fulfilled: bool
    policy: str
    actor: str
    reason: str = ""
    evidence: Any = None


class NextRound(msgspec.Struct):
    """Every slot is asked again."""

    round: int
    due: int
    reason: str


class GatherView(msgspec.Struct):
    id: str
    kind: GatherKind
    step: str
    token: int
    rule: GatherRule
    opened_at: int
    slots: list[SlotView]
    round: int = 1
    until: int = 0
    verdict: GatherVerdict = "open"
    reason: str = ""
    settled_at: int = 0
    late: int = 0
    late_ones: list[tuple[int, str, str]] = []  # at, who, outcome
    members: dict[int, ScopeMember] = {}
    judge: str = ""  # asked: a source is asked whether the task is fulfilled
    gate: str = ""  # somebody is asked
    judgements: list[TaskJudgement] = []
    again: NextRound | None = None

    @property
    def filled(self) -> int:
        return sum(slot.state == "filled" for slot in self.slots)

    @property
    def settled(self) -> bool:
        return self.verdict != "open"

    @property
    def timed_out(self) -> bool:
        return self.verdict == "expired" or self.reason == "time is up"

    @property
    def scored(self) -> bool:
        return self.rule.mode == "best_of" or any(slot.score is not None for slot in self.slots)

    @property
    def ranked(self) -> list[SlotView]:
        """By score, the best first and of equals whoever came first; the others at the end."""
        sign = 1 if self.rule.order == "asc" else -1
        return sorted(
            self.slots,
            key=lambda slot: (
                not slot.selected,
                slot.score is None,
                sign * (slot.score or 0.0),
                slot.at if slot.score is not None else 0,
            ),
        )

    @property
    def losers(self) -> list[ScopeMember]:
        """Those that did not deliver to it, once it is settled."""
        delivered = {slot.producer for slot in self.slots if slot.state == "filled"}
        others = [one for one in self.members.values() if str(one.token) not in delivered]
        return others if self.settled else []

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
    """Everything it knows comes from `see`, event by event in their order."""

    def __init__(self) -> None:
        self.shown: OrderedDict[str, GatherView] = OrderedDict()
        self.dropped = 0
        self._steps: dict[int, str] = {}  # of tokens on their way
        self._scopes: dict[int, str] = {}  # token of a join → its gather
        self._in_scope: dict[int, str] = {}  # token → the gather it belongs to
        self._of_token: dict[int, str] = {}  # token → its newest gather
        self._rounds: dict[int, int] = {}
        self._until: dict[int, int] = {}
        self._jobs: dict[str, tuple[str, int]] = {}  # job of a fan → gather and slot
        self._gates: dict[str, int] = {}

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
                self._became(event.token, "killed while it worked", at)
            case e.TokenFinished():
                self._finished(at, event)
            case e.JobScheduled() | e.JobReused():
                self._scheduled(event)
            case (
                e.JobStarted() | e.JobReported() | e.JobRetrying() | e.JobTimedOut() | e.JobLost()
                | e.JobCancelling() | e.JobDischarged()
            ):  # fmt: skip
                self._job(at, event)
            case _:
                self._around(at, event)

    # -- the step around a gather ------------------------------------------------------------

    def _around(self, at: int, event: e.Event) -> None:
        match event:
            case e.TokenTimed():
                self._timed(event)
            case e.TokenRetrying():
                self._rounds[event.token] = event.round
                view = self._newest(event.token)
                if view is not None:
                    view.again = NextRound(event.round + 1, event.due, event.reason)
            case e.TaskJudged():
                self._judged(at, event)
            case e.GateOpened():
                view = self._newest(event.token)
                if view is not None:
                    view.gate = event.ask or "a decision"
                    self._gates[event.gate] = event.token
            case e.GateDecided() | e.GateAskedAgain():
                view = self._newest(self._gates.pop(event.gate, 0))
                if view is not None:
                    view.gate = ""
            case _:
                pass

    def _newest(self, token: int) -> GatherView | None:
        return self.shown.get(self._of_token.get(token, ""))

    def _timed(self, event: e.TokenTimed) -> None:
        self._until[event.token] = event.until
        view = self._newest(event.token)
        if view is not None and not view.settled:
            view.until = event.until

    def _judged(self, at: int, event: e.TaskJudged) -> None:
        view = self._newest(event.token)
        if view is not None and len(view.judgements) < JUDGEMENTS_KEPT:
            view.judge = ""
            view.judgements.append(
                TaskJudgement(
                    at, event.fulfilled, event.policy, event.actor, event.reason, event.evidence
                )
            )

    # -- opening -----------------------------------------------------------------------------

    def _opened(self, at: int, event: e.GatherOpened) -> None:
        whens = list(event.whens) or ["any"] * len(event.labels)
        slots = [SlotView(label, when) for label, when in zip(event.labels, whens, strict=False)]
        step = self._steps.get(event.token, "")
        view = GatherView(event.gather, event.kind, step, event.token, event.rule, at, slots)
        view.round = self._rounds.get(event.token, 0) + 1
        view.until = self._until.get(event.token, 0)
        self.shown[event.gather] = view
        self._of_token[event.token] = event.gather
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
            view.members[event.token] = ScopeMember(event.token, event.step)

    # -- tokens ------------------------------------------------------------------------------

    def _became(self, token: int, what: str, at: int) -> None:
        view = self.shown.get(self._in_scope.get(token, ""))
        member = view.members.get(token) if view is not None else None
        if member is not None:
            member.became, member.at = what, at

    def _finished(self, at: int, event: e.TokenFinished) -> None:
        for kept in (self._steps, self._scopes, self._of_token, self._rounds, self._until):
            kept.pop(event.token, None)
        view = self.shown.get(self._in_scope.pop(event.token, ""))
        member = view.members.get(event.token) if view is not None else None
        if member is None:
            return
        if event.end == "killed":
            known = member.became != "on its way"
            member.became = f"{member.became}; ended" if known else "killed before it worked"
        else:
            member.became = f"{event.ending}{f' ({event.outcome})' if event.outcome else ''}"
        member.at = at

    # -- the jobs of a fan are its slots -----------------------------------------------------

    def _scheduled(self, event: e.JobScheduled | e.JobReused) -> None:
        view = self._newest(event.token)
        if view is None or view.kind != "fan":
            return
        if event.slot == JUDGE_SLOT:
            view.judge = "asked"
        elif 0 <= event.slot < len(view.slots):
            self._jobs[event.job] = (view.id, event.slot)
            view.slots[event.slot].phase = "queued"

    def _job(self, at: int, event: Any) -> None:
        gather, number = self._jobs.get(event.job, ("", 0))
        view = self.shown.get(gather)
        if view is None:
            if ".judge" in event.job:
                self._of_judge(event)
            return
        slot = view.slots[number]
        match event:
            case e.JobStarted():
                slot.phase, slot.tries = "asked", slot.tries + 1
                slot.asked_at = slot.asked_at or at
            case e.JobReported():
                slot.fault = _said(event.answer)
                slot.late_at = at if view.settled else 0
            case e.JobRetrying():
                slot.phase = "retrying"
            case e.JobTimedOut():
                slot.fault = "it took too long"
            case e.JobLost():
                slot.fault = event.reason
            case e.JobCancelling():
                slot.phase, slot.reason = "stopping", event.reason
            case e.JobDischarged():
                slot.phase, slot.ended, slot.at = "", event.how, slot.at or at
                self._jobs.pop(event.job, None)

    def _of_judge(self, event: Any) -> None:
        """A source that is asked again says so; its verdict comes by itself."""
        view = self._newest(token_of(event.job))
        if view is not None and isinstance(event, e.JobRetrying):
            view.judge = f"asked again (attempt {event.attempt})"


def _said(answer: Answer) -> str:
    """What went wrong, or the word with which somebody said no."""
    if answer.fault is not None:
        return answer.fault.message
    if answer.outcome != "negative" or not isinstance(answer.result, Mapping):
        return ""
    error = answer.result.get("error")
    detail = error if isinstance(error, Mapping) else {}
    return str(detail.get("message") or answer.result.get("status") or "")[:300]


def _change(
    view: GatherView, at: int, event: e.Delivered | e.SlotLost | e.DeliveryLate | e.GatherSettled
) -> None:
    match event:
        case e.Delivered() | e.SlotLost():
            while event.slot >= len(view.slots):  # a barrier learns of some as they come
                view.slots.append(SlotView(event.producer))
            slot = view.slots[event.slot]
            slot.producer, slot.at, slot.phase = event.producer, at, ""
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

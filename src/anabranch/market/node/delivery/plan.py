"""A delivery plan with its targets found: which stage is next, and what all of it comes to.

Stages are tried one after the other until one succeeds; the targets of a stage are tried together.
A stage succeeds with `need` of its targets. What failed for good is not tried again; what failed
for now is, as long as some stage can still succeed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

NO_STAGE = -1

#: `not-awaited`: the stage had succeeded before this target answered.
TargetStatus = Literal["admitted", "transient", "permanent", "not-awaited"]
Verdict = Literal["succeeded", "failed", "open"]
Ending = Literal["succeeded", "partial", "failed-retryable", "failed-permanent"]


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage; `nodes` is empty where its targets could not be found."""

    stage_id: str
    policy: str
    nodes: tuple[str, ...]
    need: int
    next: int = NO_STAGE  # position of the stage after a failure


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one target."""

    node_id: str
    status: TargetStatus
    answer: str = ""  # of the acceptor: accepted, already-present, rejected, retryable
    failure_class: str = ""
    diagnostic: str = ""


Outcomes = Mapping[str, tuple[Outcome, ...]]  # by the id of the stage


def verdict(stage: Stage, outcomes: Sequence[Outcome]) -> Verdict:
    """`open` while a target that has not answered can still decide it."""
    if not stage.nodes:
        return "failed"
    if _admitted(outcomes) >= stage.need:
        return "succeeded"
    return "failed" if len(outcomes) == len(stage.nodes) else "open"


def to_send(stage: Stage, outcomes: Sequence[Outcome]) -> list[str]:
    """Targets that have to be tried, again or for the first time."""
    settled = {one.node_id for one in outcomes if one.status in ("admitted", "permanent")}
    return [node for node in stage.nodes if node not in settled]


def settled(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """What an earlier attempt has settled for good."""
    return [one for one in outcomes if one.status in ("admitted", "permanent")]


def ending(stages: Sequence[Stage], outcomes: Outcomes) -> tuple[Ending, str, str]:
    """(status, failure class, diagnostic) after the last stage that was tried."""
    tried = [(stage, outcomes[stage.stage_id]) for stage in stages if stage.stage_id in outcomes]
    if any(verdict(stage, own) == "succeeded" for stage, own in tried):
        return "succeeded", "", ""
    failures = [one for _, own in reversed(tried) for one in own if one.failure_class]
    hopeful = [
        one
        for stage, own in reversed(tried)
        if _may_succeed(stage, own)
        for one in own
        if one.status == "transient"
    ]
    if hopeful:
        return "failed-retryable", hopeful[0].failure_class, hopeful[0].diagnostic
    permanent = [one for one in failures if one.status == "permanent"] or failures
    why = permanent[0] if permanent else None
    failure = why.failure_class if why else "route-unresolved"
    diagnostic = why.diagnostic if why else "no target of the plan was found"
    some = any(_admitted(own) for _, own in tried)
    return ("partial" if some else "failed-permanent"), failure, diagnostic


def _may_succeed(stage: Stage, outcomes: Sequence[Outcome]) -> bool:
    lost = sum(one.status == "permanent" for one in outcomes)
    return len(stage.nodes) - lost >= stage.need


def _admitted(outcomes: Sequence[Outcome]) -> int:
    return sum(one.status == "admitted" for one in outcomes)

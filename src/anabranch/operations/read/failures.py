"""What went wrong in a run: which step, what it said, at which of its tries."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from anabranch.kernel.privacy import public
from anabranch.kernel.state import State
from anabranch.kernel.values import Fault, code_of
from anabranch.net.net import Net
from anabranch.operations.read.timeline import Lane, Timeline

_BAD = ("failed", "aborted")


class Failure(msgspec.Struct):
    """One failure. Without a step it is about the run as a whole."""

    kind: str
    message: str
    step: str = ""
    known: bool = False  # whether the step is in the picture
    tries: int = 0  # it was at this attempt,
    most: int = 0  # of so many
    at: int = 0
    details: Any = None
    nth: int = 0  # which of the failed runs of its step it is, from 0


class Failures(msgspec.Struct):
    """The first is what the run failed of, where it failed."""

    shown: list[Failure] = []
    total: int = 0


def failures_of(net: Net, state: State) -> Failures:
    """What the state knows of them; `add_attempts` adds what is in the log alone."""
    shown, seen = [], Counter[str]()
    for step, fault in state.faults:
        shown.append(_failure(net, step, fault, seen[step]))
        seen[step] += 1
    total, problem = max(state.counts.failed, len(shown)), state.problem
    if problem is not None:
        same = [one for one in shown if one.message == problem.message]
        others = [one for one in shown if one.message != problem.message]
        shown = [*(same or [_failure(net, "", problem)]), *others]
    return Failures(shown, max(total, len(shown)) if shown else 0)


def add_attempts(failures: Failures, timeline: Timeline) -> None:
    lanes = _bad_lanes(timeline)
    for one in failures.shown:
        mine = lanes.get(one.step, [])
        if one.nth < len(mine):
            one.tries, one.at = mine[one.nth].attempts, mine[one.nth].end


def _bad_lanes(timeline: Timeline) -> dict[str, list[Lane]]:
    """step → its failed runs in their order; jobs of a fan are not step runs."""
    found: dict[str, list[Lane]] = {}
    with timeline.lock:
        for lane in timeline.lanes.values():
            if lane.status in _BAD and "." not in lane.id:
                found.setdefault(lane.step, []).append(lane)
    return found


def _failure(net: Net, step: str, fault: Fault, nth: int = 0) -> Failure:
    failure = Failure(code_of(fault), fault.message, step, step in net.steps, nth=nth)
    failure.details = public(fault.details, net.private)
    work = net.steps[step].work if step in net.steps else None
    if work is not None:
        failure.most = work.retry.attempts
    return failure

"""What went wrong in a run: which step, what it said, at which of its tries."""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.kernel.privacy import public
from anabranch.kernel.state import State
from anabranch.kernel.values import Fault, code_of
from anabranch.net.net import Net
from anabranch.surfaces.ui.chronicle import Chronicle, Lane
from anabranch.surfaces.ui.context import Ui

_BAD = ("failed", "aborted")


class Trouble(msgspec.Struct):
    """One failure. Without a step it is about the run as a whole."""

    kind: str
    message: str
    step: str = ""
    known: bool = False  # whether the step is in the picture
    tries: int = 0  # it was at this attempt,
    most: int = 0  # of so many
    at: int = 0
    details: Any = None


class Troubles(msgspec.Struct):
    """The first is what the run failed of, where it failed."""

    shown: list[Trouble] = []
    total: int = 0


async def troubles_of(ui: Ui, run: str, net: Net, state: State) -> Troubles:
    """Tries and times are in the log alone; nobody reads it where nothing went wrong."""
    faults, problem = list(state.faults), state.problem
    total = max(state.counts.failed, len(faults))
    if not faults and problem is None:
        return Troubles()
    lanes: dict[str, list[Lane]] = {}
    if faults:
        chronicle = await ui.look(lambda by: ui.chronicles.of(by.store, run))
        lanes = _bad_lanes(chronicle)
    shown = [_trouble(net, step, fault, lanes) for step, fault in faults]
    if problem is not None:
        same = [one for one in shown if one.message == problem.message]
        others = [one for one in shown if one.message != problem.message]
        shown = [*(same or [_trouble(net, "", problem, {})]), *others]
    return Troubles(shown, max(total, len(shown)))


def _bad_lanes(chronicle: Chronicle) -> dict[str, list[Lane]]:
    """step → its failed runs in their order; jobs of a fan are not step runs."""
    found: dict[str, list[Lane]] = {}
    with chronicle.lock:
        for lane in chronicle.lanes.values():
            if lane.status in _BAD and "." not in lane.id:
                found.setdefault(lane.step, []).append(lane)
    return found


def _trouble(net: Net, step: str, fault: Fault, lanes: dict[str, list[Lane]]) -> Trouble:
    trouble = Trouble(code_of(fault), fault.message, step, step in net.steps)
    trouble.details = public(fault.details, net.private)
    work = net.steps[step].work if step in net.steps else None
    if work is not None:
        trouble.most = work.retry.attempts
    mine = lanes.get(step)
    if mine:
        lane = mine.pop(0)
        trouble.tries, trouble.at = lane.attempts, lane.end
    return trouble

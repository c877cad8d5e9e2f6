"""What the pages of a run show, from its net and state. Everything live is made here, once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from anabranch.kernel.explain import Unfinished, explain
from anabranch.kernel.gather import needed
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import State
from anabranch.kernel.summary import loops_of
from anabranch.net.net import Net

WAITS_SHOWN = 40


class Waits(msgspec.Struct, frozen=True):
    """Why it is not finished; of very many the first ones, and how many there are."""

    shown: list[tuple[Unfinished, set[str]]]  # and what the page offers to do about it
    total: int


def waits_of(net: Net, state: State) -> Waits:
    found = explain(net, state)
    return Waits([(one, _can(one)) for one in found[:WAITS_SHOWN]], len(found))


def _can(wait: Unfinished) -> set[str]:
    """What the page offers to do about it: verbs, and where to look closer."""
    can: set[str] = {one.verb for one in wait.movers if one.verb in ("decide", "patch", "wake")}
    if wait.what == "loop":
        can.add("items")
    if wait.slots or wait.what == "gather":
        can.add("slots")
    return can


def statuses_of(state: State) -> dict[str, list[Any]]:
    """step → its last status, how often it ran, and how many tokens are there now."""
    here = Counter(token.step for token in state.tokens.values())
    return {
        name: [tally.statuses[-1], tally.runs, here[name]] for name, tally in state.steps.items()
    }


def joins_of(state: State) -> dict[str, list[Any]]:
    """target → what the picture says at its join, and how it looks."""
    shown: dict[str, list[Any]] = {}
    for record in state.joins.values():
        if record.kind == "join" and record.verdict != "open":
            look = "done" if record.verdict == "closed" else "failed"
            shown[record.target] = [record.verdict, look]
    for gather in state.gathers.values():
        if gather.kind == "join" and gather.verdict == "open":
            shown[gather.target] = [f"{len(gather.filled)}/{needed(gather)}", "waiting"]
    return shown


def loop_rows(state: State, now: int) -> list[dict[str, Any]]:
    """Every loop, each with all the fields a page asks for."""
    nothing = {
        "in_flight": 0, "shards_in_flight": 0, "per_second": None, "seconds_left": None,
        "window": None, "stopped": "",
    }  # fmt: skip
    rows = []
    for row in loops_of(state, now):
        tracker = state.loops.get(row["loop"])
        more: dict[str, Any] = {}
        if row["total"] is not None and row["total"] < 0:
            more["total"] = None
        if tracker is not None:
            more |= {"window": tracker.window, "stopped": tracker.stopped}
        known = {**nothing, **row, **more}
        done, total = known["succeeded"] + known["failed"], known["total"]
        known["pending"] = None if total is None else max(0, total - done - known["in_flight"])
        rows.append(known)
    return rows


def counts_of(state: State) -> dict[str, int]:
    """How far the run is, in step runs."""
    counts = state.counts
    return {
        "live": len(state.tokens),
        "finished": counts.finished,
        "failed": counts.failed,
        "jobs": len(state.jobs),
    }


class Moving(msgspec.Struct, frozen=True):
    """What a page of a run is told again and again: only what differs from the last time."""

    seq: int
    status: str
    finished: bool
    troubled: bool
    updated_at: int
    ended_at: int
    steps: dict[str, list[Any]]
    joins: dict[str, list[Any]]
    counts: dict[str, int]


def _troubled(state: State) -> bool:
    """It did not end well: the page says so at the top, with what can be done."""
    wrong = bool(state.faults) or state.problem is not None
    return state.finished and wrong and status_of(state) != "completed"


def moving_of(state: State) -> Moving:
    return Moving(
        seq=state.seq,
        status=status_of(state),
        finished=state.finished,
        troubled=_troubled(state),
        updated_at=state.updated_at,
        ended_at=state.finished_at,
        steps=statuses_of(state),
        joins=joins_of(state),
        counts=counts_of(state),
    )


def changes(now: Moving, before: Moving | None) -> dict[str, Any]:
    """For the page that has seen `before`."""
    told: dict[str, Any] = {
        "seq": now.seq,
        "status": now.status,
        "finished": now.finished,
        "troubled": now.troubled,
        "updated_at": now.updated_at,
        "ended_at": now.ended_at,
        "counts": now.counts,
    }
    if before is None:
        return {**told, "steps": now.steps, "joins": now.joins}
    told["steps"] = {k: v for k, v in now.steps.items() if before.steps.get(k) != v}
    told["joins"] = {k: v for k, v in now.joins.items() if before.joins.get(k) != v}
    return told

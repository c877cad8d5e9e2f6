"""What the pages of a run show, from its net and state. Everything live is made here, once."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import astuple

from anabranch.kernel.explain import Unfinished, explain
from anabranch.kernel.gather import needed
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import State
from anabranch.kernel.step_status import step_statuses
from anabranch.kernel.summary import loops_of, problems_of
from anabranch.net.net import Net
from anabranch.operations.read.on_clusters import (
    Clusters,
    JobPlace,
    PoolPlace,
    cluster_name,
    placed,
)
from anabranch.operations.read.waiting import with_processes
from anabranch.work.kinds.python.places import Places

WAITS_SHOWN = 40


class Wait(msgspec.Struct, frozen=True):
    one: Unfinished
    can: set[str]  # what the page offers to do about it
    cluster: JobPlace | None = None  # of a job that a compute cluster does
    more: int = 0  # jobs that wait for that cluster for the same reason


class Waits(msgspec.Struct, frozen=True):
    """Why it is not finished; of very many the first ones, and how many there are."""

    shown: list[Wait]
    total: int
    waiting: bool = True  # one of them waits for something, and is not only at work

    @property
    def hidden(self) -> int:
        return self.total - sum(1 + one.more for one in self.shown)


def waits_of(
    net: Net, state: State, clusters: Clusters | None, processes: Places | None, now: int
) -> Waits:
    found = [with_processes(net, state, one, processes) for one in explain(net, state)]
    shown: list[Wait] = []
    for one in found[:WAITS_SHOWN]:
        wait = _wait(state, one, clusters, now)
        if shown and _is_alike(shown[-1], wait):
            shown[-1] = msgspec.structs.replace(shown[-1], more=shown[-1].more + 1)
        else:
            shown.append(wait)
    return Waits(shown, len(found), not all(one.at_work for one in found))


def _is_alike(before: Wait, wait: Wait) -> bool:
    """Both are jobs of a step that the same cluster is to do, and does not have."""
    if wait.cluster is None or wait.cluster.task:
        return False
    known, new = before.one, wait.one
    return (known.step, known.waits_for) == (new.step, new.waits_for)


def _wait(state: State, one: Unfinished, clusters: Clusters | None, now: int) -> Wait:
    if clusters is None:
        return Wait(one, _can(one))
    told, place = placed(state, one, clusters, now)
    return Wait(told, _can(told), place)


class LoopPlace(msgspec.Struct, frozen=True):
    """The compute cluster that does the shards of a loop, and how many of them it has."""

    name: str
    pool: str
    place: PoolPlace
    running: int
    queued: int


def loop_place(net: Net, state: State, loop: str, clusters: Clusters | None) -> LoopPlace | None:
    """None where no cluster does it, or no longer."""
    tracker = state.loops.get(loop)
    if clusters is None or tracker is None:
        return None
    work = net.steps[state.looped[loop].step].work
    place = clusters.of_pool(work.pool) if work is not None and work.pool else None
    if work is None or place is None:
        return None
    found = (clusters.of_job(state.run, job) for job in tracker.in_flight)
    workers = [one.worker for one in found if one is not None]
    running = sum(map(bool, workers))
    return LoopPlace(cluster_name(place), work.pool, place, running, len(workers) - running)


_OFFERED = ("decide", "patch", "wake", "signal")


def _can(wait: Unfinished) -> set[str]:
    """What the page offers to do about it: verbs, and where to look closer."""
    can: set[str] = {one.verb for one in wait.movers if one.verb in _OFFERED}
    if wait.what == "loop":
        can.add("items")
    if wait.slots or wait.what == "gather":
        can.add("slots")
    return can


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
    problems: int
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
        problems=problems_of(state),
        updated_at=state.updated_at,
        ended_at=state.finished_at,
        steps={name: list(astuple(one)) for name, one in step_statuses(state).items()},
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
        "problems": now.problems,
        "updated_at": now.updated_at,
        "ended_at": now.ended_at,
        "counts": now.counts,
    }
    if before is None:
        return {**told, "steps": now.steps, "joins": now.joins}
    told["steps"] = {k: v for k, v in now.steps.items() if before.steps.get(k) != v}
    told["joins"] = {k: v for k, v in now.joins.items() if before.joins.get(k) != v}
    return told

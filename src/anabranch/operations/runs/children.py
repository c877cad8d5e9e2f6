"""The children of a run: what it waits for by way of them, as deep as it goes, those that it has
begun and does not wait for, and all of them that have not ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from anabranch.kernel.explain import LOOKED_AT, Mover, Unfinished, explain
from anabranch.kernel.state import Job, State
from anabranch.net.net import Net
from anabranch.store.ports import Head, HeadFilter, Store

CHILDREN_SHOWN = 50
DEPTH_MAX = 1_000  # of children of children
LOOKED_AT_INSIDE = 3  # children of each child
PAGE = 1_000
#: Finds the child run that a job is parked for; None where it is none, or has ended.
FindChild = Callable[[State, Job], tuple[Net, State] | None]


def through_children(
    found: Iterable[Unfinished], state: State, find: FindChild, at_most: int = LOOKED_AT
) -> list[Unfinished]:
    """Of very many children only the first are looked at: each is read from the store."""
    told, looked = [], 0
    for one in found:
        job = state.jobs.get(one.id) if one.what == "job" else None
        child = None
        if job is not None and job.phase == "parked" and looked < at_most:
            child = find(state, job)
            looked += child is not None
        told.append(one if child is None else _through_child(one, *child, find))
    return told


def _through_child(one: Unfinished, net: Net, inner: State, find: FindChild) -> Unfinished:
    found = through_children(explain(net, inner), inner, find, LOOKED_AT_INSIDE)
    still = [each for each in found if not each.at_work]
    if not still:
        movers = (Mover("", f"run {inner.run}"),)
        return replace(one, waits_for=f"its child run {inner.run}, at work", movers=movers)
    first = still[0]
    what = " ".join(filter(None, (first.step, "waits for", first.waits_for)))
    more = f"; and {len(still) - 1} more there" if len(still) > 1 else ""
    waits_for = f"its child run {inner.run}: {what}{more}"
    return replace(one, waits_for=waits_for, movers=first.movers)


# -- those that it does not wait for -----------------------------------------------------------


class ChildRun(msgspec.Struct, frozen=True):
    """A run that a task began without waiting for it."""

    run: str
    name: str
    status: str
    reason: str
    finished: bool


def begun_children(store: Store, load: Callable[[Head], State], run: str) -> list[ChildRun]:
    """Those of the run and of its children that have not ended well, those at work first."""
    # The id of a child begins with that of its run; so may an id that somebody chose.
    heads = [
        *store.heads(HeadFilter(run_prefix=f"{run}-", statuses=_OPEN, limit=CHILDREN_SHOWN)),
        *store.heads(HeadFilter(run_prefix=f"{run}-", statuses=_WRONG, limit=CHILDREN_SHOWN)),
    ]
    lineage = _Lineage(store, load, run)
    return [
        ChildRun(head.run, head.name, head.status, head.reason, head.finished)
        for head in heads
        if head.parent is None and lineage.awaits(head) is not None
    ]


_OPEN = ("running", "queued", "waiting", "paused")
_WRONG = ("failed", "partial", "cancelled", "deadline_exceeded", "step_timeout")


class _Lineage:
    """Which runs a run has begun, by itself or by way of those that it has begun."""

    def __init__(self, store: Store, load: Callable[[Head], State], run: str) -> None:
        self._store = store
        self._load = load
        self._known: dict[str, bool | None] = {run: True, "": None}

    def awaits(self, head: Head) -> bool | None:
        """Whether the run waits for this one; None where it has not begun it."""
        path: list[tuple[str, bool]] = []
        at: Head | None = head
        by = head.run
        while by not in self._known and at is not None and len(path) < DEPTH_MAX:
            by, waits = self._begun_by(at)
            path.append((at.run, waits and not at.finished))
            at = self._store.head(by) if by not in self._known else None
        found = self._known.get(by)
        for each, waits in reversed(path):
            found = None if found is None else found and waits
            self._known[each] = found
        return found

    def _begun_by(self, head: Head) -> tuple[str, bool]:
        """By which run, and whether that waits for it."""
        if head.parent is not None:
            return head.parent.partition("/")[0], True
        return self._load(head).begun_by, False


# -- all that have not ended -------------------------------------------------------------------


class Relative(msgspec.Struct, frozen=True):
    """An unfinished run that a run has begun, by itself or by way of others."""

    head: Head
    awaited: bool  # the run cannot end before it has


def unfinished_family(store: Store, load: Callable[[Head], State], run: str) -> Iterator[Relative]:
    """Children, and theirs, as deep as it goes, the newest first. Without them a run that waits
    for one of them does not move."""
    lineage = _Lineage(store, load, run)
    wanted = HeadFilter(run_prefix=f"{run}-", statuses=_OPEN, limit=PAGE)
    while page := store.heads(wanted):
        for head in page:
            awaited = lineage.awaits(head)
            if awaited is not None:
                yield Relative(head, awaited)
        last = page[-1]
        wanted = replace(wanted, before=(last.created_at, last.run))

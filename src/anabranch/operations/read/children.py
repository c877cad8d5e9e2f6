"""What a run waits for by way of its children: what they wait for, as deep as it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from anabranch.kernel.explain import Mover, Unfinished, explain
from anabranch.kernel.state import Job, State
from anabranch.net.net import Net

#: Finds the child run that a job is parked for; None where it is none, or has ended.
FindChild = Callable[[State, Job], tuple[Net, State] | None]


def through_children(
    found: Iterable[Unfinished], state: State, find: FindChild
) -> list[Unfinished]:
    return [_through_child(one, state, find) for one in found]


def _through_child(one: Unfinished, state: State, find: FindChild) -> Unfinished:
    job = state.jobs.get(one.id) if one.what == "job" else None
    child = find(state, job) if job is not None and job.phase == "parked" else None
    if child is None:
        return one
    net, inner = child
    found = through_children(explain(net, inner), inner, find)
    still = [each for each in found if not each.at_work]
    if not still:
        movers = (Mover("", f"run {inner.run}"),)
        return replace(one, waits_for=f"its child run {inner.run}, at work", movers=movers)
    first = still[0]
    what = " ".join(filter(None, (first.step, "waits for", first.waits_for)))
    more = f"; and {len(still) - 1} more there" if len(still) > 1 else ""
    waits_for = f"its child run {inner.run}: {what}{more}"
    return replace(one, waits_for=waits_for, movers=first.movers)

"""Jobs of pools that a compute cluster does: where they are, in the words of `explain`.

Only the engine that gave a job to the cluster knows that; for a reader of the store alone, such a
job is out with a worker like any other.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from anabranch.kernel.explain import Mover, Unfinished
from anabranch.kernel.state import State


class PoolPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster that does the jobs of a pool, as far as one of them asks."""

    engine: str  # "dask" or "ray"
    address: str  # as people write it: dask://host:8786
    state: str  # "connecting", "open", "away" or "unfit"
    since: int  # when that began
    reason: str = ""
    dashboard: str = ""
    workers: int = 0
    slots: int = 0
    out: int = 0  # jobs that it has


class JobPlace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cluster that has a job, or that its pool waits for."""

    engine: str
    address: str
    state: str
    dashboard: str = ""  # the cluster's own pages
    task: str = ""  # its name there; empty while the cluster does not have it
    worker: str = ""  # of the cluster; empty while none has begun it


class TaskPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a cluster has."""

    pool: str
    task: str
    since: int  # when it was given to the cluster
    worker: str = ""


class Clusters(Protocol):
    """What an engine knows of its clusters. Any thread may ask."""

    def pools(self) -> list[str]:
        """Those that clusters do."""

    def of_pool(self, pool: str) -> PoolPlace | None:
        """None where workers of our own do the pool."""

    def of_job(self, run: str, job: str) -> TaskPlace | None:
        """None where no cluster has it."""


def placed(
    state: State, one: Unfinished, clusters: Clusters, now: int
) -> tuple[Unfinished, JobPlace | None]:
    """The same, with where the job is in its words, and that by itself."""
    if one.what != "job":
        return one, None
    task = clusters.of_job(state.run, one.id)
    pool = task.pool if task is not None else one.pool
    place = clusters.of_pool(pool) if pool else None
    if place is None:
        return one, None
    if task is None:
        return _waits(one, place, now), _job_place(place, task)
    told = _out(one, task, place, now)
    job = state.jobs.get(one.id)
    until = job.until if job is not None else 0  # the lease is no limit of the work
    return msgspec.structs.replace(told, until=until or None), _job_place(place, task)


def _job_place(place: PoolPlace, task: TaskPlace | None) -> JobPlace:
    return JobPlace(
        engine=place.engine,
        address=place.address,
        state=place.state,
        dashboard=place.dashboard,
        task=task.task if task is not None else "",
        worker=task.worker if task is not None else "",
    )


def _out(one: Unfinished, task: TaskPlace, place: PoolPlace, now: int) -> Unfinished:
    """The cluster has it: at work there, or in its queue."""
    at = cluster_name(place)
    if task.worker:
        said = f"{one.waits_for}, on {at}, worker {task.worker}, task {task.task}"
        return _replaced(one, said, at)
    said = f"a worker of {at}: task {task.task} is in its queue {_ago(task.since, now)}"
    told = _replaced(one, said + _attempt(one) + _trouble(place, now), at)
    return msgspec.structs.replace(told, at_work=False, queued=True)


def _waits(one: Unfinished, place: PoolPlace, now: int) -> Unfinished:
    """The engine has not given it to the cluster: there is no room there, or no contact."""
    at = cluster_name(place)
    match place.state:
        case "open" if not place.slots:
            what = f"{at}, which has no worker now"
        case "open":
            what = (
                f"room at {at}: it has {counted(place.out, 'job')} and does {place.slots:,} at once"
            )
        case "unfit":
            what = f"{at}, which cannot do it: {place.reason}"
        case "away":
            what = f"{at}, away {_ago(place.since, now)}: {place.reason}"
        case _:
            what = f"{at}, which has not answered yet"
    if place.state == "open" and place.reason:
        what = f"{what}; {place.reason}"
    return _replaced(one, one.waits_for.replace(f"a worker of pool {one.pool}", what, 1), at)


def _replaced(one: Unfinished, said: str, mover: str) -> Unfinished:
    return msgspec.structs.replace(one, waits_for=said, movers=(Mover("", mover),))


def _attempt(one: Unfinished) -> str:
    """As the kernel says it: ` (attempt 2)`."""
    _, found, rest = one.waits_for.partition(" (attempt ")
    return f"{found}{rest.partition(')')[0]})" if found else ""


def _trouble(place: PoolPlace, now: int) -> str:
    if place.state == "open":
        return f"; {place.reason}" if place.reason else ""
    why = f": {place.reason}" if place.reason else ""
    return f"; the cluster is {place.state} {_ago(place.since, now)}{why}"


def cluster_name(place: PoolPlace | JobPlace) -> str:
    return named(place.engine, place.address)


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' if number != 1 else ''}"


def named(engine: str, address: str) -> str:
    """A cluster as people say it: `dask at host:8786`, `ray:auto`."""
    scheme, separator, where = address.partition("://")
    if not separator:
        scheme, _, where = address.partition(":")
        if where == "auto":
            return address
    secure = " (tls)" if scheme.endswith("+tls") else ""
    return f"{engine} at {where}{secure}"


def _ago(at: int, now: int) -> str:
    return f"for {max(0, now - at) // 1000:,} s"

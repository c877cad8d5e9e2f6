"""Who works for an engine: the workers that asked it, and the engine itself.

Nothing of this is durable. A server knows the workers that asked it since it started; one that is
at work for another server of the same store is in the list of that one.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.jobs.dispatchers import is_dispatcher
from anabranch.runtime.jobs.pool_queues import WorkerReport
from anabranch.version import __version__
from anabranch.work.kinds.python.places import places_of
from anabranch.work.port import Performer

#: A worker that waits for jobs asks again within 60 s; after twice that it is not heard.
SILENT_MS = 120_000
JOBS_SHOWN = 100  # of a worker
_OURS = frozenset(("pipeline", "loop.shard", "loop.cut"))  # how work is put together


class JobOfWorker(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    job: str
    pool: str
    lease_until: int


class WorkerCard(msgspec.Struct, frozen=True, kw_only=True):
    """A worker. What it says of itself is empty where it says nothing."""

    worker: str
    state: Literal["busy", "idle", "silent"]
    pools: list[str]
    host: str
    pid: int
    version: str
    places: int  # jobs at once; 0: unknown
    kinds: list[str]  # of work that it can do
    at_work: int  # jobs that it has now
    jobs: list[JobOfWorker]  # the first of them
    seen_at: int  # when it was last heard; 0: not since this server started


class JobInProcess(msgspec.Struct, frozen=True, kw_only=True):
    """Inline code at work in a process."""

    run: str
    step: str
    seconds: float  # since when


class PythonWork(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of inline Python code. There are more of them while some only wait."""

    places: int  # just now
    most: int  # that there can be
    at_work: int
    queued: int  # jobs that wait for one
    jobs: list[JobInProcess]  # the longest first, and of very many the first


class ServerWork(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that the server does itself: those of steps without a pool."""

    host: str
    pid: int
    version: str
    places: int
    kinds: list[str]
    at_work: int
    queued: int  # jobs that wait for a place
    python: PythonWork | None  # none where it does not do that kind


class WorkerCards:
    """One per question. `performers` are those of the engine itself."""

    def __init__(self, engine: EngineLoop, performers: Mapping[str, Performer]) -> None:
        self._engine = engine
        self._kinds = performers.keys()
        self._places = places_of(performers.get("python"))

    def all(self) -> list[WorkerCard]:
        """The last one heard first, and then those of whom only a lease is known."""
        now, jobs = self._engine.clock.now(), self._jobs()
        known = [
            (name, one.seen_at, sorted(one.pools), one.about)
            for name, one in self._engine.pools.all_workers()
            if not is_dispatcher(name)
        ]
        known.sort(key=lambda one: one[1], reverse=True)
        named = {name for name, *_ in known}
        known += [
            (name, 0, sorted({one.pool for one in mine}), WorkerReport())
            for name, mine in jobs.items()
            if name not in named and not is_dispatcher(name)
        ]
        return [
            _card(name, seen, pools, about, jobs.get(name, []), now)
            for name, seen, pools, about in known
        ]

    def _jobs(self) -> dict[str, list[JobOfWorker]]:
        found: dict[str, list[JobOfWorker]] = {}
        for (run, job), lease in self._engine.pools.leases():
            one = JobOfWorker(run=run, job=job, pool=lease.pool, lease_until=lease.until)
            found.setdefault(lease.worker, []).append(one)
        return found

    def server(self) -> ServerWork:
        queues = self._engine.job_queues
        return ServerWork(
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            places=queues.places,
            kinds=kinds_of(self._kinds),
            at_work=queues.at_work,
            queued=queues.queued,
            python=self._python(),
        )

    def _python(self) -> PythonWork | None:
        places, waiting = self._places, self._engine.job_queues.waiting()
        if places is None:
            return None
        taken, now = places.taken, time.monotonic()
        return PythonWork(
            places=places.size,
            most=places.most,
            at_work=len(taken),
            queued=places.queued() + waiting.get("python", 0),
            jobs=[
                JobInProcess(run=one.run, step=one.step, seconds=round(now - one.since, 3))
                for one in taken[:JOBS_SHOWN]
            ],
        )


def _card(
    name: str, seen: int, pools: list[str], about: WorkerReport, jobs: list[JobOfWorker], now: int
) -> WorkerCard:
    silent = now - seen > SILENT_MS
    return WorkerCard(
        worker=name,
        state="busy" if jobs else "silent" if silent else "idle",
        pools=pools,
        host=about.host,
        pid=about.pid,
        version=about.version,
        places=about.places,
        kinds=sorted(about.kinds),
        at_work=len(jobs),
        jobs=jobs[:JOBS_SHOWN],
        seen_at=seen,
    )


def kinds_of(performers: Iterable[str]) -> list[str]:
    """The kinds of work that somebody can do, as people name them."""
    return sorted(set(performers) - _OURS)

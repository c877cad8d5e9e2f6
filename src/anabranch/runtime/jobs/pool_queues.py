"""Pools: the jobs that workers from outside do, waiting to be claimed or out under a lease.

Nothing here is durable. The log says which jobs are scheduled and who holds which lease, so this
index is made anew from the runs that recovery brings into memory, and a job costs no row that would
have to be written when it is scheduled and deleted when it is claimed. Runs with such jobs stay in
memory until the jobs are done.

Runs of a higher priority come first. Between others the order is fair: each claim goes round the
runs and takes one job of each in turn.
Within a run it is first come, first served.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterator, Set
from typing import Annotated, NamedTuple

import msgspec

from anabranch.runtime.jobs.concurrency import ReadyJob

WORKERS_KEPT = 1000  # of a pool: those who asked last
POOLS_OF_WORKER = 100  # those that it asked for last
ASKED_KEPT = 20_000  # pairs of a pool and a worker that asked for it, over all pools
POOLS_KEPT = 1000  # without jobs: any name can be asked for
KINDS_MAX = 500  # that a worker says to know
EVERY_POOL = "*"
COME_SECONDS = 0.1  # from the news that a job waits until it is claimed, as a rule


class Lease(NamedTuple):
    """Who has a job, and until when."""

    pool: str
    worker: str
    until: int


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker says of itself, for people: nothing is decided by it."""

    host: str = ""
    pid: int = 0
    version: str = ""
    places: int = 0  # jobs at once
    #: Of work that it can do.
    kinds: Annotated[list[str], msgspec.Meta(max_length=KINDS_MAX)] = []


class WorkerRecord(msgspec.Struct):
    """A worker that asked since the engine started."""

    seen_at: int
    about: WorkerReport
    pools: OrderedDict[str, None]  # the last one asked for last


class PoolQueue:
    """The jobs of one pool that wait."""

    def __init__(self) -> None:
        #: By priority the runs with jobs that wait, and the priorities of runs that have one.
        self.ranks: dict[int, OrderedDict[str, OrderedDict[str, tuple[int, int]]]] = {}
        self.priorities: dict[str, int] = {}
        self.size = 0
        self.waiters: deque[asyncio.Future[None]] = deque()
        self.workers: OrderedDict[str, int] = OrderedDict()  # name → when it asked last
        self.asked_at = 0
        self.used = False  # a job of this pool was seen

    def add(self, run: str, job: str, attempt: int, since: int, priority: int = 0) -> None:
        if priority:
            self.priorities[run] = priority
        jobs = self.ranks.setdefault(priority, OrderedDict()).setdefault(run, OrderedDict())
        self.size += job not in jobs
        self.used = True
        jobs[job] = (attempt, since)

    def drop(self, run: str, job: str) -> None:
        rank = self.priorities.get(run, 0)
        jobs = self.ranks[rank].get(run) if rank in self.ranks else None
        if jobs is None or jobs.pop(job, None) is None:
            return
        self.size -= 1
        if not jobs:
            self._leave(rank, run)

    def _leave(self, rank: int, run: str) -> None:
        """No job of the run waits any more."""
        del self.ranks[rank][run]
        self.priorities.pop(run, None)
        if not self.ranks[rank]:
            del self.ranks[rank]

    def take(self) -> ReadyJob | None:
        """The first job of the run whose turn it is; the run goes to the end of the line."""
        if not self.ranks:
            return None
        rank = max(self.ranks)
        run, jobs = next(iter(self.ranks[rank].items()))
        job, (attempt, _) = jobs.popitem(last=False)
        self.size -= 1
        if jobs:
            self.ranks[rank].move_to_end(run)
        else:
            self._leave(rank, run)
        return ReadyJob(run, job, attempt)

    def oldest(self) -> int:
        """Since when the job waits that has waited longest; 0 when there is none."""
        runs = (jobs for rank in self.ranks.values() for jobs in rank.values())
        firsts = (next(iter(jobs.values()))[1] for jobs in runs)
        return min(firsts, default=0)

    def call(self) -> None:
        """Somebody who waits may look again."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


class PoolQueues:
    """`here` names the pools whose jobs the engine does itself; `*` is all of them."""

    def __init__(self, here: str = "") -> None:
        self._here = frozenset(here.replace(",", " ").split())
        self._lines: dict[str, PoolQueue] = {}
        self._waiting: dict[tuple[str, str], str] = {}  # (run, job) → pool
        self._leases: dict[tuple[str, str], Lease] = {}
        self._leases_of: dict[str, dict[tuple[str, str], Lease]] = {}  # the same by pool
        self._asked: OrderedDict[tuple[str, str], None] = OrderedDict()  # (pool, worker)
        self._workers: OrderedDict[str, WorkerRecord] = OrderedDict()  # the last one seen last
        self._closed = False

    def outside(self, pool: str) -> bool:
        """Whether jobs of this pool wait for workers from outside."""
        return bool(pool) and pool not in self._here and EVERY_POOL not in self._here

    # -- what the engine records -------------------------------------------------------------

    def add(
        self, run: str, job: str, attempt: int, pool: str, since: int, priority: int = 0
    ) -> None:
        line = self._line(pool)
        line.add(run, job, attempt, since, priority)
        self._waiting[run, job] = pool
        line.call()

    def lend(self, run: str, job: str, lease: Lease) -> None:
        """A worker has it, or has it for longer."""
        self._wait_no_more(run, job)
        if (known := self._leases.get((run, job))) is not None and known.pool != lease.pool:
            self._take_back(run, job)
        self._leases[run, job] = lease
        self._leases_of.setdefault(lease.pool, {})[run, job] = lease

    def _take_back(self, run: str, job: str) -> None:
        lease = self._leases.pop((run, job), None)
        if lease is None:
            return
        of_pool = self._leases_of[lease.pool]
        del of_pool[run, job]
        if not of_pool:
            del self._leases_of[lease.pool]

    def drop(self, run: str, job: str) -> None:
        """Nobody waits for it and nobody has it."""
        if self._waiting:
            self._wait_no_more(run, job)
        if self._leases:
            self._take_back(run, job)

    def forget(self, runs: Set[str]) -> None:
        """The runs are set aside, or another server's."""
        for key in [key for key in (*self._waiting, *self._leases) if key[0] in runs]:
            self.drop(*key)

    def _wait_no_more(self, run: str, job: str) -> None:
        pool = self._waiting.pop((run, job), None)
        if pool is not None:
            self._lines[pool].drop(run, job)

    def _line(self, pool: str) -> PoolQueue:
        line = self._lines.get(pool)
        if line is None:
            if len(self._lines) >= POOLS_KEPT:
                self._forget_an_idle_pool()
            line = self._lines[pool] = PoolQueue()
        return line

    def _forget_an_idle_pool(self) -> None:
        """One that no job was seen of, if there is such; of those the one not asked for longest."""
        idle = [one for one in self._lines.items() if not one[1].size and not one[1].waiters]
        if idle:
            name, _ = min(idle, key=lambda one: (one[1].used, one[1].asked_at))
            del self._lines[name]

    # -- what workers ask --------------------------------------------------------------------

    def take(self, pool: str, most: int) -> Iterator[ReadyJob]:
        """Up to so many jobs that wait; they wait no more, and are started or refused next."""
        line = self._lines.get(pool)
        while line is not None and most > 0 and (ready := line.take()) is not None:
            del self._waiting[ready.run, ready.job]
            most -= 1
            yield ready

    def saw(self, pool: str, worker: str, at: int, about: WorkerReport | None = None) -> None:
        """A worker asked for jobs of this pool."""
        self._remember(pool, worker, at, about)
        line = self._line(pool)
        line.asked_at = at
        workers = line.workers
        workers[worker] = at
        workers.move_to_end(worker)
        while len(workers) > WORKERS_KEPT:
            workers.popitem(last=False)
        self._asked[pool, worker] = None
        self._asked.move_to_end((pool, worker))
        if len(self._asked) > ASKED_KEPT:
            self._forget_who_asked(*self._asked.popitem(last=False)[0])

    def _forget_who_asked(self, pool: str, worker: str) -> None:
        if (line := self._lines.get(pool)) is not None:
            line.workers.pop(worker, None)

    def _remember(self, pool: str, worker: str, at: int, about: WorkerReport | None) -> None:
        known = self._workers.get(worker)
        if known is None:
            known = self._workers[worker] = WorkerRecord(at, WorkerReport(), OrderedDict())
            if len(self._workers) > WORKERS_KEPT:
                self._workers.popitem(last=False)
        known.pools[pool] = None
        known.pools.move_to_end(pool)
        if len(known.pools) > POOLS_OF_WORKER:
            known.pools.popitem(last=False)
        known.about = about or known.about
        self.heard(worker, at)

    def heard(self, worker: str, at: int) -> None:
        """It said something of a job that it has."""
        known = self._workers.get(worker)
        if known is not None:
            known.seen_at = at
            self._workers.move_to_end(worker)

    async def wait(self, pool: str, seconds: float, *, takes: bool = True) -> None:
        """Until a job of this pool waits, or time is up. Whoever only wants to know and `takes`
        none here gets a moment to come and take it, before the next one is woken for it."""
        line = self._line(pool)
        if self.waiting(pool) or self._closed:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.waiters.append(waiter)
        try:
            await asyncio.wait((waiter,), timeout=seconds)
        finally:
            if waiter in line.waiters:
                line.waiters.remove(waiter)
            elif line.size and takes:
                line.call()  # there may be more than one worker takes: wake the next one too
            elif line.size:
                asyncio.get_running_loop().call_later(COME_SECONDS, self._call_if_left, pool)

    def _call_if_left(self, pool: str) -> None:
        line = self._lines.get(pool)
        if line is not None and line.size:
            line.call()

    def close(self) -> None:
        """The engine stops: nobody waits any longer."""
        self._closed = True
        for line in self._lines.values():
            while line.waiters:
                line.call()

    @property
    def closed(self) -> bool:
        return self._closed

    # -- what people see ---------------------------------------------------------------------

    def names(self) -> list[str]:
        return sorted({*self._lines, *self._leases_of})

    @property
    def is_used(self) -> bool:
        """Whether any pool was seen: one with jobs, or that a worker asked for."""
        return bool(self._lines or self._leases)

    def used(self, pool: str) -> bool:
        """Whether any job of this pool was seen since the engine started."""
        line = self._lines.get(pool)
        return (line is not None and line.used) or pool in self._leases_of

    def waiting(self, pool: str) -> int:
        return self._lines[pool].size if pool in self._lines else 0

    def oldest(self, pool: str) -> int:
        return self._lines[pool].oldest() if pool in self._lines else 0

    def workers(self, pool: str) -> dict[str, int]:
        """Those who asked for jobs of this pool since the engine started, and when last."""
        return dict(self._lines[pool].workers) if pool in self._lines else {}

    def all_workers(self) -> list[tuple[str, WorkerRecord]]:
        """Every worker that asked since the engine started, the last one seen first."""
        return list(reversed(self._workers.items()))

    def asked(self, pool: str) -> int:
        """When a worker last asked for jobs of this pool; 0 for never. Any thread may ask."""
        line = self._lines.get(pool)
        return line.asked_at if line is not None else 0

    def leases(self) -> Iterator[tuple[tuple[str, str], Lease]]:
        """((run, job), lease) of everything that is out."""
        yield from self._leases.items()

    def leases_of(self, pool: str) -> Iterator[tuple[tuple[str, str], Lease]]:
        yield from self._leases_of.get(pool, {}).items()

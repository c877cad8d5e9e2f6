"""What workers elsewhere ask: jobs of their pool, more time, and to be heard.

    claim ─▶ (work, heartbeat, progress) ─▶ report │ fail │ park │ release

A claim is durable before a job leaves: its start and its lease are in the log. Whatever a worker
says names the run, the job and the attempt; what is not about the attempt that is out is refused
and changes nothing, so saying it twice is safe. A job whose lease runs out is lost, and goes out
again under the next attempt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from anabranch.errors import InputError, Refused
from anabranch.kernel import stimuli as s
from anabranch.kernel.jobs import work_of
from anabranch.kernel.values import Answer
from anabranch.operations.logs.batches import clean_batches
from anabranch.operations.workers.cancel_watch import CancelWatch
from anabranch.operations.workers.claims import (
    Claims,
    Keyring,
    ReadItems,
    check_lease,
    lease_seconds_of,
)
from anabranch.operations.workers.job_data import JobData
from anabranch.operations.workers.leases import (
    LeaseClaim,
    pool_of,
    require_lease_holder,
    require_reader,
)
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.jobs.dispatchers import is_dispatcher
from anabranch.runtime.log_writer import AttemptBatch
from anabranch.store.cluster_ports import ServerRecord
from anabranch.work.logs.attempt_log import LogBatch
from anabranch.work.rate_limits import RateLimits
from anabranch.work.secrets.credential_sources import Credential

PROGRESS_BYTES_MAX = 4096
LATE_LETTERS = 200  # of who was late, and of what it came to
LATE_READ = 4096  # letters in which a secret is looked for

FindCredential = Callable[[str], Awaitable[Credential]]


class Beat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a heartbeat. A worker whose job is cancelled stops and releases it."""

    stop: bool = msgspec.field(default=False)
    lease_until: int = 0
    reason: str = ""


class LeasedJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    run: str
    job: str
    worker: str
    lease_until: int
    progress: Any = None


class WorkerSeen(msgspec.Struct, frozen=True, kw_only=True):
    worker: str
    asked_at: int


class PoolState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a pool."""

    pool: str
    waiting: int
    waiting_since: int  # of the job that has waited longest; 0 when none does
    leased: list[LeasedJob]
    workers: list[WorkerSeen]  # who asked since the engine started, the last one first


class WorkerApi:
    """One per engine. `supply` is for what the work needs."""

    def __init__(
        self,
        engine: EngineLoop,
        supplies: JobData,
        *,
        read_items: ReadItems,
        keyring: Keyring,
        find_credential: FindCredential,
        rates: RateLimits | None = None,
    ) -> None:
        self._engine = engine
        self.supply = supplies
        self._find_credential = find_credential
        claims = Claims(engine, read_items, keyring, rates)
        self._lookups_of = claims.lookups_of
        self.claim, self.withdraw, self.wait = claims.claim, claims.withdraw, claims.wait
        #: Pools whose jobs a compute cluster does, and where it is.
        self.on_clusters: dict[str, str] = {}
        self.watching = CancelWatch(engine)
        self.watch = self.watching.watch

    async def servers(self) -> list[tuple[ServerRecord, bool]]:
        """The servers that can be claimed from, each with other runs; True stands beside this one.
        Those that tell no URL cannot be asked."""
        directory = self._engine.directory
        found = [(one, one.id == directory.own_id) for one in await directory.servers()]
        return [(one, here) for one, here in found if here or one.url]

    async def owner_url(self, run: str) -> str:
        """Where the run of a job is; "" while no server has it."""
        return (await self._engine.directory.owner_urls([run]))[run]

    async def pool_of(self, out: LeaseClaim) -> str | None:
        """Whose pool a job is of; None where there is no such job."""
        return await pool_of(self._engine, out)

    def require_workers(self, pool: str, worker: str) -> None:
        """Refuse a worker of a pool whose jobs a cluster does: two would share its limits. And one
        that would be taken for a dispatcher: its leases would not outlive this server."""
        if is_dispatcher(worker):
            raise InputError(
                f"no worker may be called {worker[:200]!r}: so the server calls those of its own "
                "that give jobs to a cluster"
            )
        address = self.on_clusters.get(pool)
        if address is not None:
            raise Refused(
                f"the jobs of pool {pool[:200]!r} are done by the cluster at {address}; this "
                "server gives them to no worker",
                code="pool_on_cluster",
            )

    def close(self) -> None:
        """The server stops: nobody waits any longer."""
        self._engine.pools.close()
        self.watching.wake_all()

    async def credential(self, out: LeaseClaim, name: str) -> Credential:
        """A credential that a task of the job looks up by its name."""
        live, job = await require_reader(self._engine, out, "running")
        lookups = await self._lookups_of(live, job)
        lookups.require(job.step, name, partial(self._engine.rights.wrote, out.run))
        return await self._find_credential(name)

    # -- what workers say --------------------------------------------------------------------

    async def heartbeat(self, out: LeaseClaim, *, lease_seconds: float | None = None) -> Beat:
        """The worker is alive: its lease is extended, or it is told to stop."""
        check_lease(lease_seconds)
        live, job = require_lease_holder(self._engine, out)
        if job.phase == "cancelling":
            return Beat(stop=True, lease_until=job.lease, reason=job.reason)
        now = self._engine.clock.now()
        self._engine.pools.heard(out.worker, now)
        until = now + int(lease_seconds_of(live, job, lease_seconds) * 1000)
        await self._engine.send(out.run, s.JobExtend(out.job, out.attempt, until))
        return Beat(lease_until=max(until, job.lease))

    async def began(self, out: LeaseClaim) -> None:
        """A job that was claimed to be queued is being done: its time begins, if it has a limit."""
        live, job = require_lease_holder(self._engine, out, "running")
        if work_of(live.net.steps[job.step], job).timeout_ms is not None:
            began = s.JobExtend(out.job, out.attempt, job.lease, began=True)
            await self._engine.send(out.run, began)

    async def progress(self, out: LeaseClaim, progress: Any) -> None:
        """How far it is; kept with the job, shown by `explain`, told to whoever does it again."""
        size = len(msgspec.json.encode(progress))
        if size > PROGRESS_BYTES_MAX:
            raise InputError(
                f"the progress has {size:,} bytes, over the limit of {PROGRESS_BYTES_MAX:,}: "
                "keep counts, and put data where the work can find it",
                code="too_large",
            )
        require_lease_holder(self._engine, out, "running")
        await self._engine.hand_in(out.run, s.JobProgress(out.job, out.attempt, progress))

    def logs(self, out: LeaseClaim, batches: Sequence[LogBatch]) -> None:
        """What the job has printed since the last time; it is kept soon, and shown then. Said
        twice it is kept once."""
        self.keep_logs(out, clean_batches(batches, self.cleaner_of_logs(out)))

    def cleaner_of_logs(self, out: LeaseClaim) -> Callable[[str], str]:
        """What takes the secrets of its run out of a line; refused where nothing is kept of it."""
        live, _ = require_lease_holder(self._engine, out)
        if self._engine.logs.is_full:
            raise Refused("the store does not keep up with what is printed", code="logs_full")
        return live.sealed.clean_text()

    def keep_logs(self, out: LeaseClaim, batches: Sequence[LogBatch]) -> None:
        """What was checked and cleaned."""
        _, job = require_lease_holder(self._engine, out)
        key = out.run, out.job, out.attempt, job.step
        self._engine.logs.hand_in([AttemptBatch(*key, one) for one in batches])

    async def report(self, out: LeaseClaim, answer: Answer, *, payload: str = "") -> None:
        """The work is done, or has failed; returns when that is durable. The result may have been
        sent ahead as a payload."""
        _, job = require_lease_holder(self._engine, out)
        if answer.shard is not None and job.slot < 0:
            said = f"job {out.job} is no shard of a loop: leave `shard` out"
            raise InputError(said, code="shard")
        if payload:
            inline = bool(getattr(answer, "inline", False))
            result = await self.supply.whole(out, payload, inline=inline)
            answer = msgspec.structs.replace(answer, result=result)
        await self._engine.hand_in(out.run, s.JobReport(out.job, out.attempt, answer))

    async def park(self, out: LeaseClaim, park: s.JobPark) -> None:
        """Its answer will come later from elsewhere; the worker lets go."""
        require_lease_holder(self._engine, out)
        await self._engine.hand_in(out.run, park)

    async def release(self, out: LeaseClaim, reason: str = "", *, unbegun: bool = False) -> None:
        """The worker no longer has it: stopped as it was told, or handed back in order."""
        _, job = require_lease_holder(self._engine, out)
        if job.phase == "cancelling":
            await self._engine.send(out.run, s.JobDischarge(out.job))
            return
        why = reason or "its worker handed it back"
        given = s.JobLose(out.job, out.attempt, why, counted=False, unbegun=unbegun)
        await self._engine.hand_in(out.run, given)

    async def lose(self, out: LeaseClaim, reason: str, *, counted: bool, worker: bool) -> None:
        """Whoever did it for this worker is gone. `counted`: the work may be the cause."""
        require_lease_holder(self._engine, out)
        lost = s.JobLose(out.job, out.attempt, reason, counted=counted, worker=worker)
        await self._engine.hand_in(out.run, lost)

    def late(self, out: LeaseClaim, worker: str, outcome: str) -> None:
        """The attempt has ended, and the engine had given it up before: that is written down, if
        its run is not over. It is told in a word or two, cleaned as all that is said of a job."""
        live = self._engine.live_run(out.run)
        clean = live.sealed.clean_text() if live is not None else str
        said = [clean(text[:LATE_READ])[:LATE_LETTERS] for text in (worker, outcome)]
        self._engine.offer(out.run, s.JobLate(out.job, out.attempt, *said))

    # -- what people see ---------------------------------------------------------------------

    def names(self) -> list[str]:
        """Every pool with jobs, or for which a worker asked, since the engine started."""
        return self._engine.pools.names()

    def state(self, pool: str) -> PoolState:
        pools = self._engine.pools
        leased = [
            LeasedJob(
                run=run,
                job=job,
                worker=lease.worker,
                lease_until=lease.until,
                progress=self._progress(run, job),
            )
            for (run, job), lease in pools.leases_of(pool)
        ]
        workers = reversed(pools.workers(pool).items())
        return PoolState(
            pool=pool,
            waiting=pools.waiting(pool),
            waiting_since=pools.oldest(pool),
            leased=leased,
            workers=[WorkerSeen(worker=name, asked_at=at) for name, at in workers],
        )

    def _progress(self, run: str, job: str) -> Any:
        live = self._engine.live_run(run)
        found = live.state.jobs.get(job) if live is not None else None
        return _shown(found.progress) if found is not None else None


def _shown(progress: Any) -> Any:
    """Without what only another worker needs, to go on from there."""
    match progress:
        case {"done": int(done), "of": int(of)}:
            return {"done": done, "of": of}
        case _:
            return progress

"""What workers elsewhere ask: jobs of their pool, more time, and to be heard.

    claim ─▶ (work, heartbeat, progress) ─▶ report │ fail │ park │ release

A claim is durable before a job leaves: its start and its lease are in the log. Whatever a worker
says names the run, the job and the attempt; what is not about the attempt that is out is refused
and changes nothing, so saying it twice is safe. A job whose lease runs out is lost, and goes out
again under the next attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import InputError, NotFound, Refused
from anabranch.kernel import stimuli as s
from anabranch.kernel.jobs import DEFAULT_WORK
from anabranch.kernel.state import Job
from anabranch.kernel.values import Answer
from anabranch.net.net import Net
from anabranch.operations.claims import Claims, Keyring, ReadItems, check_lease, lease_seconds_of
from anabranch.runtime.core import LiveRun
from anabranch.runtime.engine import Engine
from anabranch.store.ports import Definition
from anabranch.work.child import StartChild
from anabranch.work.payloads import StoredPayloads, purged

PROGRESS_BYTES_MAX = 4096


class Beat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a heartbeat. Told to stop, a worker stops and releases the job."""

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
    """A pool as it stands."""

    pool: str
    waiting: int
    waiting_since: int  # of the job that has waited longest; 0 when none does
    leased: list[LeasedJob]
    workers: list[WorkerSeen]  # who asked since the engine started, the last one first


class Pools:
    """One per engine."""

    def __init__(
        self, engine: Engine, *, read_items: ReadItems, keyring: Keyring, start_child: StartChild
    ) -> None:
        self._engine = engine
        self._start_child = start_child
        self._payloads = StoredPayloads(engine.store)
        self.claim = Claims(engine, read_items, keyring).claim

    # -- what workers say --------------------------------------------------------------------

    def _held(self, run: str, name: str, attempt: int, *phases: str) -> tuple[LiveRun, Job]:
        """The job, if it is out with a worker under this very attempt."""
        live = self._engine.core.run(run)
        job = live.state.jobs.get(name)
        if job is None:
            raise Refused(
                f"job {name} is not open: it is unknown or already over", code="unknown_job"
            )
        if job.attempt != attempt:
            raise Refused(
                f"job {name} is at attempt {job.attempt}, not {attempt}: what is said of the "
                "other one changes nothing",
                code="stale_attempt",
            )
        if not job.lease or job.phase not in (phases or ("running", "cancelling")):
            raise Refused(f"job {name} is {job.phase}: no worker has it", code="job_not_running")
        return live, job

    async def heartbeat(
        self, run: str, name: str, attempt: int, *, lease_seconds: float | None = None
    ) -> Beat:
        """The worker is alive: its lease is extended, or it is told to stop."""
        check_lease(lease_seconds)
        live, job = self._held(run, name, attempt)
        if job.phase == "cancelling":
            return Beat(stop=True, lease_until=job.lease, reason=job.reason)
        now = self._engine.clock.now()
        until = now + int(lease_seconds_of(live, job, lease_seconds) * 1000)
        await self._engine.send(run, s.JobExtend(name, attempt, until))
        return Beat(lease_until=max(until, job.lease))

    async def progress(self, run: str, name: str, attempt: int, progress: Any) -> None:
        """How far it is; kept with the job, shown by `explain`, told to whoever does it again."""
        size = len(msgspec.json.encode(progress))
        if size > PROGRESS_BYTES_MAX:
            raise InputError(
                f"the progress has {size:,} bytes, over the limit of {PROGRESS_BYTES_MAX:,}: "
                "keep counts, and put data where the work can find it",
                code="too_large",
            )
        self._held(run, name, attempt, "running")
        await self._engine.send(run, s.JobProgress(name, attempt, progress))

    async def report(self, run: str, name: str, attempt: int, answer: Answer) -> None:
        """The work is done, or has failed; returns when that is durable."""
        _, job = self._held(run, name, attempt)
        if answer.shard is not None and job.slot < 0:
            raise InputError(f"job {name} is no shard of a loop: leave `shard` out", code="shard")
        await self._engine.hand_in(run, s.JobReport(name, attempt, answer))

    async def park(self, run: str, name: str, attempt: int, park: s.JobPark) -> None:
        """Its answer will come later from elsewhere; the worker lets go."""
        self._held(run, name, attempt)
        await self._engine.hand_in(run, msgspec.structs.replace(park, job=name, attempt=attempt))

    async def release(self, run: str, name: str, attempt: int, reason: str = "") -> None:
        """The worker no longer has it: stopped as it was told, or handed back in order."""
        _, job = self._held(run, name, attempt)
        if job.phase == "cancelling":
            await self._engine.send(run, s.JobDischarge(name))
            return
        given = s.JobLose(name, attempt, reason or "its worker handed it back", counted=False)
        await self._engine.send(run, given)

    # -- what the work needs -----------------------------------------------------------------

    def definition(self, run: str, name: str, attempt: int) -> Definition:
        """The source of what the job is part of."""
        live, _ = self._held(run, name, attempt)
        found = self._engine.store.definition(live.state.definition)
        if found is None:
            raise NotFound(f"the store has no definition {live.state.definition}")
        return found

    async def payload(self, run: str, name: str, attempt: int, sha256: str) -> bytes:
        self._held(run, name, attempt)
        content = await self._payloads.get(sha256)
        if content is None:
            raise purged(sha256)
        return content

    async def put_payload(self, run: str, name: str, attempt: int, content: bytes) -> str:
        """Keep what is too large for a report; gives its hash."""
        self._held(run, name, attempt)
        return await self._payloads.put(content, run)

    async def child(
        self,
        run: str,
        name: str,
        attempt: int,
        *,
        path: str,
        given: Mapping[str, Any],
        child: str,
        waits: bool,
        returns: str,
    ) -> str:
        """Begin the child run that a task of kind `playbook` asks for, once."""
        live, job = self._held(run, name, attempt, "running")
        if not _has_children(live.net, job.step):
            said = f"no task of step {job.step!r} is of kind playbook"
            raise Refused(said, code="no_children")
        parent = f"{run}/{name}#{attempt}" if waits else None
        return await self._start_child(path, given, child, parent, returns)

    # -- what people see ---------------------------------------------------------------------

    def states(self) -> list[PoolState]:
        """Every pool with jobs, or for which somebody asked, since the engine started."""
        return [self.state(name) for name in self._engine.core.pools.names()]

    def state(self, pool: str) -> PoolState:
        pools = self._engine.core.pools
        leased = [
            LeasedJob(
                run=run,
                job=job,
                worker=lease.worker,
                lease_until=lease.until,
                progress=self._progress(run, job),
            )
            for (run, job), lease in pools.leases()
            if lease.pool == pool
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
        live = self._engine.core.live.get(run)
        found = live.state.jobs.get(job) if live is not None else None
        return found.progress if found is not None else None

    def asked(self, pool: str) -> int:
        """When a worker last asked for jobs of this pool; 0 for never."""
        return self._engine.core.pools.asked(pool)


def _has_children(net: Net, step: str) -> bool:
    work = net.steps[step].work or DEFAULT_WORK
    program = getattr(work.program, "program", work.program)
    tasks = program.every_task() if program is not None else ()
    return work.kind == "playbook" or any(task.kind == "playbook" for task in tasks)

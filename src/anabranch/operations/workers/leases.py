"""Whose job it is: everything a worker says is checked here first.

A worker names the run, the job, the attempt and itself. Only the attempt that is out is heard, and
only from the worker that has it, with the token that it was claimed with. Anything else is refused
and changes nothing, and the refusal does not say who has the job.

The lease is in the log of the run. On a store that several servers share, the one that owns the run
hears its workers, whichever gave out the job; the others raise `RunElsewhere`. What a job only
reads can be asked for at any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from anabranch.errors import NotFound, Refused
from anabranch.kernel.jobs import pool_of_job
from anabranch.kernel.state import Job
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.live_run import LiveRun


class LeaseHolder(msgspec.Struct, frozen=True):
    """By which right a worker speaks: the id of its token, and the pools that this is limited to.

    A job that was claimed without a token belongs to whoever gives its worker's name: there was
    nothing to tell people apart by."""

    token: str = ""
    pools: frozenset[str] = frozenset()
    succeeds: Callable[[str, str], bool] = lambda _token, _former: False

    def owns(self, holder: str) -> bool:
        if not holder or holder == self.token:
            return True
        return bool(self.token) and self.succeeds(self.token, holder)

    def serves(self, pool: str) -> bool:
        return not self.pools or pool in self.pools


NOBODY = LeaseHolder()
RESTING = ("waiting", "queued")  # runs of which every job is parked


class LeaseClaim(NamedTuple):
    """A job that a worker says to have."""

    run: str
    job: str
    attempt: int
    worker: str
    by: LeaseHolder = NOBODY


def require_lease_holder(engine: EngineLoop, out: LeaseClaim, *phases: str) -> tuple[LiveRun, Job]:
    """The job, if it is out with this very worker under this very attempt and token."""
    _require_moving(engine, out)
    return _held(engine.load_run(out.run), out, phases)


async def require_reader(engine: EngineLoop, out: LeaseClaim, *phases: str) -> tuple[LiveRun, Job]:
    """The same at any server: a job may read as long as the store says that it is out. Nothing may
    be changed by what this gives."""
    _require_moving(engine, out)
    return _held(await engine.view_run(out.run), out, phases)


def _require_moving(engine: EngineLoop, out: LeaseClaim) -> None:
    """To know that a run which only waits has no job out, it need not be brought into memory:
    whoever asks chooses which, and states are large."""
    if engine.live_run(out.run) is None:
        head = engine.store.head(out.run)
        if head is not None and head.status in RESTING:
            raise _unknown_job(out)


def _unknown_job(out: LeaseClaim) -> Refused:
    message = f"job {out.job} is not open: it is unknown or already over"
    return Refused(message, code="unknown_job")


def _held(live: LiveRun, out: LeaseClaim, phases: tuple[str, ...]) -> tuple[LiveRun, Job]:
    job = live.state.jobs.get(out.job)
    if job is None:
        raise _unknown_job(out)
    if job.attempt != out.attempt:
        raise Refused(
            f"job {out.job} is at attempt {job.attempt}, not {out.attempt}: what is said of the "
            "other one changes nothing",
            code="stale_attempt",
        )
    if not job.lease or job.phase not in (phases or ("running", "cancelling")):
        raise Refused(f"job {out.job} is {job.phase}: no worker has it", code="job_not_running")
    right = out.by.owns(job.holder) and out.by.serves(pool_of_job(live.net.steps[job.step], job))
    if job.worker != out.worker or not right:
        raise Refused(
            f"job {out.job} was not claimed by worker {out.worker[:200]!r} with this token",
            code="not_your_job",
        )
    return live, job


async def pool_of(engine: EngineLoop, out: LeaseClaim) -> str | None:
    """Whose pool the job is of; None where there is no such job."""
    try:
        _require_moving(engine, out)
        live = await engine.view_run(out.run)
    except (NotFound, Refused):
        return None
    job = live.state.jobs.get(out.job)
    return pool_of_job(live.net.steps[job.step], job) if job is not None else None

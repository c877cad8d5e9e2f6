"""Whose job it is: everything a worker says is checked here first.

A worker names the run, the job, the attempt and itself. Only the attempt that is out, and only the
worker that has it, are listened to. Anything else is refused and changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.errors import Refused
from anabranch.kernel.state import Job
from anabranch.runtime.engine import Engine
from anabranch.runtime.live import LiveRun


class Out(NamedTuple):
    """A job that a worker says to have."""

    run: str
    job: str
    attempt: int
    worker: str


def held(engine: Engine, out: Out, *phases: str) -> tuple[LiveRun, Job]:
    """The job, if it is out with this very worker under this very attempt."""
    live = engine.core.run(out.run)
    job = live.state.jobs.get(out.job)
    if job is None:
        raise Refused(
            f"job {out.job} is not open: it is unknown or already over", code="unknown_job"
        )
    if job.attempt != out.attempt:
        raise Refused(
            f"job {out.job} is at attempt {job.attempt}, not {out.attempt}: what is said of the "
            "other one changes nothing",
            code="stale_attempt",
        )
    if not job.lease or job.phase not in (phases or ("running", "cancelling")):
        raise Refused(f"job {out.job} is {job.phase}: no worker has it", code="job_not_running")
    if job.worker != out.worker:
        raise Refused(
            f"job {out.job} is with worker {job.worker!r}, not with {out.worker[:200]!r}",
            code="not_your_job",
        )
    return live, job

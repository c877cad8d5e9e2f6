"""What workers send and are answered, as types: the schemas in the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from anabranch.operations.logs.batches import BATCH_BYTES, BATCHES_MAX
from anabranch.operations.workers.cancel_watch import JobElsewhere, JobToStop
from anabranch.operations.workers.claims import CLAIM_MAX
from anabranch.operations.workers.worker_cards import ServerWork, WorkerCard
from anabranch.pools.seen.pool_cards import PoolCard
from anabranch.runtime.jobs.pool_queues import WorkerReport
from anabranch.store.work_log_ports import LogPiece
from anabranch.work.logs.attempt_log import LogBatch

PATH_LETTERS = 4096  # no file system knows a longer one


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ClaimBody(_Body, frozen=True):
    """Claim jobs. `claim` names the request, so that a lost answer can be requested again; `about`
    is what people are told of the worker."""

    worker: str
    max: int = 1
    wait_seconds: float = 0.0
    lease_seconds: float | None = None
    claim: str = ""
    items: bool = False  # of every shard, also of lists and ranges
    about: WorkerReport | None = None


class WithdrawBody(_Body, frozen=True):
    """Stop asking: what was given under this name of a claim, and not heard of, goes back."""

    worker: str
    claim: str


class WaitBody(_Body, frozen=True):
    """Wait for a job without claiming it."""

    worker: str
    wait_seconds: float = 0.0
    about: WorkerReport | None = None


class WaitingJobs(msgspec.Struct, frozen=True):
    """How many jobs of the pool wait at this server now."""

    waiting: int


class JobName(_Body, frozen=True):
    run: str
    job: str
    attempt: int


class WatchBody(_Body, frozen=True):
    """The jobs that a worker has; it is answered as soon as one of them is to be stopped."""

    worker: str
    jobs: Annotated[list[JobName], msgspec.Meta(max_length=CLAIM_MAX)]
    wait_seconds: float = 0.0


class BeatBody(_Body, frozen=True):
    lease_seconds: float | None = None


class ProgressBody(_Body, frozen=True):
    progress: Any


class PrintedPiece(_Body, frozen=True):
    """Whole lines that were printed at the same time, to the same stream."""

    at: int
    stream: Literal["stdout", "stderr", "log"]
    level: Literal["debug", "info", "warning", "error", "critical"]
    text: str
    item: int = -1  # of a loop


class PrintedBatch(_Body, frozen=True):
    """With which line, and at which byte, of what the attempt printed it begins."""

    first_line: int
    lines: int
    start: int
    size: int
    #: Each has a byte of the batch at least.
    pieces: Annotated[list[PrintedPiece], msgspec.Meta(max_length=BATCH_BYTES)]

    def batch(self) -> LogBatch:
        pieces = [
            LogPiece(one.at, one.stream, one.level, one.item, one.text) for one in self.pieces
        ]
        return LogBatch(
            first_line=self.first_line,
            lines=self.lines,
            start=self.start,
            size=self.size,
            pieces=pieces,
        )


class LogsBody(_Body, frozen=True):
    batches: Annotated[list[PrintedBatch], msgspec.Meta(max_length=BATCHES_MAX)]


class ReleaseBody(_Body, frozen=True):
    reason: str = ""


class ChildBody(_Body, frozen=True):
    path: Annotated[str, msgspec.Meta(max_length=PATH_LETTERS)]
    run: Annotated[str, msgspec.Meta(max_length=PATH_LETTERS)]
    input: dict[str, Any] = {}
    sealed: dict[str, Any] = {}  # mark in the input → the secret that it stands for
    waits: bool = False
    returns: Annotated[str, msgspec.Meta(max_length=PATH_LETTERS)] = ""


class Accepted(msgspec.Struct, frozen=True):
    accepted: bool = True


class Withdrawn(msgspec.Struct, frozen=True):
    handed_back: int


class Watched(msgspec.Struct, frozen=True):
    """Stop these. `cancelled`: release the job when its work has ended; else drop its result. Ask
    about those that have `moved` at the server that owns their run."""

    stop: list[JobToStop]
    moved: list[JobElsewhere] = []


class PoolList(msgspec.Struct, frozen=True):
    items: list[PoolCard]
    next: str | None = None


class WorkerList(msgspec.Struct, frozen=True):
    """The workers that asked this server since it started, the last one seen first, and what the
    server does itself."""

    items: list[WorkerCard]
    server: ServerWork
    next: str | None = None


class Kept(msgspec.Struct, frozen=True):
    sha256: str

"""What workers send and are answered, as types: the schemas in the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from anabranch.kernel.tracker import ShardReport, TaskRun
from anabranch.kernel.values import ContextPatch
from anabranch.operations.workers.cancel_watch import JobElsewhere, JobToStop
from anabranch.operations.workers.worker_api import PoolState


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ClaimBody(_Body, frozen=True):
    """Claim jobs. `claim` names the request, so that a lost answer can be requested again."""

    worker: str
    max: int = 1
    wait_seconds: float = 0.0
    lease_seconds: float | None = None
    claim: str = ""
    items: bool = False  # of every shard, also of lists and ranges


class WithdrawBody(_Body, frozen=True):
    """Stop asking: what was given under this name of a claim, and not heard of, goes back."""

    worker: str
    claim: str


class WaitBody(_Body, frozen=True):
    """Wait for a job without claiming it."""

    worker: str
    wait_seconds: float = 0.0


class WaitingJobs(msgspec.Struct, frozen=True):
    """How many jobs of the pool wait at this server now."""

    waiting: int


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A server that workers can claim jobs from."""

    id: str  # another one after a restart
    url: str
    here: bool  # it is the one that was asked


class ServerList(msgspec.Struct, frozen=True):
    """The servers that share a store. `here` is the one that answers."""

    items: list[ServerAddress]
    next: str | None = None


class JobName(_Body, frozen=True):
    run: str
    job: str
    attempt: int


class WatchBody(_Body, frozen=True):
    """The jobs that a worker has; it is answered as soon as one of them is to be stopped."""

    worker: str
    jobs: list[JobName]
    wait_seconds: float = 0.0


class BeatBody(_Body, frozen=True):
    lease_seconds: float | None = None


class ProgressBody(_Body, frozen=True):
    progress: Any


class ReportBody(_Body, frozen=True):
    """What the work came to. A result that is too large for a body is sent ahead as a payload, and
    `payload` is its hash."""

    result: Any = None
    payload: str = ""
    outcome: str = "ok"
    patches: tuple[ContextPatch, ...] = ()
    wait_ms: int = 0
    shard: ShardReport | None = None
    locals: dict[str, Any] = {}
    inline: bool = False  # keep the result in the log, however large
    redacted: int = 0  # in so many places the worker has put stars for a secret
    tasks: tuple[TaskRun, ...] = ()  # the executions of tasks it is made of


class FailBody(_Body, frozen=True):
    """Why there is no result. `retryable` says whether another try may help."""

    message: str
    kind: str = "failed"
    code: str = ""
    retryable: bool = True
    details: Any = None
    status: Literal["error", "aborted", "cancel_run"] = "error"
    patches: tuple[ContextPatch, ...] = ()
    locals: dict[str, Any] = {}
    redacted: int = 0
    tasks: tuple[TaskRun, ...] = ()


class ParkBody(_Body, frozen=True):
    ticket: str
    until: int = 0
    limit_ms: int = 0
    memory: Any = None


class ReleaseBody(_Body, frozen=True):
    reason: str = ""


class ChildBody(_Body, frozen=True):
    path: str
    run: str
    input: dict[str, Any] = {}
    sealed: dict[str, Any] = {}  # mark in the input → the secret that it stands for
    waits: bool = False
    returns: str = ""


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
    items: list[PoolState]
    next: str | None = None


class Source(msgspec.Struct, frozen=True):
    """The definition of a job, to be compiled where the work is done."""

    fingerprint: str
    dialect: str
    name: str
    source: str
    origin: str


class Kept(msgspec.Struct, frozen=True):
    sha256: str


class FoundCredential(msgspec.Struct, frozen=True):
    """A credential on its way to the work that looks it up."""

    type: str
    data: Any

    def __repr__(self) -> str:
        return f"FoundCredential({self.type!r})"


class Begun(msgspec.Struct, frozen=True):
    run: str

"""A pool on a cluster, as people and programs see it."""

from __future__ import annotations

from typing import Literal

import msgspec

#: `connecting`: not reached yet; `open`: jobs can go there; `away`: it does not answer, jobs wait;
#: `unfit`: it answers and cannot do our jobs, and somebody has to change the cluster.
Contact = Literal["connecting", "open", "away", "unfit"]


class OutTicket(msgspec.Struct, frozen=True, kw_only=True):
    """A job that the cluster has."""

    run: str
    job: str
    attempt: int
    step: str
    ticket: str
    since: int  # when it was given to the cluster
    worker: str = ""  # of the cluster; "" while none has begun it
    started: int = 0  # when that was


class ClusterPoolState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a pool that a cluster does."""

    pool: str
    engine: str
    address: str  # without options and without a password
    state: Contact
    since: int  # when that began
    reason: str = ""  # why it is not open, or what is wrong although it is
    version: str = ""  # of Dask or Ray
    dashboard: str = ""  # the URL of the cluster's own pages
    workers: int = 0
    slots: int = 0
    queued: int = 0  # tickets that no worker has begun
    running: int = 0
    tickets: list[OutTicket] = []  # the oldest ones
    submitted: int = 0  # since the engine started, as all that follows
    finished: int = 0
    withdrawn: int = 0  # cancelled, paused, timed out, or at a stop
    late: int = 0  # results of attempts that were lost before
    losses: dict[str, int] = {}  # by their sort

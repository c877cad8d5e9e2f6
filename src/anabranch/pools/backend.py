"""The port to a compute cluster: give it jobs, take them back, hear what became of them.

A backend knows nothing of runs. It gets a ticket and bytes, and tells events about tickets. It
remembers nothing that the log does not know: whoever opens it again begins with nothing out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Protocol

import msgspec

from anabranch.errors import AnabranchError


class BackendAway(AnabranchError):
    """The cluster does not answer now; it may later."""

    code = "cluster_away"


class BackendUnfit(AnabranchError):
    """The cluster answers and cannot do our jobs: another Python, another version of us, no
    module. Trying again changes nothing until somebody has changed the cluster."""

    code = "cluster_unfit"


class Started(msgspec.Struct, frozen=True):
    """A worker has begun. Told again by another worker, the first one is gone."""

    ticket: str
    worker: str  # its name on the cluster's own pages
    process: str  # tells two processes of the same name apart


class Progressed(msgspec.Struct, frozen=True):
    """What the work tells while it is done, as `worker_entry` wrote it."""

    ticket: str
    said: bytes


class Finished(msgspec.Struct, frozen=True):
    """The entry has returned: what it came to, good or bad, is in `said`."""

    ticket: str
    worker: str
    said: bytes


class Lost(msgspec.Struct, frozen=True):
    """The cluster no longer has it, and no result of it will come by itself. `worker` is true where
    its worker died with it, false where the cluster forgot it (a scheduler that was restarted)."""

    ticket: str
    reason: str
    worker: bool


class Unusable(msgspec.Struct, frozen=True):
    """The cluster cannot begin it or cannot give the result back: not for our entry to say."""

    ticket: str
    reason: str


class WentAway(msgspec.Struct, frozen=True):
    """No contact any more. Everything that was out is told as lost, before or after this."""

    reason: str


class CameBack(msgspec.Struct, frozen=True):
    """Contact again, perhaps with another cluster at the same address: nothing is out there."""


Event = Started | Progressed | Finished | Lost | Unusable | WentAway | CameBack


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """What the cluster has at this moment."""

    slots: int  # jobs it can do at once; 0 while it has no worker
    workers: int
    queued: int = 0  # of our tickets, those that no worker has begun
    dashboard: str = ""  # the URL of the cluster's own pages
    version: str = ""  # of Dask or Ray


class PoolBackend(Protocol):
    """One per pool. All methods are called in the loop of the engine."""

    engine: str  # "dask" or "ray"
    address: str  # as people write it, without options and without a password

    async def open(self) -> Capacity:
        """Connect and check. Raises `BackendAway` or `BackendUnfit`."""

    async def submit(self, ticket: str, blob: bytes) -> None:
        """Give it to the cluster, which runs it at most once as far as it can. Raises
        `BackendAway`; then nothing is out."""

    async def cancel(self, tickets: Collection[str], *, force: bool = False) -> None:
        """Withdraw what has not begun and tell what has to stop. `force` ends the worker of what
        has not stopped, where the cluster can do that. Each ticket still ends in `Finished` or
        `Lost`, unless it had not begun: then it is over with this call."""

    def events(self) -> AsyncIterator[Sequence[Event]]:
        """What happened since, in order for each ticket, until `close`."""

    async def capacity(self) -> Capacity:
        """Raises `BackendAway`."""

    async def close(self) -> None:
        """Withdraw everything and disconnect."""

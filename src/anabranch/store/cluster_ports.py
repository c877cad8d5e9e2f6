"""What a store that several servers share can do beside the ports of every store.

Runs are spread over partitions. A server owns partitions by a lease, by the clock of the store, and
only the owner of a partition can commit to its runs: `commit` raises `Conflict` with the code
`partition_lost` and writes nothing where another server owns it by now. A store without a cluster
has one owner and one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import msgspec

PARTITION_LOST = "partition_lost"
#: What other servers are told of: rows of the log, messages to runs, who owns what, records.
LOG, MAIL, SERVERS, RECORDS = "log", "mail", "servers", "records"
ALL_NEWS = frozenset((LOG, MAIL, SERVERS, RECORDS))


class Owned(msgspec.Struct):
    """A partition that this server owns."""

    epoch: int  # grows with every change of owner
    number: int  # of the last row of its log


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One server of the cluster."""

    id: str
    name: str
    url: str
    version: str
    joined_at: int
    lease_ms: int  # how long its lease still runs; negative when it has expired
    draining: bool
    partitions: int  # how many it owns
    takes_share: bool = True  # False: a command, which owns partitions only while no server does

    @property
    def alive(self) -> bool:
        return self.lease_ms >= 0


class PartitionRecord(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    owner: str | None
    epoch: int
    number: int


class PartitionLag(msgspec.Struct, frozen=True, kw_only=True):
    """What of a partition is yet to be done."""

    waiting: int = 0  # messages to its runs that the owner has not answered
    waiting_since: int | None = None  # when the oldest of them was posted
    webhook_lag: int = 0  # rows of its log that the webhook furthest behind has yet to look at


class RunMoved(msgspec.Struct, frozen=True, kw_only=True):
    """A run of which something was recorded, and how it stands since then."""

    run: str
    seq: int  # of its last event
    status: str
    at: int
    finished: bool
    begun: bool  # its first event is among what was recorded


class SharedSession(msgspec.Struct, frozen=True):
    """A browser that has shown a token to one of the servers."""

    token: str
    csrf: str
    until: int
    key: str  # the hash of the text in the cookie


class Cluster(Protocol):
    """One server's handle on the partitions of a store."""

    server: str  # its id
    partitions: int
    owned: Mapping[int, Owned]

    def place(self, run: str) -> int:
        """The partition of a run: that of its root, whether or not the run exists yet."""
        ...

    def place_with(self, run: str, other: str) -> None:
        """A run that is about to begin will live where the other one does."""
        ...

    def place_root(self, run: str) -> None:
        """A run that is about to begin is nobody's child: its id alone says where it lives."""
        ...

    def partition_of(self, run: str) -> int:
        """The partition of a run that is to begin under this id, and is nobody's child."""
        ...

    def join(
        self,
        name: str,
        url: str,
        lease_seconds: float,
        *,
        draining: bool = False,
        takes_share: bool = True,
    ) -> None:
        """Become a server of the cluster, or one again, which owns nothing. One that the others
        have not removed stays as drained as it was."""
        ...

    def extend_lease(self, lease_seconds: float) -> bool:
        """False when the other servers have removed this one: it owns nothing any more. True, also
        after the lease has ended: none of them has taken anything, and it owns what it did."""
        ...

    def clock(self) -> int:
        """Milliseconds, by the clock of the store."""
        ...

    @property
    def failed_reads(self) -> int:
        """How many reads of the calling thread have failed because the store was away. What was
        worked out while the number grew may rest on something that was not read."""
        ...

    def servers(self) -> list[ServerRecord]:
        """In order of their ids, with those whose lease has expired."""
        ...

    def partition_records(self) -> list[PartitionRecord]: ...

    def partition_lags(self) -> Mapping[int, PartitionLag]:
        """Of the partitions in which something waits."""
        ...

    def claim(self, most: int) -> Collection[int]:
        """Take up to so many partitions that no server with a good lease owns. Servers whose lease
        has ended are removed. A server that the others have removed meanwhile gets none: it would
        own anew what it has in memory as it was before."""
        ...

    def hand_over(self, partitions: Collection[int]) -> None:
        """Own these no more. The caller has nothing of their runs in memory any more."""
        ...

    def drain(self, server: str, *, draining: bool) -> bool:
        """Ask a server to hand over everything it owns; False when there is no such server."""
        ...

    def leave(self) -> None:
        """Hand over everything and be no server any more."""
        ...

    def keep_session(self, session: SharedSession, now: int, most: int) -> None:
        """Any server knows it from now on. Of one token the newest so many are kept."""
        ...

    def session(self, key: str) -> SharedSession | None: ...

    def end_session(self, key: str) -> None: ...

    def keep_sealed(self, name: str, values: Mapping[str, bytes]) -> None:
        """Keep what is sealed of a run that another server is asked to begin, under a name of its
        own: the run may exist already."""
        ...

    def moved_since(self, numbers: Mapping[int, int]) -> list[RunMoved]:
        """The runs with a row of the log above these numbers of their partitions."""
        ...

    def moved_runs(self, seen: Mapping[str, int]) -> list[RunMoved]:
        """Those of these runs that have events above these."""
        ...

    def listen(self, heard: Callable[[Collection[str]], None]) -> Callable[[], None]:
        """Call `heard`, from any thread, with what another server may have written (`LOG`, `MAIL`,
        `SERVERS`, `RECORDS`); returns how to stop.

        Notifications can be lost: they make a look at the store sooner, never unnecessary.
        """
        ...

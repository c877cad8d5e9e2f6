"""The servers of a store, the partitions they own, and which of them owns a run.

A store that servers do not share (a SQLite file, memory) has one partition, and one server while a
process works on it: it is shown in the same form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from anabranch.errors import NotFound
from anabranch.store.cluster_ports import Cluster, PartitionLag, PartitionRecord, ServerRecord
from anabranch.store.ports import Store
from anabranch.version import __version__

NO_SERVER = "no_such_server"
ONLY = "only"  # the id of the one server of a store that is not shared
ServerState = Literal["active", "draining", "drained", "expired"]
_MESSAGES_MAX = 10_000  # that are counted of such a store


class ServerCard(msgspec.Struct, frozen=True, kw_only=True):
    """One server of a store."""

    id: str
    name: str
    url: str  # where it is reached; empty when it does not say
    version: str
    joined_at: int | None
    lease_left_ms: int | None  # negative when the lease has expired; null without a lease
    alive: bool
    draining: bool  # it hands its partitions over and takes none
    partitions: int  # how many it owns
    takes_share: bool = True  # false: a command, which owns partitions only while no server does
    here: bool = False  # it is the server that answers
    state: ServerState


class PartitionCard(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of the runs."""

    partition: int
    owner: str | None  # the id of a server; null when no server has taken it
    server: str  # the name of that server
    alive: bool  # the lease of its owner is good
    epoch: int  # grows with every change of owner
    number: int  # of the last row of its log
    waiting: int  # messages from other servers that the owner has not answered
    waiting_since: int | None  # when the oldest of them was posted
    webhook_lag: int  # rows that the webhook furthest behind has yet to look at


class ClusterCard(msgspec.Struct, frozen=True, kw_only=True):
    """A store as its servers see it."""

    shared: bool  # several servers can work on it: it is on PostgreSQL
    partitions: int
    unowned: int  # partitions without an owner whose lease is good
    waiting: int  # messages that no owner has answered, of all partitions
    waiting_since: int | None
    webhook_lag: int
    servers: list[ServerCard]


class RunOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run is."""

    run: str
    shared: bool
    partition: int
    epoch: int
    server: ServerCard | None  # null when no server owns its partition


class ClusterReader:
    """`answering` says that this process is a server of the store, not a command beside one."""

    def __init__(self, store: Store, *, answering: bool = False) -> None:
        self._store = store
        self._cluster: Cluster | None = store.cluster
        self._answering = answering

    def summary(self) -> ClusterCard:
        servers = self.servers()
        partitions = self._partitions(servers)
        since = [one.waiting_since for one in partitions if one.waiting_since is not None]
        return ClusterCard(
            shared=self._cluster is not None,
            partitions=len(partitions),
            unowned=sum(not one.alive for one in partitions),
            waiting=sum(one.waiting for one in partitions),
            waiting_since=min(since, default=None),
            webhook_lag=max((one.webhook_lag for one in partitions), default=0),
            servers=servers,
        )

    def servers(self) -> list[ServerCard]:
        if self._cluster is None:
            only = self._only()
            return [only] if only is not None else []
        here = self._cluster.server if self._answering else ""
        found = [_server(one, here) for one in self._cluster.servers()]
        return sorted(found, key=lambda one: (not one.alive, one.name, one.id))

    def server(self, name: str) -> ServerCard:
        return find_server(self.servers(), name)

    def partitions(self) -> list[PartitionCard]:
        return self._partitions(self.servers())

    def owner(self, run: str) -> RunOwner:
        """Of a run that exists, by its whole id."""
        if self._cluster is None:
            return RunOwner(run=run, shared=False, partition=0, epoch=0, server=self._only())
        place = self._cluster.place(run)
        servers = {one.id: one for one in self.servers()}
        record = next(one for one in self._cluster.partition_records() if one.partition == place)
        found = servers.get(record.owner or "")
        return RunOwner(run=run, shared=True, partition=place, epoch=record.epoch, server=found)

    def _partitions(self, servers: Sequence[ServerCard]) -> list[PartitionCard]:
        """After the servers were asked: an owner that joined in between is shown as none."""
        if self._cluster is None:
            return [_partition(self._only_partition(), self._only_lag(), servers)]
        records, lags = self._cluster.partition_records(), self._cluster.partition_lags()
        none = PartitionLag()
        return [_partition(one, lags.get(one.partition, none), servers) for one in records]

    def _only(self) -> ServerCard | None:
        name = self._store.owner()
        if name is None:
            return None
        return ServerCard(
            id=ONLY,
            name=name,
            url="",
            version=__version__ if self._answering else "",
            joined_at=None,
            lease_left_ms=None,
            alive=True,
            draining=False,
            partitions=1,
            here=self._answering,
            state="active",
        )

    def _only_partition(self) -> PartitionRecord:
        owner = ONLY if self._store.owner() is not None else None
        last = self._store.positions().get(0, 0)
        return PartitionRecord(partition=0, owner=owner, epoch=0, number=last)

    def _only_lag(self) -> PartitionLag:
        store = self._store
        messages = store.unanswered(_MESSAGES_MAX)
        last = store.positions().get(0, 0)
        behind = [last - store.cursors(hook.id).get(0, 0) for hook in store.hooks() if hook.enabled]
        return PartitionLag(
            waiting=len(messages),
            waiting_since=min((one.posted_at for one in messages), default=None),
            webhook_lag=max([0, *behind]),
        )


def find_server(servers: Sequence[ServerCard], name: str) -> ServerCard:
    """The server with this id, name or URL, or the only one whose id begins so."""
    url = name.rstrip("/")
    exact = [
        one for one in servers if name in (one.id, one.name) or url == one.url.rstrip("/") != ""
    ]
    found = exact or [one for one in servers if name and one.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(one.id for one in found)
        said = f"several servers are called {name!r:.80}: give the id of one ({ids})"
        raise NotFound(said, code=NO_SERVER)
    known = ", ".join(one.id for one in servers) or "none"
    said = f"there is no server {name!r:.80} in this cluster; the servers are: {known}"
    raise NotFound(said, code=NO_SERVER)


def _server(record: ServerRecord, here: str) -> ServerCard:
    return ServerCard(
        id=record.id,
        name=record.name,
        url=record.url,
        version=record.version,
        joined_at=record.joined_at,
        lease_left_ms=record.lease_ms,
        alive=record.alive,
        draining=record.draining,
        partitions=record.partitions,
        takes_share=record.takes_share,
        here=record.id == here,
        state=_state(record),
    )


def _state(record: ServerRecord) -> ServerState:
    if not record.alive:
        return "expired"
    if record.draining:
        return "draining" if record.partitions else "drained"
    return "active"


def _partition(
    record: PartitionRecord, lag: PartitionLag, servers: Sequence[ServerCard]
) -> PartitionCard:
    owner = next((one for one in servers if one.id == record.owner), None)
    return PartitionCard(
        partition=record.partition,
        owner=record.owner,
        server=owner.name if owner is not None else "",
        alive=owner is not None and owner.alive,
        epoch=record.epoch,
        number=record.number,
        waiting=lag.waiting,
        waiting_since=lag.waiting_since,
        webhook_lag=lag.webhook_lag,
    )

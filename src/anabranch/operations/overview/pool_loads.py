"""How full the pools of every server are, on a store that several servers share.

A server has the jobs of its own runs in memory. Every few seconds, and only where something has
changed, it writes how many there are into a record of its own, which any server can read. So the
numbers of others are a few seconds old; those of a server that is gone are not shown.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from anabranch.operations.overview.overview import PoolLoad
from anabranch.store.cluster_ports import Cluster
from anabranch.store.ports import Store
from anabranch.store.record_ports import NamedRecord

FAMILY = "pool_load"
EVERY_SECONDS = 5.0
POOLS_MAX = 200  # of a server


class PoolRecords:
    """The records of this server and of the others; its methods wait for the store."""

    def __init__(self, store: Store, cluster: Cluster) -> None:
        self._store = store
        self._cluster = cluster
        self._told: tuple[str, bytes] | None = None  # as which server, and what

    def write(self, loads: Sequence[PoolLoad], now: int) -> None:
        server, body = self._cluster.server, msgspec.json.encode(list(loads[:POOLS_MAX]))
        if self._told == (server, body):
            return
        known = self._store.record(FAMILY, server)
        if known is not None or loads:
            record = NamedRecord(family=FAMILY, name=server, body=body, updated_at=now)
            self._store.put_record(record, known.version if known is not None else 0)
        if self._told is None or self._told[0] != server:
            self._tidy(server)
        self._told = (server, body)

    def of_others(self, alive: Collection[str]) -> list[PoolLoad]:
        """Those of these servers, but for this one."""
        found: list[PoolLoad] = []
        for record in self._store.records(FAMILY):
            if record.name in alive and record.name != self._cluster.server:
                found += msgspec.json.decode(record.body, type=list[PoolLoad])
        return found

    def leave(self) -> None:
        """This server has no pools any more."""
        if self._told is not None:
            self._drop(self._told[0])

    def _tidy(self, server: str) -> None:
        """What servers left that were killed."""
        alive = {one.id for one in self._cluster.servers() if one.alive} | {server}
        for record in self._store.records(FAMILY):
            if record.name not in alive:
                self._store.drop_record(FAMILY, record.name, record.version)

    def _drop(self, server: str) -> None:
        record = self._store.record(FAMILY, server)
        if record is not None:
            self._store.drop_record(FAMILY, server, record.version)

"""The servers of a store, asked at the store itself: no server needs to be there."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from anabranch.errors import NotFound
from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.drain import drain, undrain
from anabranch.operations.read.cluster import ClusterReader, ServerCard
from anabranch.operations.read.reader import Reader
from anabranch.runtime.nets import Nets
from anabranch.store.ports import Store
from anabranch.surfaces.cli.backend.local.store import LocalTopic
from anabranch.surfaces.cli.backend.port import Row


class LocalClusterBackend(LocalTopic):
    async def summary(self) -> Row:
        with self._store.reading() as store:
            return _fields(ClusterReader(store).summary())

    async def partitions(self) -> list[Row]:
        with self._store.reading() as store:
            return [_fields(one) for one in ClusterReader(store).partitions()]

    async def owner(self, run: str) -> Row:
        with self._store.reading() as store:
            head = Reader(store, Nets(store, compiler())).find(run)
            return _fields(ClusterReader(store).owner(head.run))

    async def drain(self, server: str) -> Row:
        return self._change("cluster.servers.drain", drain, server)

    async def undrain(self, server: str) -> Row:
        return self._change("cluster.servers.drain.delete", undrain, server)

    def _change(self, action: str, change: Callable[[Store, str], ServerCard], name: str) -> Row:
        with self._store.writing() as store:
            with self._store.audit_line(store, action, _subject(store, name)).commit():
                card = change(store, name)
            return _fields(card)


def _subject(store: Store, name: str) -> str:
    """What the audit trail calls the server; one that is not there by what was typed."""
    try:
        return ClusterReader(store).server(name).id
    except NotFound:
        return name


def _fields(card: msgspec.Struct) -> Row:
    fields: Row = msgspec.to_builtins(card)
    return fields

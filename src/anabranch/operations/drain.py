"""Draining a server of a shared store: it hands over every run it owns, and goes on answering.

The mark stands in the store, so that any server, and a command beside them, can set it. The server
sees it within a second. It ends with the process: a server that starts again takes its share.
"""

from __future__ import annotations

from anabranch.errors import Refused
from anabranch.operations.read.cluster import ClusterReader, ServerCard
from anabranch.store.cluster_ports import Cluster
from anabranch.store.ports import Store

NOT_SHARED = "not_shared"
LAST_SERVER = "last_server"
COMMAND = "command"


def drain(store: Store, name: str, *, answering: bool = False) -> ServerCard:
    """Ask a server to hand over all it owns; returns it as it is then, which is before it did."""
    cluster, reader = _shared(store, answering)
    server = reader.server(name)
    others = [one for one in reader.servers() if one.id != server.id]
    if not server.draining and not any(one.alive and not one.draining for one in others):
        raise Refused(
            f"server {server.id} is the only one that takes partitions: start another server on "
            "this store first, or stop this one and its runs wait for the next",
            code=LAST_SERVER,
        )
    cluster.drain(server.id, draining=True)
    return reader.server(server.id)


def undrain(store: Store, name: str, *, answering: bool = False) -> ServerCard:
    """Let a server take its share again."""
    cluster, reader = _shared(store, answering)
    server = reader.server(name)
    if not server.takes_share:
        raise Refused(
            f"server {server.id} is a command ({server.name}), which does its own runs alone: "
            "start a server (`anabranch serve`) to take a share of the partitions",
            code=COMMAND,
        )
    cluster.drain(server.id, draining=False)
    return reader.server(server.id)


def _shared(store: Store, answering: bool) -> tuple[Cluster, ClusterReader]:
    if store.cluster is None:
        raise Refused(
            "this store has one server, which has no other to hand its runs to: stop it in order, "
            "or move to a store on PostgreSQL (docs/postgres.md)",
            code=NOT_SHARED,
        )
    return store.cluster, ClusterReader(store, answering=answering)

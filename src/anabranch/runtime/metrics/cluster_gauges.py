"""What an engine owns of a shared store: the gauges of `/metrics`, read when they are asked for."""

from __future__ import annotations

from anabranch.runtime.cluster.member import ClusterMember
from anabranch.runtime.metrics.registry import Registry, Values, by_label
from anabranch.store.cluster_ports import ServerRecord


def add_cluster_gauges(member: ClusterMember, registry: Registry) -> None:
    put, membership = registry.gauge, member.membership
    put("anabranch_partitions_owned", "partitions that this server owns", lambda: member.owned)
    put(
        "anabranch_partitions_taken_total",
        "partitions that this server took, each in a new epoch",
        lambda: member.taken,
        kind="counter",
    )
    put(
        "anabranch_partitions_handed_over_total",
        "partitions that this server handed over",
        lambda: member.handed_over,
        kind="counter",
    )
    put(
        "anabranch_leases_lost_total",
        "how often this server found that its lease had ended, and started over",
        lambda: member.leases_lost,
        kind="counter",
    )
    put(
        "anabranch_lease_left_seconds",
        "until the lease of this server ends, by its own clock",
        lambda: membership.lease_left,
    )

    def servers() -> Values:
        counts = dict.fromkeys(("active", "draining", "expired"), 0)
        for server in membership.servers:
            counts[_state(server)] += 1
        return by_label(counts)

    put("anabranch_cluster_servers", "servers of the store, by state", servers, ["state"])


def _state(server: ServerRecord) -> str:
    if not server.alive:
        return "expired"
    return "draining" if server.draining else "active"

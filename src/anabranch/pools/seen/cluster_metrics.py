"""What clusters have of an engine's jobs, for `/metrics`: read when it is asked for."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.pools.pool_state import ClusterPoolState
from anabranch.pools.wiring import ClusterPools
from anabranch.runtime.metrics.registry import Registry

Labelled = list[tuple[tuple[str, ...], float]]

#: name → what it says, and how it is found.
_NOW: dict[str, tuple[str, Callable[[ClusterPoolState], float]]] = {
    "anabranch_pool_cluster_up": (
        "1 while the cluster of the pool can be given jobs",
        lambda one: one.state == "open",
    ),
    "anabranch_pool_cluster_workers": ("workers of the cluster", lambda one: one.workers),
    "anabranch_pool_cluster_slots": (
        "jobs that the cluster can do at once",
        lambda one: one.slots,
    ),
}
_SINCE_THE_START: dict[str, tuple[str, Callable[[ClusterPoolState], float]]] = {
    "anabranch_pool_submitted_total": ("jobs given to the cluster", lambda one: one.submitted),
    "anabranch_pool_finished_total": ("jobs that came back from it", lambda one: one.finished),
    "anabranch_pool_withdrawn_total": (
        "jobs taken back from it: cancelled, paused, timed out, or at a stop",
        lambda one: one.withdrawn,
    ),
    "anabranch_pool_late_total": (
        "results of attempts that were lost before; they change nothing",
        lambda one: one.late,
    ),
}


def add_cluster_metrics(registry: Registry, pools: ClusterPools) -> None:
    """Of each pool that a cluster does."""

    def states() -> list[ClusterPoolState]:
        return [each.state(0) for each in pools.dispatchers]

    def put(name: str, text: str, ask: Callable[[ClusterPoolState], float], kind: str) -> None:
        def values() -> Labelled:
            return [((one.pool,), float(ask(one))) for one in states()]

        registry.gauge(name, f"{text}, by pool", values, ["pool"], kind)

    def tickets() -> Labelled:
        return [
            ((one.pool, state), getattr(one, state))
            for one in states()
            for state in ("queued", "running")
        ]

    def losses() -> Labelled:
        return [((one.pool, why), count) for one in states() for why, count in one.losses.items()]

    for name, (text, ask) in _NOW.items():
        put(name, text, ask, "gauge")
    labels = ["pool", "state"]
    registry.gauge("anabranch_pool_cluster_jobs", "jobs that the cluster has", tickets, labels)
    for name, (text, ask) in _SINCE_THE_START.items():
        put(name, text, ask, "counter")
    text = "attempts that were lost on the cluster, by pool and reason"
    registry.gauge("anabranch_pool_lost_total", text, losses, ["pool", "reason"], "counter")

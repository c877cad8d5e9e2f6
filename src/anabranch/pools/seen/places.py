"""Where jobs are that clusters do, for `explain`, the pages and the metrics."""

from __future__ import annotations

from anabranch.operations.read.on_clusters import PoolPlace, TaskPlace
from anabranch.operations.read.reader import Reader
from anabranch.pools.seen.cluster_metrics import add_cluster_metrics
from anabranch.pools.wiring import ClusterPools
from anabranch.runtime.metrics.registry import Registry


class ClusterPlaces:
    """One per engine. Any thread may ask: what is read here is replaced, never changed."""

    def __init__(self, pools: ClusterPools) -> None:
        self._pools = pools

    def pools(self) -> list[str]:
        return [each.pool.name for each in self._pools.dispatchers]

    def of_pool(self, pool: str) -> PoolPlace | None:
        for each in self._pools.dispatchers:
            if each.pool.name == pool:
                state = each.state(0)
                return PoolPlace(
                    engine=state.engine,
                    address=state.address,
                    state=state.state,
                    since=state.since,
                    reason=state.reason,
                    dashboard=state.dashboard,
                    workers=state.workers,
                    slots=state.slots,
                    out=state.queued + state.running,
                )
        return None

    def of_job(self, run: str, job: str) -> TaskPlace | None:
        for each in self._pools.dispatchers:
            found = each.find(run, job)
            if found is not None:
                return TaskPlace(
                    pool=each.pool.name,
                    task=found.ticket,
                    since=found.since,
                    worker=found.worker,
                )
        return None


def show_clusters(pools: ClusterPools, read: Reader, registry: Registry) -> None:
    """Let reader and metrics tell of the clusters, where there are any."""
    if pools.options:
        read.clusters = ClusterPlaces(pools)
        add_cluster_metrics(registry, pools)

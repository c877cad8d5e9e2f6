"""Every pool of an engine, whoever does its jobs: workers of our own, or a compute cluster."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from anabranch.operations.workers.worker_api import PoolState, WorkerApi
from anabranch.pools.dispatcher import PoolDispatcher
from anabranch.pools.pool_state import ClusterPoolState


class PoolCard(PoolState, frozen=True, kw_only=True):
    """The state of a pool. `cluster` is there where a compute cluster does its jobs; `leased` are
    then those that the cluster has, or is to get."""

    cluster: ClusterPoolState | None = None


class PoolCards:
    """One per question: the dispatchers are those of this moment."""

    def __init__(self, api: WorkerApi, dispatchers: Sequence[PoolDispatcher]) -> None:
        self._api = api
        self._dispatchers = {each.pool.name: each for each in dispatchers}

    def names(self) -> list[str]:
        """Pools with a cluster, with jobs, or that a worker has asked for."""
        return sorted({*self._api.names(), *self._dispatchers})

    def card(self, pool: str, *, tickets: int | None = None) -> PoolCard:
        """With at most so many tickets of the cluster; None: as many as it shows."""
        state = self._api.state(pool)
        found = self._dispatchers.get(pool)
        if found is None:
            return PoolCard(**asdict(state))
        cluster = found.state() if tickets is None else found.state(tickets)
        return PoolCard(**asdict(state), cluster=cluster)

    def all(self, *, tickets: int | None = None) -> list[PoolCard]:
        return [self.card(name, tickets=tickets) for name in self.names()]

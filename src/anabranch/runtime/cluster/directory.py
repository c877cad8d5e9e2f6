"""Who serves a store, and which server owns which run, for those who have to ask the right one."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Mapping

from anabranch.store.cluster_ports import Cluster, ServerRecord


class ServerDirectory:
    """Of a store that others share; without a cluster this server is the only one."""

    def __init__(self, cluster: Cluster | None, name: str, url: str) -> None:
        self._cluster = cluster
        self._alone = ServerRecord(
            id=secrets.token_hex(8),
            name=name,
            url=url,
            version="",
            joined_at=0,
            lease_ms=0,
            draining=False,
            partitions=1,
        )

    @property
    def own_id(self) -> str:
        """The id of this server; another one after each start."""
        return self._cluster.server if self._cluster is not None else self._alone.id

    async def servers(self) -> list[ServerRecord]:
        """Those with a good lease, in order of their ids."""
        if self._cluster is None:
            return [self._alone]
        found = await asyncio.to_thread(self._cluster.servers)
        return [one for one in found if one.alive]

    async def owner_urls(self, runs: Collection[str]) -> Mapping[str, str]:
        """The URLs of the servers that own the runs; "" where none with a good lease does, or it
        has none."""
        cluster = self._cluster
        if cluster is None:
            return dict.fromkeys(runs, self._alone.url)

        def look() -> dict[str, str]:
            urls = {one.id: one.url for one in cluster.servers() if one.alive}
            owners = {one.partition: one.owner for one in cluster.partition_records()}
            return {run: urls.get(owners[cluster.place(run)] or "", "") for run in runs}

        return await asyncio.to_thread(look)

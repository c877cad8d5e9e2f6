"""The servers of a store, asked at one of them."""

from __future__ import annotations

from anabranch.surfaces.cli.backend.http.topic import HttpTopic
from anabranch.surfaces.cli.backend.port import Row


class HttpClusterBackend(HttpTopic):
    async def summary(self) -> Row:
        return await self._client.get("cluster")

    async def partitions(self) -> list[Row]:
        return list((await self._client.get("cluster", "partitions"))["items"])

    async def owner(self, run: str) -> Row:
        return await self._client.get("cluster", "runs", run)

    async def drain(self, server: str) -> Row:
        return await self._client.post("cluster", "servers", server, "drain")

    async def undrain(self, server: str) -> Row:
        return await self._client.delete("cluster", "servers", server, "drain")

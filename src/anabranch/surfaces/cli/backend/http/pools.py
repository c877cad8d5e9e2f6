"""The pools of a server."""

from __future__ import annotations

from anabranch.surfaces.cli.backend.http.topic import HttpTopic
from anabranch.surfaces.cli.backend.port import Row


class HttpPoolBackend(HttpTopic):
    async def all(self) -> list[Row]:
        return list((await self._client.get("pools"))["items"])

    async def one(self, pool: str) -> Row:
        return await self._client.get("pools", pool)

    async def workers(self) -> Row:
        """The workers, and what the server does itself."""
        return await self._client.get("workers")

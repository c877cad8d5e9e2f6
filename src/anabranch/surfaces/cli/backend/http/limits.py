"""The limits across the runs of a server."""

from __future__ import annotations

from anabranch.surfaces.cli.backend.http.topic import HttpTopic
from anabranch.surfaces.cli.backend.port import Row


class HttpLimitBackend(HttpTopic):
    async def all(self) -> list[Row]:
        return await self._all("limits")

    async def show(self, key: str) -> Row:
        return await self._client.get("limits", "runs", key=key)

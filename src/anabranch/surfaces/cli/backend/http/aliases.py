"""The aliases of a server."""

from __future__ import annotations

from anabranch.surfaces.cli.backend.http.topic import HttpTopic
from anabranch.surfaces.cli.backend.port import Row


class HttpAliasBackend(HttpTopic):
    async def set(self, name: str, target: str) -> Row:
        return await self._client.put("aliases", name, body={"target": target})

    async def all(self) -> list[Row]:
        return await self._all("aliases")

    async def show(self, name: str) -> Row:
        return await self._client.get("aliases", name)

    async def rollback(self, name: str) -> Row:
        return await self._client.post("aliases", name, "rollback", once=True)

    async def remove(self, name: str) -> Row:
        return await self._client.delete("aliases", name)

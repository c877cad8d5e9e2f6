"""The triggers of a server."""

from __future__ import annotations

from anabranch.surfaces.cli.backend.http.topic import HttpTopic
from anabranch.surfaces.cli.backend.port import Row


class HttpTriggerBackend(HttpTopic):
    async def add(self, draft: Row) -> Row:
        return await self._client.post("triggers", body=draft)

    async def all(self) -> list[Row]:
        return await self._all("triggers")

    async def show(self, name: str) -> Row:
        return await self._client.get("triggers", name)

    async def test(self, name: str, call: Row) -> Row:
        return await self._client.post("triggers", name, "test", body=call)

    async def pause(self, name: str) -> Row:
        return await self._client.post("triggers", name, "pause")

    async def resume(self, name: str) -> Row:
        return await self._client.post("triggers", name, "resume")

    async def retry(self, name: str) -> Row:
        return await self._client.post("triggers", name, "retry")

    async def remove(self, name: str) -> Row:
        return await self._client.delete("triggers", name)

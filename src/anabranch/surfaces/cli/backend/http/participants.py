"""The participants of a server."""

from __future__ import annotations

from anabranch.surfaces.cli.backend.http.topic import HttpTopic
from anabranch.surfaces.cli.backend.port import Row


class HttpParticipantBackend(HttpTopic):
    async def all(self) -> list[Row]:
        return list((await self._client.get("participants"))["items"])

    async def reload(self) -> Row:
        return await self._client.post("participants", "reload", once=True)

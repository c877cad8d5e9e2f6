"""The webhooks of a server."""

from __future__ import annotations

from anabranch.surfaces.cli.backend.http.topic import HttpTopic
from anabranch.surfaces.cli.backend.port import Row


class HttpWebhookBackend(HttpTopic):
    async def create(self, draft: Row) -> Row:
        return await self._client.post("webhooks", body=draft)

    async def all(self) -> list[Row]:
        return list((await self._client.get("webhooks"))["items"])

    async def show(self, hook: str) -> Row:
        return await self._client.get("webhooks", hook)

    async def change(self, hook: str, given: Row) -> Row:
        return await self._client.patch("webhooks", hook, body=given)

    async def rotate(self, hook: str) -> Row:
        return await self._client.post("webhooks", hook, "rotate")

    async def remove(self, hook: str) -> None:
        await self._client.delete("webhooks", hook)

    async def deliveries(
        self, hook: str, *, state: str | None, run: str | None, limit: int
    ) -> list[Row]:
        most = max(1, limit)  # also where none is wanted, a webhook that is not there is told
        path = ("webhooks", hook, "deliveries")
        found = await self._all(*path, most=most, state=state, run=run)
        return found[:limit]

    async def delivery(self, hook: str, name: str) -> Row:
        return await self._client.get("webhooks", hook, "deliveries", name)

    async def redeliver(self, hook: str, name: str) -> Row:
        return await self._client.post("webhooks", hook, "deliveries", name, "redeliver")

    async def redeliver_dead(self, hook: str) -> int:
        return int((await self._client.post("webhooks", hook, "redeliver"))["count"])

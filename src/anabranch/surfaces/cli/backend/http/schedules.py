"""The schedules of a server."""

from __future__ import annotations

from anabranch.surfaces.cli.backend.http.topic import HttpTopic
from anabranch.surfaces.cli.backend.port import Row


class HttpScheduleBackend(HttpTopic):
    async def add(self, draft: Row) -> Row:
        return await self._client.post("schedules", body=draft)

    async def all(self) -> list[Row]:
        return await self._all("schedules")

    async def show(self, name: str) -> Row:
        return await self._client.get("schedules", name)

    async def next(self, name: str, count: int) -> Row:
        return await self._client.get("schedules", name, "next", count=count)

    async def pause(self, name: str) -> Row:
        return await self._client.post("schedules", name, "pause")

    async def resume(self, name: str) -> Row:
        return await self._client.post("schedules", name, "resume")

    async def remove(self, name: str) -> Row:
        return await self._client.delete("schedules", name)

    async def run_now(self, name: str) -> Row:
        return await self._client.post("schedules", name, "run-now")

    async def backfill(self, name: str, asked: Row) -> Row:
        return await self._client.post("schedules", name, "backfill", body=asked)

"""The credentials and the tokens of a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.surfaces.cli.backend.http.topic import HttpTopic
from anabranch.surfaces.cli.backend.port import Row


class HttpCredentialBackend(HttpTopic):
    async def add(self, draft: Row) -> Row:
        return await self._client.post("credentials", body=draft)

    async def all(self) -> list[Row]:
        return list((await self._client.get("credentials"))["items"])

    async def show(self, name: str) -> Row:
        return await self._client.get("credentials", name)

    async def rotate(self, name: str, data: Any) -> Row:
        return await self._client.post("credentials", name, "rotate", body={"data": data})

    async def remove(self, name: str) -> Row:
        return await self._client.delete("credentials", name)


class HttpTokenBackend(HttpTopic):
    async def create(
        self, name: str, scopes: Sequence[str], days: float | None, pools: Sequence[str]
    ) -> Row:
        body: Row = {"name": name, "scopes": scopes, "lifetime_days": days}
        if pools:  # a server of before does not know the word
            body["pools"] = pools
        return await self._client.post("tokens", body=body)

    async def all(self) -> list[Row]:
        return list((await self._client.get("tokens"))["items"])

    async def revoke(self, token_id: str) -> Row:
        return await self._client.delete("tokens", token_id)

    async def security(self) -> Row:
        return await self._client.get("security")

"""Servers that share a PostgreSQL store, in this process, and what a test asks of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import msgspec
from aiohttp import ClientSession

from anabranch.kernel import events as e
from anabranch.parts import Parts
from anabranch.runtime.live_run import history
from anabranch.settings import Settings
from anabranch.surfaces.http import serve

from .support import until


def schema_in(postgres: str) -> str:
    """The address of a store of its own in this database."""
    return f"{postgres}{'&' if '?' in postgres else '?'}schema=w{uuid4().hex[:12]}"


class ClusterServer:
    """`anabranch serve` without its process."""

    def __init__(self, server: serve.Server, session: ClientSession) -> None:
        self.server = server
        self.url = server.url
        self._session = session

    @property
    def parts(self) -> Parts:
        return self.server.parts

    @property
    def partitions(self) -> int:
        member = self.parts.engine.member
        assert member is not None
        return len(member._open)

    def owns(self, run: str) -> bool:
        member = self.parts.engine.member
        return member is not None and member.here(run)

    async def start(self, text: str, **given: Any) -> str:
        return await self.parts.verbs.start(text, given)

    async def ask(self, method: str, path: str, body: Any = None, **how: Any) -> tuple[int, Any]:
        url = f"{self.url}/api/v1{path}"
        async with self._session.request(method, url, json=body, **how) as response:
            content = await response.read()
            media = response.content_type
            return response.status, msgspec.json.decode(content) if "json" in media else content

    async def claim(self, **body: Any) -> Any:
        given = {"worker": "w1", "max": 10, "wait_seconds": 20, **body}
        status, claimed = await self.ask("POST", "/pools/gpu/claim", given)
        assert status == 200, claimed
        return claimed["tasks"]

    async def say(self, task: Mapping[str, Any], verb: str, body: Any = None) -> tuple[int, Any]:
        path = f"/jobs/{task['run']}/{task['job']}/{task['attempt']}/{verb}?worker=w1"
        return await self.ask("POST", path, {} if body is None else body)

    def events(self, run: str, kind: type[e.Event]) -> list[Any]:
        found = history(self.parts.store.read(run))
        return [event for _, event in found if isinstance(event, kind)]


@asynccontextmanager
async def cluster_server(store: str, **given: Any) -> AsyncIterator[ClusterServer]:
    chosen: dict[str, Any] = {"grace_seconds": 1.0, "server_lease_seconds": 60.0, **given}
    settings = Settings(store=store, store_partitions=8, serve_port=0, **chosen)
    async with serve.Server(settings) as server, ClientSession() as session:
        yield ClusterServer(server, session)


async def shared_out(servers: Sequence[ClusterServer]) -> None:
    """Until each owns its share of the partitions."""
    share = 8 // len(servers)
    await until(lambda: all(server.partitions == share for server in servers))


async def ended(server: ClusterServer, run: str) -> Any:
    """The state of a run when it has completed and is durable, as any server sees it."""
    state = await server.parts.engine.wait(run)
    assert state.status == "completed", state.problem
    return state

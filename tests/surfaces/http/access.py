"""A whole server as `anabranch serve` makes it, on a free port, with a clock that can be moved."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientSession

import elsewhere
from anabranch.settings import Settings
from anabranch.surfaces.http.app import Mount
from anabranch.surfaces.http.io.request_body import Limits
from anabranch.surfaces.http.routes import API
from anabranch.surfaces.http.serve import Server
from anabranch.work.kinds.callables import default_toolbox

DEFINITION = """apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: gate}
workflow:
  - step: ask
    tool: {kind: decision, ask: "Ship it?", actors: [ann, bob]}
"""
START = {"definition": DEFINITION}


@dataclass(slots=True)
class Reply:
    status: int
    json: Any
    headers: Mapping[str, str]
    text: str = ""

    @property
    def code(self) -> str:
        return str(self.json["code"]) if isinstance(self.json, dict) else ""


class Door:
    """Somebody in front of a server."""

    def __init__(self, server: Server, session: ClientSession) -> None:
        self.server = server
        self.session = session

    async def ask(
        self, method: str, path: str, token: str = "", body: Any = None, **headers: str
    ) -> Reply:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            given["Authorization"] = f"Bearer {token}"
        url = self.server.url + (API + path if not path.startswith("//") else path[1:])
        async with self.session.request(
            method, url, json=body, headers=given, allow_redirects=False
        ) as response:
            endless = response.content_type == "text/event-stream"
            read = await (response.content.readany() if endless else response.read())
            text = read.decode("utf-8", "replace")
            value = json.loads(text) if "json" in response.headers.get("Content-Type", "") else None
            return Reply(response.status, value, dict(response.headers), text)

    def token(self, *scopes: str, name: str = "ann", days: float | None = None) -> str:
        return self.server.access.create(name, scopes, days)[1]

    def later(self, ms: int) -> None:
        """Move the clock of the access part; the engine keeps its own."""
        now = self.server.keeper.now() + ms
        self.server.keeper.now = lambda: now
        self.server.access._now = lambda: now


@asynccontextmanager
async def serving(
    *,
    pages: bool = False,
    mounts: Sequence[Mount] = (),
    limits: Limits | None = None,
    **settings: Any,
) -> AsyncIterator[Door]:
    chosen = elsewhere.moved(Settings(**{"store": ":memory:", "serve_port": 0, **settings}))
    made = Server(chosen, mounts=None if pages else mounts, grace_seconds=0, limits=limits)
    async with elsewhere.owner_beside(chosen, default_toolbox), made, ClientSession() as session:
        yield Door(made, session)

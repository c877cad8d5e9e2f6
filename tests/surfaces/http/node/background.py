"""A node in a thread of its own, for clients that block, with something of every kind in it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

from anabranch.market.node.api import OPERATOR, Call, Caller
from anabranch.market.node.folder import NodeFile, NodeFolder
from anabranch.market.node.keys import KeyFolder
from anabranch.market.node.modules.part import ModulesPart
from anabranch.market.node.modules.tokens import CONTROL_HEADER, MODULE_HEADER
from anabranch.surfaces.http.node.server import NodeServer
from hangs import HANG_SECONDS

OFFER = {
    "offer/id": "offer:summaries", "sequence/no": 1, "service/type": "text/summarise",
    "service/description": "x", "pricing/amount": 250, "pricing/currency": "ORC",
    "pricing/unit": "text", "pricing/unit-kind": "per-request", "delivery/max-duration-sec": 600,
    "queue/auto-accept": True, "queue/max-depth": 5, "hybrid": False,
    "confirmation/mode": "self-confirmed", "expires-at": "2126-06-20T08:00:00Z",
}  # fmt: skip
MODULE = Caller("module", module="m", actor="m")


class BackgroundNode:
    def __init__(self, place: Path) -> None:
        self._folder = NodeFolder(place / "n")
        module = {"id": "m", "kind": "in_process", "grants": ["artifact.*", "service.*"]}
        self._folder.create(NodeFile(name="n", modules=(module,)))
        KeyFolder.create(self._folder.keys, ("node", "participant"))
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.url = ""
        self.headers: dict[str, dict[str, str]] = {}  # of each kind of caller

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with NodeServer(self._folder) as server:
            self.server = server
            part = server.node.context.modules
            assert isinstance(part, ModulesPart)
            self.headers = {
                "operator": {CONTROL_HEADER: part.tokens.control()},
                "module": {MODULE_HEADER: part.tokens.of_module("m")},
                "open": {},
            }
            await self._fill()
            self.url = server.url
            self._ready.set()
            await self._stop.wait()

    async def _fill(self) -> None:
        await self._ask("POST", "/v1/service-offers", OFFER)
        await self._ask("POST", "/v1/ledger/top-up", {"amount": 1000})
        wish = {"offer_id": "offer:summaries", "order_id": "order:1", "dispatch": False}
        await self._ask("POST", "/v1/orders", wish)
        for endpoint in self.server.node.api.endpoints:  # of modules: what they show
            if endpoint.scopes == ("module",) and endpoint.example is not None:
                await self._ask("POST", endpoint.path, endpoint.example, MODULE)

    async def _ask(self, method: str, path: str, body: Any, caller: Caller = OPERATOR) -> None:
        path = path.format(run=quote("run:1", safe=""), step="s")
        await self.server.node.handle(Call(method=method, path=path, caller=caller, body=body))

    def written(self) -> int:
        """How many blocks the node has decided so far."""
        return self.server.node.entities.made

    def __enter__(self) -> BackgroundNode:
        self._thread.start()
        assert self._ready.wait(HANG_SECONDS)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

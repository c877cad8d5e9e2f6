"""Questions to Arca, through the node that hosts it: `/v1/enact/arca/…`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import DefinitionError, InputError, NotFound
from anabranch.market.node.folder import NodeFolder
from anabranch.net.problems import Position, Problem
from anabranch.surfaces.cli.commands.node.client import NodeClient, answered
from anabranch.surfaces.cli.commands.node.failed import NodeFailed

MODULE = "arca"
READY_SECONDS = 60.0  # for a module that its node has just started
LOOK_SECONDS = 0.1


class ArcaClient:
    def __init__(self, node: NodeClient) -> None:
        self._node = node

    @classmethod
    async def of(cls, folder: NodeFolder) -> ArcaClient:
        """Once the module is ready. Raises where this node hosts none, or it has failed."""
        node = NodeClient(folder)
        end = time.monotonic() + READY_SECONDS
        while True:
            try:
                module = await node.ask("GET", f"/v1/modules/{MODULE}")
            except NotFound:
                raise InputError(
                    "this node does not host Arca: make one with `anabranch node init DIR "
                    "--with arca`, or add it to `modules` in node.json",
                    code="no_module",
                ) from None
            if module["ready"]:
                return cls(node)
            if module["state"] in ("failed", "stopped") or time.monotonic() >= end:
                raise NodeFailed(f"the module arca is {module['state']}{_why(module)}")
            await asyncio.sleep(LOOK_SECONDS)

    async def ask(
        self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None
    ) -> Any:
        """`path` is below `/v1/enact/`. Raises `DefinitionError` with all problems of a
        definition."""
        status, raw = await self._node.call(method, f"/v1/enact/{path}", body, query)
        if status == 400:
            said = msgspec.json.decode(raw)
            if isinstance(said, dict) and said.get("problems"):
                raise DefinitionError([_problem(one) for one in said["problems"]])
        return answered(status, raw)


def _problem(said: Mapping[str, Any]) -> Problem:
    position = Position(int(said.get("line", 1)), int(said.get("column", 1)))
    return Problem(position, str(said["code"]), str(said["message"]), str(said.get("hint", "")))


def _why(module: Mapping[str, Any]) -> str:
    last = module["last_problem"]
    return f": {last['code']}: {last['message']}" if last else ""

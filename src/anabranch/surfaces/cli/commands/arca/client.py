"""Questions to Arca, through the node that hosts it: `/v1/enact/arca/…`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import DefinitionError
from anabranch.market.node.folder import NodeFolder
from anabranch.net.problems import Position, Problem
from anabranch.surfaces.cli.commands.node.client import NodeClient, answered, hosting

MODULE = "arca"


class ArcaClient:
    def __init__(self, node: NodeClient) -> None:
        self._node = node

    @classmethod
    async def of(cls, folder: NodeFolder) -> ArcaClient:
        """Once the module is ready. Raises where this node hosts none, or it has failed."""
        return cls(await hosting(folder, MODULE))

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

"""Questions to the module Arca, through the local routes that the node serves for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from anabranch.surfaces.ui.node.frame import Refusal, ask

ARCA = "/v1/enact/arca"
MODULE = "arca"


class NotHosted(Refusal):
    """No module of this node answers for Arca."""

    def __init__(self) -> None:
        super().__init__(404, "not_hosted", "this node does not host Arca, which would do this")


async def ask_arca(
    request: web.Request,
    method: str,
    path: str,
    body: Any = None,
    query: Mapping[str, str] | None = None,
) -> Any:
    """What Arca answers to the operator. Raises `NotHosted`, and `Refusal` for everything else."""
    try:
        return await ask(request, method, ARCA + path, body, query)
    except Refusal as refusal:
        if refusal.status == 404 and not await is_hosted(request):
            raise NotHosted from None
        raise


async def is_hosted(request: web.Request) -> bool:
    """Whether a module of this node is Arca, or answers its routes."""
    modules = (await ask(request, "GET", "/v1/modules"))["items"]
    return any(
        one["module_id"] == MODULE
        or any(route["path"].startswith(f"{ARCA}/") for route in one["routes"])
        for one in modules
    )

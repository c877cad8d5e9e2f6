"""What modules told the operator."""

from __future__ import annotations

from aiohttp import web

from anabranch.surfaces.ui.node.frame import ask, older, page_query, show

LEVELS = ("error", "warning", "info")


async def page(request: web.Request) -> web.StreamResponse:
    found = await ask(
        request, "GET", "/v1/notifications", query=page_query(request, "module", "level")
    )
    return show(
        request,
        "node/notifications.html",
        told=found["items"],
        level=request.query.get("level", ""),
        module=request.query.get("module", ""),
        levels=LEVELS,
        older=older(request, found),
    )

"""The nodes that this one has talked to since it was started."""

from __future__ import annotations

from aiohttp import web

from anabranch.surfaces.ui.node.frame import (
    Refusal,
    Trouble,
    ask,
    form_of,
    part,
    see,
    show,
    trouble,
)


async def page(request: web.Request, wrong: Trouble | None = None) -> web.StreamResponse:
    found = await ask(request, "GET", "/v1/peers")
    return show(request, "node/peers.html", wrong, peers=found["items"])


async def open_session(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    try:
        if not form.get("node_id"):
            raise Refusal(400, "node_id", "say which node: node:did:key:z…")
        await ask(request, "POST", f"/v1/peers/{part(form['node_id'])}/session")
    except Refusal as refusal:
        return await page(request, trouble(refusal, "session", form))
    raise see("/peers", "session")

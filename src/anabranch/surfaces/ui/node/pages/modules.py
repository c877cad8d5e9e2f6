"""The modules that the node hosts: how each stands, and start, stop, restart."""

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

VERBS = ("start", "stop", "restart")


async def page(request: web.Request, wrong: Trouble | None = None) -> web.StreamResponse:
    found = await ask(request, "GET", "/v1/modules")
    return show(request, "node/modules.html", wrong, modules=found["items"])


async def one(request: web.Request) -> web.StreamResponse:
    path = f"/v1/modules/{part(request.match_info['module'])}"
    found = await ask(request, "GET", path)
    told = await ask(
        request, "GET", "/v1/notifications", query={"module": found["module_id"], "limit": "10"}
    )
    return show(request, "node/module.html", module=found, told=told["items"])


async def act(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    verb, name = form.get("verb", ""), request.match_info["module"]
    try:
        if verb not in VERBS:
            raise Refusal(400, "verb", "choose start, stop or restart")
        await ask(request, "POST", f"/v1/modules/{part(name)}/{verb}")
    except Refusal as refusal:
        return await page(request, trouble(refusal))
    raise see("/modules", f"module_{verb}")

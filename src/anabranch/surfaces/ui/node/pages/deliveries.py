"""Artifacts that the node sends, with their stages and tries, and those that came in."""

from __future__ import annotations

from aiohttp import web

from anabranch.surfaces.ui.node.frame import (
    Refusal,
    Trouble,
    ask,
    form_of,
    older,
    page_query,
    part,
    see,
    show,
    trouble,
)

DELIVERIES = "/v1/artifact-delivery/deliveries"
ADMISSIONS = "/v1/artifact-delivery/admissions"


async def page(request: web.Request, wrong: Trouble | None = None) -> web.StreamResponse:
    found = await ask(request, "GET", DELIVERIES, query=page_query(request, "open", "component"))
    came_in = await ask(request, "GET", ADMISSIONS, query={"limit": "20"})
    return show(
        request,
        "node/deliveries.html",
        wrong,
        deliveries=found["items"],
        is_open=request.query.get("open") == "true",
        older=older(request, found),
        admissions=came_in["items"],
        refused=came_in["refused"],
    )


async def one(request: web.Request) -> web.StreamResponse:
    name = request.match_info["delivery"]
    found = await ask(request, "GET", f"{DELIVERIES}/{part(name)}")
    outcomes = {one["stage/id"]: one["targets"] for one in found["stage/outcomes"]}
    return show(request, "node/delivery.html", delivery=found, outcomes=outcomes)


async def recover(request: web.Request) -> web.StreamResponse:
    await form_of(request)
    try:
        await ask(request, "POST", "/v1/artifact-delivery/recover")
    except Refusal as refusal:
        return await page(request, trouble(refusal))
    raise see("/deliveries", "recovered")

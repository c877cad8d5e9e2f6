"""The directory: seeds, who holds which capability, and passports of this node."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from anabranch.surfaces.ui.node.frame import (
    Refusal,
    Trouble,
    ask,
    form_of,
    number_in,
    see,
    show,
    trouble,
)

DAY_SECONDS = 86_400
SHOWN = {"limit": "50"}


async def page(request: web.Request, wrong: Trouble | None = None) -> web.StreamResponse:
    capability = request.query.get("capability", "")
    holders: list[Any] = []
    if capability:
        query = {"capability": capability}
        holders = (await ask(request, "GET", "/v1/directory/holders", query=query))["items"]
    return show(
        request,
        "node/directory.html",
        wrong,
        directory=await ask(request, "GET", "/v1/directory"),
        nodes=(await ask(request, "GET", "/v1/directory/nodes", query=SHOWN))["items"],
        passports=(await ask(request, "GET", "/v1/passports"))["items"],
        capability=capability,
        holders=holders,
    )


async def sync(request: web.Request) -> web.StreamResponse:
    await form_of(request)
    try:
        await ask(request, "POST", "/v1/directory/sync")
    except Refusal as refusal:
        return await page(request, trouble(refusal, "sync"))
    raise see("/directory", "synced")


async def issue(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    try:
        days = number_in(form.get("days", ""), "the number of days")
        body = {
            "capability_id": form.get("capability_id", ""),
            "node_id": form.get("node_id", ""),
            "life_seconds": days * DAY_SECONDS,
            "renew": form.get("renew") == "yes",
        }
        await ask(request, "POST", "/v1/passports", body)
    except Refusal as refusal:
        return await page(request, trouble(refusal, "issue", form))
    raise see("/directory", "issued")


async def revoke(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    try:
        body = {"passport_id": form.get("passport_id", "")}
        await ask(request, "POST", "/v1/passports/revoke", body)
    except Refusal as refusal:
        return await page(request, trouble(refusal, "passports"))
    raise see("/directory", "revoked")


async def drop(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    try:
        body = {"node_id": form.get("node_id", "")}
        await ask(request, "POST", "/v1/directory/drop", body)
    except Refusal as refusal:
        return await page(request, trouble(refusal, "nodes"))
    raise see("/directory", "dropped")

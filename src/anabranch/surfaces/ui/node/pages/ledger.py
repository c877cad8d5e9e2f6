"""The ledger of the node: balances, holds of open orders, movements, and money that comes in."""

from __future__ import annotations

import secrets

from aiohttp import web

from anabranch.surfaces.ui.node.frame import (
    Refusal,
    Trouble,
    ask,
    form_of,
    number_in,
    older,
    page_query,
    part,
    see,
    show,
    trouble,
)


async def page(request: web.Request, wrong: Trouble | None = None) -> web.StreamResponse:
    movements = await ask(
        request, "GET", "/v1/ledger/movements", query=page_query(request, "account")
    )
    opened = await ask(request, "GET", "/v1/executions", query={"open": "true", "limit": "200"})
    accounts = await ask(request, "GET", "/v1/ledger/accounts", query={"limit": "100"})
    return show(
        request,
        "node/ledger.html",
        wrong,
        account=await ask(request, "GET", "/v1/ledger/account"),
        accounts=accounts["items"],
        holding=[one for one in opened["items"] if one["hold_id"]],
        movements=movements["items"],
        of_account=request.query.get("account", ""),
        older=older(request, movements),
        key=secrets.token_hex(12),  # a form that is sent twice is one top-up
    )


async def hold(request: web.Request) -> web.StreamResponse:
    found = await ask(request, "GET", f"/v1/ledger/holds/{part(request.match_info['hold'])}")
    return show(request, "node/hold.html", hold=found)


async def top_up(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    try:
        body = {
            "amount": number_in(form.get("amount", ""), "the amount"),
            "idempotency_key": form.get("key", ""),
            "note": form.get("about", ""),
        }
        await ask(request, "POST", "/v1/ledger/top-up", body)
    except Refusal as refusal:
        return await page(request, trouble(refusal, "top-up", form))
    raise see("/ledger", "topped_up")

"""Offers: those of this node, those observed at others, whom to trust, and ordering from one."""

from __future__ import annotations

import secrets
from typing import Any

from aiohttp import web

from anabranch.surfaces.ui.guard import understood
from anabranch.surfaces.ui.node.frame import (
    Refusal,
    Trouble,
    ask,
    form_of,
    json_in,
    number_in,
    part,
    see,
    show,
    trouble,
)

OFFERS = "/v1/service-offers"
TRUSTED = "/v1/trusted-providers"
LISTED = "500"
#: What stands in the form to publish; the node completes and signs it.
DRAFT = """{
  "service/type": "text/summarise",
  "service/description": "A summary of a text in five sentences",
  "pricing/amount": 250,
  "confirmation/mode": "self-confirmed",
  "queue/max-depth": 5
}"""


async def page(request: web.Request, wrong: Trouble | None = None) -> web.StreamResponse:
    own = {"source": "local", "active_only": "false", "limit": LISTED}
    others = {"source": "observed", "limit": LISTED}
    observed = await ask(request, "GET", OFFERS, query=others)
    trusted = (await ask(request, "GET", TRUSTED))["items"]
    return show(
        request,
        "node/offers.html",
        wrong,
        own=(await ask(request, "GET", OFFERS, query=own))["local_offers"],
        observed=observed["observed_offers"],
        more=observed["counts"]["observed"] - len(observed["observed_offers"]),
        trusted=trusted,
        trusted_ids={one["entry/participant-id"] for one in trusted},
        peers=(await ask(request, "GET", "/v1/peers"))["items"],
        draft=DRAFT,
    )


async def one(request: web.Request, wrong: Trouble | None = None) -> web.StreamResponse:
    found = await ask(request, "GET", f"{OFFERS}/{part(request.match_info['offer'])}")
    return show(
        request,
        "node/offer.html",
        wrong,
        row=found,
        offer=found["offer"],
        account=await ask(request, "GET", "/v1/ledger/account"),
        order_id=f"order:{secrets.token_hex(12)}",  # a form that is sent twice is one order
    )


async def publish(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    try:
        offer = await understood(request, json_in, form.get("offer", ""), "the offer")
        await ask(request, "POST", OFFERS, offer)
    except Refusal as refusal:
        return await page(request, trouble(refusal, "publish", form))
    raise see("/offers", "published")


async def withdraw(request: web.Request) -> web.StreamResponse:
    await form_of(request)
    try:
        await ask(request, "POST", f"{OFFERS}/{part(request.match_info['offer'])}/withdraw")
    except Refusal as refusal:
        return await page(request, trouble(refusal, "own"))
    raise see("/offers", "withdrawn")


async def fetch(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    try:
        await ask(request, "POST", f"{OFFERS}/fetch", {"node_id": form.get("node_id", "")})
    except Refusal as refusal:
        return await page(request, trouble(refusal, "fetch", form))
    raise see("/offers", "fetched")


async def trust(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    body: dict[str, Any] = {"participant_id": form.get("participant_id", "")}
    if form.get("trust_note"):
        body["note"] = form["trust_note"]
    try:
        await ask(request, "POST", TRUSTED, body)
    except Refusal as refusal:
        return await page(request, trouble(refusal, "trust", form))
    raise see("/offers", "trusted")


async def distrust(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    try:
        await ask(request, "DELETE", f"{TRUSTED}/{part(form.get('participant_id') or '-')}")
    except Refusal as refusal:
        return await page(request, trouble(refusal, "trust"))
    raise see("/offers", "distrusted")


async def order(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    try:
        wish = await understood(request, _wish, request, form)
        placed = await ask(request, "POST", "/v1/orders", wish)
        if placed["status"] == "rejected":
            said = f"rejected: {placed['classifier']}: {placed['rejected-reason']}"
            raise Refusal(409, placed["classifier"], said)
    except Refusal as refusal:
        return await one(request, trouble(refusal, "order", form))
    note = "placed" if form.get("dispatch") == "yes" else "opened"
    raise see(f"/orders/{part(placed['execution_id'])}", note)


def _wish(request: web.Request, form: dict[str, str]) -> dict[str, Any]:
    wish: dict[str, Any] = {
        "offer_id": request.match_info["offer"],
        "input": json_in(form.get("input") or "{}", "the input"),
        "units": number_in(form.get("units") or "1", "the number of units"),
        "order_id": form.get("order_id") or None,
        "dispatch": form.get("dispatch") == "yes",
    }
    if form.get("max_amount"):
        wish["max_amount"] = number_in(form["max_amount"], "the most to pay")
    return wish

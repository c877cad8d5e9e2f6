"""Requests of others that no module of this node answers: the operator does."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from anabranch.surfaces.ui.guard import understood
from anabranch.surfaces.ui.node.frame import (
    Refusal,
    Trouble,
    ask,
    form_of,
    json_in,
    older,
    page_query,
    part,
    see,
    show,
    trouble,
)

INBOX = "/v1/inbox"


async def page(request: web.Request, wrong: Trouble | None = None) -> web.StreamResponse:
    found = await ask(request, "GET", INBOX, query=page_query(request))
    waiting = await ask(request, "GET", INBOX, query={"open": "true", "limit": "100"})
    return show(
        request,
        "node/inbox.html",
        wrong,
        waiting=waiting["items"],
        answered=[one for one in found["items"] if one["status"] != "open"],
        older=older(request, found),
    )


async def answer(request: web.Request) -> web.StreamResponse:
    form, name = await form_of(request), request.match_info["request"]
    try:
        said = await understood(request, _answer, form)
        await ask(request, "POST", f"{INBOX}/{part(name)}/answer", said)
    except Refusal as refusal:
        return await page(request, trouble(refusal, name, form))
    raise see("/inbox", "answered")


def _answer(form: dict[str, str]) -> dict[str, Any]:
    status = form.get("status", "")
    if status == "completed":
        if not form.get("output"):
            raise Refusal(400, "output", "write the output as JSON")
        return {"status": status, "output": json_in(form["output"], "the output")}
    if not form.get("message"):
        raise Refusal(400, "message", "say why: the buyer reads it")
    return {"status": status, "error": {"code": status, "message": form["message"]}}

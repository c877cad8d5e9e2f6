"""Signing in with the control token, and signing out."""

from __future__ import annotations

from urllib.parse import quote

from aiohttp import web

from anabranch.surfaces.ui.node.frame import LOGIN, PAGES, Trouble, form_of, show
from anabranch.surfaces.ui.node.sessions import WRONG_TOKEN


async def ask_token(request: web.Request) -> web.StreamResponse:
    return _form(request, request.query.get("next", ""))


async def enter(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    way = _local(form.get("next", ""))
    response = web.Response(status=303, headers={"Location": way})
    if request.app[PAGES].sessions.begin(request, response, form.get("token", "")):
        return response
    return _form(request, way, Trouble("token", WRONG_TOKEN, 401))


async def leave(request: web.Request) -> web.StreamResponse:
    await form_of(request)
    response = web.Response(status=303, headers={"Location": f"{LOGIN}?note=signed_out"})
    request.app[PAGES].sessions.end(request, response)
    return response


def _form(request: web.Request, way: str, wrong: Trouble | None = None) -> web.Response:
    here = request.app[PAGES].sessions.find(request)
    return show(request, "node/login.html", wrong, next=_local(way), signed_in=here)


def _local(way: str) -> str:
    """Only an address of ours; anything else leads to the overview."""
    ours = way.startswith("/") and not way.startswith("//") and "\\" not in way
    if not ours or not way.isprintable() or way.startswith(LOGIN):
        return "/"
    return quote(way, safe="/?&=%+,;:@!$'()*~[]")

"""Signing in with a token, where the server asks for one."""

from __future__ import annotations

from aiohttp import web

from anabranch.surfaces.http.auth import GATEKEEPER, sign_in, sign_out
from anabranch.surfaces.http.problems import ApiError
from anabranch.surfaces.ui.context import form_of, show, text_of


async def ask(request: web.Request) -> web.StreamResponse:
    return _form(request, request.query.get("next", ""))


async def enter(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    way = _local(text_of(form, "next"))
    response = web.Response(status=303, headers={"Location": way})
    if GATEKEEPER not in request.app:
        return response  # nobody has to sign in here
    try:
        sign_in(request, response, text_of(form, "token"))
    except ApiError as refused:
        return _form(request, way, refused.detail, refused.status)
    return response


async def leave(request: web.Request) -> web.StreamResponse:
    await form_of(request)
    response = web.Response(status=303, headers={"Location": "/login?note=signed_out"})
    if GATEKEEPER in request.app:
        sign_out(request, response)
    return response


def _form(request: web.Request, way: str, said: str = "", status: int = 200) -> web.Response:
    return show(request, "login.html", status, next=_local(way), said=said)


def _local(way: str) -> str:
    """Only an address of ours; anything else leads to the list of runs."""
    ours = way.startswith("/") and not way.startswith("//") and "\\" not in way
    return way if ours and way.isprintable() and not way.startswith("/login") else "/runs"

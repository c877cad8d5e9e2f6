"""Signing in with a token, where the server asks for one."""

from __future__ import annotations

from urllib.parse import quote

from aiohttp import web

from anabranch.errors import Denied
from anabranch.operations.access.tokens import Caller, entry
from anabranch.surfaces.http.guard.auth import COOKIE, GATEKEEPER, sign_in, sign_out
from anabranch.surfaces.http.guard.origins import address_of
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.ui.context import form_of, show, text_of


async def ask(request: web.Request) -> web.StreamResponse:
    said = "" if "note" in request.query else await _why(request)
    return _form(request, request.query.get("next", ""), said)


async def _why(request: web.Request) -> str:
    """Why somebody who had signed in is asked again."""
    cookie = request.cookies.get(COOKIE)
    if not cookie or GATEKEEPER not in request.app:
        return ""
    keeper = request.app[GATEKEEPER]
    session = await keeper.lookups(lambda: keeper.sessions.find(cookie))
    if session is None:
        return "Your session has ended: it was long ago, or the server was restarted."
    try:
        await keeper.lookups(lambda: keeper.access.caller_of(session.token))
    except Denied as denied:
        return f"Your session has ended: {denied.message}."
    return ""


async def enter(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    way = _local(text_of(form, "next"))
    response = web.Response(status=303, headers={"Location": way})
    if GATEKEEPER not in request.app:
        return response  # nobody has to sign in here
    try:
        caller = await sign_in(request, response, text_of(form, "token"))
    except ApiError as refused:
        return _form(request, way, refused.detail, refused.status)
    await _write_down(request, caller, "visits.begin")
    return response


async def leave(request: web.Request) -> web.StreamResponse:
    await form_of(request)
    response = web.Response(status=303, headers={"Location": "/login?note=signed_out"})
    if GATEKEEPER in request.app:
        caller = await sign_out(request, response)
        if caller is not None:
            await _write_down(request, caller, "visits.end")
    return response


async def _write_down(request: web.Request, caller: Caller, action: str) -> None:
    """The addresses here are open to everybody, so the trail does not do it by itself."""
    keeper = request.app[GATEKEEPER]
    await keeper.audit_log.write(entry(caller, action, keeper.now(), address=address_of(request)))


def _form(request: web.Request, way: str, said: str = "", status: int = 200) -> web.Response:
    keeper = request.app.get(GATEKEEPER)
    asks = keeper is not None and not keeper.policy.open
    return show(request, "login.html", status, next=_local(way), said=said, asks=asks)


def _local(way: str) -> str:
    """Only an address of ours; anything else leads to the list of runs."""
    ours = way.startswith("/") and not way.startswith("//") and "\\" not in way
    if not ours or not way.isprintable() or way.startswith("/login"):
        return "/runs"
    return quote(way, safe="/?&=%+,;:@!$'()*~[]")

"""Sessions: the runs of orchestrations with their processes; wake one up, or end them all."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from anabranch.surfaces.ui.context import actor_of, form_of, see, show, text_of, ui_of

SESSIONS = 25


async def list_sessions(request: web.Request) -> web.StreamResponse:
    owner = request.query.get("owner", "")
    rows = await ui_of(request).look(
        lambda by: by.sessions.list_sessions(owner=owner or None, last=SESSIONS)
    )
    sessions: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        sessions.setdefault(row["sessionId"], []).append(row)
    heads = {run: ui_of(request).head(run) for run in sessions}
    return show(
        request, "sessions.html", sessions=sessions, heads=heads, owner=owner, most=SESSIONS
    )


async def wake(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    await ui_of(request).parts.sessions.wake_up_process(
        text_of(form, "process"), actor=actor_of(request)
    )
    raise see("/sessions", "woken")


async def end(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    await ui_of(request).parts.sessions.control(
        text_of(form, "run"), reason=text_of(form, "reason"), actor=actor_of(request)
    )
    raise see("/sessions", "cancelled")

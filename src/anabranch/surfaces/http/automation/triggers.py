"""Triggers over HTTP, and the dispatcher for finished runs, which lives as long as the server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from aiohttp import web

from anabranch.operations.triggers.triggers import (
    TriggerCard,
    TriggerDraft,
    TriggerPlan,
    TriggerReport,
    TriggerRequest,
)
from anabranch.surfaces.http.guard.audit import SUBJECT
from anabranch.surfaces.http.guard.shares import in_line, in_share
from anabranch.surfaces.http.io import shapes
from anabranch.surfaces.http.io.request_body import (
    answer,
    page_of,
    read_body,
    read_cursor,
    read_query,
)
from anabranch.surfaces.http.io.threads import in_thread
from anabranch.surfaces.http.resources.definitions import CURSOR, PAGE
from anabranch.surfaces.http.resources.definitions import prepared as compiled
from anabranch.surfaces.http.resources.metrics import METERS
from anabranch.surfaces.http.routes import API, PARTS, Route, actor_of

ALL = f"{API}/triggers"
ONE = f"{ALL}/{{trigger}}"
EXAMPLE = {
    "name": "paid",
    "path": "quotes",
    "hook": {"credential": "shop"},
    "input": {"order": "{{ body.order }}"},
}


class TriggerPage(msgspec.Struct, frozen=True, kw_only=True):
    items: list[TriggerCard]
    next: str | None


async def add(request: web.Request) -> web.StreamResponse:
    draft = await read_body(request, TriggerDraft)
    request[SUBJECT] = draft.name[:200]
    prepared = None
    if draft.definition is not None:
        prepared = await compiled(request, draft.definition, None, draft.file)
    kept = request.app[PARTS].triggering.triggers
    card = await in_line(request, kept.add, draft, prepared, actor_of(request))
    return answer(card, 201, {"Location": f"{ALL}/{card.name}"})


async def list_all(request: web.Request) -> web.StreamResponse:
    query = read_query(request)
    limit = query["limit"]
    after = str(read_cursor(query["cursor"], str)[0]) if query["cursor"] else ""
    kept = request.app[PARTS].triggering.triggers
    found: list[TriggerCard] = await in_thread(kept.page, after, limit + 1)
    items, more = page_of(found, limit, lambda card: (card.name,))
    return answer(TriggerPage(items=items, next=more))


async def show(request: web.Request) -> web.StreamResponse:
    kept, name = request.app[PARTS].triggering.triggers, request.match_info["trigger"]
    return answer(await in_thread(kept.show, name))


async def test(request: web.Request) -> web.StreamResponse:
    asked = await read_body(request, TriggerRequest)
    kept, name = request.app[PARTS].triggering.triggers, request.match_info["trigger"]
    return answer(await in_share(request, kept.test, name, asked))


async def pause(request: web.Request) -> web.StreamResponse:
    await read_body(request, shapes.Nothing, optional=True)
    kept, name = request.app[PARTS].triggering.triggers, request.match_info["trigger"]
    return answer(await in_thread(kept.pause, name, actor_of(request)))


async def resume(request: web.Request) -> web.StreamResponse:
    await read_body(request, shapes.Nothing, optional=True)
    kept, name = request.app[PARTS].triggering.triggers, request.match_info["trigger"]
    return answer(await in_thread(kept.resume, name))


async def retry(request: web.Request) -> web.StreamResponse:
    await read_body(request, shapes.Nothing, optional=True)
    kept, name = request.app[PARTS].triggering.triggers, request.match_info["trigger"]
    return answer(await in_thread(kept.retry, name), 202)


async def remove(request: web.Request) -> web.StreamResponse:
    kept, name = request.app[PARTS].triggering.triggers, request.match_info["trigger"]
    return answer(await in_thread(kept.remove, name))


async def carry(app: web.Application) -> AsyncIterator[None]:
    """The dispatcher works from the start of the application to its end."""
    app[PARTS].triggering.begin()
    yield
    await app[PARTS].triggering.close()


def mount(app: web.Application) -> None:
    app[METERS].registry.add(app[PARTS].triggering.dispatcher.attempts)
    app.cleanup_ctx.append(carry)


ROUTES = (
    Route("POST", ALL, "operate", add,
          "Start or signal runs when a hook is called, or when other runs have finished",
          body=TriggerDraft, returns=TriggerCard, example=EXAMPLE, status=201, errors=(404, 409)),
    Route("GET", ALL, "read", list_all, "The triggers by name",
          returns=TriggerPage, query=(PAGE, CURSOR)),
    Route("GET", ONE, "read", show, "A trigger, and what it did last",
          returns=TriggerCard, errors=(404,)),
    Route("POST", f"{ONE}/test", "read", test,
          "Show what a trigger would do with a call or a finished run; nothing is done",
          body=TriggerRequest, returns=TriggerPlan, example={"body": {"order": "A-17"}},
          errors=(404,)),
    Route("POST", f"{ONE}/pause", "operate", pause,
          "Refuse calls; act on finished runs only after it is resumed",
          body=shapes.Nothing, bodiless=True, returns=TriggerCard, example={}, errors=(404, 409)),
    Route("POST", f"{ONE}/resume", "operate", resume, "Take calls and finished runs again",
          body=shapes.Nothing, bodiless=True, returns=TriggerCard, example={}, errors=(404, 409)),
    Route("POST", f"{ONE}/retry", "operate", retry,
          "Act once more on the finished runs that were refused",
          body=shapes.Nothing, bodiless=True, returns=TriggerReport, example={}, status=202,
          errors=(404, 409)),
    Route("DELETE", ONE, "operate", remove, "Remove a trigger; its runs stay",
          returns=TriggerCard, errors=(404, 409)),
)  # fmt: skip

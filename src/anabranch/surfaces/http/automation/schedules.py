"""Schedules over HTTP, and the scheduler that lives as long as the application."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from aiohttp import web

from anabranch.operations.schedules.schedules import (
    NEXT_MOST,
    NEXT_SHOWN,
    AskedRun,
    BackfillPlan,
    BackfillRequest,
    NextTimes,
    ScheduleCard,
    ScheduleDraft,
)
from anabranch.surfaces.http.guard.audit import SUBJECT
from anabranch.surfaces.http.guard.shares import in_line
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
from anabranch.surfaces.http.routes import API, PARTS, Query, Route, actor_of

ALL = f"{API}/schedules"
ONE = f"{ALL}/{{schedule}}"
EXAMPLE = {
    "name": "nightly",
    "path": "reports/nightly",
    "cron": "0 3 * * mon-fri",
    "timezone": "Europe/Berlin",
    "input": {"day": "{{ schedule.date }}"},
}


class SchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    items: list[ScheduleCard]
    next: str | None


async def add(request: web.Request) -> web.StreamResponse:
    draft = await read_body(request, ScheduleDraft)
    request[SUBJECT] = draft.name[:200]
    prepared = None
    if draft.definition is not None:
        prepared = await compiled(request, draft.definition, None, draft.file)
    kept = request.app[PARTS].scheduling.schedules
    card = await in_line(request, kept.add, draft, prepared, actor_of(request))
    return answer(card, 201, {"Location": f"{ALL}/{card.name}"})


async def list_all(request: web.Request) -> web.StreamResponse:
    query = read_query(request)
    limit = query["limit"]
    after = str(read_cursor(query["cursor"], str)[0]) if query["cursor"] else ""
    found: list[ScheduleCard] = await in_thread(
        request.app[PARTS].scheduling.schedules.page, after, limit + 1
    )
    items, more = page_of(found, limit, lambda card: (card.name,))
    return answer(SchedulePage(items=items, next=more))


async def show(request: web.Request) -> web.StreamResponse:
    kept, name = request.app[PARTS].scheduling.schedules, request.match_info["schedule"]
    return answer(await in_thread(kept.show, name))


async def next_times(request: web.Request) -> web.StreamResponse:
    kept, name = request.app[PARTS].scheduling.schedules, request.match_info["schedule"]
    return answer(await in_thread(kept.next, name, read_query(request)["count"]))


async def pause(request: web.Request) -> web.StreamResponse:
    await read_body(request, shapes.Nothing, optional=True)
    kept, name = request.app[PARTS].scheduling.schedules, request.match_info["schedule"]
    return answer(await in_thread(kept.pause, name, actor_of(request)))


async def resume(request: web.Request) -> web.StreamResponse:
    await read_body(request, shapes.Nothing, optional=True)
    kept, name = request.app[PARTS].scheduling.schedules, request.match_info["schedule"]
    return answer(await in_thread(kept.resume, name))


async def run_now(request: web.Request) -> web.StreamResponse:
    await read_body(request, shapes.Nothing, optional=True)
    kept, name = request.app[PARTS].scheduling.schedules, request.match_info["schedule"]
    return answer(await in_thread(kept.run_now, name), 202)


async def backfill(request: web.Request) -> web.StreamResponse:
    asked = await read_body(request, BackfillRequest)
    kept, name = request.app[PARTS].scheduling.schedules, request.match_info["schedule"]
    return answer(await in_thread(kept.backfill, name, asked))


async def remove(request: web.Request) -> web.StreamResponse:
    kept, name = request.app[PARTS].scheduling.schedules, request.match_info["schedule"]
    return answer(await in_thread(kept.remove, name))


async def carry(app: web.Application) -> AsyncIterator[None]:
    """The scheduler works from the start of the application to its end."""
    app[PARTS].scheduling.begin()
    yield
    await app[PARTS].scheduling.close()


def mount(app: web.Application) -> None:
    scheduler, registry = app[PARTS].scheduling.scheduler, app[METERS].registry
    for metric in (scheduler.fired, scheduler.skipped, scheduler.lag):
        registry.add(metric)
    app.cleanup_ctx.append(carry)


_COUNT = Query(
    "count", "how many", "integer", least=1, most=NEXT_MOST, default=NEXT_SHOWN, example=3
)

ROUTES = (
    Route("POST", ALL, "operate", add, "Begin runs by the clock: cron, an interval, or instants",
          body=ScheduleDraft, returns=ScheduleCard, example=EXAMPLE, status=201,
          errors=(404, 409)),
    Route("GET", ALL, "read", list_all, "The schedules by name, each with its next time",
          returns=SchedulePage, query=(PAGE, CURSOR)),
    Route("GET", ONE, "read", show, "A schedule, its next times, and what became of the last ones",
          returns=ScheduleCard, errors=(404,)),
    Route("GET", f"{ONE}/next", "read", next_times, "The next times of a schedule",
          returns=NextTimes, query=(_COUNT,), errors=(404,)),
    Route("POST", f"{ONE}/pause", "operate", pause, "Begin no runs until it is resumed",
          body=shapes.Nothing, bodiless=True, returns=ScheduleCard, example={}, errors=(404, 409)),
    Route("POST", f"{ONE}/resume", "operate", resume,
          "Go on with the next time; what came meanwhile is left out",
          body=shapes.Nothing, bodiless=True, returns=ScheduleCard, example={}, errors=(404, 409)),
    Route("POST", f"{ONE}/run-now", "operate", run_now, "Begin a run beside the timetable",
          body=shapes.Nothing, bodiless=True, returns=AskedRun, example={}, status=202,
          errors=(404, 409)),
    Route("POST", f"{ONE}/backfill", "operate", backfill,
          "Begin the runs of a time that is over; with `dry_run` only say which",
          body=BackfillRequest, returns=BackfillPlan,
          example={"begin": "2026-11-01T00:00", "end": "2026-11-08T00:00", "dry_run": True},
          errors=(404, 409)),
    Route("DELETE", ONE, "operate", remove, "Remove a schedule; its runs stay",
          returns=ScheduleCard, errors=(404, 409)),
)  # fmt: skip

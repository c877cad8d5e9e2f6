"""Schedules: what begins when, how the last times went; paused, resumed, begun now with a click."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from anabranch.dialects.timetable import iso, zone_of
from anabranch.errors import InputError
from anabranch.operations.schedules.schedules import ScheduleCard
from anabranch.surfaces.http.io.threads import in_thread
from anabranch.surfaces.http.routes import actor_of
from anabranch.surfaces.ui import guard
from anabranch.surfaces.ui.context import form_of, may, see, show, ui_of
from anabranch.surfaces.ui.rendering import html, rendered

PAGE = "/schedules"
SHOWN = 100  # schedules of one page
VERBS = {"pause": "schedule_paused", "resume": "schedule_resumed", "run-now": "schedule_asked"}


class ScheduleRow(msgspec.Struct, frozen=True):
    card: ScheduleCard
    when: str
    upcoming: list[tuple[int, str]]  # with the time of the zone
    skipped: int


async def overview(request: web.Request) -> web.StreamResponse:
    return show(request, "schedules.html", **await _values(request))


async def panel(request: web.Request) -> web.StreamResponse:
    """Only the cards, for a page that is looked at."""
    more = {"csrf": guard.form_secret(request), "may": may(request), "now": ui_of(request).now()}
    return html(rendered("schedules_panel.html", {**await _values(request), **more}))


async def do(request: web.Request) -> web.StreamResponse:
    await form_of(request)
    name, verb = request.match_info["schedule"], request.match_info["verb"]
    if verb not in VERBS:
        raise InputError(f"there is no {verb[:40]!r} for a schedule: {', '.join(VERBS)}")
    schedules = ui_of(request).parts.scheduling.schedules
    if verb == "pause":
        await in_thread(schedules.pause, name, actor_of(request))
    else:
        await in_thread(schedules.resume if verb == "resume" else schedules.run_now, name)
    raise see(PAGE, VERBS[verb])


async def _values(request: web.Request) -> dict[str, Any]:
    schedules, after = ui_of(request).parts.scheduling.schedules, request.query.get("after", "")
    found = await in_thread(schedules.page, after, SHOWN + 1)
    cards = [await in_thread(schedules.show, card.name) for card in found[:SHOWN]]
    following = cards[-1].name if len(found) > SHOWN else ""
    return {"rows": [_row(card) for card in cards], "after": after, "following": following}


def _row(card: ScheduleCard) -> ScheduleRow:
    zone = zone_of(card.schedule["timezone"])
    upcoming = [(at, iso(at, zone).replace("T", " ")[:19]) for at in card.next[:3]]
    return ScheduleRow(card, _when(card.schedule), upcoming, sum(card.skipped.values()))


def _when(said: dict[str, Any]) -> str:
    if "cron" in said:
        return str(said["cron"])
    if "every" in said:
        return f"every {said['every']}"
    count = len(said["at"])
    return f"at {count} instant{'s' if count > 1 else ''}"

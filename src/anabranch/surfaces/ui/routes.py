"""The addresses of all pages."""

from __future__ import annotations

import re
from collections.abc import Collection

from aiohttp import web

from anabranch.errors import NotFound
from anabranch.surfaces.http.guard.audit import PAGE_ACTIONS
from anabranch.surfaces.http.guard.auth import PAGE_SCOPES
from anabranch.surfaces.http.io.problems import answer_errors
from anabranch.surfaces.http.io.readers import READERS
from anabranch.surfaces.http.resources.decisions import APPROVALS
from anabranch.surfaces.http.routes import PARTS, ROOTS, Scope
from anabranch.surfaces.ui import live, rendering
from anabranch.surfaces.ui.context import UI, Ui, answer_in_pages, see
from anabranch.surfaces.ui.pages import (
    approvals,
    bulk,
    cluster,
    credentials,
    definitions,
    joins,
    login,
    logs,
    loops,
    overview,
    participants,
    pools,
    run,
    runs,
    schedules,
    sessions,
    steps,
    triggers,
    workers,
)
from anabranch.surfaces.ui.views import dispatches
from anabranch.surfaces.ui.views.graphs import Graphs

#: What a token must allow; whatever is not named is only looked at.
SCOPES: dict[tuple[str, str], Scope] = {
    ("GET", "/static/{version}/{name}"): "open",
    ("GET", "/favicon.ico"): "open",
    ("GET", "/login"): "open",
    ("POST", "/login"): "open",
    ("POST", "/logout"): "open",
    ("POST", "/runs"): "operate",
    ("POST", "/runs/{run}/do/{verb}"): "operate",
    ("POST", "/runs/{run}/steps/{step}/do/{verb}"): "operate",
    ("POST", "/runs/{run}/loops/{loop}"): "operate",
    ("POST", "/runs/{run}/gates/{gate}"): "decide",
    ("POST", "/definitions"): "read",
    ("POST", "/definitions/check"): "read",
    ("POST", "/definitions/start"): "operate",
    ("POST", "/definitions/keep"): "operate",
    ("POST", "/definitions/register"): "operate",
    ("POST", "/sessions/wake"): "operate",
    ("POST", "/sessions/end"): "operate",
    ("GET", "/credentials"): "admin",
    ("POST", "/participants"): "operate",
    ("POST", "/views"): "operate",
    ("POST", "/views/drop"): "operate",
    ("POST", "/schedules/{schedule}/do/{verb}"): "operate",
    ("POST", "/triggers/{trigger}/do/{verb}"): "operate",
    ("POST", "/aliases/{alias}/rollback"): "operate",
    ("POST", "/cluster/servers/{server}/drain"): "admin",
    ("POST", "/cluster/servers/{server}/undrain"): "admin",
}

#: What the audit trail calls a change; the same as over the API.
ACTIONS: dict[tuple[str, str], str] = {
    ("POST", "/runs"): "bulk",
    ("POST", "/runs/{run}/do/{verb}"): "runs.{verb}",
    ("POST", "/runs/{run}/steps/{step}/do/{verb}"): "runs.steps.{verb}",
    ("POST", "/runs/{run}/loops/{loop}"): "runs.loops.change",
    ("POST", "/runs/{run}/gates/{gate}"): "runs.gates.decide",
    ("POST", "/definitions/start"): "runs.create",
    ("POST", "/definitions/keep"): "definitions.create",
    ("POST", "/definitions/register"): "catalog.create",
    ("POST", "/sessions/wake"): "sessions.wake",
    ("POST", "/sessions/end"): "sessions.end",
    ("POST", "/participants"): "participants.probe",
    ("POST", "/views"): "views.save",
    ("POST", "/views/drop"): "views.delete",
    ("POST", "/schedules/{schedule}/do/{verb}"): "schedules.{verb}",
    ("POST", "/triggers/{trigger}/do/{verb}"): "triggers.{verb}",
    ("POST", "/aliases/{alias}/rollback"): "aliases.rollback",
    ("POST", "/cluster/servers/{server}/drain"): "cluster.servers.drain",
    ("POST", "/cluster/servers/{server}/undrain"): "cluster.servers.drain.delete",
}


def mount(app: web.Application) -> None:
    """Add the pages to an application over an engine."""
    parts = app[PARTS]
    app[UI] = Ui(parts, app[READERS], Graphs(), app[APPROVALS])
    app[PAGE_SCOPES], app[PAGE_ACTIONS] = dict(SCOPES), dict(ACTIONS)
    # Around the guards: they refuse in pages too.
    app.middlewares.insert(app.middlewares.index(answer_errors) + 1, answer_in_pages)
    roots = app[ROOTS]
    app.add_routes(routes(roots))
    app.on_shutdown.append(live.close_streams)


def routes(for_programs: Collection[str] = ("api",)) -> list[web.RouteDef]:
    """`for_programs` are the first names of paths below which there are no pages."""
    listed = "|".join(map(re.escape, sorted(for_programs)))
    return [
        web.get("/", _home),
        web.get("/static/{version}/{name}", rendering.serve_static),
        web.get("/favicon.ico", _icon),
        web.get("/login", login.ask),
        web.post("/login", login.enter),
        web.post("/logout", login.leave),
        web.get("/overview", overview.overview),
        web.get("/overview/panel", overview.panel),
        web.post("/views", runs.save_view),
        web.post("/views/drop", runs.drop_view),
        web.get("/runs", runs.list_runs),
        web.post("/runs", bulk.do_with_many),
        web.get("/live/runs", live.follow_runs),
        web.get("/live/approvals", live.follow_approvals),
        *_of_a_run(),
        web.get("/approvals", approvals.inbox),
        web.get("/approvals/count", approvals.count),
        web.get("/definitions", definitions.editor),
        web.post("/definitions", definitions.examine),
        web.post("/definitions/check", definitions.check_typed),
        web.post("/definitions/start", definitions.start),
        web.post("/definitions/keep", definitions.publish),
        web.post("/definitions/register", definitions.register),
        web.get("/sessions", sessions.list_sessions),
        web.get("/sessions/panel", sessions.panel),
        web.post("/sessions/wake", sessions.wake),
        web.post("/sessions/end", sessions.end),
        web.get("/participants", participants.list_all),
        web.post("/participants", participants.probe_all),
        web.get("/credentials", credentials.list_all),
        web.get("/schedules", schedules.overview),
        web.get("/schedules/panel", schedules.panel),
        web.post("/schedules/{schedule}/do/{verb}", schedules.do),
        web.get("/triggers", triggers.overview),
        web.get("/triggers/panel", triggers.panel),
        web.post("/triggers/{trigger}/do/{verb}", triggers.do),
        web.post("/aliases/{alias}/rollback", triggers.roll_back),
        web.get("/workers", workers.overview),
        web.get("/workers/panel", workers.panel),
        web.get("/pools", pools.overview),
        web.get("/pools/panel", pools.panel),
        web.get("/cluster", cluster.overview),
        web.get("/cluster/panel", cluster.panel),
        web.post("/cluster/servers/{server}/drain", cluster.begin_drain),
        web.post("/cluster/servers/{server}/undrain", cluster.end_drain),
        web.get(f"/{{anything:(?!(?:{listed})(?:/|$)).*}}", _nothing),
    ]


def _of_a_run() -> list[web.RouteDef]:
    return [
        web.get("/live/runs/{run}", live.follow_run),
        web.get("/runs/{run}", run.overview),
        web.get("/runs/{run}/ways.json", run.ways),
        web.get("/runs/{run}/steps/{step}", steps.page),
        web.get("/runs/{run}/steps/{step}/panel", steps.panel),
        web.get("/runs/{run}/steps/{step}/{what}.json", steps.whole_value),
        web.post("/runs/{run}/steps/{step}/do/{verb}", steps.do),
        web.get("/runs/{run}/timeline", run.timeline),
        web.get("/runs/{run}/timeline.json", run.timeline_data),
        web.get("/runs/{run}/timeline/shards/{loop}", run.timeline_shards),
        web.get("/runs/{run}/timeline/table", run.timeline_table),
        web.get("/runs/{run}/events", run.events),
        web.get("/runs/{run}/events/rows", run.event_rows),
        web.get("/runs/{run}/logs", logs.page),
        web.get("/live/runs/{run}/logs", live.follow_logs),
        web.get("/runs/{run}/data", run.data),
        web.get("/runs/{run}/data/{what}.json", run.whole_data),
        web.get("/runs/{run}/definition", run.definition),
        web.get("/runs/{run}/joins", joins.page),
        web.get("/runs/{run}/redrive", run.redrive),
        web.get("/runs/{run}/joins/panel", joins.panel),
        web.get("/runs/{run}/dispatches", dispatches.page),
        web.get("/runs/{run}/dispatches/panel", dispatches.panel),
        web.get("/runs/{run}/dispatches/{dispatch}", dispatches.answer),
        web.get("/runs/{run}/snapshot.json", dispatches.snapshot),
        web.get("/runs/{run}/receipts", dispatches.receipts),
        web.get("/runs/{run}/receipts/panel", dispatches.receipts_panel),
        web.get("/runs/{run}/loops/{loop}", loops.panel),
        web.post("/runs/{run}/loops/{loop}", loops.tune),
        web.post("/runs/{run}/gates/{gate}", approvals.decide),
        web.post("/runs/{run}/do/{verb}", run.do),
    ]


async def _home(_request: web.Request) -> web.StreamResponse:
    raise see("/overview")


async def _icon(_request: web.Request) -> web.StreamResponse:
    raise web.HTTPSeeOther(rendering.static_path("icon.svg"))


async def _nothing(request: web.Request) -> web.StreamResponse:
    raise NotFound(f"there is no page {request.path[:200]}")

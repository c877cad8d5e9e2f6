"""`GET /api/v1/health`: 200 while the engine gets on with its work, else 503 with the reasons.

Open to everybody, because those who ask (load balancers, service managers) have no token; so it
says what is wrong with the server and nothing of what runs on it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web

from anabranch.operations.health import Health, HealthReport, as_text
from anabranch.runtime.metrics.loop_lag import LoopLag
from anabranch.surfaces.http.io.request_body import answer, read_query
from anabranch.surfaces.http.resources.metrics import METERS
from anabranch.surfaces.http.routes import API, PARTS, SETTINGS, Query, Route

HEALTH = web.AppKey("health", Health)


async def health(request: web.Request) -> web.StreamResponse:
    asked = read_query(request)
    report = await request.app[HEALTH].report()
    well = report.live if asked["check"] == "live" else report.ready
    status, headers = 200 if well else 503, {"Cache-Control": "no-store"}
    if asked["format"] == "text":
        return web.Response(text=as_text(report), status=status, headers=headers)
    return answer(report, status, headers)


def mount(app: web.Application) -> None:
    watch = LoopLag()
    app[METERS].registry.add(watch.lag)
    app[METERS].registry.add(watch.late_ticks)
    app[HEALTH] = Health(app[PARTS].engine, app[SETTINGS], watch)
    app[HEALTH].clusters = app[PARTS].verbs.read.clusters

    async def follow(_app: web.Application) -> AsyncIterator[None]:
        watch.start()
        yield
        watch.stop()
        app[HEALTH].close()

    app.cleanup_ctx.append(follow)


ROUTES = (
    Route(
        "GET",
        f"{API}/health",
        "open",
        health,
        "Whether the engine makes progress; 503 with reasons when it does not",
        returns=HealthReport,
        query=(
            Query(
                "check",
                "`live`: is the process worth keeping? `ready`: should it get work?",
                choices=("live", "ready"),
                default="ready",
            ),
            Query(
                "format",
                "`text` for people",
                choices=("json", "text"),
                default="json",
            ),
        ),
        also=("text/plain",),
        errors=(503,),
    ),
)

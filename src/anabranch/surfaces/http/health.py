"""`GET /api/v1/health`: 200 while the engine gets on with its work, else 503 with the reasons.

Open to everybody, because those who ask (load balancers, service managers) have no token; so it
says what is wrong with the server and nothing of what runs on it.
"""

from __future__ import annotations

from aiohttp import web

from anabranch.operations.health import Health, HealthReport
from anabranch.surfaces.http.reading import answer, read_query
from anabranch.surfaces.http.routes import API, PARTS, SETTINGS, Query, Route

HEALTH = web.AppKey("health", Health)


async def health(request: web.Request) -> web.StreamResponse:
    which = read_query(request)["check"]
    report = await request.app[HEALTH].report()
    well = report.live if which == "live" else report.ready
    return answer(report, 200 if well else 503, {"Cache-Control": "no-store"})


def mount(app: web.Application) -> None:
    app[HEALTH] = Health(app[PARTS].engine, app[SETTINGS])


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
        ),
        errors=(503,),
    ),
)

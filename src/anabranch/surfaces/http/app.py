"""The application: the table of routes, mounted, behind the middlewares that guard it.

    errors → guards (hosts, tokens, limits: handed in) → handler

`make_application` only puts together; who opens the engine, binds the address and stops in order is
`anabranch serve`. Other surfaces mount themselves with `mounts`: each gets the application before
it starts, and may add routes and things that live as long as it does (`cleanup_ctx`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from anabranch.operations.access.write_batcher import WriteBatcher
from anabranch.operations.runs.approvals import Approvals
from anabranch.parts import Parts
from anabranch.settings import Settings
from anabranch.surfaces.http import logs, openapi, overview, rpc, traces
from anabranch.surfaces.http.automation import aliases, hooks, schedules, triggers
from anabranch.surfaces.http.automation import limits as limits_of_runs
from anabranch.surfaces.http.guard.idempotency import (
    BATCHER,
    REPEATS,
    IdempotencyKeys,
    keep_answers,
)
from anabranch.surfaces.http.guard.shares import SHARES, Shares, end_threads
from anabranch.surfaces.http.io import readers
from anabranch.surfaces.http.io.ended_runs import EndedRuns
from anabranch.surfaces.http.io.problems import answer_errors
from anabranch.surfaces.http.io.request_body import LIMITS, PARSED_AT_ONCE, PARSING, Limits
from anabranch.surfaces.http.resources import (
    bulk,
    catalog,
    cluster,
    credentials,
    decisions,
    definitions,
    events,
    health,
    loops,
    metrics,
    participants,
    payloads,
    runs,
    sessions,
    start,
    tokens,
    wait,
    webhooks,
    workers,
    workflows,
)
from anabranch.surfaces.http.routes import PARTS, ROOTS, SETTINGS, TABLE, Route, table_of

Middleware = Any  # what `web.middleware` makes
Mount = Callable[[web.Application], None]

#: Everything the API offers.
ALL_ROUTES: tuple[Route, ...] = (
    *openapi.ROUTES,
    *definitions.ROUTES,
    *start.ROUTES,
    *runs.ROUTES,
    *overview.ROUTES,
    *events.ROUTES,
    *logs.ROUTES,
    *loops.ROUTES,
    *decisions.ROUTES,
    *sessions.ROUTES,
    *rpc.ROUTES,
    *workflows.ROUTES,
    *participants.ROUTES,
    *payloads.ROUTES,
    *tokens.ROUTES,
    *credentials.ROUTES,
    *catalog.ROUTES,
    *wait.ROUTES,
    *workers.ROUTES,
    *bulk.ROUTES,
    *webhooks.ROUTES,
    *schedules.ROUTES,
    *triggers.ROUTES,
    *hooks.ROUTES,
    *aliases.ROUTES,
    *limits_of_runs.ROUTES,
    *cluster.ROUTES,
    *health.ROUTES,
    *metrics.ROUTES,
)


def make_application(
    parts: Parts,
    settings: Settings,
    *,
    routes: Sequence[Route] = ALL_ROUTES,
    guards: Sequence[Middleware] = (),
    mounts: Sequence[Mount] = (),
    limits: Limits | None = None,
    batcher: WriteBatcher | None = None,
) -> web.Application:
    """An application over an engine that is open, or will be when it starts."""
    chosen, routes = limits or Limits(), rpc.opened(routes, settings)
    app = web.Application(
        middlewares=[answer_errors, *guards], client_max_size=chosen.body_bytes + 1
    )
    app[PARTS], app[SETTINGS], app[LIMITS] = parts, settings, chosen
    app[TABLE] = dict(table_of(tuple(routes)))
    app[ROOTS] = frozenset(route.path.split("/")[1] for route in routes)
    app[readers.READERS] = readers.Readers(parts, settings)
    app[events.STREAMS] = events.Streams(chosen.stream_beat_seconds)
    app[SHARES] = Shares(settings)
    app[decisions.APPROVALS] = Approvals(parts.nets)
    cluster = parts.store.cluster
    app[REPEATS] = IdempotencyKeys(cluster.server if cluster is not None else "")
    app[BATCHER] = batcher or WriteBatcher(parts.store)
    app[PARSING] = asyncio.Semaphore(PARSED_AT_ONCE)
    app[payloads.READING] = asyncio.Semaphore(payloads.READ_AT_ONCE)
    app[rpc.CHAIN] = rpc.Chain(settings)
    app[runs.ENDED_RUNS] = EndedRuns()
    app[openapi.DESCRIBED] = openapi.Described(routes)
    app[definitions.COMPILED] = definitions.Compilations()
    app.cleanup_ctx.extend(
        [readers.close_readers, keep_answers, events.hear_news, decisions.hear_news]
    )
    app.on_shutdown.append(events.end_streams)
    app.on_shutdown.append(workers.let_go)
    app.on_cleanup.append(end_threads)
    for route in sorted(routes, key=lambda one: one.path):  # methods of a path are one resource
        app.router.add_route(route.method, route.path, route.handler)
    for mount in (
        metrics.mount,
        health.mount,
        overview.mount,
        webhooks.mount,
        schedules.mount,
        triggers.mount,
        traces.mount,
        *mounts,
    ):
        mount(app)
    return app

"""Traces of the runs of a server, where a setting or a variable says where they go.

It listens from the moment it is mounted: what an engine that is just open records in its first
turns, the jobs that a crash has cost for instance, is in the traces, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from aiohttp import web

from anabranch.errors import InputError
from anabranch.surfaces.http.resources.metrics import METERS
from anabranch.surfaces.http.routes import PARTS, SETTINGS, Header
from anabranch.surfaces.tracing import Tracer, otlp_exporter, standard_endpoint
from anabranch.work import tracing

log = logging.getLogger("anabranch.tracing")

TRACE_HEADER = Header(
    tracing.TRACEPARENT,
    "the span of the caller (W3C Trace Context): the run becomes part of it",
    strict=False,
)


def traced(request: web.Request) -> str:
    """The span of whoever asks; empty when they name none, or one that cannot be."""
    given = request.headers.getall(tracing.TRACEPARENT, [])
    place = tracing.read(given[0]) if len(given) == 1 else None
    return str(place) if place is not None else ""


def mount(app: web.Application) -> None:
    tracer = _tracer(app)
    if tracer is None:
        return
    engine = app[PARTS].engine
    stop = engine.listen(tracer.hear)
    engine.traces = True
    app[METERS].registry.add(tracer.dropped)

    async def follow(_app: web.Application) -> AsyncIterator[None]:
        tracer.start()
        yield
        stop()
        engine.traces = False
        await asyncio.to_thread(tracer.close)

    app.cleanup_ctx.append(follow)


def _tracer(app: web.Application) -> Tracer | None:
    """None where nobody asks for traces. The variables of OpenTelemetry are often set for all
    programs of a machine: to those that cannot send traces they mean nothing."""
    chosen, standard = app[SETTINGS].otel_endpoint, standard_endpoint()
    if not chosen and not standard:
        return None
    try:
        exporter = otlp_exporter(chosen or standard)
    except InputError as error:
        if chosen:
            raise
        log.warning("no traces are sent: %s", error.message)
        return None
    return Tracer(app[PARTS].store, exporter)

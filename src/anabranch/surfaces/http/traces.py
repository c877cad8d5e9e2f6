"""Traces of the runs of a server, where the setting `otel_endpoint` says where they go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from anabranch.surfaces.http.routes import PARTS, SETTINGS


async def follow(app: web.Application) -> AsyncIterator[None]:
    from anabranch.surfaces.tracing import Tracer, otlp_exporter

    parts = app[PARTS]
    tracer = Tracer(parts.store, otlp_exporter(app[SETTINGS].otel_endpoint))
    stop = parts.engine.listen(tracer.hear)
    yield
    stop()
    await asyncio.to_thread(tracer.close)


def mount(app: web.Application) -> None:
    if app[SETTINGS].otel_endpoint:
        app.cleanup_ctx.append(follow)

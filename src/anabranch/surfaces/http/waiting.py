"""Waiting for a run: a request that is answered when it has ended, or after a while."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
from aiohttp import web

from anabranch.surfaces.http.reading import answer, read_query
from anabranch.surfaces.http.routes import PARTS, Query, Route
from anabranch.surfaces.http.runs import RUN

SECONDS_MAX = 60


class Waited(msgspec.Struct, frozen=True, kw_only=True):
    """`settled` says that waiting longer would change nothing by itself."""

    run: str
    status: str
    finished: bool
    settled: bool


async def wait(request: web.Request) -> web.StreamResponse:
    parts, asked = request.app[PARTS], read_query(request)
    run = parts.verbs.read.find(request.match_info["run"]).run
    settled = False
    with suppress(TimeoutError):
        async with asyncio.timeout(asked["seconds"]):
            await parts.verbs.wait(run, standing=asked["standing"])
            settled = True
    head = parts.verbs.read.find(run)
    return answer(Waited(run=run, status=head.status, finished=head.finished, settled=settled))


ROUTES = (
    Route(
        "GET",
        f"{RUN}/wait",
        "read",
        wait,
        "Wait until a run has ended; with `standing`, or until only somebody can move it",
        returns=Waited,
        query=(
            Query("seconds", "how long at most", "integer", least=0, most=SECONDS_MAX, default=30),
            Query(
                "standing", "true: also until only somebody can move it", "boolean", default=False
            ),
        ),
    ),
)

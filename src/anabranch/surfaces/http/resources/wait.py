"""Waiting for a run: a request that is answered when it has ended, or after a while."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import msgspec
from aiohttp import web

from anabranch.surfaces.http.guard.shares import long_request
from anabranch.surfaces.http.io.request_body import answer, read_query
from anabranch.surfaces.http.resources.runs import RUN
from anabranch.surfaces.http.routes import PARTS, Query, Route

SECONDS_MAX = 60
LOOK_SECONDS = 0.5  # how soon somebody who has hung up is noticed


class Waited(msgspec.Struct, frozen=True, kw_only=True):
    """`settled` says that waiting longer would change nothing by itself."""

    run: str
    status: str
    finished: bool
    settled: bool


async def wait(request: web.Request) -> web.StreamResponse:
    parts, asked = request.app[PARTS], read_query(request)
    head = parts.verbs.read.find(request.match_info["run"])
    if head.finished:  # as the store has it: its log need not be read to know that
        return answer(Waited(run=head.run, status=head.status, finished=True, settled=True))
    run = head.run
    with long_request(request, "waits") if asked["seconds"] else nullcontext():
        settled = await _settled(request, run, asked["seconds"], standing=asked["standing"])
    head = parts.verbs.read.find(run)
    return answer(Waited(run=run, status=head.status, finished=head.finished, settled=settled))


async def _settled(request: web.Request, run: str, seconds: float, *, standing: bool) -> bool:
    """Whether it came to that in time. Whoever hangs up meanwhile waits for nothing."""
    if not seconds:  # one look, however long it takes: a run of another server is in the store
        return await request.app[PARTS].engine.is_settled(run, standing=standing)
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    waiting = loop.create_task(request.app[PARTS].verbs.wait(run, standing=standing))
    try:
        await asyncio.sleep(0)  # what is settled already needs no time
        while not waiting.done() and (left := until - loop.time()) > 0:
            if request.transport is None or request.transport.is_closing():
                return False
            await asyncio.wait((waiting,), timeout=min(left, LOOK_SECONDS))
        if not waiting.done():
            return False
        await waiting  # raises what went wrong
        return True
    finally:
        waiting.cancel()


ROUTES = (
    Route(
        "GET",
        f"{RUN}/wait",
        "read",
        wait,
        "Wait until a run has ended; with `standing=true`, or until only a person or program "
        "outside can move it",
        returns=Waited,
        errors=(429, 503),
        query=(
            Query("seconds", "how long at most", "integer", least=0, most=SECONDS_MAX, default=30),
            Query(
                "standing",
                "true: also until only a person or program outside can move it",
                "boolean",
                default=False,
            ),
        ),
    ),
)

"""What a server answers while it opens its runs: that it lives, and nothing else.

To bring back what is unfinished may take a while, and who watches over the process would end it.
So it listens from the beginning: `/health` answers, and everything else is asked to come again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from anabranch.operations.health import Check, HealthReport, as_text
from anabranch.surfaces.http.guard import bad_http
from anabranch.surfaces.http.guard.auth import HEADERS
from anabranch.surfaces.http.guard.connection_limits import ConnectionLimiter
from anabranch.surfaces.http.io.problems import problem
from anabranch.surfaces.http.io.request_body import answer
from anabranch.surfaces.http.routes import API
from anabranch.surfaces.http.sockets import told_if_in_use

HEALTH = f"{API}/health"
REASON = "the server opens its runs; it answers when all of them are there"
REPORT = HealthReport(
    status="bad",
    live=True,
    ready=False,
    reasons=[REASON],
    checks=[Check(name="engine", level="bad", reason=REASON)],
)


class Opening:
    """Listens on copies of the sockets, which stay for whoever answers afterwards."""

    def __init__(self, limiter: ConnectionLimiter) -> None:
        self._limiter = limiter
        self._server = web.Server(_answer, access_log=None)
        self._listening: list[asyncio.Server] = []

    async def listen(self, sockets: Sequence[socket.socket], **how: Any) -> None:
        loop = asyncio.get_running_loop()
        factory = self._limiter.admit(bad_http.listening(self._server))
        for each in sockets:
            with told_if_in_use(each):
                self._listening.append(await loop.create_server(factory, sock=each.dup(), **how))

    async def close(self) -> None:
        for listening in self._listening:
            listening.close()
        self._listening.clear()
        await self._server.shutdown()


async def _answer(request: web.BaseRequest) -> web.StreamResponse:
    response = _health(request) if request.path == HEALTH else _come_again()
    response.headers.extend({**HEADERS, "Cache-Control": "no-store"})
    response.force_close()  # the next request finds who answers all of them
    return response


def _health(request: web.BaseRequest) -> web.Response:
    status = 200 if request.query.get("check") == "live" else 503
    if request.query.get("format") == "text":
        return web.Response(text=as_text(REPORT), status=status)
    return answer(REPORT, status)


def _come_again() -> web.Response:
    return problem(503, "opening", detail=REASON, hint="ask again", headers={"Retry-After": "1"})

"""Whatever is not HTTP is answered like every other error, and tells nothing about the server.

aiohttp answers bytes that it cannot read by itself, before any of our guards: with its version, the
line that it stumbled over, and none of our headers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from anabranch.surfaces.http.guard.auth import HEADERS
from anabranch.surfaces.http.io.problems import problem

log = logging.getLogger("anabranch.http")

#: From here on it repeats what was sent. Blanks are read from the first of them.
_QUOTED = re.compile(r"(?::\s*+|(?<!\s)\s++)?(?:b['\"]|bytearray\()|\n")


class Listener(RequestHandler):
    """A connection as aiohttp has it, but for its words."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500:
            log.error("a connection from %s failed", request.remote, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer is sent already")
        words = _QUOTED.split(message or "", maxsplit=1)[0].strip(" :.")
        said = f"this is not a request that can be read: {words[:100]}" if status < 500 else ""
        headers = {**HEADERS, "Server": "anabranch", "Cache-Control": "no-store"}
        code, hint = ("not_http", "send plain HTTP/1.1") if status < 500 else ("internal", "")
        response = problem(status, code, detail=said, hint=hint, headers=headers)
        response.force_close()
        return response


def listening(server: web.Server) -> Callable[[], RequestHandler]:
    """Makes the connections of a server; only their class is another one."""

    def make() -> RequestHandler:
        made = server()
        made.__class__ = Listener
        return made

    return make

"""Whatever is not HTTP is answered like every other error, and tells nothing about the server.

aiohttp answers bytes that it cannot read by itself, before any of our guards: with its version, the
line that it stumbled over, and none of our headers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from traceback import extract_tb

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
            # A fault above all guards. One line: strangers must not fill the log with tracebacks.
            log.error("a request from %s failed: %s", request.remote, _described(exc, message))
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer is sent already")
        words = _QUOTED.split(message or "", maxsplit=1)[0].strip(" :.")
        said = f"this is not a request that can be read: {words[:100]}" if status < 500 else ""
        headers = {**HEADERS, "Server": "anabranch", "Cache-Control": "no-store"}
        code, hint = ("not_http", "send plain HTTP/1.1") if status < 500 else ("internal", "")
        response = problem(status, code, detail=said, hint=hint, headers=headers)
        response.force_close()
        return response


def _described(error: BaseException | None, message: str | None) -> str:
    """What went wrong, and at which line of ours."""
    if error is None:
        return message or "there was no answer in time"
    said = repr(str(error))[:200]  # in one line
    calls = extract_tb(error.__traceback__)
    place = f" at {calls[-1].filename}:{calls[-1].lineno}" if calls else ""
    return f"{type(error).__name__} {said}{place}"


def listening(server: web.Server) -> Callable[[], RequestHandler]:
    """Makes the connections of a server; only their class is another one."""

    def make() -> RequestHandler:
        made = server()
        made.__class__ = Listener
        return made

    return make

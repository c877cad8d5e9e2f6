"""HTTP for a table of endpoints: reads a request, says who calls, answers in JSON.

A node and a module serve their tables with it. What is refused here never reaches the table: a name
of the host that is not this machine and what a page of another site asks for (neither may reach it
through a browser), a body that is packed, too large, too slow or no JSON. A body is read when it is
known who sends it, and a large one is parsed beside the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from anabranch.market.node.api import Answer, Api, Call, Caller, problem
from anabranch.market.node.errors import NodeError
from anabranch.surfaces.http.guard.connection_limits import heard, hold, require_unpacked
from anabranch.surfaces.http.guard.origins import check_origin
from anabranch.surfaces.http.guard.unread_answers import ASKING
from anabranch.surfaces.http.io.body_room import BodyRoom
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.request_body import (
    LARGE_BYTES,
    PARSED_AT_ONCE,
    parse,
    read_at_most,
)
from anabranch.work.network.loopback import is_loopback

BODY_SECONDS = 30.0
STRANGERS_BYTES = 64 * 1024 * 1024  # of bodies that are on their way at once, of all together
KNOWN_BYTES = 256 * 1024 * 1024  # the same for callers with a token
DEPTH_MAX = 128
LINE_BYTES = 64 * 1024  # names and parameters, each letter of which may take twelve

#: (path, headers with names in lower case) → who calls; raises `NodeError`.
WhoCalls = Callable[[str, Mapping[str, str]], Caller]


def add_table(
    app: web.Application, api: Api, who_calls: WhoCalls, *, name: str, logger: logging.Logger
) -> None:
    """Serve every path that has no route yet; `name` is what answers here, such as `node`."""
    reading = _Reading(api)

    async def serve(request: web.Request) -> web.Response:
        try:
            _require_loopback(request, name)
            check_origin(request)
            require_unpacked(request)
            call = await _call(request, api, who_calls, reading)
            if _is_known(call):
                request[ASKING] = call.caller.actor
                hold(request)
            return response(await api.handle(call))
        except NodeError as error:
            answer = _problem(error.status, error.code, error.message, error.headers)
        except ApiError as error:
            answer = _problem(error.status, error.code, error.detail, error.headers)
        except Exception as error:
            logger.error("%s %.200r failed", request.method, request.path, exc_info=error)
            answer = _problem(500, "internal", f"the {name} failed to answer; its log says more")
        return response(answer)

    app.router.add_route("*", r"/{path:[\s\S]*}", serve)  # also with line ends in it


def response(answer: Answer) -> web.Response:
    refused = answer.status >= 400
    return web.Response(
        status=answer.status,
        body=b"" if answer.status == 204 else msgspec.json.encode(answer.body),
        content_type="application/problem+json" if refused else "application/json",
        headers=dict(answer.headers),
    )


async def _call(request: web.Request, api: Api, who_calls: WhoCalls, reading: _Reading) -> Call:
    names = {name.lower() for name in request.headers}
    # A header that stands twice is one list (RFC 9110), so two tokens are no token.
    headers = {name: _text(", ".join(request.headers.getall(name))) for name in names}
    path = request.rel_url.raw_path
    call = Call(
        method="GET" if request.method == "HEAD" else request.method,
        path=path,
        caller=who_calls(path, headers),
        headers=headers,
        remote=request.remote or "",
    )
    if _is_known(call):
        heard(request)  # a body that comes slowly makes room all the same, but after silence
    most = api.admitted(call)
    call = msgspec.structs.replace(call, query=_query(request))
    if not request.can_read_body or not most:
        return call
    with reading.room_of(call).take(request.transport) as coming:
        said = f"a body has at most {most:,} bytes"
        raw = await read_at_most(
            request, most, BODY_SECONDS, said, "send less at once", coming.grow
        )
        coming.has_come()
        heard(request)
        return msgspec.structs.replace(call, raw=raw, body=await _parsed(raw, reading.parsing))


class _Reading:
    """What all requests to one table share while their bodies are read."""

    def __init__(self, api: Api) -> None:
        self.parsing = asyncio.Semaphore(PARSED_AT_ONCE)
        largest = max((one.body_bytes for one in api.endpoints), default=0)
        self._strangers = BodyRoom(max(STRANGERS_BYTES, 2 * largest))
        self._known = BodyRoom(max(KNOWN_BYTES, 2 * largest))

    def room_of(self, call: Call) -> BodyRoom:
        return self._known if _is_known(call) else self._strangers


def _is_known(call: Call) -> bool:
    return call.caller.scope != "open"


async def _parsed(raw: bytes, parsing: asyncio.Semaphore) -> Any:
    if not raw.strip():
        return None
    if len(raw) <= LARGE_BYTES:
        return parse(raw, Any, DEPTH_MAX)
    async with parsing:
        return await asyncio.to_thread(parse, raw, Any, DEPTH_MAX)


def _require_loopback(request: web.Request, name: str) -> None:
    given = request.headers.get("Host", "")
    host = given.rpartition(":")[0] if given.rpartition(":")[2].isdecimal() else given
    if host.lower() == "localhost":
        return
    try:
        if is_loopback(host.removeprefix("[").removesuffix("]")):
            return
    except ValueError:
        pass
    raise NodeError(421, "host", f"this {name} is not called {host[:100]!r}")


def _text(value: str) -> str:
    """Bytes of a header that are no UTF-8 cannot be passed on in JSON."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _query(request: web.Request) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in request.query.items():
        if name in found:
            raise NodeError(400, "bad_query", f"`{_text(name)[:100]}` is given more than once")
        found[_text(name)] = _text(value)
    return found


def _problem(
    status: int, code: str, detail: str, headers: Mapping[str, str] | None = None
) -> Answer:
    return Answer(status=status, body=problem(status, code, detail), headers=headers or {})

"""What the work of a run printed: in pages, and as a stream that goes on where it was broken off.

The id of a frame is the number of a row of the store, so `Last-Event-ID` says where to go on. A
frame has the lines of some rows. Who follows is woken by what this server writes, and looks by
itself now and then: another server may own the run.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from anabranch.errors import AnabranchError
from anabranch.operations.logs.log_lines import (
    LEVELS,
    LINES,
    LINES_MAX,
    LogLines,
    LogQuery,
    LogReader,
    open_log,
    read_level,
)
from anabranch.surfaces.http.guard.shares import long_request
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.readers import ReadHandle, look
from anabranch.surfaces.http.io.request_body import LIMITS, answer, bad_parameter, read_query
from anabranch.surfaces.http.resources.events import BEAT, STREAMS
from anabranch.surfaces.http.resources.runs import RUN
from anabranch.surfaces.http.routes import PARTS, Header, Query, Route

LOOK_SECONDS = 1.0  # between two looks at the store while nothing is heard
LAST_LOOKS = 3  # after the run has ended: its last lines may be on their way at another server
FRAME_LINES = 500
FRAME_BYTES = 64 * 1024  # of rows; a follower that does not read costs a few of them
SEARCH_MAX = 1000
_encode = msgspec.json.Encoder().encode


def _query(asked: dict[str, Any]) -> LogQuery:
    search = asked["search"] or ""
    if len(search) > SEARCH_MAX:
        raise bad_parameter("search", f"has more than {SEARCH_MAX} characters", "search for less")
    return LogQuery(
        step=asked["step"],
        attempt=asked["attempt"],
        level=read_level(asked["level"]),
        search=search,
    )


async def page(request: web.Request) -> web.StreamResponse:
    asked, run = read_query(request), request.match_info["run"]
    wanted = _query(asked)
    await asyncio.to_thread(request.app[PARTS].engine.logs.flush)  # what was printed by now

    def read(by: ReadHandle) -> LogLines:
        reader = open_log(by.read, run, wanted)
        if asked["newest"]:
            return reader.newest(asked["limit"])
        return reader.page(asked["after"], asked["limit"])

    return answer(await look(request, read))


async def stream(request: web.Request) -> web.StreamResponse:
    streams, limits = request.app[STREAMS], request.app[LIMITS]
    with long_request(request, "streams"):
        if len(streams) >= limits.streams:
            said = f"{limits.streams} followers are connected, which is the most"
            raise ApiError(503, "too_many_streams", said, "retry later, or request pages")
        return await _stream(request)


async def _stream(request: web.Request) -> web.StreamResponse:
    asked = read_query(request)
    wanted, after = _query(asked), _after(request, asked["after"])
    name = request.match_info["run"]
    reader = await look(request, lambda by: open_log(by.read, name, wanted))
    run = reader.run
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
    )
    response.enable_chunked_encoding()
    news, loop = asyncio.Event(), asyncio.get_running_loop()

    def heard() -> None:
        try:
            loop.call_soon_threadsafe(news.set)
        except RuntimeError:  # the loop is closed
            return

    ear = request.app[STREAMS].follow(run)
    stop = request.app[PARTS].engine.logs.follow(run, heard)
    try:
        await response.prepare(request)
        await _Following(request, response, reader, news).go(after)
    except (ConnectionError, TimeoutError, AnabranchError):
        pass  # it has gone, or takes nothing; who comes back says where it was
    finally:
        stop()
        request.app[STREAMS].leave(run, ear)
    return response


def _after(request: web.Request, asked: int) -> int:
    given = request.headers.get("Last-Event-ID", "").strip()
    if not given:
        return asked
    if not (given.isascii() and given.isdecimal() and len(given) <= 15):
        raise bad_parameter("Last-Event-ID", "is not a number", "send the id of the last frame")
    return int(given)


class _Following:
    """One client and the log it follows."""

    def __init__(
        self,
        request: web.Request,
        response: web.StreamResponse,
        reader: LogReader,
        news: asyncio.Event,
    ) -> None:
        self._request, self._response = request, response
        self._reader, self._news = reader, news
        self._limits = request.app[LIMITS]

    async def go(self, after: int) -> None:
        await self._write(b"retry: 2000\n\n")
        left = LAST_LOOKS
        while left:
            found, finished = await look(self._request, partial(self._read, after=after))
            if found.last != after:
                after = found.last
                await self._write(b"id: %d\n" % after + _frame("logs", {"items": found.items}))
                continue
            if self._request.app[STREAMS].closing:
                await self._write(_frame("end", {"reason": "server_stops", "seq": after}))
                return
            if finished and left == LAST_LOOKS:
                await asyncio.to_thread(self._request.app[PARTS].engine.logs.flush)
            left = left - 1 if finished else LAST_LOOKS
            if left:
                await self._rest(LOOK_SECONDS / 4 if finished else LOOK_SECONDS)
        await self._write(_frame("end", {"reason": "finished", "seq": after}))

    def _read(self, by: ReadHandle, after: int) -> tuple[LogLines, bool]:
        """The end is looked for first: what was printed before it can be written by then."""
        head = by.store.head(self._reader.run)
        found = self._reader.using(by.store).page(after, FRAME_LINES, FRAME_BYTES)
        return found, head is None or head.finished

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            await self._write(BEAT)
        self._news.clear()

    async def _write(self, data: bytes) -> None:
        async with asyncio.timeout(self._limits.stream_write_seconds):
            await self._response.write(data)


def _frame(event: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), _encode(data))


_FILTER = (
    Query("step", "only lines of this step"),
    Query("attempt", "only lines of attempts with this number", "integer", least=1),
    Query("level", "only lines of this level or a higher one", choices=LEVELS),
    Query("search", "only lines with this text in them, in capitals or not"),
)
_AFTER = Query("after", "only rows behind this number", "integer", default=0)

ROUTES = (
    Route(
        "GET",
        f"{RUN}/logs",
        "read",
        page,
        "What the work of a run printed, in order; request the next page with `after=next`",
        returns=LogLines,
        query=(
            *_FILTER,
            _AFTER,
            Query("limit", "how many lines", "integer", least=1, most=LINES_MAX, default=LINES),
            Query("newest", "the last lines instead of the first", "boolean", default=False),
        ),
    ),
    Route(
        "GET",
        f"{RUN}/logs/stream",
        "read",
        stream,
        "Follow what the work of a run prints, until the run has finished",
        query=(*_FILTER, _AFTER),
        media="text/event-stream",
        errors=(429, 503),
        headers=(Header("Last-Event-ID", "the last row seen; goes before `after`"),),
    ),
)

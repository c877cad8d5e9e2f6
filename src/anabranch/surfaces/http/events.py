"""The events of a run: in pages, and as a stream that goes on where it was broken off.

A stream is read from the log, never from memory: it shows what is durable, in order, each event
once, and its id is the event's number, so `Last-Event-ID` says exactly where to go on. The log is
also the queue of every follower. Whoever reads slowly is behind, and costs one page of memory;
whoever takes nothing at all for a while is told so (`event: dropped`) and let go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from aiohttp import web

from anabranch.operations.following import Follower, Places
from anabranch.operations.shown import EventRecord
from anabranch.runtime.effects import Published
from anabranch.surfaces.http import shapes
from anabranch.surfaces.http.looking import Looking, look
from anabranch.surfaces.http.problems import ApiError
from anabranch.surfaces.http.reading import LIMITS, answer, bad_parameter, read_query
from anabranch.surfaces.http.routes import PARTS, Header, Query, Route
from anabranch.surfaces.http.runs import RUN

log = logging.getLogger("anabranch.http")

EVENTS_MAX = 1000
STREAM_PAGE = 200
STREAM_BYTES = 256 * 1024  # what a follower that does not read can cost, about
LAST_WORDS_SECONDS = 2.0  # to read why one was dropped
_encode = msgspec.json.Encoder().encode


class Streams:
    """Who follows which run, and how they are woken."""

    def __init__(self) -> None:
        self.places = Places()
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._all: set[asyncio.Event] = set()
        self.closing = False

    def __len__(self) -> int:
        return len(self._all)

    def hear(self, news: Published) -> None:
        for bell in self._waiting.get(news.run, ()):
            bell.set()

    def follow(self, run: str) -> asyncio.Event:
        bell = asyncio.Event()
        self._waiting.setdefault(run, set()).add(bell)
        self._all.add(bell)
        return bell

    def leave(self, run: str, bell: asyncio.Event) -> None:
        self._all.discard(bell)
        bells = self._waiting.get(run, set())
        bells.discard(bell)
        if not bells:
            self._waiting.pop(run, None)

    def close(self) -> None:
        """The server stops: every follower is told, and comes back later."""
        self.closing = True
        for bell in self._all:
            bell.set()


STREAMS = web.AppKey("streams", Streams)


async def hear_news(app: web.Application) -> AsyncIterator[None]:
    stop = app[PARTS].engine.listen(app[STREAMS].hear)
    yield
    stop()


async def end_streams(app: web.Application) -> None:
    app[STREAMS].close()


# -- pages -----------------------------------------------------------------------------------------


async def page(request: web.Request) -> web.StreamResponse:
    asked, run = read_query(request), request.match_info["run"]
    places, after, limit = request.app[STREAMS].places, asked["after"], asked["limit"]

    def read(by: Looking) -> shapes.EventPage:
        head = by.read.find(run)
        follower = places.take(head.run, after) if after else None
        if follower is None:
            follower = Follower(head.run, by.read.private(head.run))
            follower.skip_to(by.store, after)
        records = follower.page(by.store, limit) if follower.seq == after else []
        more = bool(records) and records[-1].seq < head.seq
        if more:
            places.keep(follower)
        return shapes.EventPage(records, records[-1].seq if more else None, head.finished)

    return answer(await look(request, read))


# -- the stream ------------------------------------------------------------------------------------


async def stream(request: web.Request) -> web.StreamResponse:
    streams, limits = request.app[STREAMS], request.app[LIMITS]
    after = _after(request)
    if len(streams) >= limits.streams:
        said = f"{limits.streams} followers are connected, which is the most"
        raise ApiError(503, "too_many_streams", said, "try again later, or ask for pages")
    run = request.match_info["run"]
    follower = await look(request, lambda by: _follower(by, run, after))
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
    )
    response.enable_chunked_encoding()
    bell = streams.follow(follower.run)
    try:
        await response.prepare(request)
        await _Following(request, response, follower, bell).go()
    finally:
        streams.leave(follower.run, bell)
    return response


def _after(request: web.Request) -> int:
    """A browser that comes back says which event it saw last; that counts more than the query."""
    given = request.headers.get("Last-Event-ID", "").strip()
    asked: int = read_query(request)["after"]
    if not given:
        return asked
    if not (given.isascii() and given.isdecimal() and len(given) <= 15):
        raise bad_parameter("Last-Event-ID", "is not a number", "send the id of the last event")
    return int(given)


def _follower(by: Looking, run: str, after: int) -> Follower:
    head = by.read.find(run)
    if after > head.seq:
        said = f"event {after} does not exist: the run has {head.seq}"
        raise ApiError(409, "ahead_of_log", said, "follow from an event that you have seen")
    follower = Follower(head.run, by.read.private(head.run))
    follower.skip_to(by.store, after)
    return follower


class _Following:
    """One client and the run it follows."""

    def __init__(
        self,
        request: web.Request,
        response: web.StreamResponse,
        follower: Follower,
        bell: asyncio.Event,
    ) -> None:
        self._request, self._response = request, response
        self._follower, self._bell = follower, bell
        self._limits = request.app[LIMITS]

    async def go(self) -> None:
        try:
            await self._write(b"retry: 2000\n\n")
            while await self._new_events():
                await self._rest()
        except TimeoutError:
            await self._drop()
        except ConnectionError:
            pass  # it has gone

    async def _new_events(self) -> bool:
        """Write what the log has; false when nothing will follow."""
        while True:
            self._bell.clear()  # before the log is read: whatever comes later rings again
            records = await look(
                self._request, lambda by: self._follower.page(by.store, STREAM_PAGE, STREAM_BYTES)
            )
            if records:
                await self._write(b"".join(map(frame, records)))
            if records and records[-1].kind == "run.finished":
                await self._end("finished")
                return False
            if not records:
                return await self._goes_on()

    async def _goes_on(self) -> bool:
        if self._request.app[STREAMS].closing:
            await self._end("server_stops")
            return False
        head = await look(self._request, lambda by: by.store.head(self._follower.run))
        if head is None or (head.finished and head.seq <= self._follower.seq):
            await self._end("finished")
            return False
        return True

    async def _rest(self) -> None:
        """Until something is recorded; a heartbeat now and then keeps proxies awake."""
        while True:
            try:
                async with asyncio.timeout(self._limits.stream_beat_seconds):
                    await self._bell.wait()
                return
            except TimeoutError:
                await self._write(b": beat\n\n")

    async def _end(self, reason: str) -> None:
        await self._write(_named("end", {"reason": reason, "seq": self._follower.seq}))

    async def _write(self, data: bytes) -> None:
        async with asyncio.timeout(self._limits.stream_write_seconds):
            await self._response.write(data)

    async def _drop(self) -> None:
        """It takes nothing. What is already on its way is followed by the reason, then cut off."""
        run, seq = self._follower.run, self._follower.seq
        log.warning("a follower of run %s takes nothing: dropped at event %d", run, seq)
        last_words = _named("dropped", {"reason": "too_slow", "seq": seq})
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._response.write(last_words)
                await self._response.write_eof()
        except (TimeoutError, ConnectionError):
            pass
        if self._request.transport is not None:
            self._request.transport.abort()


def frame(record: EventRecord) -> bytes:
    """One event on the wire; JSON has no line ends of its own."""
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (record.seq, record.kind.encode(), _encode(record))


def _named(event: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), _encode(data))


ROUTES = (
    Route(
        "GET",
        f"{RUN}/events",
        "read",
        page,
        "The events of a run in order; ask for the next page with `after=next`",
        returns=shapes.EventPage,
        query=(
            Query("after", "only events behind this", "integer", default=0),
            Query("limit", "how many at most", "integer", least=1, most=EVENTS_MAX, default=200),
        ),
    ),
    Route(
        "GET",
        f"{RUN}/events/stream",
        "read",
        stream,
        "Follow a run: its events from the log and then live, until it has finished",
        query=(Query("after", "only events behind this", "integer", default=0),),
        media="text/event-stream",
        errors=(409, 503),
        headers=(Header("Last-Event-ID", "the last event seen; goes before `after`"),),
    ),
)

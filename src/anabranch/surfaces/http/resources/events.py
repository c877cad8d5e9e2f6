"""The events of a run: in pages, and as a stream that goes on where it was broken off.

A stream shows what is in the log, in order and once. The id of an event is its number, so
`Last-Event-ID` says exactly where to go on. The log is also the queue of every follower: whoever
reads slowly is behind, looks at the log again and costs one page of memory; whoever takes nothing
for a while is told so (`event: dropped`) and let go. Whoever keeps up is handed each turn as it
becomes durable, which spares the look at the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from anabranch.errors import AnabranchError, StoreError
from anabranch.operations.read.event_pages import Follower, Places
from anabranch.operations.read.event_view import EventRecord
from anabranch.operations.read.task_events import (
    PROCESSED,
    STARTED,
    some_with_tasks,
    with_tasks,
)
from anabranch.runtime.effects import DurableEvents
from anabranch.store.cluster_ports import RunMoved
from anabranch.store.outages import passes
from anabranch.surfaces.http.guard.shares import long_request
from anabranch.surfaces.http.guard.unread_answers import NO_ROOM, counting, pieces
from anabranch.surfaces.http.io import shapes
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.readers import ReadHandle, look, read_inline
from anabranch.surfaces.http.io.request_body import LIMITS, answer, bad_parameter, read_query
from anabranch.surfaces.http.resources.runs import RUN
from anabranch.surfaces.http.routes import PARTS, Header, Query, Route

log = logging.getLogger("anabranch.http")

EVENTS_MAX = 1000
STREAM_PAGE = 200
STREAM_BYTES = 64 * 1024  # of a page; a follower that does not read costs a few of them
NEWS_KEPT = 8  # turns that become durable before a follower that rests has woken up
LARGE_AT_ONCE = 2  # followers that look for events of which much became durable at once
LAST_WORDS_SECONDS = 2.0  # to read why one was dropped
AWAY_SECONDS = 1.0  # between two looks at a store that is away
CLEAR_BYTES = 32 * 1024  # fit into what a transport buffers before it makes writers wait
RETRY = b"retry: 2000\n\n"
BEAT = b": beat\n\n"
_encode = msgspec.json.Encoder().encode


class Ear:
    """One follower, as the engine sees it.

    What becomes durable while it rests is handed to it. What comes while it writes is not kept: a
    follower that reads slowly must not cost memory. It is `behind` then, and looks at the log; and
    so it is where much became durable at once, of which many followers would each make a copy.

    It has one timer for all of its rests, which looks how long the present one has lasted.
    """

    def __init__(self, beat_seconds: float, few: asyncio.Semaphore | None = None) -> None:
        self.behind = True
        self._few = few
        self.reading: asyncio.Semaphore | None = None  # taken to look, once there was much
        self._rests = False
        self._news: list[DurableEvents] = []
        self._rung = False
        self._waking: asyncio.Future[None] | None = None  # while it waits
        self._beat_seconds, self._rests_since = beat_seconds, 0.0
        self._timer: asyncio.TimerHandle | None = None

    def hear(self, news: DurableEvents) -> None:
        if len(news.row) > STREAM_BYTES:
            self.behind, self.reading = True, self._few
        elif self._rests and len(self._news) < NEWS_KEPT:
            self._news.append(news)
        else:
            self.behind = True
        self.ring()

    def fall_behind(self, _moved: RunMoved) -> None:
        """Another server has recorded something."""
        self.behind = True
        self.ring()

    def ring(self) -> None:
        self._rung = True
        self._wake()

    async def rest(self) -> bool:
        """Until there is something; at once, if there was while it did not listen. False if there
        was nothing for as long as a follower may hear nothing."""
        self._rests = True
        if self.behind or self._rung:
            return True
        loop = asyncio.get_running_loop()
        self._rests_since = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._beat_seconds, self._look_at_clock, loop)
        self._waking = loop.create_future()
        try:
            await self._waking
        finally:
            self._waking = None
        return self._rung

    def take(self) -> list[DurableEvents]:
        """What it heard; from now on it does not listen until it rests again."""
        news, self._news = self._news, []
        self._rests = self._rung = False
        return news

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wake(self) -> None:
        if self._waking is not None and not self._waking.done():
            self._waking.set_result(None)

    def _look_at_clock(self, loop: asyncio.AbstractEventLoop) -> None:
        now, due = loop.time(), self._rests_since + self._beat_seconds
        if due <= now:
            due = now + self._beat_seconds
            self._wake()
        self._timer = loop.call_at(due, self._look_at_clock, loop)


class Streams:
    """Who follows which run."""

    def __init__(self, beat_seconds: float) -> None:
        self.places = Places()
        self._few = asyncio.Semaphore(LARGE_AT_ONCE)
        self._beat_seconds = beat_seconds
        self._following: dict[str, set[Ear]] = {}
        self._all: set[Ear] = set()
        self.closing = False

    def __len__(self) -> int:
        return len(self._all)

    def hear(self, news: DurableEvents) -> None:
        for ear in self._following.get(news.run, ()):
            ear.hear(news)

    def follow(self, run: str) -> Ear:
        ear = Ear(self._beat_seconds, self._few)
        self._following.setdefault(run, set()).add(ear)
        self._all.add(ear)
        return ear

    def leave(self, run: str, ear: Ear) -> None:
        ear.close()
        self._all.discard(ear)
        ears = self._following.get(run, set())
        ears.discard(ear)
        if not ears:
            self._following.pop(run, None)

    def close(self) -> None:
        """The server stops: every follower is told, and comes back later."""
        self.closing = True
        for ear in self._all:
            ear.ring()


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

    def read(by: ReadHandle) -> shapes.EventPage:
        head = by.read.find(run)
        follower = places.take(head.run, after) if after else None
        if follower is None:
            follower = Follower(head.run, by.read.private(head.run))
            follower.skip_to(by.store, after)
        records = follower.page(by.store, limit) if follower.seq == after else []
        shown, taken = some_with_tasks(records) if asked["tasks"] else (records, len(records))
        last = records[taken - 1].seq if records else head.seq
        if last < head.seq and taken == len(records):
            places.keep(follower)
        return shapes.EventPage(shown, last if last < head.seq else None, head.finished)

    return answer(await look(request, read))


# -- the stream ------------------------------------------------------------------------------------


async def stream(request: web.Request) -> web.StreamResponse:
    with long_request(request, "streams"):
        return await _stream(request)


async def _stream(request: web.Request) -> web.StreamResponse:
    streams, limits = request.app[STREAMS], request.app[LIMITS]
    after = _after(request)
    if len(streams) >= limits.streams:
        said = f"{limits.streams} followers are connected, which is the most"
        raise ApiError(503, "too_many_streams", said, "retry later, or request pages")
    run = request.match_info["run"]
    follower = await read_inline(request, lambda by: _follower(by, run, after))
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
    )
    response.enable_chunked_encoding()
    ear = streams.follow(follower.run)
    stop = request.app[PARTS].engine.listen_elsewhere(ear.fall_behind, follower.run)
    try:
        await response.prepare(request)
        await _Following(request, response, follower, ear).go()
    finally:
        stop()
        streams.leave(follower.run, ear)
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


def _follower(by: ReadHandle, run: str, after: int) -> Follower:
    head = by.read.find(run)
    if after > head.seq:
        said = f"event {after} does not exist: the run has {head.seq}"
        raise ApiError(409, "ahead_of_log", said, "follow from an event that you have seen")
    if after:
        by.weigh(head.run)
    follower = Follower(head.run, by.read.net(head).private)
    follower.skip_to(by.store, after)
    return follower


class _Said(NamedTuple):
    """Some events on the wire; with the last one of the run, the end of the stream too."""

    data: bytes
    ended: bool

    def __bool__(self) -> bool:
        return bool(self.data)


_Found = _Said | list[EventRecord]


class _Following:
    """One client and the run it follows."""

    def __init__(
        self,
        request: web.Request,
        response: web.StreamResponse,
        follower: Follower,
        ear: Ear,
    ) -> None:
        self._request, self._response = request, response
        self._follower, self._ear = follower, ear
        self._told = follower.seq  # the last event that was written
        self._astray = False  # a read that failed has moved the follower past what was told
        self._streams, self._limits = request.app[STREAMS], request.app[LIMITS]
        self._tasks: bool = read_query(request)["tasks"]
        self._preface = RETRY  # goes out with what is written first

    async def go(self) -> None:
        try:
            while not await self._said_all():
                await self._rest()
        except TimeoutError:
            await self._drop()
        except ConnectionError:
            pass  # it has gone
        except AnabranchError as error:  # the answer has begun: whoever comes back is told why
            run, seq = self._follower.run, self._follower.seq
            log.warning("a stream of run %s ends at event %d: %s", run, seq, error.message)
            with suppress(ConnectionError, TimeoutError):
                await self._write(b"")  # the preface, if nothing was written yet

    async def _said_all(self) -> bool:
        """Write what is new; true when nothing will follow."""
        heard, records = self._ear.take(), []
        for news in () if self._astray else heard:
            found = self._follower.hear(news)
            if found is None:
                self._ear.behind = True
                break
            records += found
        if records and await self._tell_found(self._found(records)):
            return True
        if self._ear.behind and await self._caught_up():
            return True
        if self._streams.closing:
            await self._end("server_stops")
            return True
        return False

    async def _caught_up(self) -> bool:
        """The same from the log. While the store is away the follower stays behind."""
        try:
            return await self._read_on()
        except StoreError as error:
            if not passes(error):
                raise
        self._ear.behind = self._astray = True
        await asyncio.sleep(AWAY_SECONDS)
        await self._write(BEAT)
        return False

    async def _read_on(self) -> bool:
        """Write what the log has; true when nothing will follow."""
        while True:
            self._ear.behind = False  # before the log is read: what comes later is missed again
            found, over = await self._read_next()
            if found and await self._tell_found(found):
                return True
            if over:
                await self._end("finished")
                return True
            if self._follower.at_end or not found:
                return False

    async def _read_next(self) -> tuple[_Found, bool]:
        """Once the caller has read enough of the large events that other streams of theirs tell."""
        while True:
            try:
                async with self._ear.reading or nullcontext():
                    if self._streams.closing:
                        return _Said(b"", ended=False), False
                    return await read_inline(self._request, self._next)
            except ApiError as refused:
                if refused.code != NO_ROOM:
                    raise
            await asyncio.sleep(AWAY_SECONDS)
            await self._write(BEAT)

    def _next(self, by: ReadHandle) -> tuple[_Found, bool]:
        """The next page of the log, and whether the run has ended before it: `run.finished` is the
        last event of a run, so that its head need not be looked at while there are others."""
        if self._astray:
            self._follower = _follower(by, self._follower.run, self._told)
            self._astray = False
        run = self._follower.run
        by.weigh(run, self._follower.seq)
        records = self._follower.page(by.store, STREAM_PAGE, STREAM_BYTES)
        head = None if records else by.store.head(run)
        going_on = head is not None and not (head.finished and head.seq <= self._follower.seq)
        return self._found(records), not (records or going_on)

    def _found(self, records: list[EventRecord]) -> _Found:
        """As bytes; but where a report may stand for many tasks, each by itself."""
        return records if self._tasks else self._said(records)

    async def _tell_found(self, found: _Found) -> bool:
        """True when the run has ended with it. What tasks did is written report by report, and put
        into words beside the event loop."""
        if isinstance(found, _Said):
            return await self._tell(found)
        for record in found:
            if record.kind == "job.reported":
                said = await asyncio.to_thread(self._said, [record])
            else:
                said = self._said([record])
            if await self._tell(said):
                return True
        return False

    def _said(self, records: list[EventRecord]) -> _Said:
        """As bytes: a follower that takes its time keeps nothing else in memory."""
        ended = bool(records) and records[-1].kind == "run.finished"
        last = self._last_word("finished") if ended else b""
        shown = with_tasks(records) if self._tasks else records
        return _Said(b"".join(map(frame, shown)) + last, ended)

    async def _tell(self, said: _Said) -> bool:
        """True when the run has ended with it."""
        if said:
            await self._write(said.data, last=said.ended)
        self._told = self._follower.seq
        return said.ended

    async def _rest(self) -> None:
        """Until something is recorded; a heartbeat now and then keeps proxies awake."""
        if self._preface:
            await self._write(b"")
        while not await self._ear.rest():
            await self._write(BEAT)

    async def _end(self, reason: str) -> None:
        await self._write(self._last_word(reason), last=True)

    def _last_word(self, reason: str) -> bytes:
        return _named("end", {"reason": reason, "seq": self._follower.seq})

    async def _write(self, data: bytes, *, last: bool = False) -> None:
        """Where nothing waits to be sent and this is small, it is written without waiting for the
        follower, so that no timer is needed; and the last of it together with the end."""
        data, self._preface = self._preface + data, b""
        transport = self._request.transport
        waits = transport is None or transport.get_write_buffer_size() or len(data) > CLEAR_BYTES
        if not waits:
            await (self._response.write_eof(data) if last else self._response.write(data))
            return
        with counting(self._request, data):
            for piece in pieces(data):
                async with asyncio.timeout(self._limits.stream_write_seconds):
                    await self._response.write(piece)

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
    """One event on the wire; JSON has no line ends of its own. What a task did is part of the
    report that follows, and has no id: who is cut off in between hears all of it again."""
    if record.kind in (STARTED, PROCESSED):
        return b"event: %b\ndata: %b\n\n" % (record.kind.encode(), _encode(record))
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (record.seq, record.kind.encode(), _encode(record))


def _named(event: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), _encode(data))


_TASKS = Query(
    "tasks",
    "also what each task did: `task.started` and `task.processed`, before the report of its job",
    "boolean",
    default=False,
)

ROUTES = (
    Route(
        "GET",
        f"{RUN}/events",
        "read",
        page,
        "The events of a run in order; request the next page with `after=next`",
        returns=shapes.EventPage,
        query=(
            Query("after", "only events behind this", "integer", default=0),
            Query("limit", "how many at most", "integer", least=1, most=EVENTS_MAX, default=200),
            _TASKS,
        ),
    ),
    Route(
        "GET",
        f"{RUN}/events/stream",
        "read",
        stream,
        "Follow a run: its events from the log and then live, until it has finished",
        query=(Query("after", "only events behind this", "integer", default=0), _TASKS),
        media="text/event-stream",
        errors=(409, 429, 503),
        headers=(Header("Last-Event-ID", "the last event seen; goes before `after`"),),
    ),
)

"""What a server takes upon itself at once: connections, and the time of one request.

A connection on which no request is being served is idle: it has sent nothing, half a head, or is
kept for the next request. Idle ones are closed after a while, those of an answer that nobody reads
as well (`unread_answers` bounds their bytes). When there are too many connections, the one that is
idle longest makes room, so a thousand that only sit there keep nobody out. Where none is idle,
whoever has most streams and waits gives up one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web

from anabranch.surfaces.http.guard.auth import CALLER
from anabranch.surfaces.http.guard.bodies import Bodies
from anabranch.surfaces.http.guard.unread_answers import SHARED, UnreadAnswers, large_body, who_asks
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.routes import Handler

STREAM = "text/event-stream"
REQUEST_SECONDS = 120.0
SWEEP_SECONDS = 1.0
LIMIT = web.RequestKey("anabranch.time_limit", asyncio.Timeout)
SLOW_READER = 10  # whoever is still reading an answer may take so much longer
BUFFER_BYTES = 64 * 1024  # that wait in a connection before its writer does; asyncio's, without TLS


class ConnectionLimiter:
    """Knows every connection: `admit` wraps the protocols that a listening socket makes."""

    def __init__(self, *, most: int = 1000, idle_seconds: float = 30.0) -> None:
        self.most = most
        self.idle_seconds = idle_seconds
        #: Frees the connection of a request that only waits, and gives it; None if none should go.
        self.spare: Callable[[], Any] = lambda: None
        self._since: dict[Any, float] = {}  # idle transports, longest first → when that began
        self._busy: set[Any] = set()
        self.unread, self.bodies = UnreadAnswers(), Bodies()
        self._left: dict[Any, tuple[int, float]] = {}  # idle ones → bytes, and since when so many
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_due = 0.0

    def __len__(self) -> int:
        return len(self._since) + len(self._busy)

    def admit(self, make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        return lambda: _Watched(make(), self)

    def came(self, transport: asyncio.Transport) -> bool:
        if len(self) >= self.most and not self._make_room():
            transport.abort()
            return False
        self._since[transport] = asyncio.get_running_loop().time()
        if self._sweep is None:
            self._sweep_later()
        return True

    def left(self, transport: asyncio.Transport) -> None:
        self._since.pop(transport, None)
        self._busy.discard(transport)
        self._left.pop(transport, None)

    def begin(self, transport: Any) -> None:
        if self._since.pop(transport, None) is not None:
            self._busy.add(transport)
            self._left.pop(transport, None)

    def end(self, transport: Any) -> None:
        if transport in self._busy:
            self._busy.discard(transport)
            self._since[transport] = asyncio.get_running_loop().time()

    def heard(self, transport: Any) -> None:
        """Something came from a stranger: who has said nothing for longer makes room before."""
        if self._since.pop(transport, None) is not None:
            self._since[transport] = asyncio.get_running_loop().time()

    def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _make_room(self) -> bool:
        for transport in self._since:
            self.left(transport)
            transport.abort()
            return True
        waiting = self.spare()
        if waiting is not None:
            self.left(waiting)
        return waiting is not None

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep_due = loop.time() + min(SWEEP_SECONDS, self.idle_seconds)
        self._sweep = loop.call_at(self._sweep_due, self._close_idle)

    def _close_idle(self) -> None:
        self._sweep = None
        now = asyncio.get_running_loop().time()
        if (held_up := now - self._sweep_due) >= SWEEP_SECONDS:
            # What came meanwhile has not been read yet: that time counts against nobody.
            self._since = {transport: at + held_up for transport, at in self._since.items()}
            self._left = {one: (left, at + held_up) for one, (left, at) in self._left.items()}
        for transport, since in list(self._since.items()):
            if since > now - self.idle_seconds:
                break  # the rest came later
            if since <= now - self.idle_seconds * SLOW_READER or not self._is_read(transport, now):
                self.left(transport)
                transport.abort()
        if self._since or self._busy:
            self._sweep_later()

    def _is_read(self, transport: Any, now: float) -> bool:
        """Whether somebody reads an answer: every now and then there is less of it left."""
        left = unsent(transport) + self.unread.rest(transport)
        before, since = self._left.get(transport, (left + 1, now))
        if left < before:
            self._left[transport] = before, since = left, now
        return bool(left) and since > now - self.idle_seconds


def unsent(transport: Any) -> int:
    """Bytes that wait to be sent. With TLS most of them are encrypted already and wait in the
    transport of the socket, which the one above does not count (Python 3.11 to 3.14)."""
    below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    size: int = transport.get_write_buffer_size()
    return size if below is None else size + below.get_write_buffer_size()


class _Watched(asyncio.Protocol):
    """Hands everything on, and says when a connection comes and goes."""

    def __init__(self, inner: asyncio.Protocol, limiter: ConnectionLimiter) -> None:
        self._inner = inner
        self._limiter = limiter
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self._limiter.came(transport):
            self._transport = transport
            if transport.get_extra_info("sslcontext") is not None:
                transport.set_write_buffer_limits(BUFFER_BYTES)
            self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._limiter.left(self._transport)
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._transport is not None else None

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


LIMITER = web.AppKey("anabranch.connection_limiter", ConnectionLimiter)


@web.middleware
async def until_answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """For nodes and modules, whose callers are known further in: see `hold` and `heard`."""
    transport, limiter = request.transport, request.app.get(LIMITER)
    if limiter is None:
        return await handler(request)
    try:
        response = await handler(request)
    finally:
        limiter.end(transport)
    if transport is not None and (body := large_body(request, response)) is not None:
        await _write_counted(limiter.unread, transport, request, response, len(body))
    return response


async def _write_counted(
    unread: UnreadAnswers,
    transport: asyncio.Transport,
    request: web.Request,
    response: web.StreamResponse,
    size: int,
) -> None:
    """Strangers may hold all connections and read nothing: so many bytes of answers wait for each
    caller, and nobody who reads is refused for those who do not."""
    caller = who_asks(request)
    unread.make_room(caller)
    unread.count(transport, caller, 0 if SHARED in request else size)
    try:
        await unread.write(transport, request, response)
    finally:
        unread.forget(transport)


def hold(request: web.Request) -> None:
    """Somebody who is known asks: the connection makes no room until there is an answer."""
    if (limiter := request.app.get(LIMITER)) is not None:
        limiter.begin(request.transport)


def heard(request: web.Request) -> None:
    """A stranger has sent a whole request."""
    if (limiter := request.app.get(LIMITER)) is not None:
        limiter.heard(request.transport)


def in_hand(limiter: ConnectionLimiter) -> tuple[Any, Any]:
    """Two middlewares: while somebody is served, their connection is not idle.

    The second begins it, behind the one that finds out who asks; the first ends it, around
    everything else that a request waits for, such as its entry in the audit trail.

    Somebody is who has shown a token, or sits at this machine. A stranger may ask, too, but slowly
    sent forms at the entrance keep nobody out: such a connection makes room like an idle one.
    """

    unread, bodies = limiter.unread, limiter.bodies

    @web.middleware
    async def until_answered(request: web.Request, handler: Handler) -> web.StreamResponse:
        transport = request.transport
        try:
            try:
                response = await handler(request)
            finally:
                limiter.end(transport)
                if bodies.held:
                    bodies.give_back(transport)
            if transport in unread.answers:
                await unread.write(transport, request, response)
            return response
        finally:
            if transport in unread.answers:
                unread.forget(transport)

    @web.middleware
    async def from_here(request: web.Request, handler: Handler) -> web.StreamResponse:
        if CALLER in request:
            limiter.begin(request.transport)
            if unread.bytes:  # mostly there are none at all
                unread.require_room(request[CALLER].token)
        response = await handler(request)
        if (body := large_body(request, response)) is not None:
            unread.count_answer(request, body)
        return response

    return until_answered, from_here


@web.middleware
async def as_it_is(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A body that is packed is refused: nobody knows how large it is before it is unpacked."""
    if "Content-Encoding" in request.headers:  # few requests say anything of it
        require_unpacked(request)
    return await handler(request)


def require_unpacked(request: web.Request) -> None:
    packed = request.headers.get("Content-Encoding", "").strip().lower()
    if packed not in ("", "identity"):
        said = f"the body is said to be packed ({packed[:40]})"
        raise ApiError(415, "packed_body", said, "send it as it is, without Content-Encoding")


class _TimeLimits:
    """Of the requests that are served at present, the oldest first. They are looked at now and
    then, all together: most requests take less time than a timer for each of them would."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._due: dict[asyncio.Timeout, float] = {}
        self._looking = False

    def begin(self, limit: asyncio.Timeout) -> None:
        loop = asyncio.get_running_loop()
        self._due[limit] = loop.time() + self.seconds
        if not self._looking:
            self._look_later(loop)

    def end(self, limit: asyncio.Timeout) -> None:
        self._due.pop(limit, None)

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looking = True
        loop.call_later(min(SWEEP_SECONDS, self.seconds / 10), self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looking = False
        now = loop.time()
        for limit in [one for one, due in self._due.items() if due <= now]:
            self.end(limit)
            limit.reschedule(now)
        if self._due:
            self._look_later(loop)


def in_time(seconds: float = REQUEST_SECONDS) -> tuple[Any, Any]:
    """A middleware: an answer that is no stream is there in time, or the client is told. And what
    `on_response_prepare` needs with it: a stream that has begun may take as long as it likes."""
    limits = _TimeLimits(seconds)

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            async with asyncio.timeout(None) as limit:
                request[LIMIT] = limit
                limits.begin(limit)
                try:
                    return await handler(request)
                finally:
                    limits.end(limit)
        except TimeoutError:
            if not limit.expired():
                raise
            said = f"there is no answer within {seconds:g} seconds; it may still take effect"
            raise ApiError(
                504, "slow_answer", said, "look at the run before trying again"
            ) from None

    async def let_stream(request: web.Request, response: web.StreamResponse) -> None:
        if is_stream(response) and LIMIT in request:
            limits.end(request[LIMIT])

    return middleware, let_stream


def is_stream(response: web.StreamResponse) -> bool:
    """Whether it is a stream of events; an answer that has all of its body is none."""
    return type(response) is not web.Response and response.content_type == STREAM

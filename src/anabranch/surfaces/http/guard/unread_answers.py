"""Large answers, from when they are there until they are written: whose they are, how many bytes.

Each caller has so many bytes of them; all who show no token have them together. A large answer is
counted as soon as it is there, and whoever has more than that already gets no other: also of many
that are asked for at once few are kept. It is written in pieces, each when those before it are
read, so that nothing waits twice. What all callers are given alike, one document for all of
them, takes no memory of its own and is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from anabranch.surfaces.http.guard.auth import CALLER, SAFE
from anabranch.surfaces.http.io.problems import ApiError

LARGE = 64 * 1024  # bytes of an answer that is counted; a connection keeps as much of small ones
PIECE = 64 * 1024
UNREAD_MAX = 64 * 1024 * 1024  # bytes of answers that one caller has not read
RETRY_SECONDS = 5
STRANGERS = "strangers"  # no id of a token
NO_ROOM = "unread_answers"  # the code of a refusal


@dataclass(slots=True)
class _Answer:
    caller: str
    size: int
    rest: int  # bytes that the connection has not been given yet


class UnreadAnswers:
    """One per server. Only for the event loop; to ask for room, for any thread."""

    def __init__(self) -> None:
        self.answers: dict[Any, _Answer] = {}  # by transport: each writes one at a time
        self.bytes: dict[str, int] = {}  # by caller; of those who have any

    def of(self, caller: str) -> int:
        return self.bytes.get(caller, 0)

    def rest(self, transport: Any) -> int:
        """Bytes of the answer there that its connection has not been given yet."""
        answer = self.answers.get(transport)
        return answer.rest if answer is not None else 0

    def require_room(self, caller: str) -> None:
        if self.of(caller) > UNREAD_MAX:
            raise _no_room(caller)

    def make_room(self, caller: str) -> None:
        """Whose answer waits for longest is given up: whoever reads is done long before."""
        while self.of(caller) > UNREAD_MAX:
            waiting = (one for one, answer in self.answers.items() if answer.caller == caller)
            oldest = next(one for one in waiting if self.answers[one].size)
            self.forget(oldest)
            oldest.abort()

    def count(self, transport: Any, caller: str, size: int) -> None:
        self.answers[transport] = _Answer(caller, size, size)
        if size:
            self.bytes[caller] = self.of(caller) + size

    def forget(self, transport: Any) -> None:
        answer = self.answers.pop(transport, None)
        if answer is None:
            return
        left = self.bytes.pop(answer.caller, 0) - answer.size
        if left > 0:
            self.bytes[answer.caller] = left

    def count_answer(self, request: web.Request, body: bytes) -> None:
        """Raises where its caller has no room for it, and asking again does no harm."""
        if request.transport is None:  # the client has left
            return
        caller = who_asks(request)
        if SHARED not in request and request.method in SAFE:
            self.require_room(caller)
        self.count(request.transport, caller, 0 if SHARED in request else len(body))

    async def write(
        self, transport: Any, request: web.Request, response: web.StreamResponse
    ) -> None:
        """In pieces. Where the client has left, aiohttp finds it out as well, and ends."""
        answer, body = self.answers[transport], large_body(request, response)
        if body is None:
            return
        try:
            await response.prepare(request)
            for piece in pieces(body):
                answer.rest -= len(piece)
                await response.write(piece)
            await web.StreamResponse.write_eof(response)
        except ConnectionError:
            pass


UNREAD = web.AppKey("anabranch.unread_answers", UnreadAnswers)
#: Who asks, where tokens are known further in: at nodes and modules.
ASKING = web.RequestKey("anabranch.asking", str)
#: Of a request whose answer is one document for everybody who asks.
SHARED = web.RequestKey("anabranch.shared_answer", bool)


def pieces(data: bytes) -> Iterator[memoryview]:
    whole = memoryview(data)
    for at in range(0, len(whole), PIECE):
        yield whole[at : at + PIECE]


@contextmanager
def counting(request: web.Request, data: bytes) -> Iterator[None]:
    """What a stream writes at once, if that is large: it is the caller's like a large answer."""
    unread, transport = request.app.get(UNREAD), request.transport
    if unread is None or transport is None or len(data) <= LARGE:
        yield
        return
    unread.count(transport, who_asks(request), len(data))
    try:
        yield
    finally:
        unread.forget(transport)


def who_asks(request: web.Request) -> str:
    """Whose answers these are: of a token, or of all who show none."""
    if ASKING in request:
        return request[ASKING]
    return request[CALLER].token if CALLER in request else STRANGERS


def large_body(request: web.Request, response: web.StreamResponse) -> bytes | None:
    """Of an answer that is there as a whole, is large, and will be written."""
    body = response.body if type(response) is web.Response else None
    if isinstance(body, bytes) and len(body) > LARGE and request.method != "HEAD":
        return body
    return None


def require_room(request: web.Request) -> None:
    """Before something is read that may be large; what changes something is not broken off."""
    unread = request.app.get(UNREAD)
    if unread is not None and request.method in SAFE:
        unread.require_room(who_asks(request))


def _no_room(caller: str) -> ApiError:
    whose = "of this token" if caller not in ("", STRANGERS) else "of callers without a token"
    said = f"more than {UNREAD_MAX >> 20} MB of answers {whose} have not been read"
    hint = "read them, or close their connections, and ask again"
    return ApiError(429, NO_ROOM, said, hint, headers={"Retry-After": str(RETRY_SECONDS)})

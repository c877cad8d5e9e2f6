"""What one caller may have at once: event streams, requests that wait, definitions being checked.

Whoever shows a token shares with everybody who shows the same one, the sessions of browsers
included. A server that asks for no token knows nobody apart: there only what all have together is
limited, and so it is with workers, of which many may share a token. Streams, waits and claims that
wait keep a connection for long; together they get most of the connections and
never all. When there is no more room for them, or for any connection, the one who has most of them
gives up the oldest, so that many of one caller do not keep out the few of another.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Literal, ParamSpec, TypeVar

from aiohttp import web

from anabranch.settings import Settings
from anabranch.surfaces.http.guard.auth import CALLER
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.threads import in_thread_of

LONG_SHARE = 0.8  # of the connections, for streams and waits together
IN_LINE = 10  # times as many checks as run at once may wait for their turn
RETRY_SECONDS = 5
THREADS = 16  # for the checks of all callers

P = ParamSpec("P")
T = TypeVar("T")

Kind = Literal["streams", "waits", "checks", "claims", "loads"]
WORDS: dict[Kind, str] = {
    "streams": "event streams open",
    "waits": "requests that wait",
    "checks": "definitions to be checked",
    "loads": "orchestrations to be loaded",
}
SETTINGS: dict[Kind, str] = {
    "streams": "streams_per_token_max",
    "waits": "waits_per_token_max",
    "checks": "checks_per_token_max",
    "loads": "checks_per_token_max",
}


class Shares:
    """One per application."""

    def __init__(self, settings: Settings) -> None:
        self.long_most = max(1, int(settings.serve_connections_max * LONG_SHARE))
        self._most: dict[Kind, int] = {
            "streams": settings.streams_per_token_max,
            "waits": settings.waits_per_token_max,
            "checks": settings.checks_per_token_max,
            "loads": settings.checks_per_token_max,
        }
        self._counts: Counter[tuple[str, Kind]] = Counter()
        self._long: dict[str, OrderedDict[Any, None]] = {}  # token → its transports, oldest first
        self._turns: dict[tuple[str, Kind], asyncio.Semaphore] = {}
        self.threads = ThreadPoolExecutor(THREADS, "anabranch-check")

    def __len__(self) -> int:
        """Connections that are kept for long."""
        return sum(map(len, self._long.values()))

    @contextmanager
    def long(self, token: str, kind: Kind, transport: Any) -> Iterator[None]:
        """A stream, a wait or a claim; raises where there are too many."""
        most = self._most.get(kind)
        if token and most is not None and self._counts[token, kind] >= most:
            raise _too_many(kind, most)
        own = len(self._long.get(token, ()))
        if len(self) >= self.long_most and not self.spare(more_than=own + 1):
            said = f"{self.long_most:,} streams and requests that wait are open at this server"
            said += " (a share of serve_connections_max)"
            raise _later(503, "too_many_streams", said)
        with self._counted(token, kind):
            held = self._long.setdefault(token, OrderedDict())
            held[transport] = None
            try:
                yield
            finally:
                held.pop(transport, None)
                if not held and self._long.get(token) is held:
                    del self._long[token]

    @asynccontextmanager
    async def turn(
        self, token: str, kind: Kind = "checks", *, patient: bool = False
    ) -> AsyncIterator[None]:
        """A check or a load: some at once, some more in line. Who is patient waits in any line: a
        start is not refused because many others have come."""
        most = self._most[kind]
        if not patient and self.count(token, kind) >= most * (IN_LINE + 1):
            raise _too_many(kind, most)
        with self._counted(token, kind):
            turns = self._turns.setdefault((token, kind), asyncio.Semaphore(most))
            try:
                async with turns:
                    yield
            finally:
                if self._counts[token, kind] == 1:  # the last one
                    self._turns.pop((token, kind), None)

    def count(self, token: str, kind: Kind) -> int:
        return self._counts[token, kind]

    def spare(self, *, more_than: int = 1) -> Any:
        """Cut off the oldest long request of whoever has most, if they have more than that many;
        gives its connection, which is free now."""
        token = max(self._long, key=lambda one: len(self._long[one]), default=None)
        if token is None or len(self._long[token]) <= more_than:
            return None
        transport, _ = self._long[token].popitem(last=False)
        if transport is not None:
            transport.abort()
        return transport

    @contextmanager
    def _counted(self, token: str, kind: Kind) -> Iterator[None]:
        self._counts[token, kind] += 1
        try:
            yield
        finally:
            self._counts[token, kind] -= 1
            if not self._counts[token, kind]:
                del self._counts[token, kind]


SHARES = web.AppKey("anabranch.shares", Shares)


@contextmanager
def long_request(request: web.Request, kind: Kind) -> Iterator[None]:
    """For handlers whose answer takes as long as something else does."""
    shares = request.app.get(SHARES)
    if shares is None:
        yield
        return
    with shares.long(token_of(request), kind, request.transport):
        yield


@asynccontextmanager
async def checking(request: web.Request, *, patient: bool = False) -> AsyncIterator[None]:
    async with request.app[SHARES].turn(token_of(request), patient=patient):
        yield


async def in_share(
    request: web.Request, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Compiling, drawing and arithmetic for a caller: in their share, and in threads that nothing
    else of the server needs."""
    async with checking(request):
        return await in_thread_of(request.app[SHARES].threads, partial(work, *args, **kwargs))


async def in_line(
    request: web.Request, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """The same for what may have to wait, and is not refused."""
    async with checking(request, patient=True):
        return await in_thread_of(request.app[SHARES].threads, partial(work, *args, **kwargs))


async def end_threads(app: web.Application) -> None:
    app[SHARES].threads.shutdown(wait=False, cancel_futures=True)


def token_of(request: web.Request) -> str:
    caller = request.get(CALLER)
    return caller.token if caller is not None else ""


def _too_many(kind: Kind, most: int) -> ApiError:
    said = f"the token has {most:,} {WORDS[kind]}, which is the most (setting {SETTINGS[kind]})"
    return _later(429, "too_many_at_once", said)


def _later(status: int, code: str, said: str) -> ApiError:
    hint = "close some of them, or try again later; one token per program keeps them apart"
    return ApiError(status, code, said, hint, headers={"Retry-After": str(RETRY_SECONDS)})

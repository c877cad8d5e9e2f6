"""People at browsers, and requests that stay: both end when their token does.

A session is made from a token and lives in memory: after a restart people sign in again. Where
several servers share a store it is in the store: who has signed in at one is known at all. A
request may stay for long, as a stream or while it waits. Once a second each token and session that
somebody stays with is looked at again; whoever has lost it is cut off, and told why when they come
back.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from aiohttp import web

from anabranch.errors import AnabranchError, Denied
from anabranch.operations.access.tokens import AccessControl
from anabranch.store.cluster_ports import Cluster, SharedSession
from anabranch.surfaces.http.guard.lookups import Lookups

SESSION_MS = 12 * 3_600_000
SESSIONS_MAX = 1000
SESSIONS_OF_ONE = 50  # of one token: nobody signs everybody else out by signing in
LOOK_SECONDS = 1.0


BrowserSession = SharedSession


class BrowserSessions:
    """Those that are open, oldest first."""

    def __init__(self, now: Callable[[], int], cluster: Cluster | None = None) -> None:
        self._now = now
        self._cluster = cluster
        self._known: OrderedDict[str, BrowserSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, token: str) -> tuple[str, BrowserSession]:
        """The text for the cookie, of which only the hash is kept, and the session."""
        text = secrets.token_urlsafe(32)
        until = self._now() + SESSION_MS
        session = BrowserSession(token, secrets.token_urlsafe(32), until, _hash(text))
        if self._cluster is not None:
            self._cluster.keep_session(session, self._now(), SESSIONS_OF_ONE)
            return text, session
        own = [key for key, one in self._known.items() if one.token == token]
        for key in own[: max(0, len(own) - SESSIONS_OF_ONE + 1)]:
            del self._known[key]
        self._known[session.key] = session
        while len(self._known) > SESSIONS_MAX:
            self._known.popitem(last=False)
        return text, session

    def find(self, text: str) -> BrowserSession | None:
        return self.open(_hash(text))

    def open(self, key: str) -> BrowserSession | None:
        if self._cluster is not None:
            session = self._cluster.session(key)
        else:
            session = self._known.get(key)
        return session if session is not None and session.until > self._now() else None

    def end(self, text: str) -> None:
        if self._cluster is not None:
            self._cluster.end_session(_hash(text))
        self._known.pop(_hash(text), None)


class OpenRequests:
    """Requests that are being answered to somebody with a token."""

    def __init__(self, access: AccessControl, sessions: BrowserSessions, lookups: Lookups) -> None:
        self._access, self._sessions, self._lookups = access, sessions, lookups
        self._here: dict[tuple[str, str], set[asyncio.Transport]] = {}  # (token, session) → theirs

    def __len__(self) -> int:
        return sum(map(len, self._here.values()))

    @contextmanager
    def staying(self, request: web.Request, token: str, session: str = "") -> Iterator[None]:
        transport, who = request.transport, (token, session)
        if transport is None:  # it has gone already
            yield
            return
        here = self._here.setdefault(who, set())
        here.add(transport)
        try:
            yield
        finally:
            here.discard(transport)
            if not here and self._here.get(who) is here:
                del self._here[who]

    async def look(self) -> None:
        """Cut off everybody whose token or session is over. What hears nothing any more ends."""
        for who in list(self._here):
            if not await self._lookups(partial(self._still, *who)):
                for transport in self._here.get(who, ()):
                    transport.abort()

    async def look_forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with suppress(AnabranchError):  # a store that is busy says it in a second
                await self.look()

    def _still(self, token: str, session: str) -> bool:
        if session and self._sessions.open(session) is None:
            return False
        try:
            self._access.caller_of(token)
        except Denied:
            return False
        return True


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()

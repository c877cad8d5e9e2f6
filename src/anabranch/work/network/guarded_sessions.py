"""Client sessions that reach what a policy allows, for first calls and for redirects.

A connector keeps its connections and its look-ups, so each policy has one of its own: what was
connected to under one policy is never used under a narrower one. There are few: the first address
has one, and what a redirect may reach depends on the kinds of address that were on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from anabranch.work.network.addresses import (
    AddressClass,
    AddressPolicy,
    class_of,
    connector_options,
)

if TYPE_CHECKING:  # importing it takes a fifth of a second, paid with the first call
    import aiohttp
    from yarl import URL

_PEERS: ContextVar[list[AddressClass] | None] = ContextVar("anabranch_peers", default=None)
#: What makes a session of the options for its connector and its own.
Make = Callable[[dict[str, Any], dict[str, Any]], "aiohttp.ClientSession"]

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
#: Headers that may follow a redirect to another origin; any other may be a key.
_HARMLESS: Final = frozenset(
    {
        *("accept", "accept-language", "content-type", "user-agent", "idempotency-key"),
        *("traceparent", "tracestate"),
    }
)


class GuardedSessions:
    """Made when needed, closed once."""

    def __init__(self, policy: AddressPolicy, make: Make) -> None:
        self._policy = policy
        self._make = make
        #: At most one for each set of classes of addresses.
        self._sessions: dict[AddressPolicy, aiohttp.ClientSession] = {}

    def first(self) -> aiohttp.ClientSession:
        return self._under(self._policy)

    def after(self, passed: list[AddressClass]) -> aiohttp.ClientSession:
        """The session for a redirect from addresses of these kinds."""
        return self._under(self._policy.after(passed))

    def _under(self, policy: AddressPolicy) -> aiohttp.ClientSession:
        session = self._sessions.get(policy)
        if session is None:
            own = {"response_class": _response_class()}
            session = self._sessions[policy] = self._make(connector_options(policy), own)
        return session

    async def close(self) -> None:
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()


def peer_class(response: aiohttp.ClientResponse) -> AddressClass:
    """The kind of address that answered; one that is not known is taken for a stranger's."""
    peer = getattr(response, "peer", None)
    try:
        return class_of(str(peer[0])) if peer else "public"
    except ValueError:
        return "public"


@contextmanager
def noting_peers() -> Iterator[list[AddressClass]]:
    """The kinds of the addresses that answer a call that is made inside, in their order. To look
    them up later would find what their names mean by then."""
    peers: list[AddressClass] = []
    before = _PEERS.set(peers)
    try:
        yield peers
    finally:
        _PEERS.reset(before)


def note_peers(kinds: list[AddressClass]) -> None:
    """For whoever asks."""
    if (peers := _PEERS.get()) is not None:
        peers += kinds


def headers_onward(headers: Mapping[str, str], url: URL, onward: URL) -> dict[str, str]:
    """The headers (names in lower case) for a redirect: to another origin only harmless ones."""
    if onward.origin() == url.origin():
        return dict(headers)
    return {name: text for name, text in headers.items() if name in _HARMLESS}


def method_onward(method: str, status: int) -> str:
    """What browsers made of it: only 307 and 308 repeat a call that changes something."""
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        return "GET"
    return method


@cache
def _response_class() -> type[aiohttp.ClientResponse]:
    """A response that remembers who answered: its connection is gone once the body is read."""
    import aiohttp

    class PeerResponse(aiohttp.ClientResponse):
        peer: Any = None

        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            transport = connection.transport
            self.peer = transport.get_extra_info("peername") if transport else None
            return await super().start(connection)

    return PeerResponse

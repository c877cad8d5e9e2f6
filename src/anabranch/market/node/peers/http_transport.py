"""Envelopes and calls of seed directories over HTTP, within limits of address, size and time.

Addresses of this machine alone are reached, unless the operator names others (`peers.addresses`).
Redirects are not followed: whoever answers must not steer where a node calls.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from anabranch.market.node.peers.envelope import ENVELOPE_BYTES
from anabranch.market.node.ports import PeerUnreachable
from anabranch.work.network.addresses import (
    AddressPolicy,
    connector_options,
    read_policy,
    refusal_in,
)
from anabranch.work.network.one_session import OneSession

if TYPE_CHECKING:
    import aiohttp

MESSAGES_PATH = "/peer/messages"
CONNECT_SECONDS = 3.0
CONNECTIONS_MAX = 256
LOOPBACK = read_policy("loopback", "peers.addresses")
_JSON = {"Content-Type": "application/json", "Accept": "application/json"}


class HttpPeerTransport:
    """Carries envelopes to `POST /peer/messages` of other nodes."""

    def __init__(
        self,
        policy: AddressPolicy = LOOPBACK,
        *,
        answer_bytes: int = ENVELOPE_BYTES,
        connect_seconds: float = CONNECT_SECONDS,
    ) -> None:
        self._policy = policy
        self._answer_bytes = answer_bytes
        self._connect_seconds = connect_seconds
        self._session = OneSession(self._make)

    async def send(
        self,
        node_id: str,  # noqa: ARG002 - memory goes by the node
        url: str,
        envelope: bytes,
        seconds: float,
        *,
        most: int | None = None,
    ) -> bytes:
        place = url.rstrip("/") + MESSAGES_PATH
        _, body = await self.call("POST", place, envelope, seconds, most=most)
        return body

    async def call(
        self, method: str, url: str, body: bytes, seconds: float, *, most: int | None = None
    ) -> tuple[int, bytes]:
        """Status and body of the answer. Raises `PeerUnreachable`."""
        import aiohttp

        most = self._answer_bytes if most is None else min(most, self._answer_bytes)

        where, loop = origin_of(url), asyncio.get_running_loop()
        until = loop.time() + seconds
        try:
            try:
                return await self._once(method, url, body, seconds, most)
            except (aiohttp.ServerDisconnectedError, ConnectionResetError, BrokenPipeError):
                # A connection of a process that was started again since. The same bytes are sent
                # once more: should the peer have taken them, it takes them for a replay.
                left = max(until - loop.time(), 0.001)
                return await self._once(method, url, body, left, most)
        except TimeoutError:
            message = f"{where} did not answer within {seconds:g} s"
            raise PeerUnreachable(message, code="peer_timeout") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            refusal = refusal_in(error)
            if refusal:
                raise PeerUnreachable(refusal, code="peer_address") from None
            raise PeerUnreachable(f"{where} cannot be reached: {_reason(error)}") from None

    async def _once(
        self, method: str, url: str, body: bytes, seconds: float, most: int
    ) -> tuple[int, bytes]:
        import aiohttp

        timeout = aiohttp.ClientTimeout(
            total=seconds, sock_connect=min(seconds, self._connect_seconds)
        )
        async with self._session.get().request(
            method, url, data=body or None, headers=_JSON, timeout=timeout, allow_redirects=False
        ) as response:
            where = origin_of(url)
            if 300 <= response.status < 400:
                raise PeerUnreachable(f"{where} answers with a redirect", code="peer_redirect")
            return response.status, await _read(response, where, most)

    def _make(self) -> aiohttp.ClientSession:
        import aiohttp

        connector = aiohttp.TCPConnector(limit=CONNECTIONS_MAX, **connector_options(self._policy))
        return aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
        )

    async def close(self) -> None:
        await self._session.close()


async def _read(response: aiohttp.ClientResponse, where: str, most: int) -> bytes:
    data = bytearray()
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > most:
            message = f"the answer of {where} is larger than {most:,} bytes"
            raise PeerUnreachable(message, code="peer_answer_size")
    return bytes(data)


def origin_of(url: str) -> str:
    """Without what may be secret in a URL."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname}:{parts.port or ''}".rstrip(":")
    except ValueError:
        return "the address"


def _reason(error: BaseException) -> str:
    cause = getattr(error, "os_error", error)
    return getattr(cause, "strerror", None) or type(cause).__name__

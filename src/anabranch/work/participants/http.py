"""A participant behind an HTTP endpoint: one POST of JSON, one reply of JSON.

Everything is bounded: the connection, the whole exchange, the size. Redirects are not followed, for
a participant speaks for itself, and no cookie of one is shown to another. Being cancelled closes
the connection at once.

A connection is kept for the next request to the same participant only after a reply that named its
dispatch, and on one that was kept a reply counts only if it does so too: a second answer to the
last request, however late it comes, is never taken for the answer to the next. A request that was
sent is not sent again, whatever becomes of its connection (see docs/decisions/0052). The module is
imported with the first URL of a book: what it needs takes its time to load.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import resource
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from yarl import URL

from anabranch.work import tracing
from anabranch.work.kinds.http.request import bare
from anabranch.work.network.addresses import ANY, AddressPolicy
from anabranch.work.participants.connections import Connection, Connections, Disconnected
from anabranch.work.participants.http_responses import (
    BrokenResponse,
    Head,
    ResponseReader,
    TooLarge,
)
from anabranch.work.participants.limits import HttpLimits
from anabranch.work.participants.pace import Pace
from anabranch.work.participants.port import BadReply, CannotAsk, ParticipantRequest, Unreachable
from anabranch.work.participants.replies import check_dispatch, names_dispatch, parsed, refusal
from anabranch.work.participants.signed import Check, accept
from anabranch.work.secrets.redaction import Redactor
from anabranch.work.values.texts import clip

_SPARE_DESCRIPTORS = 128  # for the store, the terminal, and whatever the program around us opens
_FEWEST = 16
_REASON = 300  # characters of what others say about a failure
#: Not their absence but our want: descriptors, ports, memory.
_OUR_WANT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)


class ParticipantClient:
    """The connections to all participants of a book, opened with the first request."""

    def __init__(self, limits: HttpLimits, policy: AddressPolicy = ANY) -> None:
        self.limits = limits
        self._policy = policy
        self.pace = Pace()
        self._connections: Connections | None = None

    def get(self) -> Connections:
        if self._connections is None:
            self._connections = Connections(self.limits, self._policy, connections_max())
        return self._connections

    async def close(self) -> None:
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    def seconds(self, wanted: float | None) -> float:
        """The engine stops whoever is late; this only says that it will not be for ever."""
        return self.limits.total_seconds if wanted is None else wanted + 1.0


def connections_max() -> int:
    """What the process may open, less what it needs otherwise. Who has to wait for a connection
    waits within its time limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 if soft == resource.RLIM_INFINITY else max(_FEWEST, soft - _SPARE_DESCRIPTORS)


class Address(msgspec.Struct, frozen=True):
    """Where requests go, and the part of their head that is always the same."""

    host: str
    port: int
    tls: bool
    head: bytes


class HttpParticipant:
    """`secrets` knows what in the URL and the headers must not be shown: a server may echo them."""

    def __init__(
        self,
        url: str,
        sessions: ParticipantClient,
        headers: Mapping[str, str],
        secrets: Redactor,
        check: Check = accept,
    ) -> None:
        self.url = url
        self._check = check
        self._sessions = sessions
        self._secrets = secrets
        self.place = secrets.text(bare(url))
        self._headers = headers
        self._own_trace = tracing.TRACEPARENT in map(str.lower, headers)
        self._address: Address | None = None
        self._kept: Connection | None = None  # for the next request, if it is still open then
        self._names = True  # its replies on connections that were kept have named their dispatch

    async def ask(self, request: ParticipantRequest) -> Any:
        try:
            async with asyncio.timeout(self._sessions.seconds(request.timeout_seconds)):
                reply = await self._exchange(request)
        except Disconnected:
            message = f"{self.place} closed the connection without an answer"
            raise BadReply(message, code="disconnected") from None
        except TimeoutError:
            message = f"{self.place} gave no whole answer in time"
            raise BadReply(message, code="no_answer_in_time") from None
        except BrokenResponse as error:
            message = f"{self.place}: {self._secrets.text(_said(error))}"
            raise BadReply(message, code="broken_reply") from None
        except TooLarge:
            most = self._sessions.limits.reply_bytes
            message = f"{self.place} answered with more than participant_reply_bytes ({most:,})"
            raise BadReply(message, code="reply_too_large") from None
        return self._secrets.clean(reply)

    async def _exchange(self, request: ParticipantRequest) -> Any:
        await self._sessions.pace.turn()
        data = self._written(request)
        connections = self._sessions.get()
        connection, self._kept = self._kept, None
        was_kept = connection is not None and connections.taken(connection)
        if connection is None or not was_kept:
            connection = await self._opened(connections)
        try:
            reader = ResponseReader(self._sessions.limits.reply_bytes, self._judge)
            await connection.exchange(data, reader)
            reply = self._reply(reader, request.decides)
            named = names_dispatch(reply, request.dispatch_id)
            check_dispatch(reply, request.dispatch_id, self.place)
            if was_kept and not named:
                self._names = False
                message = f"{self.place} named no dispatch on a connection that was used before"
                raise BadReply(message, code="unnamed_reply")
            self._check(reply, request)
        except BaseException:
            connection.close()
            raise
        if named and self._names and reader.reusable and connection.all_sent and self._kept is None:
            connections.keep(connection)
            self._kept = connection
        else:
            connection.close()
        return reply

    async def _opened(self, connections: Connections) -> Connection:
        address = self._where()
        try:
            return await connections.open(address.host, address.port, tls=address.tls)
        except OSError as error:
            if error.errno in _OUR_WANT:
                message = f"no connection to {self.place} can be opened here: {error.strerror}"
                raise CannotAsk(message, code="no_means") from None
            raise self._unreachable(error.strerror or _said(error)) from None

    def _unreachable(self, reason: str) -> Unreachable:
        return Unreachable(f"{self.place}: {self._secrets.text(reason)}")

    # -- what is sent ------------------------------------------------------------------------

    def _where(self) -> Address:
        if self._address is None:
            try:
                self._address = _address(URL(self.url), self._headers)
            except ValueError:
                raise self._unreachable("the URL is not valid") from None
        return self._address

    def _written(self, request: ParticipantRequest) -> bytes:
        body = msgspec.json.encode(request.body())
        key = request.idempotency_key or request.dispatch_id
        more = f"Idempotency-Key: {key}\r\nContent-Length: {len(body)}\r\n"
        if not self._own_trace:
            more += "".join(f"{name}: {value}\r\n" for name, value in tracing.headers().items())
        return b"".join((self._where().head, more.encode(), b"\r\n", body))

    # -- what comes back ---------------------------------------------------------------------

    def _judge(self, head: Head) -> None:
        """Refuse by its head what need not be read."""
        if 300 <= head.status < 400:
            message = f"{self.place} redirects to another address, which is not followed"
            raise BadReply(message, code="redirect")
        if head.status == 204:
            raise BadReply(f"{self.place} answered with nothing", code="empty_reply")
        if head.headers.get("content-encoding", "identity").lower() != "identity":
            message = f"{self.place} answered in an encoding that was not requested"
            raise BadReply(message, code="encoded_reply")

    def _reply(self, reader: ResponseReader, decides: bool) -> Any:
        head, data = reader.head, bytes(reader.body)
        assert head is not None, "it was read to its end"
        kind = head.headers.get("content-type", "").partition(";")[0].strip().lower()
        said_json = kind == "text/json" or kind.endswith(("/json", "+json"))
        if head.status >= 400 and decides:
            message = f"{self.place} answered with HTTP {head.status}"
            raise BadReply(message, code=f"http_{head.status}")
        if head.status >= 400:
            return refusal(head.status, head.reason, data if said_json else b"")
        if not said_json:
            named = clip(kind or "no type of content", 80)
            message = f"{self.place} answered with {named}, not with JSON"
            raise BadReply(message, code="wrong_content_type")
        return parsed(data, self.place)


def _address(url: URL, headers: Mapping[str, str]) -> Address:
    """Raises `ValueError` for a URL that names no place, or text that no head can carry."""
    if url.scheme not in ("http", "https") or not url.raw_host or not url.port:
        raise ValueError(url)
    host, tls = url.raw_host, url.scheme == "https"
    shown = f"[{host}]" if ":" in host else host
    lines = {
        "Host": shown if url.is_default_port() else f"{shown}:{url.port}",
        "User-Agent": "anabranch",
        **headers,
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
    }
    if url.user is not None:
        pair = f"{url.user}:{url.password or ''}".encode()
        lines["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    text = [f"POST {url.raw_path_qs} HTTP/1.1", *(f"{name}: {lines[name]}" for name in lines)]
    if any(line.splitlines() != [line] or "\0" in line for line in text):
        raise ValueError(url)
    return Address(host, url.port, tls, "".join(f"{line}\r\n" for line in text).encode())


class FirstReachable:
    """A participant with several endpoints: the next one is tried where nobody is there."""

    def __init__(self, endpoints: Sequence[HttpParticipant]) -> None:
        self._endpoints = endpoints

    async def ask(self, request: ParticipantRequest) -> Any:
        away: list[str] = []
        for endpoint in self._endpoints:
            try:
                return await endpoint.ask(request)
            except Unreachable as error:
                away.append(error.message)
        raise Unreachable("; ".join(away))


def _said(error: BaseException) -> str:
    """What went wrong."""
    return clip(str(error) or type(error).__name__, _REASON)

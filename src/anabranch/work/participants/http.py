"""A participant behind an HTTP endpoint: one POST of JSON, one reply of JSON.

Everything is bounded: the connection, the whole exchange, the size. Redirects are not followed, for
a participant speaks for itself, and no cookie of one is shown to another. Each request has its own
connection: on one that is kept, a second answer to the last request would be taken for that to the
next. Being cancelled closes the connection at once. The module is imported with the first URL of a
book: the client takes its time to load.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult

from anabranch.work import tracing
from anabranch.work.kinds.http.request import bare
from anabranch.work.kinds.threads import Threads
from anabranch.work.network.addresses import ANY, AddressPolicy, connector_options
from anabranch.work.network.one_session import OneSession
from anabranch.work.participants.limits import HttpLimits
from anabranch.work.participants.pace import Pace
from anabranch.work.participants.port import BadReply, CannotAsk, ParticipantRequest, Unreachable
from anabranch.work.participants.replies import check_dispatch, parsed, refusal
from anabranch.work.participants.signed import Check, accept
from anabranch.work.secrets.redaction import Redactor
from anabranch.work.values.texts import clip

_SPARE_DESCRIPTORS = 128  # for the store, the terminal, and whatever the program around us opens
_FEWEST = 16
_LOOK_UPS = 32  # of names, at once
_REASON = 300  # characters of what others say about a failure
#: Not their absence but our want: descriptors, ports, memory.
_OUR_WANT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)


class ParticipantClient:
    """One client for all participants, opened at the first request."""

    def __init__(self, limits: HttpLimits, policy: AddressPolicy = ANY) -> None:
        self.limits = limits
        self._policy = policy
        self.pace = Pace()
        self._session = OneSession(self._opened)
        self.get = self._session.get
        self.close = self._session.close

    def _opened(self) -> aiohttp.ClientSession:
        seconds = self.limits.connect_seconds
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                **{
                    "limit": connections_max(),
                    "force_close": True,
                    "ttl_dns_cache": 60,
                    "resolver": _Resolver(seconds),
                    **connector_options(self._policy),
                }
            ),
            timeout=aiohttp.ClientTimeout(sock_connect=seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,  # a small reply must not become a large one
        )

    def timeout(self, wanted: float | None) -> aiohttp.ClientTimeout:
        """The engine stops whoever is late; this only says that it will not be for ever."""
        total = self.limits.total_seconds if wanted is None else wanted + 1.0
        return aiohttp.ClientTimeout(total=total, sock_connect=self.limits.connect_seconds)


def connections_max() -> int:
    """What the process may open, less what it needs otherwise. Who has to wait for a connection
    waits within its time limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 if soft == resource.RLIM_INFINITY else max(_FEWEST, soft - _SPARE_DESCRIPTORS)


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
        self._headers = {
            **headers,
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
        }

    async def ask(self, request: ParticipantRequest) -> Any:
        try:
            reply = await self._exchange(request)
        except aiohttp.ClientConnectorError as error:
            raise self._not_there(error) from None
        except (aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            raise self._unreachable(_said(error)) from None
        except (aiohttp.ServerDisconnectedError, ConnectionResetError):
            message = f"{self.place} closed the connection without an answer"
            raise BadReply(message, code="disconnected") from None
        except TimeoutError:
            message = f"{self.place} gave no whole answer in time"
            raise BadReply(message, code="no_answer_in_time") from None
        except aiohttp.ClientError as error:
            message = f"{self.place}: {self._secrets.text(_said(error))}"
            raise BadReply(message, code="broken_reply") from None
        return self._secrets.clean(reply)

    async def _exchange(self, request: ParticipantRequest) -> Any:
        await self._sessions.pace.turn()
        async with self._sessions.get().post(
            self.url,
            data=msgspec.json.encode(request.body()),
            headers={
                **tracing.headers(),
                **self._headers,
                "Idempotency-Key": request.dispatch_id,
            },
            allow_redirects=False,
            timeout=self._sessions.timeout(request.timeout_seconds),
        ) as response:
            reply = await self._reply(response)
        check_dispatch(reply, request.dispatch_id, self.place)
        self._check(reply, request)
        return reply

    def _not_there(self, error: aiohttp.ClientConnectorError) -> CannotAsk | Unreachable:
        if error.os_error.errno in _OUR_WANT:
            message = f"no connection to {self.place} can be opened here: {error.os_error.strerror}"
            return CannotAsk(message, code="no_means")
        return self._unreachable(error.os_error.strerror or _said(error))

    def _unreachable(self, reason: str) -> Unreachable:
        return Unreachable(f"{self.place}: {self._secrets.text(reason)}")

    async def _reply(self, response: aiohttp.ClientResponse) -> Any:
        if 300 <= response.status < 400:
            message = f"{self.place} redirects to another address, which is not followed"
            raise BadReply(message, code="redirect")
        if response.status == 204:
            raise BadReply(f"{self.place} answered with nothing", code="empty_reply")
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            message = f"{self.place} answered in an encoding that was not requested"
            raise BadReply(message, code="encoded_reply")
        data = await self._read(response)
        said_json = response.content_type == "text/json" or response.content_type.endswith(
            ("/json", "+json")
        )
        if not response.ok:
            return refusal(response.status, response.reason, data if said_json else b"")
        if not said_json:
            kind = clip(response.content_type, 80)
            message = f"{self.place} answered with {kind}, not with JSON"
            raise BadReply(message, code="wrong_content_type")
        return parsed(data, self.place)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        """The body as far as it may go; what is announced as too large is not even begun."""
        most = self._sessions.limits.reply_bytes
        data = bytearray()
        if (response.content_length or 0) <= most:
            async for chunk in response.content.iter_chunked(64 * 1024):
                data += chunk
                if len(data) > most:
                    break
            else:
                return bytes(data)
        response.close()
        message = f"{self.place} answered with more than participant_reply_bytes ({most:,})"
        raise BadReply(message, code="reply_too_large")


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
    """What went wrong, without the URL that some errors repeat."""
    if isinstance(error, aiohttp.ClientResponseError):
        return clip(error.message.splitlines()[0] if error.message else "bad HTTP", _REASON)
    if isinstance(error, aiohttp.InvalidURL):
        return "the URL is not valid"
    return clip(str(error) or type(error).__name__, _REASON)


class _Resolver(AbstractResolver):
    """Names to addresses, within a time limit and without a hold on the end of the program.

    A look-up blocks a thread and cannot be stopped. So it is done in daemon threads of our own, and
    one that hangs keeps nobody from leaving.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._threads = Threads(_LOOK_UPS, close_seconds=0.1)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        def look_up() -> list[ResolveResult]:
            found = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG
            )
            return [
                ResolveResult(
                    hostname=host,
                    host=str(address[0]),
                    port=int(address[1]),
                    family=kind,
                    proto=protocol,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
                for kind, _, protocol, _, address in found
            ]

        try:
            async with asyncio.timeout(self._seconds):
                return await self._threads.run(look_up)
        except TimeoutError:
            raise OSError(None, f"no address of {host} within {self._seconds:g} s") from None
        except UnicodeError:  # a name that no address can have
            raise OSError(None, f"{host[:80]!r} is no name of a host") from None

    async def close(self) -> None:
        await self._threads.close()

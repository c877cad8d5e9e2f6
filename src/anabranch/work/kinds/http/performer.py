"""The kind `http`: one call, one answer.

The result is `{status_code, headers, url, elapsed, data}`, with `data` decoded when the server says
that it is JSON. Any status but 2xx is a failure whose kind says what to do about it. Calls that
change something carry the job's key as `Idempotency-Key`, so that a repeated call can be known as
one. Redirects are followed for reading calls without credentials; everyone else asks for it with
`follow_redirects`. What a call and its redirects may reach is the policy of `work/network`. Headers
that may be credentials stay with their origin. Messages name the address without user,
password and query.
"""

from __future__ import annotations

import errno
import socket
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgspec

from anabranch.errors import InputError
from anabranch.kernel.values import Answer
from anabranch.work import tracing
from anabranch.work.faults import fault, misconfigured
from anabranch.work.kind_options import HttpOptions
from anabranch.work.kinds.http.request import HttpRequest, Timeouts, read_request
from anabranch.work.kinds.http.response import HttpResponse, read_answer
from anabranch.work.network.addresses import AddressClass, refusal_in
from anabranch.work.network.guarded_sessions import (
    REDIRECTS,
    GuardedSessions,
    headers_onward,
    method_onward,
    note_peers,
    peer_class,
)
from anabranch.work.port import Task

if TYPE_CHECKING:  # importing it takes a fifth of a second, paid with the first call
    import aiohttp
    from yarl import URL

_ERROR_BODY = 64 * 1024  # of an error page nobody needs more
_REDIRECTS_MAX = 10


class _TooLargeError(Exception):
    pass


class _TooManyRedirectsError(Exception):
    pass


class Http:
    """Performs HTTP calls over one session that keeps its connections."""

    never_parks = True  # a call waits here, and comes back with an answer

    def __init__(self, options: HttpOptions | None = None) -> None:
        self._options = options or HttpOptions()
        self._sessions = GuardedSessions(self._options.addresses, self._opened)

    async def perform(self, task: Task) -> Answer:
        try:
            request = read_request(task, self._options.timeout_seconds)
        except InputError as error:
            return misconfigured(error)
        for name, value in tracing.headers().items():
            request.headers.setdefault(name, value)
        try:
            return await read_answer(request, await self._call(request))
        except _TooLargeError:
            return self._too_large(request)
        except _TooManyRedirectsError:
            words = f"it redirects more than {_REDIRECTS_MAX} times"
            return fault("client_error", f"{request.place}: {words}", code="TOO_MANY_REDIRECTS")
        except (OSError, ValueError, _client_error()) as error:
            return _fault_for(request, error)

    async def close(self) -> None:
        await self._sessions.close()

    def _opened(self, connector: dict[str, Any], own: dict[str, Any]) -> aiohttp.ClientSession:
        import aiohttp

        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._options.connections, ttl_dns_cache=60, **connector
            ),
            cookie_jar=aiohttp.DummyCookieJar(),  # calls share connections, never state
            headers={"User-Agent": "anabranch"},
            trust_env=self._options.proxies_from_environment,
            **own,
        )

    async def _call(self, request: HttpRequest) -> HttpResponse:
        started = time.perf_counter()
        # An address that an answer named is as little the author's as that of a redirect.
        passed = list(cast(tuple[AddressClass, ...], request.led_by))
        session = self._sessions.after(passed) if passed else self._sessions.first()
        response = await self._sent(session, request)
        if request.follow and response.status in REDIRECTS:
            response = await self._followed(request, response, started, passed)
        note_peers([*passed, peer_class(response)])
        try:
            body = await self._body(response)
        except BaseException:
            response.close()  # cancelled, cut off or too much of it: the connection is of no use
            raise
        return HttpResponse(
            status=response.status,
            url=_without_user(response.url),
            headers=_joined(response),
            body=body,
            elapsed=time.perf_counter() - started,
        )

    async def _sent(
        self, session: aiohttp.ClientSession, request: HttpRequest
    ) -> aiohttp.ClientResponse:
        return await session.request(
            request.method,
            request.url,
            headers=request.headers,
            params=request.params or None,
            data=request.body,
            allow_redirects=False,
            ssl=request.verify,
            timeout=_client_timeout(request.timeouts),
        )

    async def _followed(
        self,
        request: HttpRequest,
        response: aiohttp.ClientResponse,
        started: float,
        passed: list[AddressClass],
    ) -> aiohttp.ClientResponse:
        """The answer at the end of the redirects, each under the policy for where it comes from."""
        for _ in range(_REDIRECTS_MAX):
            location = response.headers.get("Location")
            if response.status not in REDIRECTS or not location:
                return response
            passed.append(peer_class(response))
            response.release()
            onward = _redirected(request, response, location)
            left = request.timeouts.total - (time.perf_counter() - started)
            if left <= 0:
                raise TimeoutError
            limits = msgspec.structs.replace(request.timeouts, total=left)
            request = msgspec.structs.replace(onward, timeouts=limits)
            response = await self._sent(self._sessions.after(passed), request)
        if response.status in REDIRECTS:
            response.release()
            raise _TooManyRedirectsError
        return response

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        failed = response.status >= 300
        limit = _ERROR_BODY if failed else self._options.body_bytes
        parts: list[bytes] = []
        size = 0
        async for part in response.content.iter_any():
            parts.append(part)
            size += len(part)
            if size > limit and failed:
                response.close()
                break
            if size > limit:
                raise _TooLargeError
        return b"".join(parts)

    def _too_large(self, request: HttpRequest) -> Answer:
        return fault(
            "result",
            f"{request.place}: the answer is larger than {self._options.body_bytes:,} bytes "
            "(setting http_body_bytes)",
            code="BODY_TOO_LARGE",
        )


@lru_cache(maxsize=64)
def _client_timeout(limits: Timeouts) -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(
        total=limits.total, sock_connect=limits.connect, sock_read=limits.read
    )


def _redirected(
    request: HttpRequest, response: aiohttp.ClientResponse, location: str
) -> HttpRequest:
    """The request that a redirect asks for; credentials stay with their origin."""
    import aiohttp
    from yarl import URL

    url = URL(request.url)
    try:
        onward = response.url.join(URL(location))
        same = onward.origin() == url.origin()
    except ValueError:
        raise aiohttp.InvalidURL(location) from None
    if onward.scheme not in ("http", "https") or not onward.host:
        raise aiohttp.NonHttpUrlClientError(location)
    headers = headers_onward(request.headers, url, onward)
    method = method_onward(request.method, response.status)
    body = request.body if method == request.method else None
    if body is None:
        headers.pop("content-type", None)
    # A user and password in the address of a redirect are not ours to send.
    user, password = (url.user, url.password) if same else (None, None)
    onward = onward.with_user(user).with_password(password) if user else onward.with_user(None)
    return msgspec.structs.replace(
        request, method=method, url=str(onward), headers=headers, params=[], body=body
    )


def _without_user(url: URL) -> str:
    return str(url) if url.raw_user is None else str(url.with_user(None))


def _joined(response: aiohttp.ClientResponse) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers


def _client_error() -> type[Exception]:
    import aiohttp

    return aiohttp.ClientError


def _fault_for(request: HttpRequest, error: Exception) -> Answer:
    """The kind of what went wrong below HTTP; aiohttp's own texts may repeat the whole address."""
    import aiohttp

    if refused := refusal_in(error):
        return fault("config", f"{request.place}: {refused}", code="ADDRESS_REFUSED")
    kind, code, words = "connection", "CONN_FAILED", "the connection failed"
    match error:
        case aiohttp.ConnectionTimeoutError():
            kind, code, words = "timeout", "CONNECT_TIMEOUT", "no connection in time"
        case aiohttp.SocketTimeoutError():
            kind, code, words = "timeout", "READ_TIMEOUT", "the server did not answer in time"
        case TimeoutError():
            limit = f"{request.timeouts.total:g}"
            kind, code, words = "timeout", "TIMEOUT", f"no complete answer within {limit} s"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            code, words = "TLS", "the server could not be trusted (see verify_ssl)"
        case aiohttp.ClientConnectorError():
            code, words = connecting(error.os_error)
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            kind, code, words = "config", "BAD_URL", "the address cannot be used"
        case aiohttp.ClientResponseError():
            kind, code, words = "parse", "BAD_HTTP", "the answer is not valid HTTP"
        case ConnectionError() | aiohttp.ClientConnectionError() | aiohttp.ClientPayloadError():
            code, words = "CONN_CLOSED", "the server closed the connection before its answer ended"
        case ValueError():
            kind, code, words = "config", "BAD_REQUEST", "the request cannot be sent as written"
    details: dict[str, Any] = {"exception_type": type(error).__name__}
    return fault(kind, f"{request.place}: {words}", code=code, details=details)


def connecting(error: OSError) -> tuple[str, str]:
    """A code and words for what kept a connection from being made."""
    if isinstance(error, socket.gaierror):
        return "DNS", "the host name is not known"
    if error.errno == errno.ECONNREFUSED:
        return "CONN_REFUSED", "connection refused"
    return "CONN_FAILED", f"no connection ({error.strerror or type(error).__name__})"

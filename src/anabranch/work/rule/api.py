"""The API calls of a rule: one request, one JSON answer, within fixed bounds.

Eight seconds, three redirects, a megabyte; no proxy from the environment, no cookies, nothing is
tried twice. What a call and its redirects may reach is the policy of `work/network`. Whatever
goes wrong is a `CallFailed`, and the defaults take over. Messages never name
the address, which may hold secrets.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from anabranch.dialects.xrc137.document import ApiCall
from anabranch.errors import AnabranchError
from anabranch.expressions.cel.values import CelError, from_json
from anabranch.expressions.placeholders import url_encoded
from anabranch.work import tracing
from anabranch.work.network.addresses import ANY, AddressClass, AddressPolicy, refusal_in
from anabranch.work.network.guarded_sessions import (
    REDIRECTS,
    GuardedSessions,
    headers_onward,
    method_onward,
    peer_class,
)
from anabranch.work.values.served_json import JsonRefused, build_json, do_aside

if TYPE_CHECKING:  # importing it takes a fifth of a second, paid with the first call
    import aiohttp
    from yarl import URL


class CallFailed(AnabranchError):
    """The call gave no usable answer."""

    code = "call_failed"


class ApiOptions(msgspec.Struct, frozen=True, kw_only=True):
    timeout_ms: int = 8_000
    body_bytes: int = 1_000_000
    redirects: int = 3
    connections: int = 256
    addresses: AddressPolicy = ANY


class ApiRequest(msgspec.Struct, frozen=True):
    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    timeout_ms: int | None = None


def request_for(call: ApiCall, names: Mapping[str, Any], key: str) -> ApiRequest:
    """The call with its placeholders filled; `CelMissingName` when one cannot be."""
    headers = {"accept": "application/json", "idempotency-key": key, **tracing.headers()}
    body = None if call.body is None else call.body.render(names).encode("utf-8", "replace")
    if body is not None:
        headers["content-type"] = "application/json"
    for name, template in call.headers.items():
        value = template.render(names)
        if not value.isprintable():
            raise CallFailed(f"header {name} would hold characters that a header cannot carry")
        headers[name.lower()] = value
    url = call.url.render(names, url_encoded)
    return ApiRequest(call.method, url, headers, body, call.timeout_ms)


class ApiCaller:
    """Makes calls over one session that keeps its connections."""

    def __init__(self, options: ApiOptions | None = None) -> None:
        self._options = options or ApiOptions()
        self._sessions = GuardedSessions(self._options.addresses, self._opened)

    async def close(self) -> None:
        await self._sessions.close()

    async def call(self, request: ApiRequest) -> Any:
        """The answer as an expression sees it."""
        import aiohttp

        allowed = (request.timeout_ms or self._options.timeout_ms) / 1000
        try:
            async with asyncio.timeout(allowed):
                body = await self._fetched(request)
        except TimeoutError:
            raise CallFailed(f"no complete answer within {allowed:g} s") from None
        except ValueError:  # also what aiohttp says about an address
            raise CallFailed("the address or a header cannot be used") from None
        except (aiohttp.ClientError, OSError) as error:
            if refused := refusal_in(error):
                raise CallFailed(refused) from None
            raise CallFailed(f"the connection failed ({type(error).__name__})") from None
        return await do_aside(len(body), _decoded, body)

    def _opened(self, connector: dict[str, Any], own: dict[str, Any]) -> aiohttp.ClientSession:
        import aiohttp

        limit = self._options.connections
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit, ssl=_tls(), **connector),
            cookie_jar=aiohttp.DummyCookieJar(),  # calls share connections, never state
            headers={"User-Agent": "anabranch"},
            timeout=aiohttp.ClientTimeout(total=None),  # the caller's timeout covers redirects too
            trust_env=False,
            **own,
        )

    async def _fetched(self, request: ApiRequest) -> bytes:
        from yarl import URL

        session = self._sessions.first()
        passed: list[AddressClass] = []
        url, method, body = URL(request.url), request.method, request.body
        headers = dict(request.headers)
        for _ in range(self._options.redirects + 1):
            if url.scheme not in ("http", "https") or not url.host:
                raise CallFailed("the address is none of http or https")
            async with session.request(
                method, url, headers=headers, data=body, allow_redirects=False
            ) as response:
                onward = _onward(response, url)
                if onward is None:
                    return await self._body(response)
                passed.append(peer_class(response))
                if method_onward(method, response.status) != method:
                    method, body = "GET", None
                    headers.pop("content-type", None)
            headers = headers_onward(headers, url, onward)
            url, session = onward, self._sessions.after(passed)
        raise CallFailed(f"more than {self._options.redirects} redirects")

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        if not 200 <= response.status < 300:
            raise CallFailed(f"HTTP status {response.status}")
        parts: list[bytes] = []
        size = 0
        async for part in response.content.iter_any():
            size += len(part)
            if size > self._options.body_bytes:
                raise CallFailed(f"the answer is larger than {self._options.body_bytes:,} bytes")
            parts.append(part)
        return b"".join(parts)


@cache
def _tls() -> ssl.SSLContext:
    """Once: to read the certificates of the system takes longer than a call."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _onward(response: aiohttp.ClientResponse, url: URL) -> URL | None:
    from yarl import URL

    if response.status not in REDIRECTS:
        return None
    place = response.headers.get("Location", "")
    if not place:
        raise CallFailed("a redirect that leads nowhere")
    onward = url.join(URL(place))
    if onward.scheme not in ("http", "https") or not onward.host:
        raise CallFailed("a redirect to an address that is none of http or https")
    return onward


def _decoded(body: bytes) -> Any:
    try:
        return from_json(build_json(body))
    except (JsonRefused, RecursionError):
        raise CallFailed("the answer is not JSON") from None
    except CelError as error:
        raise CallFailed(error.message) from None

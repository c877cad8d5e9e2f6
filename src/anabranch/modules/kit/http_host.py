"""The host over loopback HTTP: the one connection that a module opens.

What the host answers is passed on as it is; a host that cannot be reached, is too slow or answers
something that is no JSON raises `HostUnavailable`. A call that waits for others at the host (it
says `timeout_ms`) may take that long besides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import msgspec

from anabranch.errors import InputError
from anabranch.market.node.api import Answer
from anabranch.market.node.modules.config import loopback_address
from anabranch.market.node.modules.tokens import MODULE_HEADER
from anabranch.modules.kit.host import HostUnavailable
from anabranch.work.network.one_session import OneSession
from anabranch.work.values.served_json import do_aside

if TYPE_CHECKING:
    import aiohttp

    from anabranch.modules.kit.environment import ModuleEnvironment

CALL_SECONDS = 30.0
ANSWER_BYTES = 32 * 1024 * 1024
CALLS_MAX = 128  # at once; further ones wait, and their time begins when it is their turn
WAIT_MS_MAX = 3_600_000
_PASSED_ON = ("retry-after", "location")
_CHUNK = 64 * 1024


class HttpHost:
    """Implements `HostCall`."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        header: str = MODULE_HEADER,
        seconds: float = CALL_SECONDS,
        answer_bytes: int = ANSWER_BYTES,
    ) -> None:
        self._base = _base(url)
        self._headers = {header: token} if token else {}
        self._seconds = seconds
        self._answer_bytes = answer_bytes
        self._session = OneSession(_make_session)
        self._turns = asyncio.Semaphore(CALLS_MAX)

    @classmethod
    def of(cls, found: ModuleEnvironment) -> HttpHost:
        return cls(found.host_url, found.host_token, header=found.host_header)

    async def __call__(self, method: str, path: str, body: Any, query: Mapping[str, str]) -> Answer:
        import aiohttp

        url = self._base + path + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else msgspec.json.encode(body)
        headers = {**self._headers, "Accept": "application/json", "Accept-Encoding": "identity"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        seconds = self._seconds + _waits(body)
        async with self._turns:
            try:
                async with (
                    asyncio.timeout(seconds),
                    self._session.get().request(
                        method, url, data=data, headers=headers, allow_redirects=False
                    ) as response,
                ):
                    return await self._read(response)
            except TimeoutError:
                said = f"the host did not answer within {seconds:g} s"
                raise HostUnavailable(said, code="host_timeout") from None
            except (aiohttp.ClientError, OSError) as error:
                said = f"the host cannot be reached ({type(error).__name__})"
                raise HostUnavailable(said) from None

    async def _read(self, response: aiohttp.ClientResponse) -> Answer:
        data = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK):
            data += chunk
            if len(data) > self._answer_bytes:
                said = f"the answer of the host has more than {self._answer_bytes:,} bytes"
                raise HostUnavailable(said, code="host_answer_size")
        try:
            body = await do_aside(len(data), msgspec.json.decode, data) if data.strip() else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise HostUnavailable("the host answered no JSON", code="host_answer") from None
        passed = {
            name: value for name, value in response.headers.items() if name.lower() in _PASSED_ON
        }
        return Answer(status=response.status, body=body, headers=passed)

    async def close(self) -> None:
        await self._session.close()


def _base(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme != "http" or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise InputError(f"{url[:200]!r} is no host such as http://127.0.0.1:8801", code="no_host")
    host, port = loopback_address(url)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _waits(body: Any) -> float:
    said = body.get("timeout_ms") if isinstance(body, Mapping) else None
    return min(said, WAIT_MS_MAX) / 1000 if type(said) is int and said > 0 else 0.0


def _make_session() -> aiohttp.ClientSession:
    import aiohttp

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CALLS_MAX),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        timeout=aiohttp.ClientTimeout(total=None),
    )

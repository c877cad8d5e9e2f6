"""How a module is called: over loopback HTTP, or as an object in this process. One contract.

Bodies are JSON in both; size and time are limited, redirects are answers like any other and so
refused. What a module answers is never trusted to be what it should be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from anabranch.errors import AnabranchError
from anabranch.market.node.modules.config import loopback_address

if TYPE_CHECKING:
    import aiohttp

CONNECTIONS_MAX = 32  # to one module at once; further calls wait within their time
_CHUNK = 64 * 1024


class ModuleCallFailed(AnabranchError):
    """The module gave no usable answer. The code says why: module_unreachable, module_timeout,
    module_response_too_large, module_response_too_deep, module_response_invalid, module_crashed."""


class ModuleDisconnected(ModuleCallFailed):
    """The connection broke after it was made: the module may have begun with what was asked."""


class ModuleAnswer(msgspec.Struct, frozen=True):
    status: int
    body: Any

    @property
    def good(self) -> bool:
        return 200 <= self.status < 300


class CallLimits(msgspec.Struct, frozen=True):
    seconds: float
    response_bytes: int


class InProcessModule(Protocol):
    """A module as an object. `body` is JSON, as are answers."""

    async def handle(
        self, method: str, path: str, headers: Mapping[str, str], body: Any
    ) -> tuple[int, Any]: ...


class ModuleTransport(Protocol):
    async def call(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], limits: CallLimits
    ) -> ModuleAnswer:
        """Raises `ModuleCallFailed`."""

    async def close(self) -> None: ...


class InProcessTransport:
    """Values pass as JSON text, so that both sides have their own."""

    def __init__(self, module: InProcessModule) -> None:
        self._module = module

    async def call(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], limits: CallLimits
    ) -> ModuleAnswer:
        given = decoded(_encoded(body))
        lower = {name.lower(): value for name, value in headers.items()}
        try:
            async with asyncio.timeout(limits.seconds):
                status, answer = await self._module.handle(method, path, lower, given)
        except TimeoutError:
            raise _late(limits) from None
        except Exception as error:
            raise ModuleCallFailed(
                f"the module raised {type(error).__name__}", code="module_crashed"
            ) from error
        data = _encoded(answer)
        if len(data) > limits.response_bytes:
            raise _too_large(limits)
        return ModuleAnswer(status, decoded(data))

    async def close(self) -> None:
        """There is nothing to close."""


class HttpTransport:
    """One client session for one module; it reaches its loopback endpoint and nothing else."""

    def __init__(self, endpoint: str) -> None:
        host, port = loopback_address(endpoint)
        self._base = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._session: aiohttp.ClientSession | None = None  # made with the first call

    async def call(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], limits: CallLimits
    ) -> ModuleAnswer:
        import aiohttp

        if self._session is None:
            self._session = _make_session()
        data = None if body is None else _encoded(body)
        sent = {**headers, "Accept": "application/json", "Accept-Encoding": "identity"}
        if data is not None:
            sent["Content-Type"] = "application/json"
        try:
            async with asyncio.timeout(limits.seconds):
                async with self._session.request(
                    method, self._base + path, data=data, headers=sent, allow_redirects=False
                ) as response:
                    return ModuleAnswer(response.status, decoded(await _read(response, limits)))
        except TimeoutError:
            raise _late(limits) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            connected = not isinstance(error, aiohttp.ClientConnectorError)
            begun = isinstance(error, aiohttp.ClientError) and connected
            kind = ModuleDisconnected if begun else ModuleCallFailed
            raise kind(
                f"the module cannot be reached ({type(error).__name__})", code="module_unreachable"
            ) from None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def decoded(data: bytes) -> Any:
    """JSON, or None where there is nothing. Raises `ModuleCallFailed`."""
    if not data.strip():
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _not_json() from None
    except RecursionError:
        raise _too_deep() from None


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except RecursionError:
        raise _too_deep() from None
    except (TypeError, ValueError, msgspec.EncodeError):
        raise _not_json() from None


async def _read(response: aiohttp.ClientResponse, limits: CallLimits) -> bytes:
    if (response.content_length or 0) > limits.response_bytes:
        raise _too_large(limits)
    data = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        data += chunk
        if len(data) > limits.response_bytes:
            raise _too_large(limits)
    return bytes(data)


def _make_session() -> aiohttp.ClientSession:
    import aiohttp

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    )


def _not_json() -> ModuleCallFailed:
    return ModuleCallFailed("what the module said is not JSON", code="module_response_invalid")


def _too_deep() -> ModuleCallFailed:
    return ModuleCallFailed(
        "what the module said is nested too deeply", code="module_response_too_deep"
    )


def _late(limits: CallLimits) -> ModuleCallFailed:
    return ModuleCallFailed(
        f"the module did not answer within {limits.seconds:g} s", code="module_timeout"
    )


def _too_large(limits: CallLimits) -> ModuleCallFailed:
    return ModuleCallFailed(
        f"the answer of the module has more than {limits.response_bytes:,} bytes "
        "(http.max_response_bytes)",
        code="module_response_too_large",
    )

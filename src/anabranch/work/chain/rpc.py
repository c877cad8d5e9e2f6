"""JSON-RPC 2.0 over HTTP, to one node.

A call is asked again only when nothing usable came back (no connection, time is up, 429 or 5xx
without an answer inside); what a node did answer is never asked twice. Redirects are refused: the
address may carry credentials, and a redirect would hand them on. Bodies are read up to a limit.

The address of a node often is a secret (user and password, an API key in the path). Messages name
the host only, and whatever a node says is searched for the rest before it is repeated.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from anabranch.errors import InputError
from anabranch.work.chain.errors import NodeMisbehaved, NodeRefused, NodeUnreachable
from anabranch.work.chain.nesting import nests_deeper
from anabranch.work.network.addresses import ANY, AddressPolicy, connector_options, refusal_in
from anabranch.work.network.one_session import OneSession
from anabranch.work.secrets.forms import INSIDE
from anabranch.work.values.served_json import JsonRefused, build_json, do_aside

if TYPE_CHECKING:  # importing it takes a fifth of a second, paid with the first call
    import aiohttp

_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_WAITING = re.compile(r"header not found|unknown block|rate limit|too many requests", re.I)
_BUSY = -32005  # "limit exceeded"
_DEPTH_MAX = 64
_SHOWN = 300  # characters of what a node says


class RpcOptions(msgspec.Struct, frozen=True):
    timeout_seconds: float = 20.0  # for one attempt
    attempts: int = 3
    pause_seconds: float = 0.2  # before the second attempt, doubled before each further one
    body_bytes: int = 4 * 1024 * 1024  # the largest document is half a megabyte in hexadecimal
    connections: int = 16  # open at once; further calls wait for one
    addresses: AddressPolicy = ANY


class _Failed(Exception):
    """An attempt from which nothing usable came back."""


class JsonRpc:
    """One node. Close it when done."""

    def __init__(self, url: str, options: RpcOptions | None = None) -> None:
        self._url = url
        self._options = options or RpcOptions()
        self._numbers = itertools.count(1)
        self._session = OneSession(self._opened)
        self.place = _place(url)
        self._secrets = _secrets_in(url)

    def __repr__(self) -> str:
        return f"<JsonRpc {self.place}>"

    async def call(self, method: str, *params: Any, attempts: int | None = None) -> Any:
        """The result, or `NodeUnreachable`, `NodeMisbehaved`, `NodeRefused`."""
        attempts = attempts or self._options.attempts
        number = next(self._numbers)
        question = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        body = msgspec.json.encode(question)
        pause = self._options.pause_seconds
        attempt = 0
        while True:
            attempt += 1
            try:
                status, answer = await self._post(body)
                return await do_aside(len(answer), self._result, method, number, status, answer)
            except _Failed as failure:
                if attempt >= attempts:
                    tried = f" ({attempt} attempts)" if attempt > 1 else ""
                    raise NodeUnreachable(f"{self.place}: {failure}{tried}") from None
            await asyncio.sleep(pause)
            pause *= 2

    async def close(self) -> None:
        await self._session.close()

    # -- one attempt -------------------------------------------------------------------------

    def _opened(self) -> aiohttp.ClientSession:
        import aiohttp

        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._options.connections,
                ttl_dns_cache=60,
                **connector_options(self._options.addresses),
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "anabranch", "Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(total=self._options.timeout_seconds),
        )

    async def _post(self, body: bytes) -> tuple[int, bytes]:
        import aiohttp

        session = self._session.get()
        try:
            async with session.post(self._url, data=body, allow_redirects=False) as response:
                return response.status, await self._body(response)
        except TimeoutError:
            seconds = f"{self._options.timeout_seconds:g}"
            raise _Failed(f"no complete answer within {seconds} s") from None
        except aiohttp.InvalidURL:
            raise NodeMisbehaved(f"{self.place}: the address cannot be used") from None
        except aiohttp.ClientResponseError:
            raise NodeMisbehaved(f"{self.place}: the answer is not valid HTTP") from None
        except (OSError, aiohttp.ClientError) as error:  # its own text may hold the address
            if refused := refusal_in(error):
                raise NodeMisbehaved(f"{self.place}: {refused}") from None
            raise _Failed(f"the connection failed ({type(error).__name__})") from None

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in response.content.iter_any():
            size += len(part)
            if size > self._options.body_bytes:
                response.close()
                limit = f"{self._options.body_bytes:,}"
                raise NodeMisbehaved(
                    f"{self.place}: the answer is larger than {limit} bytes",
                    hint="no document of an orchestration is that long",
                )
            parts.append(part)
        return b"".join(parts)

    # -- what the answer means ---------------------------------------------------------------

    def _result(self, method: str, number: int, status: int, body: bytes) -> Any:
        if 300 <= status < 400:
            raise NodeMisbehaved(
                f"{self.place} redirects, which is refused",
                hint="give the address it redirects to",
            )
        answer = _decoded(body)
        if not isinstance(answer, dict) or not answer.keys() & {"result", "error"}:
            raise self._no_answer(method, status)
        error, named = answer.get("error"), answer.get("id")
        if named is None and error is not None:  # said before the question was read
            if status in _AGAIN:
                raise self._no_answer(method, status)
        elif named != number or isinstance(named, bool):
            raise NodeMisbehaved(
                f"{self.place}: the answer to {method} belongs to another call",
                hint="something between here and the node mixes up answers",
            )
        if error is not None:
            raise self._refusal(method, error)
        return answer["result"]

    def _no_answer(self, method: str, status: int) -> Exception:
        if status in _AGAIN:
            return _Failed(f"HTTP status {status}")
        if not 200 <= status < 300:
            hint = "check the credentials in the URL" if status in (401, 403) else None
            return NodeMisbehaved(f"{self.place}: HTTP status {status}", hint=hint)
        return NodeMisbehaved(f"{self.place}: the answer to {method} is not JSON-RPC")

    def _refusal(self, method: str, error: Any) -> NodeRefused:
        if not isinstance(error, dict):
            error = {"message": str(error)}
        number = error.get("code")
        number = number if isinstance(number, int) else 0
        words = self.clean(str(error.get("message", "")))
        return NodeRefused(
            f"{self.place} refused {method}: {words or 'no reason given'} ({number})",
            number=number,
            said=words,
            data=error.get("data"),
            retryable=number == _BUSY or bool(_WAITING.search(words)),
        )

    def clean(self, text: str) -> str:
        """What a node said, on one line, short, and without the secrets of its address."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = " ".join(text.split())
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _decoded(body: bytes) -> Any:
    if nests_deeper(body, _DEPTH_MAX):
        return None
    try:
        return build_json(body)
    except JsonRefused:
        return None


def _place(url: str) -> str:
    """Scheme, host and port; raises for what is no address of a node, without repeating it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError("the address of a node has to be an http:// or https:// URL")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}"


def _secrets_in(url: str) -> tuple[str, ...]:
    """The address itself and every part of it that may be a credential, longest first.
    Stars in place of a short one, which is in any text by chance, would tell it."""
    parts = urlsplit(url)
    found = {url, parts.netloc if "@" in parts.netloc else "", parts.query}
    found |= {parts.username or "", parts.password or ""}
    found |= {piece for piece in parts.path.split("/") if len(piece) >= 12}
    found |= {value for _, value in parse_qsl(parts.query)}
    found |= {unquote(piece) for piece in found}
    return tuple(sorted((s for s in found if len(s) >= INSIDE), key=len, reverse=True))

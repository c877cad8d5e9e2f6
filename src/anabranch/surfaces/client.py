"""A client of the HTTP API, for the command line and for `anabranch.Client`.

Problems come back as the errors they were at the server, with their codes and words, so whoever
catches them need not know that there was a network in between. What the network itself does wrong
is a `ServerError`. Only what is safe to repeat is repeated: reads, and changes that carry a key.
"""

from __future__ import annotations

import asyncio
import copy
import errno
import os
import secrets
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from anabranch import errors
from anabranch.net.problems import Position, Problem
from anabranch.surfaces.http.guard.auth import FIRST_TOKEN, LOOPBACK_NAMES
from anabranch.surfaces.http.routes import API

SECONDS = 150.0  # above what a server gives itself for one answer
CONNECT_SECONDS = 10.0
TRIES = 3
PAUSE_SECONDS = 0.2
BEAT_SECONDS = 60.0  # a stream without a heartbeat for so long is dead
LINE_BYTES = 64 * 1024 * 1024
NOBODY_THERE = "start it with `anabranch serve`, or unset ANABRANCH_SERVER to work on a store"

Answer = dict[str, Any]  # the API answers with objects only

_KINDS: Mapping[int, type[errors.AnabranchError]] = {
    HTTPStatus.UNAUTHORIZED: errors.Denied,
    HTTPStatus.FORBIDDEN: errors.Denied,
    HTTPStatus.NOT_FOUND: errors.NotFound,
    HTTPStatus.CONFLICT: errors.Refused,
    HTTPStatus.TOO_MANY_REQUESTS: errors.Denied,
}
_ACCESS = ("scope", "pool", "actor", "csrf", "wrong_origin")


class ServerError(errors.AnabranchError):
    """The server cannot be reached, or does not answer as one of ours."""

    code = "server"


class Client:
    """Use it with `async with`. `url` is that of a server, without a path."""

    def __init__(self, url: str, *, token: str = "", actor: str = "") -> None:
        self.url = checked_url(url)
        headers = {"User-Agent": "anabranch"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if actor:
            headers["X-Actor"] = actor
        self._headers = headers
        self._more: Mapping[str, str] = {}  # of every request
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Client:
        timeout = aiohttp.ClientTimeout(total=SECONDS, sock_connect=CONNECT_SECONDS)
        here = urlsplit(self.url).hostname in LOOPBACK_NAMES  # nobody means a proxy to reach this
        self._session = aiohttp.ClientSession(
            timeout=timeout, headers=self._headers, trust_env=not here, read_bufsize=LINE_BYTES
        )
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._session is not None:
            await self._session.close()

    def acting(self, actor: str) -> Client:
        """The same in the name of somebody, for one request or more."""
        other = copy.copy(self)
        other._more = {"X-Actor": actor} if actor else {}
        return other

    # -- asking ------------------------------------------------------------------------------

    async def get(self, *path: str, **query: Any) -> Answer:
        return await self._repeated("GET", _path(path), query)

    async def post(
        self, *path: str, body: Any = None, once: bool | str = False, **query: Any
    ) -> Answer:
        """With `once` the request carries a key, a new one or this: it may be sent again and is
        done once."""
        chosen = once if isinstance(once, str) else secrets.token_hex(16)
        key = {"Idempotency-Key": chosen} if once else {}
        send = self._repeated if once else self._sent
        return await send("POST", _path(path), query, body=body, headers=key)

    async def patch(self, *path: str, body: Any) -> Answer:
        """What it sets is the same when it is set again."""
        return await self._repeated("PATCH", _path(path), {}, body=body)

    async def put(self, *path: str, body: Any) -> Answer:
        return await self._repeated("PUT", _path(path), {}, body=body)

    async def delete(self, *path: str) -> Answer:
        return await self._repeated("DELETE", _path(path), {})

    async def _repeated(
        self, method: str, path: str, query: Mapping[str, Any], **more: Any
    ) -> Answer:
        for left in reversed(range(TRIES)):
            try:
                return await self._sent(method, path, query, **more)
            except ServerError:
                if not left:
                    raise
                await asyncio.sleep(PAUSE_SECONDS)
        raise AssertionError("the last try returns or raises")

    async def _sent(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        session = self._open()
        given = {**self._more, **(headers or {})}
        data = None
        if body is not None:
            data, given["Content-Type"] = msgspec.json.encode(body), "application/json"
        try:
            async with session.request(
                method, self.url + path, params=_params(query), data=data, headers=given,
                allow_redirects=False,
            ) as response:  # fmt: skip
                text = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise self._unreachable(error) from None
        return self._read(response, text)

    def _read(self, response: aiohttp.ClientResponse, text: bytes) -> Answer:
        value: Any
        try:
            value = msgspec.json.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            value = None
        if response.status < 300 and (value is not None or text == b"null"):
            answer: Answer = value
            return answer
        if isinstance(value, dict) and isinstance(value.get("code"), str):
            raise error_of(value)
        raise ServerError(
            f"{self.url} answered {response.status} and not as an Anabranch server does: "
            "check the URL"
        )

    # -- following ---------------------------------------------------------------------------

    async def stream(
        self, *path: str, after: int = 0, item: str = "", **query: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """The records of an event stream until the run has ended; goes on after a break. `item` is
        what its frames are called where they are no events."""
        tries = TRIES
        while tries:
            try:
                async for name, number, data in self._frames(_path(path), after, query):
                    if name == "end" and data.get("reason") == "finished":
                        return
                    if name == item or ("seq" in data and "kind" in data):
                        after, tries = data.get("seq", number), TRIES
                        yield data
            except ServerError:
                if tries == 1:
                    raise
            tries -= 1
            await asyncio.sleep(PAUSE_SECONDS)
        raise ServerError(f"{self.url} ends the stream again and again")

    async def _frames(
        self, path: str, after: int, query: Mapping[str, Any]
    ) -> AsyncIterator[tuple[str, int, dict[str, Any]]]:
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=BEAT_SECONDS
        )
        try:
            async with self._open().get(
                self.url + path,
                params={**query, "after": after},
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                if response.status != 200:
                    self._read(response, await response.read())
                    raise ServerError(f"{self.url} does not stream events: {response.status}")
                name, number = "", after
                async for line in response.content:
                    if line.startswith(b"id: "):
                        number = int(line[4:])
                    elif line.startswith(b"event: "):
                        name = line[7:].strip().decode()
                    elif line.startswith(b"data: "):
                        yield name, number, msgspec.json.decode(line[6:], type=dict)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise self._unreachable(error) from None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the client is not open: use it as `async with Client(...)`")
        return self._session

    def _unreachable(self, error: BaseException) -> ServerError:
        if isinstance(error, TimeoutError):
            why = "it does not answer in time"
        elif isinstance(error, aiohttp.ClientConnectorCertificateError):
            why = f"its certificate is not trusted ({error.certificate_error}); see SSL_CERT_FILE"
        elif isinstance(error, aiohttp.ClientConnectorSSLError):
            why = f"it does not speak https ({_tls(error.os_error)}); try http://"
        elif isinstance(error, aiohttp.ClientConnectorError):
            why = (
                os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.os_error)
            )
            if error.errno == errno.ECONNREFUSED:
                why += f"; {NOBODY_THERE}"
        else:
            why = str(error) or type(error).__name__
        return ServerError(f"the server {self.url} cannot be reached: {why}")


def error_of(problem: Mapping[str, Any]) -> errors.AnabranchError:
    """The error that a problem document tells of."""
    status, code = int(problem.get("status", 500)), str(problem["code"])
    detail, hint = str(problem.get("detail", "")), str(problem.get("hint", ""))
    found = problem.get("problems")
    if code == errors.DefinitionError.code and found:
        return errors.DefinitionError([problem_of(one) for one in found])
    kind = _KINDS.get(status, errors.InputError if status < 500 else errors.AnabranchError)
    if kind is errors.Denied and status == HTTPStatus.FORBIDDEN and code not in _ACCESS:
        kind = errors.Refused
    if status == HTTPStatus.UNAUTHORIZED:
        hint = f"set ANABRANCH_TOKEN or --token-file; {FIRST_TOKEN}"
    if kind is errors.Denied:
        detail = f"{detail}: {hint}" if hint else detail
    return kind(detail, code=code)


def problem_of(fields: Mapping[str, Any]) -> Problem:
    position = Position(fields["line"], fields["column"], fields["file"])
    return Problem(position, fields["code"], fields["message"], fields["hint"], fields["severity"])


def checked_url(url: str) -> str:
    """The URL without a slash at its end; a bare `host:port` is meant as http.

    Whoever copies it from the documentation of the API has the path of that, too: it is left out.
    """
    text = url.strip()
    parts = urlsplit(text if "://" in text else f"http://{text}")
    try:
        sound = parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if parts.scheme not in ("http", "https") or not sound or parts.query or parts.fragment:
        raise errors.InputError(
            f"{url[:100]!r} is no server: write it as http://127.0.0.1:8629", code="usage"
        )
    if parts.username is not None:
        raise errors.InputError(
            "a server's URL has no password in it: use ANABRANCH_TOKEN", code="usage"
        )
    path = parts.path.rstrip("/").removesuffix(API).rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _tls(error: OSError) -> str:
    """Why, in the few words that the library has for it."""
    reason = getattr(error, "reason", None) or type(error).__name__
    return str(reason).replace("_", " ").lower()


def _path(parts: tuple[str, ...]) -> str:
    return API + "".join(f"/{quote(part, safe='')}" for part in parts)


def _params(query: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Without what is None; a list is given item by item."""
    found: list[tuple[str, str]] = []
    for name, value in query.items():
        if isinstance(value, list | tuple):
            found += [(name, str(one)) for one in value]
        elif value is not None:
            found.append((name, str(value)))
    return found

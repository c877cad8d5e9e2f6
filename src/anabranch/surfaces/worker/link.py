"""The way to the server: one call, or the same call until it is heard.

A server that cannot be reached, is starting or stopping, or asks for patience is *away*: whoever
called tries again, a little later each time. Any other refusal is *final*: saying it again would
get the same answer.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from anabranch.errors import AnabranchError, InputError

log = logging.getLogger("anabranch.worker")

T = TypeVar("T")
DELAY_SECONDS = (0.2, 5.0)  # before the next try: at first, and at most
LOG_EVERY = 12  # tries: about once a minute
CALL_SECONDS = 30.0
#: Of an answer: the token is refused (it may be mended), too many calls, or a server in trouble.
PATIENCE = frozenset({401, 403, 408, 425, 429, 500, 502, 503, 504})

Key = tuple[str, str, int]


class Away(AnabranchError):
    """Nobody could be reached, or nobody who could answer now."""

    code = "server_away"

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Final(AnabranchError):
    """The server refused, and would do so again."""

    def __init__(self, message: str, code: str, status: int) -> None:
        super().__init__(message, code=code)
        self.status = status


class Link:
    """Use it as an async context manager."""

    def __init__(self, server: str, token: str = "") -> None:
        if not server.startswith(("http://", "https://")):
            raise InputError(
                f"the server is {server!r}: give its URL, such as http://127.0.0.1:8629",
                code="no_server",
            )
        self.server = server.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Link:
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=connector, headers=self._headers)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def once(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: bytes | None = None,
        seconds: float = CALL_SECONDS,
    ) -> bytes:
        """One call; the body is JSON, or `content` as it is."""
        assert self._session is not None, "used inside `async with`"
        data = content if content is not None else msgspec.json.encode(body)
        media = "application/octet-stream" if content is not None else "application/json"
        try:
            async with self._session.request(
                method,
                f"{self.server}/api/v1{path}",
                data=data if method != "GET" else None,
                headers={"Content-Type": media} if method != "GET" else {},
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
            ) as response:
                answer = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Away(
                f"{self.server} cannot be reached: {error or type(error).__name__}"
            ) from None
        if response.status < 300:
            return answer
        raise _refusal(response.status, answer)

    async def json(self, kind: type[T], method: str, path: str, body: Any = None, **how: Any) -> T:
        answer = await self.once(method, path, body, **how)
        try:
            return msgspec.json.decode(answer, type=kind)
        except msgspec.MsgspecError as error:
            raise Final(f"{self.server} gave an answer nobody can read: {error}", "answer", 200) from None  # fmt: skip  # noqa: E501


def _refusal(status: int, answer: bytes) -> Away | Final:
    try:
        said = msgspec.json.decode(answer)
    except msgspec.MsgspecError:
        said = None
    if not isinstance(said, dict):
        said = {}
    detail = str(said.get("detail") or f"the server answered with status {status}")
    if status in PATIENCE:
        return Away(detail, status)
    return Final(detail, str(said.get("code") or "http"), status)


async def until_heard(call: Callable[[], Awaitable[T]], what: str) -> T:
    """The same call until it has an answer; each pause is longer than the one before."""
    delay = DELAY_SECONDS[0]
    for tries in count():
        try:
            return await call()
        except Away as away:
            if tries % LOG_EVERY == 0:
                log.warning("%s: %s; trying again", what, away)
        await asyncio.sleep(delay * random.uniform(0.5, 1.0))
        delay = min(delay * 2, DELAY_SECONDS[1])
    raise AssertionError("it never ends by itself")


def job_path(key: Key, verb: str) -> str:
    run, job, attempt = key
    return f"/jobs/{quote(run, safe='')}/{quote(job, safe='')}/{attempt}/{verb}"

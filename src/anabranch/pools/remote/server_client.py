"""The way to one server: one call, or the same call until it is heard.

A server that cannot be reached, is starting or stopping, or asks for patience is *away*: whoever
called tries again, a little later each time. Any other refusal is *final*: saying it again would
get the same answer. That a server is away, and that it is back, is said once, however many calls
meet a closed door. A server that does not own the run of a job says which one does.
"""

from __future__ import annotations

import asyncio
import io
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec

from anabranch.errors import AnabranchError, InputError
from anabranch.pools.remote.shapes import ServerAddress, ServerList
from anabranch.pools.services import JobRefused, Key
from anabranch.runtime.messages.codec import ELSEWHERE

log = logging.getLogger("anabranch.worker")

T = TypeVar("T")
DELAY_SECONDS = (0.2, 5.0)  # before the next try: at first, and at most
CALL_SECONDS = 30.0
#: Of an answer: the token is refused (it may be mended), too many calls, or a server in trouble.
PATIENCE = frozenset({401, 403, 408, 421, 425, 429, 500, 502, 503, 504})


class ServerAway(AnabranchError):
    """Nobody could be reached, or nobody who could answer now."""

    code = "server_away"

    def __init__(self, message: str, status: int = 0, *, heard: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.heard = heard  # perhaps: it was said, and only the answer is missing


class RunMoved(ServerAway):
    """This server does not own the run; `server` is the URL of the one that does, if there is."""

    def __init__(self, message: str, status: int, server: str) -> None:
        super().__init__(message, status)
        self.server = server


class ServerRefused(JobRefused):
    """The server refused, and would do so again."""

    def __init__(self, message: str, code: str, status: int) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.too_large = status == 413


class ServerClient:
    """One server; open it before the first call. `worker` is the name under which jobs are
    claimed."""

    def __init__(self, server: str, token: str = "", worker: str = "") -> None:
        if not server.startswith(("http://", "https://")):
            raise InputError(
                f"the server is {server!r}: give its URL, such as http://127.0.0.1:8629",
                code="no_server",
            )
        self.server = plain_url(server)
        self.worker = worker
        self.id = ""  # as the servers know it; another one after each start
        self.on_away: Callable[[], None] = lambda: None
        #: Before the first call; raises `ServerAway` where nothing is to be said to this server.
        self.check: Callable[[], Awaitable[None]] | None = None
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None
        self._away_since: float | None = None
        self._heard = False  # the server has done once what this worker asked for

    def open(self) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=connector, headers=self._headers)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def away(self) -> bool:
        """The last call was not heard."""
        return self._away_since is not None

    @property
    def away_seconds(self) -> float:
        """For how long nobody was there; 0 where the last call was heard."""
        return 0.0 if self._away_since is None else time.monotonic() - self._away_since

    def job(self, key: Key, verb: str, **query: Any) -> str:
        """The path of what can be said about a job of this worker."""
        run, job, attempt = key
        asked = urlencode({"worker": self.worker, **query})
        return f"/jobs/{quote(run, safe='')}/{quote(job, safe='')}/{attempt}/{verb}?{asked}"

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
        try:
            if self.check is not None:
                await self.check()
                self.check = None
            status, answer = await self._call(method, path, body, content, seconds)
        except ServerAway as away:
            if away.status not in (401, 403):  # as below
                self._is_away(away)
            raise
        if status < 300:
            self._heard = True
            self._is_back()
            return answer
        refusal = _refusal(status, answer)
        if isinstance(refusal, RunMoved):
            self._is_back()
        elif isinstance(refusal, ServerAway):
            if self._heard or status not in (401, 403):  # else it was never let in: no patience
                self._is_away(refusal)
        else:
            self._is_back()
        raise refusal

    async def listed(self, seconds: float) -> Sequence[ServerAddress]:
        """The servers of its store, for `check`: whatever comes of this, nothing else was said."""
        try:
            status, answer = await self._call("GET", "/servers", None, None, seconds)
        except ServerAway as away:
            raise ServerAway(away.message) from None
        if status < 300:
            with suppress(msgspec.MsgspecError):
                return msgspec.json.decode(answer, type=ServerList).items
        why = f"{self.server} does not tell its servers: {_refusal(status, answer).message}"
        raise ServerAway(why, status if status in (401, 403) else 0)

    async def _call(
        self, method: str, path: str, body: Any, content: bytes | None, seconds: float
    ) -> tuple[int, bytes]:
        assert self._session is not None, "opened before it is used"
        data = content if content is not None else msgspec.json.encode(body)
        media = "application/octet-stream" if content is not None else "application/json"
        try:
            async with self._session.request(
                method,
                f"{self.server}/api/v1{path}",
                data=io.BytesIO(data) if method != "GET" else None,
                headers={"Content-Type": media} if method != "GET" else {},
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
            ) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            said = f"{self.server} cannot be reached: {error or type(error).__name__}"
            heard = not isinstance(error, aiohttp.ClientConnectorError)
            raise ServerAway(said, heard=heard) from None

    async def json(self, kind: type[T], method: str, path: str, body: Any = None, **how: Any) -> T:
        answer = await self.once(method, path, body, **how)
        try:
            return msgspec.json.decode(answer, type=kind)
        except msgspec.MsgspecError as error:
            said = f"{self.server} sent an answer that the worker cannot read: {error}"
            raise ServerRefused(said, "answer", 200) from None

    def _is_away(self, away: ServerAway) -> None:
        if self._away_since is None:
            self._away_since = time.monotonic()
            log.warning("%s; trying again until it is back", away.message)
            self.on_away()

    def _is_back(self) -> None:
        if self._away_since is not None:
            log.warning("%s is back after %.1f s", self.server, self.away_seconds)
            self._away_since = None


def _refusal(status: int, answer: bytes) -> ServerAway | ServerRefused:
    try:
        said = msgspec.json.decode(answer)
    except msgspec.MsgspecError:
        said = None
    if not isinstance(said, dict):
        said = {}
    detail = str(said.get("detail") or f"the server answered with status {status}")
    if said.get("code") == ELSEWHERE:
        return RunMoved(detail, status, str(said.get("server") or ""))
    if status in PATIENCE:
        return ServerAway(detail, status)
    return ServerRefused(detail, str(said.get("code") or "http"), status)


def plain_url(server: str) -> str:
    """Without what people may add at its end."""
    return server.rstrip("/").removesuffix("/api/v1").rstrip("/")


class Backoff:
    """Pauses between tries: each is longer than the one before, up to a limit, and none as long as
    that of the next worker."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._delay = DELAY_SECONDS[0]

    async def pause(self) -> None:
        delay, self._delay = self._delay, min(self._delay * 2, DELAY_SECONDS[1])
        await asyncio.sleep(delay * random.uniform(0.5, 1.0))


async def until_heard(call: Callable[[], Awaitable[T]]) -> T:
    """The same call until it has an answer."""
    backoff = Backoff()
    while True:
        try:
            return await call()
        except ServerAway:
            await backoff.pause()

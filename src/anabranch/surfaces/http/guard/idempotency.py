"""Requests that are sent twice: with an `Idempotency-Key` they take effect once.

The key belongs to whoever sent it. What was answered is kept for a day and given again to the same
request; another request with that key is refused. A server that stops in the middle leaves a key
without an answer: what can be done again without harm (beginning a run, whose id comes from the
key) is done again, of the rest the client is told that nobody knows.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import msgspec
from aiohttp import web

from anabranch.errors import AnabranchError
from anabranch.operations.access.write_batcher import WriteBatcher
from anabranch.store.access_ports import KeptAnswer
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.request_body import answer
from anabranch.surfaces.http.routes import PARTS, Header, actor_of

log = logging.getLogger("anabranch.http")

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
KEY_LETTERS = 200
KEPT_MS = 24 * 3600 * 1000
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

KEY_HEADER = Header(HEADER, "any text of your own; a repeat with it does nothing new for a day")


class KeyedRequest(msgspec.Struct, frozen=True):
    """What a request with a key has to know to be done once."""

    run: str | None = None  # the id of the run it begins; the same for every repeat
    resumed: bool = False  # a server stopped while it was at it: perhaps it is done


Do = Callable[[KeyedRequest], Awaitable[tuple[int, Any]]]


class IdempotencyKeys:
    """What this process is at, by actor and key."""

    def __init__(self) -> None:
        self.holder = secrets.token_hex(8)
        self.under_way: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._keeping: set[asyncio.Task[None]] = set()

    def over(self, actor: str, key: str) -> None:
        self.under_way.pop((actor, key)).set_result(None)

    def keep_soon(self, actor: str, key: str, keeping: Coroutine[Any, Any, None]) -> None:
        """Only a repeat of the request has to wait until its answer is kept."""
        task = asyncio.get_running_loop().create_task(self._keep(actor, key, keeping))
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def _keep(self, actor: str, key: str, keeping: Coroutine[Any, Any, None]) -> None:
        try:
            await keeping
        except AnabranchError as error:  # what was done is done, and is found by its key
            log.error("an answer could not be stored: %s", error.message)
        finally:
            self.over(actor, key)

    async def close(self) -> None:
        if self._keeping:
            await asyncio.wait(self._keeping)


REPEATS = web.AppKey("repeats", IdempotencyKeys)
BATCHER = web.AppKey("batcher", WriteBatcher)


async def keep_answers(app: web.Application) -> AsyncIterator[None]:
    """For `cleanup_ctx`: a server that stops has written what it answered."""
    yield
    await app[REPEATS].close()
    await app[BATCHER].close()


def key_of(request: web.Request) -> str:
    key = request.headers.get(HEADER, "")
    if HEADER in request.headers and not (0 < len(key) <= KEY_LETTERS and key.isprintable()):
        said = f"the {HEADER} is empty, longer than {KEY_LETTERS} letters or not printable"
        raise ApiError(400, "idempotency_key", said, "send a short text, such as a UUID")
    return key


def _run_of(claim: KeptAnswer) -> str:
    """The instant is part of it: after a day the same key begins something new."""
    named = f"{claim.actor}\0{claim.key}\0{claim.expires_at}"
    digest = hashlib.sha256(named.encode()).digest()
    return "k" + "".join(_ALPHABET[byte % 32] for byte in digest[:25])


async def once(request: web.Request, body: Any, do: Do, *, again: bool = False) -> web.Response:
    """Do it, or answer as it was answered before. `again`: doing it twice does no harm."""
    key = key_of(request)
    if not key:
        status, value = await do(KeyedRequest())
        return answer(value, status)
    repeats, actor = request.app[REPEATS], actor_of(request)
    while (under_way := repeats.under_way.get((actor, key))) is not None:
        await asyncio.shield(under_way)
    repeats.under_way[actor, key] = asyncio.get_running_loop().create_future()
    try:
        response, kept = await _claimed(request, _claim(request, actor, key, body), do, again)
        keeping = _keep(request, kept) if kept is not None else None
        if keeping is not None and not again:
            await keeping
    except BaseException:
        repeats.over(actor, key)
        raise
    if keeping is not None and again:  # found again without it: nobody need wait for the disk
        repeats.keep_soon(actor, key, keeping)
    else:
        repeats.over(actor, key)
    return response


async def _keep(request: web.Request, kept: KeptAnswer) -> None:
    await request.app[BATCHER].write(lambda: request.app[PARTS].store.keep_answer(kept))


def _claim(request: web.Request, actor: str, key: str, body: Any) -> KeptAnswer:
    said = msgspec.json.encode([request.method, request.path, body], order="sorted")
    return KeptAnswer(
        actor=actor,
        key=key,
        body=hashlib.sha256(said).hexdigest(),
        holder=request.app[REPEATS].holder,
        expires_at=request.app[PARTS].engine.clock.now() + KEPT_MS,
    )


async def _claimed(
    request: web.Request, claim: KeptAnswer, do: Do, again: bool
) -> tuple[web.Response, KeptAnswer | None]:
    """The answer, and what is to be kept of it, where it is new."""
    parts, batcher = request.app[PARTS], request.app[BATCHER]
    now = parts.engine.clock.now()
    found = await batcher.write(lambda: parts.store.claim_key(claim, now))
    if found is not None:
        if found.body != claim.body:
            said = f"the {HEADER} {claim.key!r} was used for another request"
            raise ApiError(409, "idempotency", said, "use a new key for another request")
        if found.answer is not None and found.status is not None:
            value = msgspec.Raw(found.answer)
            return answer(value, found.status, {REPLAYED: "true"}), None
        if not again:
            said = "the server stopped during this request: it may have had its effect or not"
            raise ApiError(409, "unknown_outcome", said, "look at the run, then use a new key")
        claim = found
    try:
        status, value = await do(KeyedRequest(_run_of(claim), found is not None))
    except BaseException:
        await batcher.write(lambda: parts.store.release_key(claim))
        raise
    kept = msgspec.structs.replace(claim, status=status, answer=msgspec.json.encode(value))
    return answer(value, status), kept

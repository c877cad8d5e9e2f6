"""Requests that are sent twice: with an `Idempotency-Key` they take effect once.

The key belongs to whoever sent it. What was answered is kept for a day and given again to the same
request; another request with that key is refused. A key is given back only where nothing was done
for sure. A server that stops in the middle, or does not hear what became of the request, leaves a
key without an answer: what can be done again without harm (beginning a run, whose id comes from the
key) is done again, of the rest the client is told that its outcome is not known.

A start on a store that no other server shares takes its key in the commit that begins the run, with
its answer: until then the key is taken in this process alone, and a server that stops has done
nothing.

On a store that several servers share, what a server could not write of a key because the database
was away it writes when that is back.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from anabranch.cancel import cancel_and_wait
from anabranch.errors import AnabranchError, StoreError
from anabranch.operations.access.write_batcher import WriteBatcher
from anabranch.store.access_ports import KeptAnswer
from anabranch.store.outages import passes
from anabranch.surfaces.http.io.problems import ApiError, status_of
from anabranch.surfaces.http.io.request_body import answer, json_answer
from anabranch.surfaces.http.routes import PARTS, Header, actor_of

log = logging.getLogger("anabranch.http")

T = TypeVar("T")
HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
KEY_LETTERS = 200
KEPT_MS = 24 * 3600 * 1000
OTHERS_SECONDS = (0.05, 1.0)  # between two looks at what another server does with it: first, most
#: For so long a repeat waits for the first: longer than any request waits for the owner of a run.
PATIENCE_SECONDS = 75.0
AGAIN_SECONDS = 0.5  # between two tries to write to a database that is away
CLOSE_SECONDS = 5.0  # for these when the server stops
UNKNOWN = 409  # stands for an answer that is not known
GIVEN_UP = 503  # the same where any server may do it again; successes alone are kept as answers
_ALPHABET = b"0123456789abcdefghjkmnpqrstvwxyz"
_LETTERS = _ALPHABET * 8  # for every byte

KEY_HEADER = Header(HEADER, "any text of your own; a repeat with it does nothing new for a day")


class KeyedRequest(msgspec.Struct, frozen=True):
    """What a request with a key has to know to be done once."""

    run: str | None = None  # the id of the run it begins; the same for every repeat
    resumed: bool = False  # a server stopped while it was at it: perhaps it is done
    claim: KeptAnswer | None = None  # where the commit that begins the run writes the answer

    def kept(self, status: int, value: Any) -> KeptAnswer | None:
        """The answer, for that commit."""
        return self.claim and _answered(self.claim, status, msgspec.json.encode(value))


Do = Callable[[KeyedRequest], Awaitable[tuple[int, Any]]]
Write = Callable[[], asyncio.Future[Any]]


class IdempotencyKeys:
    """What this process is at, by actor and key."""

    def __init__(self, server: str = "") -> None:
        """`server` is the id of this one among those that share the store."""
        self.holder = server or secrets.token_hex(8)
        self.shared = bool(server)
        self.under_way: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._writing: set[asyncio.Task[None]] = set()
        self._closing = False

    def over(self, actor: str, key: str) -> None:
        self.under_way.pop((actor, key)).set_result(None)

    def write_soon(self, actor: str, key: str, write: Write) -> None:
        """Only a repeat of the request has to wait until this is written."""
        if not self.shared:
            write().add_done_callback(partial(self._write_ended, actor, key))
            return
        task = asyncio.get_running_loop().create_task(self._write(actor, key, write))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    def _write_ended(self, actor: str, key: str, written: asyncio.Future[Any]) -> None:
        error = written.exception()
        if error is not None:  # what was done is done, and is found by its key
            log.error("the outcome of a request with a key is not stored: %s", error)
        self.over(actor, key)

    async def _write(self, actor: str, key: str, write: Write) -> None:
        try:
            while not await self._written(write):
                await asyncio.sleep(AGAIN_SECONDS)
        except AnabranchError as error:  # what was done is done, and is found by its key
            log.error("the outcome of a request with a key is not stored: %s", error.message)
        finally:
            self.over(actor, key)

    async def _written(self, write: Write) -> bool:
        try:
            await write()
        except StoreError as error:
            if self._closing or not (self.shared and passes(error)):
                raise
            return False
        return True

    async def close(self) -> None:
        self._closing = True
        if self._writing:  # on a shared store; the batcher writes the rest before it closes
            seconds = CLOSE_SECONDS if self.shared else None
            _, left = await asyncio.wait(self._writing, timeout=seconds)
            await cancel_and_wait(*left)


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
    return "k" + digest[:25].translate(_LETTERS).decode()


def _answered(claim: KeptAnswer, status: int, said: bytes) -> KeptAnswer:
    return msgspec.structs.replace(claim, status=status, answer=said)


async def once(
    request: web.Request, body: Any, do: Do, *, again: bool = False, begins: bool = False
) -> web.Response:
    """Do it, or answer as it was answered before. `again`: doing it twice does no harm; `begins`:
    it begins a run with `KeyedRequest.kept`, or raises."""
    actor, key = actor_of(request), key_of(request)
    return await once_for(request, actor, key, body, do, again=again, begins=begins)


async def once_for(
    request: web.Request,
    actor: str,
    key: str,
    body: Any,
    do: Do,
    *,
    again: bool = False,
    begins: bool = False,
    kept_ms: int = KEPT_MS,
) -> web.Response:
    """The same where the key is not in the header, or belongs to somebody else; "" is none."""
    if not key:
        status, value = await do(KeyedRequest())
        return answer(value, status)
    repeats = request.app[REPEATS]
    await _until_over(repeats, actor, key)
    repeats.under_way[actor, key] = asyncio.get_running_loop().create_future()
    claim = _claim(request, actor, key, body, kept_ms)
    attempt = _Attempt(request, claim, again=again, begins=begins, kept_ms=kept_ms)
    try:
        return await attempt.go(do)
    finally:
        if attempt.unwritten is not None:
            repeats.write_soon(actor, key, attempt.unwritten)
        else:
            repeats.over(actor, key)


async def _until_over(repeats: IdempotencyKeys, actor: str, key: str) -> None:
    """Until this server is at no other request with the key."""
    if (actor, key) not in repeats.under_way:
        return
    try:
        async with asyncio.timeout(PATIENCE_SECONDS if repeats.shared else None):
            while (under_way := repeats.under_way.get((actor, key))) is not None:
                await asyncio.shield(under_way)
    except TimeoutError:
        raise _under_way() from None


def _under_way() -> ApiError:
    said = "the first request with this key has no answer yet"
    hint = f"repeat the request with the same {HEADER}"
    return ApiError(503, "request_under_way", said, hint, headers={"Retry-After": "5"})


def _claim(request: web.Request, actor: str, key: str, body: Any, kept_ms: int) -> KeptAnswer:
    app = request.app
    said = msgspec.json.encode([request.method, request.path, body], order="sorted")
    return KeptAnswer(
        actor=actor,
        key=key,
        body=hashlib.sha256(said).hexdigest(),
        holder=app[REPEATS].holder,
        expires_at=app[PARTS].engine.clock.now() + kept_ms,
    )


class _Attempt:
    """One request with a key. `unwritten` is what is left to be written of it in the end."""

    def __init__(
        self,
        request: web.Request,
        claim: KeptAnswer,
        *,
        again: bool,
        begins: bool,
        kept_ms: int,
    ) -> None:
        app = request.app
        self._claim = claim
        self._kept_ms = kept_ms
        self._again = again
        self._repeats, self._batcher = app[REPEATS], app[BATCHER]
        self._store, self._now = app[PARTS].store, app[PARTS].engine.clock.now
        #: The commit that begins the run takes the key.
        self._with_run = begins and not self._repeats.shared
        self.unwritten: Write | None = None

    async def go(self, do: Do) -> web.Response:
        found = await self._found()
        if found is not None and found.status not in (None, GIVEN_UP):
            return self._answered_before(found)
        if found is not None and not self._again:
            raise _unknown_outcome()
        claim = self._claim = found or self._claim
        if self._with_run:  # a request that is cut off keeps its key: its run may be on its way
            self.unwritten = lambda: self._write(lambda: self._store.claim_key(claim, self._now()))
        this = KeyedRequest(_run_of(claim), found is not None, claim if self._with_run else None)
        try:
            status, value = await do(this)
        except Exception as error:  # the same
            await self._failed(error, resumed=found is not None)
            raise
        said = msgspec.json.encode(value)
        kept = _answered(claim, status, said)
        if self._with_run and found is None:
            self.unwritten = None
        elif self._again:  # found again without it: no client need wait for the disk
            self.unwritten = lambda: self._write(lambda: self._store.keep_answer(kept))
        else:
            await self._write_now(lambda: self._store.keep_answer(kept))
        return json_answer(said, status)

    async def _found(self) -> KeptAnswer | None:
        """What stands under the key, once no other server is at it; None: it is this one's now."""
        loop, pause = asyncio.get_running_loop(), OTHERS_SECONDS[0]
        until = loop.time() + PATIENCE_SECONDS
        while (found := await self._taken()) is not None:
            if found.body != self._claim.body:
                said = f"the {HEADER} {self._claim.key!r} was used for another request"
                raise ApiError(409, "idempotency", said, "use a new key for another request")
            if found.answer is not None or not await self._is_at_it(found):
                break
            if loop.time() >= until or self._age_seconds(found) >= PATIENCE_SECONDS:
                if self._again:
                    break
                raise _under_way()
            await asyncio.sleep(pause)
            pause = min(2 * pause, OTHERS_SECONDS[1])
        return found

    async def _taken(self) -> KeptAnswer | None:
        if self._with_run:
            return self._store.kept_answer(self._claim.actor, self._claim.key, self._now())
        try:
            return await self._write(lambda: self._store.claim_key(self._claim, self._now()))
        except StoreError:
            if self._repeats.shared:  # perhaps it was written
                self.unwritten = lambda: self._write(self._untake)
            raise

    def _untake(self) -> None:
        """Nothing was done under the key, if it is that of this request."""
        found = self._store.claim_key(self._claim, self._now())
        if found in (None, self._claim):
            self._store.release_key(self._claim)

    def _age_seconds(self, found: KeptAnswer) -> float:
        return (self._now() - found.expires_at + self._kept_ms) / 1000

    async def _is_at_it(self, found: KeptAnswer) -> bool:
        """Whether another server of the same store has the key, and is alive to answer."""
        cluster = self._store.cluster
        if cluster is None or found.holder == self._repeats.holder:
            return False
        servers = await asyncio.to_thread(cluster.servers)
        return any(one.id == found.holder and one.alive for one in servers)

    def _answered_before(self, found: KeptAnswer) -> web.Response:
        if found.status == UNKNOWN or found.answer is None:
            raise _unknown_outcome()
        assert found.status is not None
        return answer(msgspec.Raw(found.answer), found.status, {REPLAYED: "true"})

    async def _failed(self, error: Exception, *, resumed: bool) -> None:
        """The key is free again if nothing was done, for sure: also nothing by a try before, whose
        message may still wait for the owner of the run."""
        shared = self._repeats.shared
        if _is_refusal(error, shared) and not (resumed and shared):
            self.unwritten = None
            if self._with_run and not resumed:
                return
            await self._write_now(lambda: self._store.release_key(self._claim))
        elif shared:  # the other servers need not wait for an answer
            status = GIVEN_UP if self._again else UNKNOWN
            kept = _answered(self._claim, status, b"null")
            await self._write_now(lambda: self._store.keep_answer(kept))

    async def _write_now(self, work: Callable[[], Any]) -> None:
        """Or later, where the database of several servers is away."""
        try:
            await self._write(work)
        except StoreError as error:
            if not (self._repeats.shared and passes(error)):
                raise
            self.unwritten = lambda: self._write(work)

    def _write(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return self._batcher.write(work)


def _unknown_outcome() -> ApiError:
    said = (
        "the server stopped during this request, or did not hear what became of it: it may have "
        "had its effect or not"
    )
    return ApiError(409, "unknown_outcome", said, "look at the run, then use a new key")


def _is_refusal(error: Exception, shared: bool) -> bool:
    """Whether nothing was done. The owner of a run that has not answered may do it later, and what
    was on its way when the database or the engine went away may have been written."""
    if isinstance(error, ApiError):
        return True
    if isinstance(error, StoreError):
        return not shared
    return isinstance(error, AnabranchError) and status_of(error) < 500

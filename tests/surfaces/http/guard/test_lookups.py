"""Tokens in a database that does not answer hold up those who show them, and not the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientSession

from anabranch.settings import Settings
from anabranch.surfaces.http.guard.lookups import THREADS
from anabranch.surfaces.http.routes import API
from anabranch.surfaces.http.serve import Server
from shared_store import PARTITIONS, fresh_schema

from ..support import run

WRONG = 20  # more than are heard


@asynccontextmanager
async def serving(postgres: str) -> AsyncIterator[tuple[Server, ClientSession, str]]:
    settings = Settings(
        store=fresh_schema(postgres),
        store_partitions=PARTITIONS,
        serve_port=0,
        require_tokens="yes",
        secret_key="k" * 43,
    )
    async with Server(settings) as server, ClientSession(server.url) as http:
        yield server, http, server.access.create("ann", ["admin"])[1]


def hold_tokens(server: Server) -> Callable[[], None]:
    """From now on the database gives no token; returns how it does again."""
    store: Any = server.parts.store
    real, again = store.token, threading.Event()

    def held(token: str) -> Any:
        again.wait()
        return real(token)

    store.token = held
    return again.set


async def status(http: ClientSession, path: str, token: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with http.get(f"{API}{path}", headers=headers) as reply:
        return reply.status


async def waiting(server: Server, count: int) -> None:
    """Until so many look for a token."""
    pool: Any = server.keeper.lookups._pool
    while pool._work_queue.qsize() < count - THREADS:
        await asyncio.sleep(0.01)


def test_a_server_answers_while_its_database_says_nothing_of_a_token(postgres: str) -> None:
    async def work() -> None:
        async with serving(postgres) as (server, http, token):
            assert await status(http, "/runs", token) == 200
            go_on = hold_tokens(server)
            try:
                asked = [asyncio.create_task(status(http, "/runs", token)) for _ in range(6)]
                await waiting(server, len(asked))
                assert await status(http, "/health") == 200
                assert not any(one.done() for one in asked)
            finally:
                go_on()
            assert await asyncio.gather(*asked) == [200] * len(asked)

    run(work())


def test_wrong_tokens_that_are_shown_at_once_count_as_one_after_the_other(postgres: str) -> None:
    async def work() -> None:
        async with serving(postgres) as (server, http, token):
            wrong = token[:-52] + "0" * 52  # the secret of a token that is there
            go_on = hold_tokens(server)
            try:
                guesses = [asyncio.create_task(status(http, "/runs", wrong)) for _ in range(WRONG)]
                await waiting(server, WRONG)
                right = asyncio.create_task(status(http, "/runs", token))
                await waiting(server, WRONG + 1)
            finally:
                go_on()
            told = await asyncio.gather(*guesses)
            assert (told.count(401), told.count(429)) == (10, WRONG - 10)
            assert await right == 429
            assert await status(http, "/runs", token) == 429

    run(work())

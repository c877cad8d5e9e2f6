"""A server whose PostgreSQL is away: it says so wherever it is asked, and goes on by itself."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator

import pytest
from aiohttp import ClientSession

from anabranch.settings import Settings
from anabranch.store.postgres.connections import READERS_MAX
from anabranch.surfaces.http.app import ALL_ROUTES
from anabranch.surfaces.http.routes import API
from anabranch.surfaces.http.serve import Server
from postgres_server import PostgresServer, running_postgres

from .support import ASKING, HELLO, run

pytestmark = pytest.mark.slow  # a server of its own, which is taken away

PASSWORD = "xyzzy-41"
GUESSED = f"anb_{'a' * 12}_{'a' * 52}"  # well-formed, and of no store
PAGES = ["/", "/runs", "/approvals", "/sessions", "/definitions", "/credentials"]
#: The engine writes, reads, extends its lease, tells and hears; requests read. One more begins.
CONNECTIONS_MAX = (1 + READERS_MAX + 3) + READERS_MAX + 1
STREAMS = ("/stream", "/wait", "/next", "/claim", "/events")  # they stay open


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as made:
        made.sql(f"CREATE ROLE shop LOGIN PASSWORD '{PASSWORD}'", "CREATE DATABASE shop OWNER shop")
        yield made


def paths(name: str) -> list[str]:
    """Of everything that is only read, for a run of this name."""
    found = [route.path for route in ALL_ROUTES if route.method == "GET"]
    found = [re.sub(r"\{[^}]*\}", name, path) for path in found]
    return [path for path in found if not path.endswith(STREAMS)]


def assert_no_address(server: PostgresServer, text: str) -> None:
    """Nothing of where the database is, for a caller without a token."""
    for told in (PASSWORD, f":{server.port}", f"port={server.port}", "127.0.0.1", "shop"):
        assert told not in text, text


def background() -> set[str]:
    """What the server does beside answering, by the names of its coroutines."""
    running = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return {name for name in running if name.endswith(("forever", "_run", "_keep"))}


async def few_connections(server: PostgresServer, http: ClientSession, name: str) -> None:
    """However many ask at once."""
    assert CONNECTIONS_MAX < 20
    most = 0

    async def get(path: str) -> None:
        async with http.get(path) as reply:
            assert reply.status == 200, await reply.text()

    wanted = [f"{API}/runs", f"{API}/runs/{name}", f"{API}/runs/{name}/explain", "/runs"]
    asked = asyncio.gather(*(get(path) for path in wanted * 5))
    while not asked.done():
        rows = await asyncio.to_thread(
            server.sql,
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'anabranch'",
        )
        most = max(most, int(rows[0][0]))
    await asked
    assert 2 < most <= CONNECTIONS_MAX


def test_requests_are_refused_with_503_and_health_names_the_store_until_it_is_back(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    settings = Settings(
        store=server.tcp_uri("shop", PASSWORD, "shop"),
        store_partitions=4,
        serve_port=0,
        secret_key="k" * 43,
        health_stall_seconds=1.0,
        server_lease_seconds=2.0,
    )

    async def work() -> None:
        async with Server(settings) as here, ClientSession(here.url) as http:

            async def health() -> dict[str, object]:
                async with http.get(f"{API}/health") as reply:
                    told: dict[str, object] = await reply.json()
                    assert_no_address(server, str(told))
                    return told

            async def begin(definition: object) -> tuple[int, dict[str, str]]:
                async with http.post(f"{API}/runs", json={"definition": definition}) as reply:
                    return reply.status, await reply.json()

            status, begun = await begin(ASKING)
            assert status == 201
            name = begun["run"]
            await begin(HELLO)
            await few_connections(server, http, name)
            before = background()
            assert len(before) >= 4
            await asyncio.to_thread(server.stop)
            while here.parts.engine.trouble is None:
                await asyncio.sleep(0.02)

            status, refused = await begin(HELLO)
            assert (status, refused["code"]) == (503, "store_away")
            told = []
            for path in [*paths(name), *PAGES]:
                async with http.get(path) as reply:
                    text = await reply.text()
                    assert reply.status != 500, f"{path}: {text}"
                    assert PASSWORD not in text
                    told.append(reply.status)
            assert told.count(503) > 10
            found = await health()
            assert (found["status"], found["ready"]) == ("bad", False)
            assert "no database server answers" in str(found["reasons"])
            while "has taken no turn" not in str((found := await health())["reasons"]):
                await asyncio.sleep(0.1)
            assert found["live"] is True, "another start would mend nothing"
            for path in (f"{API}/runs", f"{API}/health", "/runs"):
                async with http.get(path, headers={"Authorization": f"Bearer {GUESSED}"}) as reply:
                    assert reply.status == 503
                    text = await reply.text()
                    assert "store_away" in text
                    assert_no_address(server, text)
            async with http.get("/metrics") as reply:
                assert reply.status == 200
                metrics = await reply.text()
            assert "anabranch_store_outages_total 1" in metrics
            assert not re.search(r"anabranch_store_outage_seconds 0(\.0)?$", metrics, re.M)

            await asyncio.to_thread(server.start)
            while (await health())["status"] != "ok":
                await asyncio.sleep(0.1)
            verdict = {"verdict": "fulfil"}
            async with http.post(f"{API}/runs/{name}/gates/ask/decide", json=verdict) as reply:
                assert reply.status < 300, await reply.text()
            async with http.get(f"{API}/runs/{name}/wait") as reply:
                assert (await reply.json())["status"] == "completed"
            assert background() == before, "no task has died"

    run(work())
    assert caplog.text.count("Nothing moves until the store takes writes again") == 1
    assert PASSWORD not in caplog.text
    assert not [one for one in caplog.records if one.exc_info], "nothing went wrong unexpectedly"

"""A module at its endpoint: only its host is answered, within limits, until it is told to stop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from anabranch.errors import InputError
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.modules.kit.module import Module
from anabranch.surfaces.http.module.server import HostToken, ModuleServer
from in_loop import in_loop

HEADER, TOKEN = "X-Arca-Auth", "a-token-of-the-host"
PATHS = ["/v1/middleware/init", "/v1/middleware/invoke", "/v1/artifact-delivery/accept", "/v1/echo"]


class Echo(Module):
    module_id = "echo"

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.held = asyncio.Event()

    def report(self) -> dict[str, Any]:
        return {"module_name": "Echo"}

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(method="POST", path="/v1/echo", scopes=("operator",), handler=self._echo,
                     summary="The same again", query=("limit",), body_bytes=1000),
            Endpoint(method="GET", path="/v1/slow", scopes=("operator",), handler=self._slow,
                     summary="Waits"),
        ]  # fmt: skip

    async def start(self) -> None:
        self.told.append("started")

    async def close(self) -> None:
        self.told.append("closed")

    async def ready(self) -> bool:
        return self.told == ["started"]

    async def _echo(self, call: Call) -> Answer:
        return Answer(body={"said": call.body, "query": dict(call.query)})

    async def _slow(self, _call: Call) -> Answer:
        self.told.append("asked")
        await self.held.wait()
        return Answer(body={"done": True})


@asynccontextmanager
async def served(
    header: str = HEADER, token: str = TOKEN
) -> AsyncIterator[tuple[Echo, str, aiohttp.ClientSession]]:
    module = Echo()
    async with (
        ModuleServer(module, ("127.0.0.1", 0), HostToken(header, token)) as server,
        aiohttp.ClientSession() as session,
    ):
        yield module, server.url, session


async def post(
    session: aiohttp.ClientSession, url: str, body: Any, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body)
    async with session.post(url, data=data, headers=headers) as answer:
        return answer.status, await answer.json(content_type=None)


@in_loop
async def test_the_host_is_answered_with_its_token() -> None:
    async with served() as (_, url, session):
        shown = {HEADER: TOKEN}
        init = {"module_id": "echo", "node_id": "node:1"}
        assert await post(session, f"{url}/v1/middleware/init", init, shown) == (
            200,
            {"schema_version": "v1", "module_id": "echo", "module_name": "Echo"},
        )
        said = await post(session, f"{url}/v1/echo?limit=3", {"a": 1}, shown)
        assert said == (200, {"said": {"a": 1}, "query": {"limit": "3"}})


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {HEADER: ""},
        {HEADER: TOKEN[:-1]},
        {HEADER: f"{TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN}"},
        {"X-Other": TOKEN},
    ],
)
@in_loop
async def test_without_the_token_nothing_is_answered(path: str, headers: dict[str, str]) -> None:
    async with served() as (_, url, session):
        status, body = await post(session, url + path, {"a": 1}, headers)
        assert (status, body["code"]) == (401, "unauthorized")
        assert TOKEN not in str(body)


@in_loop
async def test_how_the_module_is_needs_no_token() -> None:
    async with served() as (module, url, session):
        async with session.get(f"{url}/healthz") as answer:
            assert answer.status == 200
        async with session.get(f"{url}/readyz") as answer:
            assert answer.status == 200
        module.told.clear()
        async with session.get(f"{url}/readyz") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")


@in_loop
async def test_without_a_header_there_is_no_token_to_show() -> None:
    async with served("", "") as (_, url, session):
        assert (await post(session, f"{url}/v1/echo", 1))[0] == 200


@in_loop
async def test_bodies_have_limits_and_other_hosts_are_not_served() -> None:
    async with served() as (_, url, session):
        shown = {HEADER: TOKEN}
        for body, status, code in (
            (b'"' + b"x" * 1000 + b'"', 413, "too_large"),
            (b"[" * 129 + b"]" * 129, 400, "too_deep"),
            (b"{", 400, "not_json"),
            (b'{"a": 1, "a": 2}', 400, "duplicate_key"),
        ):
            refused, said = await post(session, f"{url}/v1/echo", body, shown)
            assert (refused, said["code"]) == (status, code)
        elsewhere = {**shown, "Host": "example.org"}
        assert (await post(session, f"{url}/v1/echo", 1, elsewhere))[0] == 421
        assert (await post(session, f"{url}/v1/other", 1, shown))[0] == 404
        assert (await post(session, f"{url}/v1/echo?other=1", 1, shown))[0] == 400


@in_loop
async def test_it_stops_in_order_and_lets_requests_end() -> None:
    module = Echo()
    server = ModuleServer(module, ("127.0.0.1", 0))
    await server.start()
    async with aiohttp.ClientSession() as session:

        async def asked() -> int:
            async with session.get(f"{server.url}/v1/slow") as answer:
                return answer.status

        asking = asyncio.ensure_future(asked())
        while "asked" not in module.told:
            await asyncio.sleep(0)
        stopping = asyncio.ensure_future(server.stop())
        await asyncio.sleep(0)
        assert "closed" not in module.told
        module.held.set()
        assert await asking == 200
        await stopping
    assert module.told == ["started", "asked", "closed"]


def test_a_module_listens_on_loopback_alone_and_an_empty_token_is_none() -> None:
    with pytest.raises(InputError):
        ModuleServer(Echo(), ("0.0.0.0", 0))
    with pytest.raises(InputError):
        HostToken(HEADER, "")
    with pytest.raises(InputError):  # a token that nobody asks for would protect nothing
        HostToken("", TOKEN)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://example.org"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "none"},
    ],
)
@in_loop
async def test_a_module_without_a_token_answers_programs_and_no_page_of_a_browser(
    headers: dict[str, str],
) -> None:
    """A page of another site may post to this machine; browsers say where it is from."""
    async with served("", "") as (_, url, session):
        plain = {"Content-Type": "text/plain", **headers}
        status, body = await post(session, f"{url}/v1/echo", 1, plain)
        assert (status, body["code"]) in ((403, "origin"), (403, "wrong_origin"))
        assert (await post(session, f"{url}/v1/echo", 1))[0] == 200


@in_loop
async def test_a_page_of_another_site_is_refused_with_a_token_as_well() -> None:
    async with served() as (_, url, session):
        page = {HEADER: TOKEN, "Content-Type": "text/plain", "Origin": "https://evil.example"}
        status, body = await post(session, f"{url}/v1/echo", 1, page)
        assert (status, body["code"]) == (403, "wrong_origin")

"""The host over HTTP: what it says is passed on, and what cannot be heard is unavailable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from anabranch.errors import InputError
from anabranch.modules.kit.host import Host, HostRefused, HostUnavailable
from anabranch.modules.kit.http_host import HttpHost
from in_loop import in_loop

Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(serve: Serve, **limits: Any) -> AsyncIterator[HttpHost]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", serve)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    host = HttpHost(f"http://127.0.0.1:{port}", "the-token", header="X-Module", **limits)
    try:
        yield host
    finally:
        await host.close()
        await runner.cleanup()


@in_loop
async def test_a_call_has_the_token_the_body_and_the_query() -> None:
    async def serve(request: web.Request) -> web.Response:
        said = {
            "token": request.headers["X-Module"],
            "path": request.rel_url.raw_path,
            "query": dict(request.query),
            "body": await request.json(),
        }
        return web.json_response(said, status=202, headers={"Retry-After": "3", "X-Other": "y"})

    async with served(serve) as host:
        answer = await host("POST", "/v1/runs/run:1%2F2", {"a": [1]}, {"mode": "deferred"})
    assert (answer.status, dict(answer.headers)) == (202, {"Retry-After": "3"})
    assert answer.body == {
        "token": "the-token",
        "path": "/v1/runs/run:1%2F2",
        "query": {"mode": "deferred"},
        "body": {"a": [1]},
    }


@in_loop
async def test_a_refusal_is_passed_on_and_nothing_is_an_empty_body() -> None:
    async def serve(request: web.Request) -> web.Response:
        if request.path == "/nothing":
            return web.Response(status=204)
        return web.json_response({"code": "stale_revision", "detail": "3"}, status=409)

    async with served(serve) as host:
        assert (await Host(host).ask("GET", "/nothing")).body is None
        with pytest.raises(HostRefused) as refused:
            await Host(host).ask("GET", "/other")
    assert (refused.value.status, refused.value.code) == (409, "stale_revision")


@in_loop
async def test_what_cannot_be_heard_is_unavailable() -> None:
    async def serve(request: web.Request) -> web.StreamResponse:
        match request.path:
            case "/late":
                await asyncio.Event().wait()
            case "/large":
                return web.Response(body=b'"' + b"x" * 5000 + b'"')
            case "/text":
                return web.Response(text="<html>")
            case "/deep":
                return web.Response(body=b"[" * 4000)
            case "/moved":
                raise web.HTTPFound("http://192.0.2.1/")
            case "/cut":
                response = web.StreamResponse(headers={"Content-Length": "100"})
                await response.prepare(request)
                await response.write(b"{")
                assert request.transport is not None
                request.transport.close()
                return response
        raise web.HTTPServiceUnavailable(text='{"code": "module_not_ready"}')

    async with served(serve, seconds=0.3) as host:
        with pytest.raises(HostUnavailable) as raised:
            await Host(host).ask("GET", "/late")
        assert raised.value.code == "host_timeout"
    async with served(serve, answer_bytes=4096) as host:
        for path, code in (
            ("/large", "host_answer_size"),
            ("/text", "host_answer"),
            ("/deep", "host_answer"),
            ("/moved", "host_answer"),
            ("/cut", "host_unavailable"),
            ("/away", "module_not_ready"),
        ):
            with pytest.raises(HostUnavailable) as raised:
                await Host(host).ask("GET", path)
            assert raised.value.code == code, path


@in_loop
async def test_a_host_that_is_not_there_is_unavailable() -> None:
    async def serve(_request: web.Request) -> web.Response:
        return web.Response()

    async with served(serve) as host:
        gone = HttpHost(host._base, "t")
    with pytest.raises(HostUnavailable) as raised:
        await gone("GET", "/v1/status", None, {})
    assert raised.value.code == "host_unavailable"
    assert "t" not in raised.value.message.split()
    await gone.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://192.0.2.1:8000",
        "https://127.0.0.1:8000",
        "http://127.0.0.1:8000/path",
        "http://example.org",
        "127.0.0.1:8000",
        "",
    ],
)
def test_a_module_talks_to_a_host_on_this_machine_alone(url: str) -> None:
    with pytest.raises(InputError):
        HttpHost(url, "t")

"""Calls over loopback HTTP: limits of size and time, no redirects, nothing but JSON."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from anabranch.market.node.modules.transport import (
    CallLimits,
    HttpTransport,
    InProcessTransport,
    ModuleAnswer,
    ModuleCallFailed,
)

from .support import ScriptedModule, run

LIMITS = CallLimits(seconds=30, response_bytes=1000)


@asynccontextmanager
async def served(
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[HttpTransport]:
    server = web.Server(handle)  # type: ignore[arg-type]
    runner = web.ServerRunner(server, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    transport = HttpTransport(f"http://127.0.0.1:{port}")
    try:
        yield transport
    finally:
        await transport.close()
        await runner.cleanup()


def test_a_call_carries_json_and_headers_both_ways() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        return web.json_response(
            [request.method, request.path, request.headers["X-A"], body], status=202
        )

    async def scenario() -> None:
        async with served(handle) as transport:
            answer = await transport.call("POST", "/v1/x", {"a": 1}, {"X-A": "t"}, LIMITS)
        assert answer == ModuleAnswer(202, ["POST", "/v1/x", "t", {"a": 1}])
        assert answer.good

    run(scenario())


def respond(**response: Any) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(_request: web.Request) -> web.StreamResponse:
        return web.Response(**response)

    return handle


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(1000):
        await response.write(b'"' + b"x" * 1000)
    return response


async def silent(_request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(3600)
    raise AssertionError


@pytest.mark.parametrize(
    ("handle", "limits", "code"),
    [
        (respond(body=b'"' + b"x" * 1000 + b'"'), LIMITS, "module_response_too_large"),
        (endless, LIMITS, "module_response_too_large"),
        (respond(body=b"<html>"), LIMITS, "module_response_invalid"),
        (respond(body=b"\xff"), LIMITS, "module_response_invalid"),
        (respond(body=b"[" * 900), LIMITS, "module_response_invalid"),
        (
            respond(body=gzip.compress(b"1" * 100_000), headers={"Content-Encoding": "gzip"}),
            LIMITS,
            "module_response_invalid",
        ),
        (
            respond(body=b"[" * 100_000),
            CallLimits(seconds=30, response_bytes=1_000_000),
            "module_response_too_deep",
        ),
        (silent, CallLimits(seconds=0.05, response_bytes=1), "module_timeout"),
    ],
)
def test_an_answer_beyond_the_limits_is_none(handle: Any, limits: CallLimits, code: str) -> None:
    async def scenario() -> None:
        async with served(handle) as transport:
            with pytest.raises(ModuleCallFailed) as failed:
                await transport.call("GET", "/x", None, {}, limits)
        assert failed.value.code == code

    run(scenario())


def test_a_redirect_is_not_followed() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.path == "/x"
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    async def scenario() -> None:
        async with served(handle) as transport:
            answer = await transport.call("POST", "/x", {}, {}, LIMITS)
        assert (answer.status, answer.good) == (307, False)

    run(scenario())


def test_cookies_are_not_kept() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        assert "Cookie" not in request.headers
        return web.Response(headers={"Set-Cookie": "a=b"})

    async def scenario() -> None:
        async with served(handle) as transport:
            for _ in range(2):
                assert (await transport.call("GET", "/x", None, {}, LIMITS)).status == 200

    run(scenario())


def test_nothing_that_listens_is_unreachable() -> None:
    async def scenario() -> None:
        async with served(silent) as transport:
            pass
        with pytest.raises(ModuleCallFailed) as failed:
            await transport.call("GET", "/x", None, {}, LIMITS)
        await transport.close()
        assert failed.value.code == "module_unreachable"

    run(scenario())


@pytest.mark.parametrize(
    ("answer", "limits", "code"),
    [
        ("x" * 1000, LIMITS, "module_response_too_large"),
        ({"x": object()}, LIMITS, "module_response_invalid"),
        (RuntimeError("x"), LIMITS, "module_crashed"),
        (lambda _: asyncio.sleep(3600), CallLimits(0.01, 10), "module_timeout"),
    ],
)
def test_a_module_of_this_process_has_the_same_limits(
    answer: Any, limits: CallLimits, code: str
) -> None:
    async def scenario() -> None:
        module = ScriptedModule("m")
        module.answers["/x"] = answer
        with pytest.raises(ModuleCallFailed) as failed:
            await InProcessTransport(module).call("POST", "/x", {}, {}, limits)
        assert failed.value.code == code

    run(scenario())


def test_a_module_of_this_process_shares_no_value_with_its_host() -> None:
    async def scenario() -> None:
        module, body = ScriptedModule("m"), {"a": [1]}
        kept: list[Any] = [{"b": 1}]
        module.answers["/x"] = lambda _: kept[0]
        answer = await InProcessTransport(module).call("POST", "/x", body, {}, LIMITS)
        body["a"].append(2)
        kept[0]["b"] = 2
        assert module.bodies("/x") == [{"a": [1]}]
        assert answer.body == {"b": 1}

    run(scenario())

"""A call that does not succeed says why, in a kind that tells what to do, and without secrets."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web

from anabranch.kernel.values import Fault
from anabranch.work.kind_options import HttpOptions
from anabranch.work.kinds.http.performer import Http
from anabranch.work.kinds.http.response import retry_after

from ..support import Handler, fault_of, run, server, task


def failing(
    handler: Handler, *, path: str = "/", options: HttpOptions | None = None, **inputs: Any
) -> Fault:
    async def scenario() -> Fault:
        http = Http(options)
        async with server(handler) as address:
            try:
                return fault_of(await http.perform(task("http", url=address + path, **inputs)))
            finally:
                await http.close()

    return run(scenario())


def without_server(**inputs: Any) -> Fault:
    async def scenario() -> Fault:
        http = Http()
        try:
            return fault_of(await http.perform(task("http", **inputs)))
        finally:
            await http.close()

    return run(scenario())


async def raw(answer: bytes, then_wait: float = 0) -> tuple[asyncio.Server, str]:
    """A server that says exactly these bytes and hangs up."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        await asyncio.sleep(then_wait)
        writer.close()

    started = await asyncio.start_server(handle, "127.0.0.1", 0)
    return started, f"http://127.0.0.1:{started.sockets[0].getsockname()[1]}"


def answered_raw(answer: bytes, **inputs: Any) -> Fault:
    async def scenario() -> Fault:
        started, address = await raw(answer)
        http = Http()
        try:
            return fault_of(await http.perform(task("http", url=address, **inputs)))
        finally:
            await http.close()
            started.close()
            await started.wait_closed()

    return run(scenario())


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "client_error", False),
        (401, "auth", False),
        (403, "auth", False),
        (404, "not_found", False),
        (422, "client_error", False),
        (429, "rate_limit", True),
        (500, "server_error", True),
        (503, "server_error", True),
    ],
)
def test_a_status_has_its_kind(status: int, kind: str, retryable: bool) -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        return web.Response(status=status, text="the reason", headers={"Set-Cookie": "secret=1"})

    fault = failing(handler, path="/orders?token=secret")
    assert (fault.kind, fault.code, fault.retryable) == (kind, f"HTTP_{status}", retryable)
    assert fault.message.startswith("GET http://127.0.0.1:")
    assert fault.message.endswith(f"/orders answered {status}")
    assert fault.details["http_status"] == fault.details["status"] == status
    assert fault.details["body"] == "the reason"
    assert "secret" not in repr(fault)


def test_the_server_says_how_long_to_wait() -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": "7", "X-RateLimit-Left": "0"})

    details = failing(handler).details
    assert details["retry_after"] == 7
    assert details["headers"]["x-ratelimit-left"] == "0"


def test_both_forms_of_retry_after_are_read() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    wait = retry_after({"retry-after": later})
    assert wait is not None
    assert 27 < wait <= 30
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({}) is None


def test_a_long_error_page_is_only_looked_at() -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        return web.Response(status=500, body=b"x" * 5_000_000)

    assert len(failing(handler).details["body"]) < 2_100


def test_connection_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        fault = without_server(url=f"http://joe:pass@127.0.0.1:{taken.getsockname()[1]}/x?t=pass")
    assert (fault.kind, fault.code, fault.retryable) == ("connection", "CONN_REFUSED", True)
    assert fault.message.endswith("/x: connection refused")
    assert "pass" not in repr(fault)


def test_an_unknown_host() -> None:
    fault = without_server(url="http://no-such-host.invalid/", timeout=10)
    assert fault.kind in ("connection", "timeout")
    assert fault.retryable


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        (b"", "connection", "CONN_CLOSED"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "connection", "CONN_CLOSED"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "parse", "BAD_HTTP"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
            "connection",
            "CONN_CLOSED",
        ),
    ],
)
def test_a_server_that_breaks_off(answer: bytes, kind: str, code: str) -> None:
    fault = answered_raw(answer, method="POST")
    assert (fault.kind, fault.code) == (kind, code)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "truncated"),
        (b"[NaN]", "JSON is malformed"),
        (b"[" * 100_000 + b"]" * 100_000, "recursion"),
        (b"[" * 300 + b"]" * 300, "levels deep"),
    ],
)
def test_json_that_is_none_is_refused(content: bytes, words: str) -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        return web.Response(body=content, content_type="application/json")

    fault = failing(handler)
    assert (fault.kind, fault.retryable) == ("parse", False)
    assert "not the application/json it claims to be" in fault.message
    assert words in fault.message


@pytest.mark.parametrize("compressed", [False, True])
def test_a_body_over_the_limit_is_refused(compressed: bool) -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        response = web.Response(body=b"x" * 1_000_000)
        if compressed:
            response.enable_compression(web.ContentCoding.gzip)
        return response

    fault = failing(handler, options=HttpOptions(body_bytes=100_000))
    assert (fault.kind, fault.code) == ("result", "BODY_TOO_LARGE")
    assert "larger than 100,000 bytes (setting http_body_bytes)" in fault.message


async def dripping(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"x")
        await asyncio.sleep(0.02)


async def silent(_: web.BaseRequest) -> web.Response:
    await asyncio.sleep(60)
    return web.Response()


@pytest.mark.parametrize("handler", [dripping, silent])
def test_the_total_time_holds_whatever_the_server_does(handler: Handler) -> None:
    fault = failing(handler, timeout="200ms")
    assert (fault.kind, fault.code, fault.retryable) == ("timeout", "TIMEOUT", True)
    assert "within 0.2 s" in fault.message


def test_silence_can_have_its_own_limit() -> None:
    fault = failing(silent, timeout={"connect": 1, "read": 0.1})
    assert (fault.kind, fault.code) == ("timeout", "READ_TIMEOUT")


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "needs url"),
        ({"url": 5}, "url must be text"),
        ({"url": "orders"}, "must look like https://host/path"),
        ({"url": "ftp://host/x"}, "must look like"),
        ({"url": "http://"}, "must look like"),
        ({"url": "http://h:99999/"}, "not a usable address"),
        ({"url": "http://h/", "method": "FETCH"}, "method 'FETCH'"),
        ({"url": "http://h/", "headers": {"A": "x\r\nB: y"}}, "line breaks"),
        ({"url": "http://h/", "headers": "A: b"}, "headers must be a mapping"),
        ({"url": "http://h/", "params": {"a": {}}}, "params.a must be text or a number"),
        ({"url": "http://h/", "body": 1, "json": 2}, "it has body and json"),
        ({"url": "http://h/", "auth": "a\nb"}, "auth is empty or has characters"),
        ({"url": "http://h/", "auth": 5}, "auth must be a mapping"),
        ({"url": "http://h/", "auth": {"type": "kerberos"}}, "use basic, bearer or api_key"),
        ({"url": "http://h/", "auth": {"token": "a\nb"}}, "auth.token is empty or has"),
        ({"url": "http://h/", "timeout": -1}, "timeout must be a time"),
        ({"url": "http://h/", "timeout": {"read": "x"}}, "timeout.read must be a time"),
        ({"url": "http://h/", "verify_ssl": 3}, "verify_ssl must be true or false"),
        ({"url": "http://h/", "headers": {"bad name": "x"}}, "'bad name' cannot be the name"),
    ],
)
def test_bad_inputs_are_named_before_anything_is_sent(inputs: dict[str, Any], words: str) -> None:
    fault = without_server(**inputs)
    assert (fault.kind, fault.retryable) == ("config", False), fault
    assert words in fault.message


def test_circles_of_redirects_end() -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        return web.Response(status=302, headers={"Location": "/again"})

    assert failing(handler).code == "TOO_MANY_REDIRECTS"


@pytest.mark.parametrize("handler", [dripping, silent])
def test_a_cancel_closes_the_connection(handler: Handler) -> None:
    seen = asyncio.Event()
    ended: list[asyncio.Transport] = []

    async def watched(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        ended.append(request.transport)
        seen.set()
        return await handler(request)

    async def scenario() -> None:
        http = Http()
        async with server(watched) as address:
            work = asyncio.ensure_future(http.perform(task(url=address)))
            await seen.wait()
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            while not ended[0].is_closing():
                await asyncio.sleep(0.01)
            await http.close()

    run(scenario())

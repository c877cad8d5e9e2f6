"""Envelopes over HTTP: within limits of address, size and time, and never where others steer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from anabranch.market.node.peers.http_transport import HttpPeerTransport
from anabranch.market.node.ports import PeerUnreachable
from anabranch.work.network.addresses import read_policy

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def answer(request: web.Request) -> web.Response:
    return web.Response(status=409, body=b"echo:" + await request.read())


async def large(_request: web.Request) -> web.Response:
    return web.Response(body=b"x" * 2000)


async def elsewhere(_request: web.Request) -> web.Response:
    return web.Response(status=307, headers={"Location": "/answer"})


async def hangs(_request: web.Request) -> web.Response:
    await asyncio.sleep(3600)
    return web.Response()


async def cuts(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "100"})
    await response.prepare(request)
    await response.write(b"x")
    assert request.transport is not None
    request.transport.close()
    return response


def with_server(handler: Handler, work: Callable[[str], Awaitable[None]]) -> None:
    async def scenario() -> None:
        app = web.Application()
        app.router.add_route("*", "/peer/messages", handler)
        app.router.add_route("*", "/answer", answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            await work(f"http://127.0.0.1:{port}")
        finally:
            await runner.cleanup()

    asyncio.run(scenario())


def test_the_body_of_the_answer_is_returned_whatever_its_status() -> None:
    async def work(url: str) -> None:
        transport = HttpPeerTransport()
        try:
            assert await transport.send("node:x", url + "/", b"hello", 30) == b"echo:hello"
            assert await transport.call("PUT", f"{url}/answer?x=1", b"x", 30) == (409, b"echo:x")
        finally:
            await transport.close()

    with_server(answer, work)


@pytest.mark.parametrize(
    ("handler", "seconds", "code"),
    [
        (large, 30, "peer_answer_size"),
        (elsewhere, 30, "peer_redirect"),
        (hangs, 0.05, "peer_timeout"),
        (cuts, 30, "peer_unreachable"),
    ],
)
def test_what_leaves_the_limits_is_unreachable_by_name(
    handler: Handler, seconds: float, code: str
) -> None:
    async def work(url: str) -> None:
        transport = HttpPeerTransport(answer_bytes=1000)
        try:
            with pytest.raises(PeerUnreachable) as error:
                await transport.send("node:x", url, b"hello", seconds)
            assert error.value.code == code
        finally:
            await transport.close()

    with_server(handler, work)


def test_a_connection_that_was_closed_meanwhile_is_opened_again_once() -> None:
    bodies: list[bytes] = []

    async def closes_first(request: web.Request) -> web.Response:
        bodies.append(await request.read())
        if len(bodies) in (2, 4, 5):
            assert request.transport is not None
            request.transport.close()
        return web.Response(body=b"ok")

    async def work(url: str) -> None:
        transport = HttpPeerTransport()
        try:
            for body in (b"1", b"2"):
                assert await transport.send("node:x", url, body, 30) == b"ok"
            with pytest.raises(PeerUnreachable) as error:
                await transport.send("node:x", url, b"3", 30)
            assert error.value.code == "peer_unreachable"
        finally:
            await transport.close()
        assert bodies == [b"1", b"2", b"2", b"3", b"3"]

    with_server(closes_first, work)


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://192.0.2.1:9", "peer_address"),
        ("http://169.254.169.254", "peer_address"),
        ("http://127.0.0.1:1", "peer_unreachable"),
        ("ftp://127.0.0.1", "peer_unreachable"),
        ("nonsense", "peer_unreachable"),
        ("http://[", "peer_unreachable"),
        ("http://user:secret@127.0.0.1:1/?token=secret", "peer_unreachable"),
    ],
)
def test_addresses_of_this_machine_alone_are_reached_and_no_secret_is_told(
    url: str, code: str
) -> None:
    async def scenario() -> None:
        transport = HttpPeerTransport()
        with pytest.raises(PeerUnreachable) as error:
            await transport.send("node:x", url, b"hello", 5)
        await transport.close()
        assert error.value.code == code
        assert "secret" not in error.value.message

    asyncio.run(scenario())


def test_the_operator_may_name_other_addresses() -> None:
    async def scenario() -> None:
        transport = HttpPeerTransport(read_policy("10.0.0.0/8", "peers.addresses"))
        with pytest.raises(PeerUnreachable) as error:
            await transport.send("node:x", "http://127.0.0.1:1", b"hello", 5)
        await transport.close()
        assert "peers.addresses" in error.value.message

    asyncio.run(scenario())
